"""Bad input is refused before anything compiles, with the rule, the value and a fix."""

from __future__ import annotations

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.engine import loop

STEPS, STEEP = fg.step_sizes.polynomial(0.3, beta=0.75), fg.step_sizes.polynomial(0.3, beta=0.51)
PROBLEM = fg.problems.random_effects(4, seed=0)
RING = fg.networks.ring(4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_steps": 0}, "n_steps must be at least 1; got 0"),
        ({"n_steps": 2.5}, "n_steps must be a whole number; got 2.5"),
        ({"n_steps": True}, "n_steps must be a whole number; got True"),
        ({"replicates": 0}, "replicates must be at least 1"),
        ({"network": fg.networks.ring(3)}, r"Use networks.ring\(4\)"),
        ({"network": np.eye(4)}, "connect all clients"),
        ({"network": None}, "network"),
        ({"steps": [0.1, np.nan, 0.1, 0.1, 0.1]}, "finite"),
        ({"steps": [0.1, 0.1]}, "2"),
        ({"steps": None}, "step sizes must be an array of real numbers; got None"),
        ({"start": None}, "start must be an array of real numbers; got None"),
        ({"steps": np.full((5, 3), 0.1)}, "per-client steps must have 4 columns"),
        ({"start": "middle"}, "start must be one of 'zeros', 'optimum'; got 'middle'"),
        ({"start": "optimun"}, "Did you mean 'optimum'"),
        ({"start": [1.0, 2.0, 3.0]}, r"got shape \(3,\)"),
        ({"start": [1.0, np.inf]}, "start must be finite; got inf"),
        ({"observe": ["cusun"]}, "Did you mean 'cusum'"),
        ({"keep": "everything"}, "keep must be one of 'path'"),
        ({"memory_budget": 0}, "memory_budget must be greater than 0"),
        ({"sync_every": 0}, "sync_every"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_refused_before_compilation(changes, message):
    before = loop.advance._cache_size()
    arguments = {"network": RING, "steps": STEPS, "n_steps": 5} | changes
    with pytest.raises(ValueError, match=message):
        fg.simulate(PROBLEM, **arguments)
    assert loop.advance._cache_size() == before


@pytest.mark.parametrize(
    "call",
    [fg.linearize, lambda none: fg.warm_up(none, 10, np.zeros(2)), lambda none: fg.simulate(none, RING, STEPS, 5)],
    ids=["linearize", "warm_up", "simulate"],
)
def test_what_is_no_problem_is_refused(call):
    with pytest.raises(ValueError, match=r"problem must be made by fedgauss.problems; got NoneType"):
        call(None)


def test_unstable_first_steps_warn():
    with pytest.warns(fg.FedgaussWarning, match="lambda_max"):
        fg.simulate(PROBLEM, RING, fg.step_sizes.polynomial(2.5, beta=0.75), 3)


def test_divergence_names_the_step_and_the_client():
    # Client 2 alone sees huge covariates; without mixing it is the first, and the only one, to overflow.
    cov = np.stack([np.eye(2) * (1e4 if k == 2 else 0.1) for k in range(4)])
    problem = fg.problems.linear(PROBLEM.coefficients, 1.0, cov)
    with pytest.warns(fg.FedgaussWarning), pytest.raises(fg.DivergedError, match="client 2 left") as caught:
        fg.simulate(problem, RING, STEEP, 400, sync_every=3, replicates=3)
    error = caught.value
    assert error.client == 2
    assert f"at step {error.step}" in str(error)
    # The step is the first: one step less is finite, and what is not finite stays so.
    with pytest.warns(fg.FedgaussWarning):
        runs = fg.simulate(problem, RING, STEEP, error.step - 1, sync_every=3, replicates=3)
    assert np.isfinite(runs.last).all()


def test_reading_data_once_needs_enough_rows():
    rng = np.random.default_rng(0)
    problem = fg.problems.from_arrays(rng.standard_normal((12, 2)), rng.standard_normal(12), np.arange(12) % 4)
    fg.simulate(problem, RING, STEPS, 3)
    with pytest.raises(ValueError, match=r"got 4 > 3. Use n_steps=3"):
        fg.simulate(problem, RING, STEPS, 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fg.projections.ball(0.0), "radius must be greater than 0"),
        (lambda: fg.projections.box(2.0, 1.0), "low must not exceed high"),
        (lambda: fg.near_optimum(-1.0), "sd must be greater than 0"),
        (lambda: fg.observers.sup_partial_sum([0.0], "manhattan"), "norm must be one of"),
        (lambda: fg.observers.at([], fg.observers.Last()), "at least one step"),
        (lambda: fg.observers.at([0], fg.observers.Last()), "steps must be at least 1"),
        (lambda: fg.observers.path(0), "every must be at least 1"),
    ],
)
def test_parts_refuse_nonsense(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_spare_lanes_do_not_diverge_for_the_real_ones():
    # Two replicates run in sixteen lanes; this seed's sixth lane overflows and nobody asked for it.
    problem = fg.problems.linear([[1.0]])
    with pytest.warns(fg.FedgaussWarning):
        runs = fg.simulate(problem, None, fg.step_sizes.constant(50.0), 20, replicates=2, seed=2)
    assert np.isfinite(runs.last).all()


def test_a_box_does_not_hide_who_diverged():
    eta = np.full((20, 4), 0.1)
    eta[11, 2] = 3e38
    with pytest.warns(fg.FedgaussWarning), pytest.raises(fg.DivergedError) as caught:
        fg.simulate(PROBLEM, RING, eta, 20, sync_every=12, replicates=16, projection=fg.projections.box(-1e9, 1e9))
    assert (caught.value.step, caught.value.client) == (12, 2)


def test_a_divergence_crosses_processes():
    import pickle

    error = fg.DivergedError(3, 1, 7, 0.5)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.step, copy.client, copy.replicate, str(copy)) == (3, 1, 7, str(error))


