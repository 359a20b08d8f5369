"""fit(solver="sgd", passes="auto"): a table is read again until reading it again hardly moves the estimate."""

import numpy as np
import pytest

from any_fit import any_fit
from fedgauss.inference import fit_sgd

ASKED = {"target": "y", "client": "h", "family": "binomial", "features": ["a", "b"]}


def table(seed, n=600):
    rng = np.random.default_rng(seed)
    h, a = np.arange(n) % 4, rng.normal(size=n)
    b = rng.normal(size=n) + 0.7 * a
    chance = 1 / (1 + np.exp(0.5 - a + 0.5 * b - 0.3 * h))
    return {"h": h, "a": a, "b": b, "y": (rng.random(n) < chance).astype(int)}


def by_sgd(frame, passes):
    return any_fit(frame, **ASKED, solver="sgd", passes=passes, progress=False)


def off(one, other):
    """The largest distance of two fits, in standard errors of the second."""
    return float(np.max(np.abs(np.asarray(one.params) - np.asarray(other.params)) / np.asarray(other.std_errors)))


def passes_of(found):
    return int(found.facts["Steps per client"].partition(" x ")[0])


def test_passes_end_near_the_exact_fit_and_are_those_of_a_run_of_that_length():
    frame = table(0)
    found = by_sgd(frame, "auto")
    assert off(found, any_fit(frame, **ASKED)) <= 0.1
    same = by_sgd(frame, passes_of(found))
    assert np.array_equal(found.params, same.params)
    assert np.array_equal(found.cov, same.cov)
    assert found.facts["Passes"] == f"{passes_of(found)} (auto)"
    assert "Stopped there: more passes would move no estimate by more than 0.1 standard errors." in found.notes


def test_passes_that_never_end_say_so(monkeypatch):
    """Clients that hardly talk to each other drift apart in every pass."""
    monkeypatch.setattr(fit_sgd, "_MOST_PASSES", 4)
    monkeypatch.setattr(fit_sgd, "_SHARE", 1e-6)
    found = by_sgd(table(0), "auto")
    assert passes_of(found) == 4
    assert any(note.startswith("Stopped at 4 passes, the most for passes='auto', 0.") for note in found.notes)


def test_other_words_are_refused():
    with pytest.raises(ValueError, match=r"passes must be a whole number; got 'many'. Or use 'auto'\?"):
        by_sgd(table(0), "many")


@pytest.mark.study
def test_in_95_of_100_tables_more_passes_move_the_estimate_by_less_than_stated():
    """The exact fit is where any number of further passes goes; ten times the passes are run for 10 tables. Seeds
    are fixed, and so is the result."""
    far = []
    for seed in range(100):
        frame = table(seed)
        found = by_sgd(frame, "auto")
        far.append(off(found, any_fit(frame, **ASKED)))
        if seed < 10:
            assert off(by_sgd(frame, 10 * passes_of(found)), found) <= 0.1
    print(f"distance to the exact fit in standard errors: median {np.median(far):.3f}, largest {max(far):.3f}")
    assert np.mean(np.array(far) <= 0.1) >= 0.95
