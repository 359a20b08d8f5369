"""The default monitor on MNIST with A and V from each run's own warm-up, at a nominal .05: the cells of the table.

131 of 2,000 is the 99.9 % point of Binomial(2000, .05).
"""

import numpy as np
import pytest

from fedgauss.paper.mnist import WarmUpCell

LIMIT = 131


def counted(warm_up, runs):
    """False alarms, the share of attacks with their first alarm after t_0, and the mean delay of these."""
    cell = WarmUpCell(result="attack_mnist", warm_up=warm_up, replicates=runs)
    _, judged = cell.judged()
    (honest,), (attacked,) = (case.alarms.values() for case in judged)
    t_0 = cell.attack.onset
    hit = attacked.step > t_0
    delay, miss = (attacked.step[hit] - t_0).mean(), np.abs(attacked.onset[hit] - t_0).mean()
    print(f"warm-up {warm_up}: {(honest.step > 0).sum()} of {runs}, {hit.mean():.4f}, {delay:.2f}, onset {miss:.2f}")
    return (honest.step > 0).sum(), hit.mean(), delay


@pytest.mark.study
@pytest.mark.parametrize(("warm_up", "least", "longest"), [(100, 0.92, 14), (200, 0.97, 12), (500, 0.98, 12)])
def test_flipped_labels_after_a_warm_up(warm_up, least, longest):
    """Measured after 100, 200 and 500 steps, with a limit of 131, .98 and 12 steps demanded after 500:

    false alarms 8, 20 and 22 of 2,000; power .927, .975 and .984 (.006 to .003); mean delay 12.3, 10.9 and 10.7 steps
    (.1); mean distance of the onset named from the true one .41, .44 and .48 steps. What is missed is taken for a
    journey. After 100 steps thresholds are too high: they allow for the direction of 40 that is known least.
    """
    false, power, delay = counted(warm_up, 2000)
    assert false <= LIMIT
    assert power >= least
    assert delay <= longest


@pytest.mark.study
def test_flipped_labels_in_short():
    """40 runs. With rates of .02 and .984 these bounds fail wrongly with chances of 1e-9 and 5e-5; seeds are fixed.

    A wrong whitening, start or threshold alarms in most honest runs or sees few attacks.
    """
    false, power, delay = counted(500, 40)
    assert false <= 10
    assert power >= 0.86
    assert delay <= 15