def test_results_that_overflow_are_not_returned():
    lin = fg.linearization(np.eye(1)[None].repeat(10, 0), np.zeros((10, 1, 1)))
    problem = fg.problems.gaussian_surrogate(lin)
    with pytest.raises(ArithmeticError, match="left the range of float32"):
        fg.simulate(problem, fg.networks.ring(10), np.full(3, 1e-6), 3, start=[2e38], replicates=16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem": 3}, "problem must be made by fedgauss.problems"),
        ({"projection": 3.0}, "projection must be projections.ball"),
        ({"observe": [fg.observers.path(10)]}, "every must not exceed n_steps = 5"),
        ({"n_steps": 2**33}, "n_steps must be at most"),
        (
            {"projection": fg.projections.ball(1.0, [0.0, 0.0, 0.0])},
            "center of a projection must be a number or have 2",
        ),
    ],
)
def test_other_nonsense_is_refused(changes, message):
    arguments = {"problem": PROBLEM, "network": RING, "steps": STEPS, "n_steps": 5} | changes
    with pytest.raises(ValueError, match=message):
        fg.simulate(**arguments)


def test_schedules_of_the_users_own_are_checked():
    class Short:
        beta = None

        def eta(self, n_steps):
            return np.full(3, 0.1)

    with pytest.raises(ValueError, match=r"step sizes must have shape \(5,\) or \(5, 4\); got \(3,\)"):
        fg.simulate(PROBLEM, RING, Short(), 5)


def test_a_ball_keeps_far_points_on_its_boundary():
    import jax

    project = jax.jit(lambda ball, theta: ball.project(theta).ravel())
    far = np.array([3e20, 4e20], np.float32)[:, None, None]
    np.testing.assert_allclose(project(fg.projections.ball(1.0), far), [0.6, 0.8], rtol=1e-6)
    near = np.array([3e-25, 4e-25], np.float32)[:, None, None]
    np.testing.assert_allclose(project(fg.projections.ball(1e-25), near), [6e-26, 8e-26], rtol=1e-5)


def test_what_is_shared_cannot_be_changed():
    lin = fg.linearize(PROBLEM)
    with pytest.raises(ValueError, match="read-only"):
        lin.optimum[:] = 7.0
    beta = np.zeros((3, 2))
    problem = fg.problems.linear(beta)
    beta += 5.0
    assert (problem.coefficients == 0).all()
