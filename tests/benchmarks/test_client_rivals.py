"""Rival rules of `benchmarks/client_rivals.py` against slow twins, straight from their definitions."""

import itertools
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform
from scipy.stats import trim_mean

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import client_rivals
import rival_flanders
import rival_fldetector as fldetector
import rival_rounds
import robust_means
from federated_runs import Attack

pytestmark = pytest.mark.study
RNG = np.random.default_rng(1)
MOVES = RNG.normal(size=(11, 40)).astype(np.float32)


def krum_scores(moves, f):
    """Of each client, the sum of squared distances to its n - f - 2 nearest."""
    n = len(moves)
    apart = [[float(((a - b) ** 2).sum()) for b in moves] for a in moves]
    return [sum(sorted(row[:i] + row[i + 1 :])[: n - f - 2]) for i, row in enumerate(apart)]


@pytest.mark.parametrize("f", [1, 2])
def test_robust_means(f):
    n = len(MOVES)
    order = np.argsort(krum_scores(MOVES, f))
    chosen = MOVES[order[: n - 2 * f]]
    off = np.abs(chosen - np.median(chosen, axis=0))
    nearest = [c[np.argsort(o)[: n - 4 * f]] for c, o in zip(chosen.T, off.T, strict=True)]
    expected = {
        "median": np.median(MOVES, axis=0),
        "trimmed mean": trim_mean(MOVES, (f + 0.5) / n, axis=0),
        "Krum": MOVES[order[0]],
        "MultiKrum": MOVES[order[: n - f]].mean(axis=0),
        "Bulyan": np.mean(nearest, axis=1),
    }
    assert set(expected) == set(robust_means.RULES)
    for name, rule in robust_means.RULES.items():
        np.testing.assert_allclose(rule(jnp.asarray(MOVES), f), expected[name], atol=1e-6, err_msg=name)


def test_bulyan_says_how_many_clients_it_needs():
    with pytest.raises(ValueError, match="15 clients; there are 11"):
        robust_means.bulyan(jnp.asarray(MOVES), 3)


