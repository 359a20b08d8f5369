"""Scoring: steps that never lower the likelihood, a maximum to rounding, and words where there is none."""

from itertools import pairwise

import numpy as np
import pytest

from fedgauss.families import Logistic, Poisson
from fedgauss.families.rows import Ask, NoFiniteEstimate, Rows, Sums
from fedgauss.families.same_bits import inverse
from fedgauss.inference.asks import answer, exact_program, run, total
from fedgauss.inference.scoring import MOST_MATRICES, ascent, mended

RNG = np.random.default_rng(11)
N = 400
X = np.column_stack([np.ones(N), RNG.standard_normal((N, 2))])
COUNTS = RNG.poisson(np.exp(X @ [0.5, 0.4, -0.3])).astype(float)


def logged(program, family, sites):
    """What a program returns, with its questions and the totals that it was sent."""
    log = []

    def listening():
        told = None
        while True:
            try:
                ask = program.send(told)
            except StopIteration as end:
                return end.value
            told = yield ask
            log.append((ask, told))

    return run(listening(), family, sites), log


def test_a_step_too_far_is_halved():
    """From a start where a whole step of Poisson regression overshoots by orders of magnitude."""
    sites = [Rows(X, COUNTS)]
    end, log = logged(ascent(Poisson(), np.array([-6.0, 0.0, 0.0])), Poisson(), sites)
    heard = [-np.inf if told is None else told["log_likelihood"] for _, told in log]
    assert any(later < before for before, later in pairwise(heard))  # tried, and not kept
    np.testing.assert_allclose(end.theta, run(ascent(Poisson(), np.zeros(3)), Poisson(), sites).theta, rtol=1e-9)
    assert np.abs(Poisson().sums(Rows(X, COUNTS), end.theta).score).max() < 1e-9


def test_matrices_are_few():
    """Also on the long way from a bad start: the others of its rounds tell scores."""
    for start in ([-6.0, 0.0, 0.0], [3.0, 2.0, -2.0], [0.0, 0.0, 0.0]):
        _, log = logged(ascent(Poisson(), np.array(start)), Poisson(), [Rows(X, COUNTS)])
        assert 1 <= sum(ask.kind == "sums" for ask, _ in log) <= MOST_MATRICES


@pytest.mark.parametrize("along", [1e-2, 1e-4, 1e-6, -1e-6, 0.0])
def test_a_step_that_meets_the_expected_curvature_leaves_room_for_steps_aside(along):
    """What is left of the score then lies aside of the step, and would be divided by next to nothing."""
    step, left = np.array([0.1, 0.0]), np.array([along, 0.02])
    here, there = Sums(0.0, step, np.eye(2)), Sums(float((step - left) @ step) / 2.0, -left, np.eye(2))
    made = mended(here, there, step)
    np.testing.assert_allclose(made @ step, step + left, atol=1e-12)
    assert np.linalg.eigvalsh(made).max() < 10.0
    assert np.linalg.eigvalsh(made).min() > 0.1


def test_the_split_does_not_matter():
    ask = Ask("sums", np.array([0.1, 0.2, 0.3]))
    whole = answer(Poisson(), Rows(X, COUNTS), ask)
    parts = total([answer(Poisson(), Rows(X[i], COUNTS[i]), ask) for i in np.array_split(np.arange(N), 7)])
    assert whole.keys() == parts.keys()
    for name, one in whole.items():
        np.testing.assert_allclose(one, parts[name], rtol=1e-12)


def test_separable_classes_have_no_finite_estimate():
    sites = [Rows(X, (X[:, 1] > 0).astype(float))]
    with pytest.raises(NoFiniteEstimate):
        run(ascent(Logistic(), np.zeros(3)), Logistic(), sites)
    ridge = np.array([0.0, 1.0, 1.0])
    end = run(ascent(Logistic(), np.zeros(3), ridge=ridge), Logistic(), sites)
    np.testing.assert_allclose(Logistic().sums(sites[0], end.theta).score, ridge * end.theta, atol=1e-9)


def test_a_flat_direction_is_refused():
    with pytest.raises(NoFiniteEstimate, match="a combination of parameters vanishes"):
        inverse(np.ones((2, 2)))
    with pytest.raises(NoFiniteEstimate, match="about a parameter vanishes"):
        inverse(np.diag([1.0, 0.0]))
    with pytest.raises(NoFiniteEstimate, match="about a parameter vanishes"):
        inverse(np.diag([1.0, np.nan]))


def sent(program, reply):
    """What a program returns that is sent what `reply` makes of each question."""
    ask = next(program)
    while True:
        try:
            ask = program.send(reply(ask))
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("beyond", [None, np.nan, -np.inf])
def test_a_step_to_where_there_are_no_numbers_is_halved(beyond):
    """Maximise -theta^2 / 2 + 10 theta, which is known below 11 alone; B is a tenth of what it should be."""

    def reply(ask):
        x = float(ask.theta[0])
        if x >= 11.0 and beyond is None:
            return None
        likelihood = np.array(10.0 * x - x * x / 2.0 if x < 11.0 else beyond)
        told = {"log_likelihood": likelihood, "score": 10.0 - ask.theta}
        return told | ({"information": np.eye(1) / 10.0} if ask.kind == "sums" else {})

    assert sent(ascent(Poisson(), np.zeros(1)), reply).theta[0] == pytest.approx(10.0)


def test_where_no_step_helps_a_new_matrix_is_asked_for():
    """Maximise -(theta - 3)^2 / 2, of which nothing is known beyond 1.5 before the information is asked for there."""
    heard = []

    def reply(ask):
        known = ask.theta[0] <= 1.5 + 1e-9 or len(heard) > 1
        heard.extend([float(ask.theta[0])] * (known and ask.kind == "sums"))
        told = {"log_likelihood": np.array(-((ask.theta[0] - 3.0) ** 2) / 2.0), "score": 3.0 - ask.theta}
        return told | ({"information": np.eye(1) * 2.0} if ask.kind == "sums" else {}) if known else None

    assert sent(ascent(Poisson(), np.zeros(1)), reply).theta[0] == pytest.approx(3.0)
    assert heard[1] == pytest.approx(1.5)


def test_a_score_that_leads_nowhere_is_refused():
    def reply(ask):
        told = {"log_likelihood": np.array(0.0 if ask.theta[0] == 0.0 else -1e3), "score": np.array([10.0])}
        return told | {"information": np.eye(1)}

    with pytest.raises(NoFiniteEstimate, match="no step raises"):
        sent(ascent(Poisson(), np.zeros(1)), reply)
    with pytest.raises(NoFiniteEstimate, match="not finite"):
        sent(ascent(Poisson(), np.zeros(1)), lambda ask: None)


def test_a_fit_is_a_few_rounds():
    sites = [Rows(X[i], COUNTS[i]) for i in np.array_split(np.arange(N), 3)]
    start = np.array([np.log(COUNTS.mean()), 0.0, 0.0])
    fit, log = logged(exact_program(Poisson(), start, [0], N, ("observed",)), Poisson(), sites)
    assert fit.rounds == len(log) <= 10
    assert fit.null.deviance > fit.goodness.deviance > 0
    assert [ask.kind for ask, _ in log].count("sums") == 1  # the other matrix is of the last question
    assert log[-1][1]["observed"].shape == (3, 3)
