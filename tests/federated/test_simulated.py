"""The simulated federation: nothing is wrong in the seconds of `make test`, and a seed replays it to the byte."""

import numpy as np
import pandas as pd
import pytest
from simulated import cohort
from simulated.defects import DEFECTS, plant
from simulated.dishonest import PLOTS
from simulated.network import AT_A_SITE, HARMLESS, ON_THE_WAY
from simulated.study import Study, simulate
from simulated.world import FIT

import fedgauss

_TEN_MINUTES = 600.0  # of one core
_WORLDS = 30  # in which all kinds of faults and plots must have been seen; the first ten have them
_REPLAYED = 3


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


def test_nothing_is_wrong_whatever_happens():
    study, kinds = Study(), {*ON_THE_WAY, *AT_A_SITE, *HARMLESS, *(f"mailbox: {plot}" for plot in PLOTS)}
    for seed in range(_WORLDS):
        study.world(seed, runs=40, trouble=6.0)
        if kinds <= set(study.faults):
            break
    assert study.failures == []
    assert kinds <= set(study.faults)
    assert study.ends[FIT] > 0


def test_a_replay_has_the_same_bytes():
    first, second = Study(), Study()
    assert first.world(_REPLAYED) == second.world(_REPLAYED)
    assert (first.faults, first.ends, first.rounds) == (second.faults, second.ends, second.rounds)
    assert first.rounds > 0


@pytest.mark.study
def test_nothing_is_wrong_in_ten_minutes_and_half_of_the_runs_end_in_a_fit():
    study = simulate(seed=11, seconds=_TEN_MINUTES)
    assert study.failures == []
    assert study.ends[FIT] >= study.runs / 2


@pytest.mark.study
@pytest.mark.parametrize("number", DEFECTS)
def test_a_defect_is_found_in_ten_minutes(number):
    study = simulate(seed=5, seconds=_TEN_MINUTES, defect=number, until_found=True)
    ((seed, words),) = study.failures
    assert DEFECTS[number].found in words
    with plant(number):
        again = Study()
        again.world(seed)
    assert again.failures == [(seed, words)]