def test_lbfgs_is_the_updates_of_bfgs_one_after_the_other():
    runs, n, d = 2, 4, 12
    a = RNG.normal(size=(runs, d, d))
    curvature = a @ a.swapaxes(1, 2) / d + np.eye(d)
    steps = RNG.normal(size=(n, runs, d))
    turns, vector = np.einsum("rij,nrj->nri", curvature, steps), RNG.normal(size=(runs, d))
    expected = []
    for run in range(runs):
        s, y = steps[-1, run], turns[-1, run]
        b = s @ y / (s @ s) * np.eye(d)
        for s, y in zip(steps[:, run], turns[:, run], strict=True):
            b = b - np.outer(b @ s, b @ s) / (s @ b @ s) + np.outer(y, y) / (s @ y)
        expected.append(b @ vector[run])
    found = fldetector.hessian_times(*(jnp.asarray(x, jnp.float32) for x in (steps, turns, vector)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_clusters_on_a_line_are_the_best_of_all():
    values = RNG.uniform(size=(3, 7))

    def within(row, labels):
        return sum(row[labels == c].var() * (labels == c).sum() for c in set(labels))

    for row, found in zip(values, fldetector.spreads(values, 3), strict=True):
        best = [
            min(within(row, np.array(labels)) for labels in itertools.product(range(k), repeat=7)) for k in (1, 2, 3)
        ]
        np.testing.assert_allclose(found, best, atol=1e-12)


def test_fldetector_names_the_cluster_apart_and_else_nobody():
    """Fixed seed. Scores far apart are split for certain; a comb of equal gaps is less clustered than any sample."""
    rng = np.random.default_rng(2)
    apart = np.concatenate([1.0 + 0.01 * rng.uniform(size=(50, 8)), 2.0 + 0.01 * rng.uniform(size=(50, 2))], axis=1)
    named = fldetector.named_by(apart, rng)
    assert named[:, 8:].all()
    assert not named[:, :8].any()
    comb = np.tile(np.arange(10.0), (50, 1))
    assert not fldetector.named_by(comb, rng).any()


def test_fldetector_sees_moves_that_no_longer_follow_the_curvature():
    """Clients on one quadratic, of which two turn round: their predictions fail at once, others' hardly at all."""
    runs, k, d = 3, 10, 8
    rng = np.random.default_rng(3)
    curvature = np.linspace(0.05, 0.3, d)
    optima, model = rng.normal(size=(runs, k, d)), rng.normal(size=(runs, d))
    watch, named = fldetector.FLDetector(runs), []
    for number in range(1, 32):
        moves = curvature * (optima - model[:, None]) + 1e-3 * rng.normal(size=(runs, k, d))
        if number == 31:
            moves[:, :2] *= -1
        named.append(watch.update(jnp.asarray(model, jnp.float32), jnp.asarray(moves, jnp.float32)))
        model = model + moves.mean(axis=1)
    assert not np.any(named[:20])  # no predictions in rounds 1 to 11, too few for a score in 12 to 20
    assert named[30][:, :2].all()
    assert not named[30][:, 2:].any()


def slow_forecast(past):
    """The alternating ridge regressions with B itself, parameters by parameters."""
    _, k, n = past.shape
    a = np.eye(k)

    def of_b(a):
        left = sum((a @ x).T @ (a @ x) for x in past[:-1]) + rival_flanders.PENALTY * np.eye(n)
        return np.linalg.solve(left, sum((a @ x).T @ y for x, y in itertools.pairwise(past)))  # B'

    for _ in range(rival_flanders.ALTERNATIONS):
        b = of_b(a)
        own = sum(x @ b @ b.T @ x.T for x in past[:-1]) + rival_flanders.PENALTY * np.eye(k)
        a = sum(y @ b.T @ x.T for x, y in itertools.pairwise(past)) @ np.linalg.inv(own)
    return a @ past[-1] @ of_b(a)


def test_flanders_forecasts_as_with_the_whole_matrix():
    history = RNG.normal(size=(2, rival_flanders.WINDOW, 6, 50)).cumsum(axis=1)
    uploads = history[:, -1] + RNG.normal(size=(2, 6, 50))
    found = rival_flanders.residuals(jnp.asarray(history, jnp.float32), jnp.asarray(uploads, jnp.float32))
    for run in range(2):
        low, high = history[run].min(), history[run].max()
        expected = slow_forecast((history[run] - low) / (high - low))
        off = np.linalg.norm((uploads[run] - low) / (high - low) - expected, axis=1)
        np.testing.assert_allclose(found[run], off, rtol=1e-3)


def test_flanders_names_those_far_from_the_forecast():
    runs, k, d = 2, 6, 50
    rng = np.random.default_rng(4)
    model, watch = rng.normal(size=(runs, d)), rival_flanders.Flanders(d, keep=4)
    for number in range(1, 14):
        moves = 0.01 * rng.normal(size=(runs, k, d))
        if number == 13:
            moves[:, :2] *= 100
        named = watch.update(jnp.asarray(model, jnp.float32), jnp.asarray(moves, jnp.float32))
        assert (named.sum(axis=1) == (2 if number > rival_flanders.WINDOW else 0)).all()
    assert named[:, :2].all()


def test_flame_keeps_what_hdbscan_keeps():
    cluster = pytest.importorskip("sklearn.cluster")
    points = RNG.normal(size=(30, 10, 3))
    distances = np.linalg.norm(points[:, :, None] - points[:, None], axis=-1)
    dropped = rival_rounds.outside_the_majority(distances)
    for run in range(30):
        hdbscan = cluster.HDBSCAN(
            min_cluster_size=6, min_samples=1, metric="precomputed", allow_single_cluster=True, copy=True
        )
        np.testing.assert_array_equal(hdbscan.fit_predict(distances[run]) == -1, dropped[run])
    assert 0 < dropped.mean() <= 0.4


def test_flame_keeps_the_first_large_component_of_single_linkage():
    points = RNG.normal(size=(9, 3))
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    groups = {i: {i} for i in range(9)}
    for i, (a, b, _, size) in enumerate(linkage(squareform(distances, checks=False), "single")):
        groups[9 + i] = groups[int(a)] | groups[int(b)]
        if size >= 5:
            break
    dropped = rival_rounds.outside_the_majority(distances[None])[0]
    assert set(np.flatnonzero(~dropped)) == groups[9 + i]


def test_robust_z():
    moves = np.random.default_rng(5).normal(size=(1, 10, 2000)) + 3.0
    moves[0, 3] *= 2  # its norm
    moves[0, 4, :1000] *= -1  # its direction
    assert set(np.flatnonzero(rival_rounds.robust_z(moves @ moves.swapaxes(1, 2))[0])) >= {3, 4}


def test_figures_of_names():
    """Two bad clients from round 41 of 45: seen late and half in one run, after a false alarm in one, unseen in one."""
    named = np.zeros((45, 3, 10), bool)
    named[42, 0, [0, 5]] = True  # round 43
    named[20, 1, 7] = True
    named[40, 1, [0, 1]] = True
    row = client_rivals.attacked_row(named, Attack("flip", 2))
    assert (row["seen"], row["median delay"]) == (pytest.approx(2 / 3), 3)
    assert (row["recall"], row["wrong names"]) == (3 / 4, 1 / 4)
    assert (row["quiet before"], row["quiet before, then seen"]) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert row["recall a round"] == pytest.approx(3 / (5 * 3 * 2))
    assert row["honest named a round"] == pytest.approx(1 / 15)
    honest = client_rivals.honest_row(named)
    assert honest["ever names anyone"] == pytest.approx(2 / 3)
    assert honest["named a round"] == pytest.approx(5 / (34 * 3))
