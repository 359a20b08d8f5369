"""A few of many clients a round: the run with seats is the run that computes everybody, up to rounding.

Everybody is computed wherever somebody asks for single clients, as `disagreement` does.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedgauss as fg
from fedgauss.engine import chunks, seats
from fedgauss.engine import simulate as simulate_module

K, N, TAU = 7, 22, 4
SERVER, STEPS = fg.networks.complete(K), fg.step_sizes.polynomial(0.2, beta=0.75)
RNG = np.random.default_rng(5)
BETA, ROOT = RNG.standard_normal((K, 2)), RNG.standard_normal((K, 2, 4))
COV = ROOT @ np.swapaxes(ROOT, 1, 2) / 4 + 0.2 * np.eye(2)
WEIGHTS = np.arange(1.0, K + 1) / (K * (K + 1) / 2)
OWNER = np.repeat(np.arange(K), 30 + 5 * np.arange(K))
X = RNG.standard_normal((len(OWNER), 2))
Y = X @ [1.0, -2.0] + OWNER + RNG.standard_normal(len(OWNER))


def loss(theta, xi):
    return jnp.sum(jnp.cosh((theta - xi) / 4))


def drawn(key, client):
    return client["centre"] + client["sd"] * jax.random.normal(key, (2,))


LINEAR = fg.problems.linear(BETA, np.linspace(0.5, 2.0, K), COV, WEIGHTS)
PROBLEMS = {
    "linear": LINEAR,
    "heavy tails": fg.problems.linear(BETA, 2.0, df=5),
    "logistic": fg.problems.logistic(BETA, COV, WEIGHTS),
    "poisson": fg.problems.poisson(0.3 * BETA),
    "one versus rest": fg.problems.one_versus_rest(RNG.standard_normal((K, 3, 2))),
    "rows read once": fg.problems.from_arrays(X, Y, OWNER, weights="rows"),
    "rows with replacement": fg.problems.from_arrays(X, Y > 0, OWNER, "logistic", order="replacement"),
    "a loss": fg.problems.from_loss(loss, drawn, dim=2, clients={"centre": BETA, "sd": np.linspace(0.5, 1.0, K)}),
}
ROUNDS = {
    "optimiser": {
        "optimiser": fg.Optimiser(momentum=0.6, proximal=0.5, server_momentum=0.4),
        "local_steps": [1, 4, 2, 3, 1, 4, 2],
    },
    "steps of each": {"steps": fg.step_sizes.per_client([STEPS] * 6 + [fg.step_sizes.polynomial(0.05, beta=0.6)])},
    "a ball, from outside": {"projection": fg.projections.ball(1.5), "start": [3.0, 4.0]},
    "one start": {"start": fg.near_optimum(1.0, shared=True)},
    "in the middle of a round": {"after": 6, "start": [1.0, -1.0]},
    "another phase": {"sync_phase": 1, "participation": 2},
}
# Each compiles two programs; the others go with the studies.
QUICK = {"linear", "rows read once", "a loss", "optimiser", "a ball, from outside"}


def marked(cases):
    return [case if case in QUICK else pytest.param(case, marks=pytest.mark.study) for case in cases]


def run(problem=LINEAR, network=SERVER, **more):
    arguments = {"sync_every": TAU, "replicates": 20, "seed": 7, "participation": 3, "steps": STEPS, "n_steps": N}
    return fg.simulate(problem, network, **(arguments | more))


@pytest.fixture
def taken(monkeypatch):
    """The seats of each run, or None where everybody is computed."""
    found = []

    def noted(algorithms, starts):
        made = seats.seated(algorithms, starts)
        found.append(made[0].seats)
        return made

    monkeypatch.setattr(simulate_module, "seated", noted)
    return found


def expect_the_same(taken, problem, **more):
    few = run(problem, keep="path", **more)
    all_of_them = run(problem, keep="path", observe=["disagreement"], **more)
    assert taken[0].count == more.get("participation", 3)
    assert taken[1] is None
    for name in ("average", "last", "path"):
        np.testing.assert_allclose(getattr(few, name), getattr(all_of_them, name), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", marked(PROBLEMS))
def test_those_present_alone_are_the_run_of_everybody(name, taken):
    """Catches data, weights or noise that go to another client than the one that was drawn."""
    expect_the_same(taken, PROBLEMS[name])


@pytest.mark.parametrize("name", marked(ROUNDS))
def test_rounds_of_every_kind_are_those_of_everybody(name, taken):
    """Catches absent clients that miss a projection, and memories that outlive a seat's client."""
    expect_the_same(taken, LINEAR, **ROUNDS[name])


