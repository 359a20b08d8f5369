"""The default monitor on MNIST with A and V from each run's own warm-up, at a nominal .05: the cells of the table.

131 of 2,000 is the 99.9 % point of Binomial(2000, .05).
"""

import numpy as np
import pytest

from fedgauss.experiments.mnist_cells import WarmUpCell

LIMIT = 131


def counted(warm_up, runs):
    """False alarms, the share of attacks with their first alarm after t_0, and the mean delay and miss of these."""
    cell = WarmUpCell("attack_mnist", warm_up, runs)
    (honest,), (attacked,) = (one.alarms.values() for one in cell.judged())
    t_0 = cell.attack.onset
    hit = attacked.step > t_0
    found = (
        int((honest.step > 0).sum()),
        float(hit.mean()),
        float((attacked.step[hit] - t_0).mean()),
        float(np.abs(attacked.onset[hit] - t_0).mean()),
    )
    print(warm_up, runs, *found, "early", int(((attacked.step > 0) & ~hit).sum()))
    return found


@pytest.mark.study
@pytest.mark.parametrize("warm_up", [100, 200, 500])
def test_flipped_labels_after_a_warm_up(warm_up):
    false, power, delay, _ = counted(warm_up, 2000)
    assert false <= LIMIT
    assert power >= 0.98
    assert delay <= 12
