"""The simulated federation: what it finds, that a seed replays it, and that nothing is wrong in the seconds of `make test`."""

import numpy as np
import pandas as pd
import pytest
from simulated import cohort
from simulated.defects import DEFECTS
from simulated.network import AT_A_SITE, HARMLESS, ON_THE_WAY
from simulated.study import Study, seeds, simulate
from simulated.world import FIT

import fedgauss

_TEN_MINUTES = 600.0


def test_the_twin_finds_what_fit_finds():
    for seed in range(6):
        rng = np.random.default_rng(seed)
        tables = cohort.tables(rng, rng.integers(40, 80, 3), hard=seed % 2 == 1)
        for model in cohort.models(rng, 3, hard=seed % 2 == 1):
            if "town" in str(model.formula) or "patient" in str(model.formula):  # sites pool what no site may name
                continue
            frame = pd.concat([pd.DataFrame(one).assign(site=str(i)) for i, one in enumerate(tables)])
            twin = cohort.Cohort(model, tables).fit()
            assert twin.certain
            fit = fedgauss.fit(frame, model, client="site")
            np.testing.assert_allclose(fit.params, twin.params, rtol=1e-9)
            # Squared residuals of a level whose counts are near 1e5 have lost as many digits.
            rtol = 1e-6 if seed % 2 else 1e-8
            np.testing.assert_allclose(fit.cov, twin.cov, rtol=rtol, atol=1e-9 * np.abs(twin.cov).max())


def test_nothing_is_wrong_and_a_replay_has_the_same_bytes():
    study = Study()
    few = [one for one, _ in zip(seeds(1), range(3), strict=False)]
    sent = [study.world(one) for one in few]
    assert study.failures == []
    assert study.ends[FIT] > 0
    again = Study()
    assert [again.world(one) for one in few] == sent
    assert (again.faults, again.ends, again.rounds) == (study.faults, study.ends, study.rounds)


@pytest.mark.study
def test_nothing_is_wrong_in_ten_minutes():
    study = simulate(seed=11, seconds=_TEN_MINUTES)
    assert study.failures == []
    assert study.ends[FIT] >= study.runs / 2
    assert {*ON_THE_WAY, *AT_A_SITE, *HARMLESS} <= set(study.faults)


@pytest.mark.study
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found_in_ten_minutes(defect):
    study = simulate(seed=5, seconds=_TEN_MINUTES, defect=defect, until_found=True)
    assert study.failures