def test_neither_chunks_nor_segments_nor_company_change_a_bit(taken, monkeypatch):
    whole = run(replicates=100)
    np.testing.assert_array_equal(whole.average, run(replicates=100, memory_budget=5e4).average)
    settings = [fg.Setting(LINEAR, SERVER, eta, TAU, participation=3) for eta in (STEPS, STEPS.eta(N) / 2)]
    np.testing.assert_array_equal(whole.average, fg.simulate_together(settings, N, replicates=100, seed=7)[0].average)
    monkeypatch.setattr(chunks.Chunks, "_first_segment", lambda self, count: 7)
    monkeypatch.setattr(chunks.Chunks, "_adapt", lambda self, *rest: None)
    np.testing.assert_array_equal(whole.average, run(replicates=100).average)
    assert None not in taken


class Shifted(type(LINEAR)):
    """A subclass that says nothing of some clients alone."""


class LastOfMean(fg.observers.Last):
    """The same for an observer."""


WITHOUT = {
    "a ring": {"network": fg.networks.ring(K)},
    "half a server": {"network": fg.networks.lazy(K, 0.5)},
    "momentum that is kept": {"optimiser": fg.Optimiser(momentum=0.5, keep_momentum=True)},
    "clients that start apart": {"start": np.arange(2.0 * K).reshape(K, 2)},
    "each at random": {"start": fg.near_optimum(0.1)},
    "uploads": {"observe": [fg.observers.uploads(TAU)]},
    "an observer that does not say": {"observe": [fg.observers.at([5], LastOfMean())]},
    "more than half": {"participation": 4},
    "everybody": {"participation": None},
    "a problem that does not say": {"problem": Shifted(**vars(LINEAR))},
}


@pytest.mark.parametrize("name", WITHOUT)
def test_everybody_is_computed_where_seats_would_not_do(name, monkeypatch):
    found = []
    monkeypatch.setattr(simulate_module, "seated", lambda *given: found.append(seats.seated(*given)) or 1 / 0)
    with pytest.raises(ZeroDivisionError):  # before anything compiles
        run(**WITHOUT[name])
    assert found[0][0].seats is None


def test_unlike_numbers_of_clients_run_together_without_seats(taken):
    settings = [fg.Setting(LINEAR, SERVER, STEPS, TAU, participation=m) for m in (2, 3)]
    runs = fg.simulate_together(settings, N, replicates=20, seed=7)
    np.testing.assert_allclose(runs[1].average, run().average, rtol=1e-5, atol=1e-5)
    assert [each if each is None else each.count for each in taken] == [None, 3]


@pytest.mark.filterwarnings("ignore:eta_t should not exceed")
def test_an_error_names_the_client_and_not_its_seat():
    """Client 4 has by far the largest Hessian. Catches the number of the seat, or the clients of another round."""
    steep = fg.problems.linear(BETA, 1.0, np.where(np.arange(K) == 4, 1e12, 1.0)[:, None, None] * np.eye(2))
    where = []
    for observe in ([], ["disagreement"]):
        with pytest.raises(fg.DivergedError) as caught:
            run(steep, observe=observe)
        where.append((caught.value.step, caught.value.client, caught.value.replicate, caught.value.eta))
    assert where[0] == where[1]
    assert where[0][1] == 4


def test_memory_does_not_hold_a_column_for_every_client(taken, monkeypatch):
    """Ten of 100,000 clients take part: their lots take less than 48 bytes each, where columns would take 400."""
    needed = []

    def measured(*given):
        needed.append(advance.lower(*given).compile().memory_analysis())
        return advance(*given)

    advance = chunks.advance
    monkeypatch.setattr(chunks, "advance", measured)
    many, dim = 100_000, 100
    rows = np.broadcast_to(np.float32(1.0), (many, dim))
    problem = fg.problems.from_arrays(rows, np.zeros(many), np.arange(many), order="replacement")
    run(problem, fg.networks.complete(many), steps=[1e-3] * 4, n_steps=4, sync_every=2, participation=10, replicates=16)
    assert taken[0].count == 10
    assert needed[0].temp_size_in_bytes + needed[0].output_size_in_bytes < 48 * many * 16


def test_mean_and_covariance_agree_with_the_exact_recursion(taken):
    # Whitened by the exact covariance, the mean is chi-squared with 2 degrees, and products of two are z-scores: four
    # tests at 2e-5, so that it fails wrongly with a chance of 8e-5. Catches a mean off by 0.03 standard deviations, or
    # a variance off by 4 %, as when those who are absent count as if they had moved.
    exact = fg.theory.exact_moments(LINEAR, SERVER, STEPS, N, TAU, np.ones(2), participation=3)
    runs = run(replicates=40_000, start=np.ones(2))
    z = (runs.average.astype(float) - exact.mean_average) @ np.linalg.inv(np.linalg.cholesky(exact.cov_average)).T
    assert stats.chi2.sf(len(z) * (z.mean(axis=0) ** 2).sum(), 2) > 2e-5
    products = np.stack([z[:, 0] ** 2 - 1, z[:, 1] ** 2 - 1, z[:, 0] * z[:, 1]])
    scores = products.mean(axis=1) / products.std(axis=1) * np.sqrt(len(z))
    assert np.all(2 * stats.norm.sf(abs(scores)) > 2e-5)
    assert taken[0].count == 3
