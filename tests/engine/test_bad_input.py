"""Bad input is refused before anything compiles, with the rule, the value and a fix."""

from __future__ import annotations

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.engine import loop

STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)
PROBLEM = fg.problems.random_effects(4, seed=0)
RING = fg.networks.ring(4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_steps": 0}, "n_steps must be at least 1; got 0"),
        ({"n_steps": 2.5}, "n_steps must be a whole number; got 2.5"),
        ({"replicates": 0}, "replicates must be at least 1"),
        ({"network": fg.networks.ring(3)}, r"Use networks.ring\(4\)"),
        ({"network": np.eye(4)}, "connect all clients"),
        ({"network": None}, "network"),
        ({"steps": [0.1, np.nan, 0.1, 0.1, 0.1]}, "finite"),
        ({"steps": [0.1, 0.1]}, "2"),
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


def test_unstable_first_steps_warn():
    with pytest.warns(fg.FedgaussWarning, match="lambda_max"):
        fg.simulate(PROBLEM, RING, fg.step_sizes.polynomial(2.5, beta=0.75), 3)


def test_divergence_names_the_step_and_the_client():
    # Client 2 alone sees huge covariates; without mixing it is the first, and the only one, to overflow.
    cov = np.stack([np.eye(2) * (1e4 if k == 2 else 0.1) for k in range(4)])
    problem = fg.problems.linear(PROBLEM.coefficients, 1.0, cov)
    with pytest.warns(fg.FedgaussWarning), pytest.raises(fg.DivergedError, match="client 2 left") as caught:
        fg.simulate(problem, RING, fg.step_sizes.polynomial(0.3, 0.51), 400, sync_every=3, replicates=3)
    error = caught.value
    assert error.client == 2
    assert f"at step {error.step}" in str(error)
    # The step is the first: one step less is finite.
    with pytest.warns(fg.FedgaussWarning):
        runs = fg.simulate(
            problem, RING, fg.step_sizes.polynomial(0.3, 0.51), error.step - 1, sync_every=3, replicates=3, keep="path"
        )
    assert np.isfinite(runs.path[error.replicate]).all()


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
