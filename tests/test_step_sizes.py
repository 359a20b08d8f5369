"""Schedules count time from t = 1, and say so when a theorem does not cover them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedgauss import step_sizes
from fedgauss._checks import FedgaussWarning

BETAS = st.floats(0.51, 0.99)
SHIFTS = st.floats(-0.9, 50.0)
ETA0 = st.floats(1e-3, 10.0)


@given(eta0=ETA0, beta=BETAS, shift=SHIFTS, n=st.integers(0, 40))
def test_polynomial_is_its_formula(eta0, beta, shift, n):
    steps = step_sizes.polynomial(eta0, beta, shift)
    expected = [eta0 * (t + shift) ** -beta for t in range(1, n + 1)]
    np.testing.assert_allclose(steps.eta(n), expected, rtol=1e-14)
    assert steps.beta == beta


@given(eta0=ETA0, beta=BETAS, shift=SHIFTS, n_warm=st.integers(0, 20), n=st.integers(0, 40))
def test_warm_start_is_its_formula(eta0, beta, shift, n_warm, n):
    steps = step_sizes.warm_start(0.2, n_warm, eta0, beta, shift)
    expected = [0.2 if t <= n_warm else eta0 * (t - n_warm + shift) ** -beta for t in range(1, n + 1)]
    np.testing.assert_allclose(steps.eta(n), expected, rtol=1e-14)
    assert steps.beta == beta


SCHEDULES = {
    "eta_t = 0.3 t^-0.75": step_sizes.polynomial(0.3, 0.75),
    "eta_t = 0.3 (t + 5)^-0.75": step_sizes.polynomial(0.3, 0.75, shift=5),
    "eta_t = 0.3 (t - 0.5)^-0.75": step_sizes.polynomial(0.3, 0.75, shift=-0.5),
    "eta_t = 0.5 for t <= 3, then eta_t = 0.3 (t - 2)^-0.75": step_sizes.warm_start(0.5, 3, 0.3, 0.75, shift=1),
    "eta_t = 0.1": step_sizes.constant(0.1),
    "eta_t from an array of 20 steps": step_sizes.from_array(np.linspace(1, 2, 20)),
    "eta_t from an array of 20 steps for each of 3 clients": step_sizes.from_array(np.ones((20, 3))),
    "client 0: eta_t = 0.1\nclient 1: eta_t = 0.2": step_sizes.per_client(
        [step_sizes.constant(0.1), step_sizes.constant(0.2)]
    ),
}


@pytest.mark.parametrize("text", SCHEDULES)
def test_every_schedule_prints_itself_pickles_and_is_a_prefix_of_its_longer_self(text):
    steps = SCHEDULES[text]
    assert str(steps) == text
    assert isinstance(steps, step_sizes.StepSizes)
    assert step_sizes.as_step_sizes(steps) is steps
    assert steps.eta(20).dtype == np.float64
    np.testing.assert_array_equal(steps.eta(20)[:7], steps.eta(7))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(steps)).eta(9), steps.eta(9))


def test_constant_and_array():
    np.testing.assert_array_equal(step_sizes.constant(0.1).eta(3), [0.1, 0.1, 0.1])
    assert step_sizes.constant(0.1).beta == 0.0
    values = np.array([3.0, 2.0, 1.0])
    steps = step_sizes.as_step_sizes(values)
    values[0] = 9.0
    np.testing.assert_array_equal(steps.eta(2), [3.0, 2.0])
    assert steps.beta is None


def test_per_client_puts_clients_in_columns():
    steps = step_sizes.per_client([step_sizes.polynomial(0.3, 0.75), step_sizes.polynomial(0.6, 0.75), [1, 2, 3]])
    t = np.arange(1.0, 4.0)
    np.testing.assert_allclose(steps.eta(3), np.stack([0.3 * t**-0.75, 0.6 * t**-0.75, t], axis=1), rtol=1e-15)
    assert steps.beta is None
    assert step_sizes.per_client([step_sizes.polynomial(e, 0.75) for e in (0.1, 0.2)]).beta == 0.75
    assert str(step_sizes.per_client([step_sizes.constant(0.1)] * 30)).endswith("client 9: eta_t = 0.1\n...")


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 2.0])
def test_exponents_outside_theorem_2_1_are_allowed_with_a_warning(beta):
    message = rf"beta should lie in \(1/2, 1\) for Theorem 2\.1 to hold; got {beta:g}\. Use 0\.75"
    with pytest.warns(FedgaussWarning, match=message) as caught:
        steps = step_sizes.polynomial(0.3, beta)
    assert caught[0].filename == __file__
    assert steps.beta == beta
    with pytest.warns(FedgaussWarning, match=message) as caught:
        step_sizes.warm_start(0.1, 5, 0.3, beta)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: step_sizes.polynomial(0.0, 0.75), r"eta0 must be greater than 0; got 0\. Use a small"),
        (lambda: step_sizes.polynomial(np.nan, 0.75), r"eta0 must be finite; got nan"),
        (lambda: step_sizes.polynomial(0.3, -0.75), r"beta must not be negative.*got -0\.75\. Use 0\.75\?"),
        (
            lambda: step_sizes.polynomial(0.3, 0.75, shift=-1),
            r"shift must be greater than -1; got -1\. Use 0",
        ),
        (lambda: step_sizes.warm_start(-1, 5, 0.3, 0.75), r"constant must be greater than 0; got -1"),
        (lambda: step_sizes.warm_start(0.1, -5, 0.3, 0.75), r"n_warm must be at least 0; got -5"),
        (lambda: step_sizes.constant(0.0), r"eta must be greater than 0; got 0"),
        (lambda: step_sizes.polynomial(0.3, 0.75).eta(2.5), r"n_steps must be a whole number; got 2\.5"),
        (
            lambda: step_sizes.from_array([1, 0.5]).eta(3),
            r"cover all 3 steps; the array has 2\. Give a longer",
        ),
        (lambda: step_sizes.from_array([1, -0.5]), r"must be positive; eta_2 is -0\.5\. Drop that step"),
        (lambda: step_sizes.from_array([[1, 0.0]]), r"must be positive; eta_1 of client 1 is 0\."),
        (lambda: step_sizes.from_array([1, np.inf]), r"must be finite; got inf at index \(1,\)"),
        (
            lambda: step_sizes.from_array(np.ones((2, 2, 2))),
            r"\(n,\) or \(n, K\); got shape \(2, 2, 2\)\. Give a row",
        ),
        (lambda: step_sizes.from_array([]), r"\(n,\) or \(n, K\); got shape \(0,\)"),
        (lambda: step_sizes.as_step_sizes(0.1), r"got 0\.1\. Use step_sizes\.constant\(0\.1\)\?"),
        (
            lambda: step_sizes.per_client(np.ones((5, 2))),
            r"got an array of shape \(5, 2\)\. Use step_sizes\.from_array",
        ),
        (lambda: step_sizes.per_client([]), r"one entry for each client; got \[\]\. Use \["),
        (
            lambda: step_sizes.per_client(step_sizes.constant(0.1)),
            r"one entry for each client; got Polynomial",
        ),
        (
            lambda: step_sizes.per_client([np.ones((5, 2))]),
            r"schedule 0 is eta_t from an array.*Give it as its columns",
        ),
    ],
)
def test_a_bad_schedule_is_refused_with_rule_value_and_fix(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_unstable_first_steps_are_announced():
    hessians = np.stack([np.diag([1.0, 6.0]), np.diag([3.0, 2.0])])  # A = diag(2, 4): stable up to 0.5
    weights = np.array([0.5, 0.5])
    step_sizes.warn_if_unstable([0.5, 0.4], hessians, weights)
    step_sizes.warn_if_unstable([[0.5, 0.1], [0.2, 0.1]], hessians, weights)
    message = r"2 / lambda_max\(A\) = 0\.5, .*eta_1 = 0\.6\. Use a smaller eta0 or a larger shift.*eta_1 <= 0\.5"
    with pytest.warns(FedgaussWarning, match=message):
        step_sizes.warn_if_unstable([0.6, 0.4], hessians, weights)
    with pytest.warns(FedgaussWarning, match=message):
        step_sizes.warn_if_unstable([[0.1, 0.6], [0.1, 0.1]], hessians, weights)
    with pytest.warns(FedgaussWarning, match=r"eta_3 = 1\."):
        step_sizes.warn_if_unstable(step_sizes.warm_start(0.1, 2, 1.0, 0.75).eta(10), hessians, weights)


@given(tau=st.integers(1, 30), n=st.integers(0, 60), phase=st.integers(0, 70))
def test_sync_mask_is_its_formula(tau, n, phase):
    mask = step_sizes.sync_mask(tau, n, phase)
    assert mask.dtype == np.bool_
    assert mask.tolist() == [t % tau == phase % tau for t in range(1, n + 1)]
    assert step_sizes.sync_mask(tau, n).sum() == n // tau  # L of Algorithm 1


def test_sync_mask_of_special_requests():
    assert step_sizes.sync_mask(3, 7).tolist() == [False, False, True, False, False, True, False]
    assert step_sizes.sync_mask(1, 4).all()
    assert not step_sizes.sync_mask(5, 4).any()
    assert not step_sizes.sync_mask(None, 4).any()
    own = [True, False, True, True]
    assert step_sizes.sync_mask(own, 4).tolist() == own
    assert step_sizes.sync_mask(np.int64(2), 2).tolist() == [False, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 5), r"sync_every must be at least 1; got 0\. Use 1 for every step, None for never"),
        ((2.0, 5), r"sync_every must be a whole number; got 2\.0\. Use 1"),
        (("never", 5), r"sync_every must be a whole number; got 'never'"),
        (([True, False], 5), r"must be 5 booleans, one for each step; got bool of shape \(2,\)\. Use mask"),
        (([True] * 6, 5), r"must be 5 booleans.*shape \(6,\)"),
        (([0, 1, 0, 1, 0], 5), r"must be 5 booleans.*got int64 of shape \(5,\).*astype\(bool\)"),
        ((2, -1), r"n_steps must be at least 0; got -1"),
        ((2, 5, -1), r"phase must be at least 0; got -1"),
        (([True] * 5, 5, 2), r"phase must be 0 when sync_every is a mask; got 2\. Use np\.roll"),
    ],
)
def test_a_bad_sync_request_is_refused_with_rule_value_and_fix(arguments, message):
    with pytest.raises(ValueError, match=message):
        step_sizes.sync_mask(*arguments)
