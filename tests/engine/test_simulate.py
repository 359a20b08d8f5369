"""The engine against its slow twin, and against itself under every change that must not matter."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

import fedgauss as fg
from fedgauss.engine import loop
from oracles.data import regression_data, standardised_noise
from oracles.local_sgd import local_sgd

STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)


def unequal_problem(n_clients=5, dim=2, seed=3):
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((n_clients, dim, 2 * dim))
    weights = rng.uniform(0.5, 1.5, n_clients)
    cov = g @ np.swapaxes(g, 1, 2) / (2 * dim) + 0.2 * np.eye(dim)
    beta = rng.standard_normal((n_clients, dim))
    return fg.problems.linear(beta, rng.uniform(0.5, 2, n_clients), cov, weights / weights.sum())


def oracle(problem, network, eta, mask, start, replicates, seed):
    x, y = regression_data(problem, len(eta), replicates, seed)
    identity = np.broadcast_to(np.eye(problem.dim), (problem.n_clients, problem.dim, problem.dim))
    return local_sgd(
        problem.coefficients,
        problem.noise_var,
        identity,
        problem.weights,
        network.matrix,
        eta,
        mask,
        start,
        x,
        standardised_noise(problem, x, y),
    )


@pytest.mark.parametrize("own_steps", [False, True])
@pytest.mark.parametrize("phase", [0, 1])
def test_engine_follows_algorithm_1(own_steps, phase):
    problem, network, n = unequal_problem(), fg.networks.path(5), 30
    eta = np.random.default_rng(1).uniform(0.05, 0.3, (n, 5)) if own_steps else STEPS.eta(n)
    start = np.random.default_rng(2).standard_normal((8, 5, 2))
    runs = fg.simulate(
        problem,
        network,
        eta,
        n,
        sync_every=4,
        sync_phase=phase,
        replicates=8,
        seed=9,
        start=start,
        keep="path",
        observe=["disagreement"],
    )
    mask = fg.step_sizes.sync_mask(4, n, phase)
    path = oracle(problem, network, eta, mask, start.transpose(1, 2, 0), 8, seed=9)
    means = path[1:].mean(axis=1).transpose(2, 0, 1)
    np.testing.assert_allclose(runs.path, means, atol=2e-5)
    np.testing.assert_allclose(runs.average, means.mean(axis=1), atol=2e-5)
    np.testing.assert_allclose(runs.last, means[:, -1], atol=2e-5)
    spread = np.sqrt(((path[-1] - path[-1].mean(axis=0)) ** 2).sum(axis=(0, 1)))
    np.testing.assert_allclose(runs.disagreement, spread, rtol=1e-4)


def base(**changes):
    arguments = {"n_steps": 50, "sync_every": 5, "replicates": 300, "seed": 4, "keep": "path"} | changes
    problem = fg.problems.random_effects(10, seed=1907)
    return fg.simulate(problem, fg.networks.ring(10), STEPS, **arguments)


def test_chunk_size_never_changes_a_result():
    whole, chunked = (base(start=fg.near_optimum(0.25), memory_budget=budget) for budget in (2**30, 5e4))
    np.testing.assert_array_equal(whole.path, chunked.path)
    np.testing.assert_array_equal(whole.average, chunked.average)


def test_a_budget_really_cuts_the_run_into_chunks(monkeypatch):
    from fedgauss.engine import chunks as module

    sizes = []
    original = module.advance
    monkeypatch.setattr(module, "advance", lambda a, c, *rest: sizes.append(c.theta.shape[-1]) or original(a, c, *rest))
    base()
    whole = sizes.copy()
    sizes.clear()
    base(memory_budget=5e4)
    assert max(sizes) < min(whole)
    assert len(sizes) > len(whole)


def test_segments_of_time_never_change_a_result(monkeypatch):
    from fedgauss.engine import chunks as module

    whole = base()
    monkeypatch.setattr(module.Chunks, "_first_segment", lambda self, count: 7)
    monkeypatch.setattr(module.Chunks, "_adapt", lambda self, *rest: None)
    np.testing.assert_array_equal(whole.path, base().path)


def test_more_replicates_keep_the_first_ones():
    np.testing.assert_allclose(base(replicates=40).path, base().path[:40], rtol=0, atol=0)


def test_a_longer_run_has_the_shorter_one_as_its_prefix():
    # Beyond 4096 steps arrays over time are longer, and so is the program another one.
    longer, shorter = base(n_steps=4100), base()
    np.testing.assert_array_equal(longer.path[:, :50], shorter.path)


def test_another_seed_gives_another_run():
    assert not np.array_equal(base().average, base(seed=5).average)


def test_a_sweep_compiles_once():
    def run(tau, gamma, rho, beta, seed, n):
        problem = fg.problems.random_effects(10, heterogeneity=gamma, seed=seed)
        network = fg.networks.lazy(10, rho)
        fg.simulate(problem, network, fg.step_sizes.polynomial(0.3, beta), n, sync_every=tau, replicates=400, seed=seed)

    run(5, 1.0, 0.5, 0.75, 0, 100)
    before = loop.advance._cache_size()
    for case in [
        (10, 1, 0.5, 0.75, 0, 100),
        (5, 4, 0.1, 0.9, 1, 100),
        (200, 0, 0.9, 0.6, 2, 250),
        (1, 2, 0, 0.8, 3, 7),
    ]:
        run(*case)
    assert loop.advance._cache_size() == before


def test_memory_of_folds_does_not_grow_with_the_length_of_a_run():
    from fedgauss.engine.observers import Average, Disagreement, Last, sup_partial_sum

    folds = (Average(), Last(), Disagreement(), sup_partial_sum([0.0, 0.0]))
    theta = np.zeros((2, 10, 1000), np.float32)
    for fold in folds:
        short, long = (jax.eval_shape(lambda n=n, fold=fold: fold.init(theta, n)) for n in (1_000, 100_000))
        assert short == long


@pytest.mark.parametrize(
    ("n_clients", "dim", "n", "tau"),
    [
        (1, 1, 1, 1),
        (2, 2, 3, 1),
        pytest.param(1, 3, 5, 2, marks=pytest.mark.study),
        pytest.param(3, 1, 4, 9, marks=pytest.mark.study),
    ],
)
def test_the_smallest_cases_work(n_clients, dim, n, tau):
    problem = fg.problems.random_effects(n_clients, dim, seed=1)
    network = None if n_clients == 1 else fg.networks.ring(n_clients)
    runs = fg.simulate(problem, network, STEPS, n, sync_every=tau, replicates=8, keep="path")
    eta, mask = STEPS.eta(n), fg.step_sizes.sync_mask(tau, n)
    path = oracle(problem, fg.networks.ring(n_clients), eta, mask, np.zeros(dim), 8, seed=0)
    np.testing.assert_allclose(runs.path, path[1:].mean(axis=1).transpose(2, 0, 1), atol=1e-5)


def test_never_synchronising_lets_clients_find_their_own_optimum():
    # Without noise in y, client k converges to beta_k; the mean of the last iterates is the mean of beta_k.
    problem = fg.problems.linear(np.arange(8.0).reshape(4, 2), noise_var=0.0)
    runs = fg.simulate(problem, fg.networks.ring(4), fg.step_sizes.polynomial(0.4, 0.6), 2000, sync_every=None)
    np.testing.assert_allclose(runs.last[0], [3.0, 4.0], atol=1e-3)


def test_one_long_run_is_accurate_in_float32():
    # 200,000 float32 terms added without compensation would drift by about 0.01.
    problem = fg.problems.linear([[1000.0]], noise_var=1.0)
    runs = fg.simulate(problem, None, fg.step_sizes.polynomial(0.2, 0.75), 200_000, start="optimum", keep="path")
    exact = runs.path[0].astype(float).mean()
    assert abs(runs.average[0, 0] - exact) <= 1000.0 * 2.4e-7  # two float32 spacings


def test_starts():
    lin = fg.linearize(fg.problems.random_effects(10, seed=1907))
    first = {"n_steps": 1, "replicates": 400, "sync_every": 1, "keep": None}
    frozen = np.full(1, 1e-12)  # a step this small leaves the start in place
    problem, ring = fg.problems.random_effects(10, seed=1907), fg.networks.ring(10)

    def started(start):
        return fg.simulate(problem, ring, frozen, **first, start=start).last

    np.testing.assert_allclose(started("zeros"), 0.0, atol=1e-6)
    np.testing.assert_allclose(started("optimum"), np.broadcast_to(lin.optimum, (400, 2)), rtol=1e-6)
    np.testing.assert_allclose(started([1.0, 2.0]), np.broadcast_to([1.0, 2.0], (400, 2)), rtol=1e-6)
    table = np.arange(20.0).reshape(10, 2)
    np.testing.assert_allclose(started(table)[0], table.mean(axis=0), rtol=1e-6)
    cube = np.random.default_rng(0).standard_normal((400, 10, 2))
    np.testing.assert_allclose(started(cube), cube.mean(axis=1), atol=1e-6)
    # False failure below 1e-5: standard deviations of 400 normals within 16 % (4.5 standard errors).
    shared, own = started(fg.near_optimum(0.25, shared=True)), started(fg.near_optimum(0.25))
    np.testing.assert_allclose(shared.std(axis=0), 0.25, rtol=0.16)
    np.testing.assert_allclose(own.std(axis=0), 0.25 / np.sqrt(10), rtol=0.16)


def test_projection_keeps_clients_inside():
    ball = base(sync_every=7, projection=fg.projections.ball(1.0))
    assert np.linalg.norm(ball.path, axis=2).max() <= 1.0 + 1e-6
    box = base(sync_every=7, projection=fg.projections.box([0, -1], 1.5))
    assert box.path[..., 0].min() >= 0.0
    assert box.path[..., 1].min() >= -1.0
    assert box.path.max() <= 1.5
    wide, free = base(sync_every=7, projection=fg.projections.ball(1e6)), base(sync_every=7)
    np.testing.assert_allclose(wide.average, free.average, rtol=1e-5)


def test_results_print_themselves():
    runs = base()
    text = str(replace(runs, observed=runs.observed | {"cusum": np.zeros((300, 50))}))
    assert "300 runs of local SGD: 10 clients, 50 steps" in text
    assert "cusum (300, 50)" in text


def test_asking_for_what_was_not_kept_says_how_to_keep_it():
    with pytest.raises(AttributeError, match=r"not 'cusum'. Ask for it with observe"):
        _ = base().cusum
