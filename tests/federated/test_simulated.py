"""The simulated federation: nothing is wrong in the seconds of `make test`, and a seed replays it to the byte."""

import numpy as np
import pandas as pd
import pytest
from simulated import cohort
from simulated.__main__ import replay
from simulated.defects import DEFECTS, plant
from simulated.dishonest import PLOTS
from simulated.network import AT_A_SITE, HARMLESS, ON_THE_WAY
from simulated.study import Study, simulate
from simulated.world import CHANGES, FIT

import fedgauss

_TEN_MINUTES = 100_000  # rounds: one core of 2026 makes twice as many
_SOON = 1_000  # rounds
_SEED = 5
_QUICK = {15: _SEED, 9: _SEED, 8: _SEED, 14: _SEED, 4: 6, 3: 1, 12: _SEED}  # defects found as soon as that, and by what
_WORLDS = (35, 4, 17, *range(30))  # in which all faults and plots must have been seen; the first three have them
_REPLAYED = 3
_SHORT = 127  # a seed whose first two worlds end soon


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
    kinds |= {f"owner: {change}" for change in CHANGES}
    for seed in _WORLDS:
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


def test_a_replay_prints_the_course_of_the_run_that_failed(capsys):
    ((world, run, words),) = simulate(_SEED, rounds=_SOON, defect=15, until_found=True).failures
    printed = []
    for _ in range(2):
        assert [tuple(one) for one in replay(world, run, 15).failures] == [(world, run, words)]
        printed.append(capsys.readouterr().out.split(" worlds, ")[0])
    assert printed[0] == printed[1]
    lines = printed[0].splitlines()
    assert lines[0].startswith(f"run {run}: ")
    assert lines[1].startswith("    1 join")
    assert sum(line.startswith("run ") for line in lines) == 1
    replay(_REPLAYED, 1, None)
    assert capsys.readouterr().out.startswith("run 1: ")


def test_a_study_that_was_stopped_goes_on_where_it_was(tmp_path):
    kept = tmp_path / "study.json"
    stopped = simulate(seed=_SHORT, rounds=1, keep=kept)
    whole, resumed = simulate(_SHORT, rounds=stopped.rounds + 1), simulate(_SHORT, rounds=stopped.rounds + 1, keep=kept)
    assert (stopped.worlds, whole.worlds) == (1, 2)
    same = ("faults", "ends", "rounds", "worlds", "failures", "correlation")
    assert [getattr(resumed, name) for name in same] == [getattr(whole, name) for name in same]
    with pytest.raises(ValueError, match="with the seed 4"):
        simulate(seed=4, rounds=1, keep=kept)


@pytest.mark.parametrize("number", _QUICK)
def test_a_defect_is_found_soon(number):
    _find(number, _SOON, _QUICK[number])


@pytest.mark.study
@pytest.mark.parametrize("number", DEFECTS)
def test_a_defect_is_found_in_ten_minutes(number):
    _find(number, _TEN_MINUTES)


@pytest.mark.study
def test_nothing_is_wrong_in_ten_minutes_and_half_of_the_runs_end_in_a_fit():
    study = simulate(seed=11, rounds=_TEN_MINUTES)
    assert study.failures == []
    assert study.ends[FIT] >= study.runs / 2


def _find(number, rounds, seed=_SEED):
    """The auditor says what is wrong within so many rounds, and again when the world is replayed."""
    ((world, run, words),) = simulate(seed, rounds=rounds, defect=number, until_found=True).failures
    assert DEFECTS[number].found in words
    with plant(number):
        again = Study()
        again.world(world)
    assert again.failures == [(world, run, words)]
