"""Problems on rows the user has."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import fedgauss as fg
from fedgauss._random import Noise, stage_key
from fedgauss.problems.arrays import _shuffled

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
Y = X @ [1.0, -1.0, 0.5] + RNG.standard_normal(60)
CLIENTS = np.repeat(["b", "a", "c"], [30, 20, 10])
RING = fg.networks.ring(3)


def test_every_row_is_read_once_in_an_order_of_each_replicate():
    import jax

    counts = jnp.broadcast_to(jnp.uint32([37, 20, 1])[:, None], (3, 8))
    noise = Noise(stage_key(0, "data"), jnp.uint32(0), 3, 8)
    read = jax.jit(lambda t: _shuffled(noise, jnp.full((3, 8), t, jnp.uint32), counts))
    rows = np.stack([np.asarray(read(t)) for t in range(37)])
    for k, count in enumerate([37, 20, 1]):
        np.testing.assert_array_equal(np.sort(rows[:count, k], axis=0), np.arange(count)[:, None] + np.zeros((1, 8)))
    assert len({tuple(rows[:, 0, r]) for r in range(8)}) == 8


@pytest.mark.parametrize("rows", [3, 8, *(pytest.param(n, marks=pytest.mark.study) for n in (5, 16))])
def test_every_order_of_two_rows_is_equally_likely(rows):
    # Chi-squared on the ordered pair of first rows, at 2e-5 each. Four Feistel rounds fail it at once.
    import jax
    from scipy import stats

    counts = jnp.full((1, 40_000), rows, jnp.uint32)
    noise = Noise(stage_key(3, "data"), jnp.uint32(0), 1, 40_000)
    read = jax.jit(lambda t: _shuffled(noise, jnp.full((1, 40_000), t, jnp.uint32), counts))
    first, second = (np.asarray(read(t))[0].astype(int) for t in (0, 1))
    pairs = np.bincount(first * rows + second, minlength=rows * rows)
    pairs = np.delete(pairs, np.arange(rows) * (rows + 1))
    assert stats.chisquare(pairs).pvalue > 2e-5


def test_one_pass_over_the_rows_is_plain_sgd():
    # With one client every row is used once; replaying the order it was read in gives the engine's own path.
    import jax

    problem = fg.problems.from_arrays(X, Y, np.zeros(60))
    noise = Noise(stage_key(5, "data"), jnp.uint32(0), 1, 1)
    draw = jax.jit(lambda t: problem.sample(noise.at_step(t), t))
    theta, eta = np.zeros(3), fg.step_sizes.polynomial(0.1, 0.6).eta(60)
    seen = []
    for t in range(1, 61):
        x, y = (np.asarray(part, float).ravel() for part in draw(jnp.int32(t)))
        seen.append(int(np.argmin(np.abs(X - x).sum(axis=1))))
        theta = theta - eta[t - 1] * x * (x @ theta - y)
    assert sorted(seen) == list(range(60))
    runs = fg.simulate(problem, None, eta, 60, seed=5)
    np.testing.assert_allclose(runs.last[0], theta, atol=1e-5)


def test_clients_are_sorted_by_label_and_weights_can_follow_their_rows():
    problem = fg.problems.from_arrays(X, Y, CLIENTS, weights="rows")
    np.testing.assert_allclose(problem.weights, [20 / 60, 30 / 60, 10 / 60])
    lin = fg.linearize(problem)
    pooled = np.linalg.lstsq(X, Y, rcond=None)[0]
    np.testing.assert_allclose(lin.optimum, pooled, atol=1e-10)
    rows = X[CLIENTS == "a"]
    np.testing.assert_allclose(lin.client_hessians[0], rows.T @ rows / 20)
    residual = rows @ pooled - Y[CLIENTS == "a"]
    np.testing.assert_allclose(lin.client_noise_cov[0], np.cov((rows * residual[:, None]).T, ddof=0))


@pytest.mark.parametrize(
    "family", ["logistic", *(pytest.param(f, marks=pytest.mark.study) for f in ("poisson", "huber", "one_versus_rest"))]
)
def test_every_family_finds_its_optimum_on_rows(family):
    y = {"logistic": (Y > 0), "poisson": np.floor(np.abs(Y)), "huber": Y, "one_versus_rest": np.digitize(Y, [-1, 1])}
    problem = fg.problems.from_arrays(X, y[family].astype(float), CLIENTS, family, order="replacement")
    lin = fg.linearize(problem)
    np.testing.assert_allclose(lin.weights @ problem.moments(lin.optimum).gradient, 0.0, atol=1e-9)
    runs = fg.simulate(problem, RING, fg.step_sizes.polynomial(0.05, 0.6), 30, start="optimum", replicates=8)
    assert np.isfinite(runs.average).all()


def test_rows_drawn_with_replacement_average_to_the_rows():
    # False failure: 3 clients x 3 columns beyond 5 standard errors, below 6e-6. Catches padding rows being read.
    import jax

    problem = fg.problems.from_arrays(X + 5, Y, CLIENTS, order="replacement")
    noise = Noise(stage_key(0, "data"), jnp.uint32(0), 3, 40_000)
    x, _ = jax.jit(lambda: problem.sample(noise.at_step(jnp.int32(1)), jnp.int32(1)))()
    for k, label in enumerate(["a", "b", "c"]):
        rows = X[label == CLIENTS] + 5
        z = (np.asarray(x)[:, k].mean(axis=1) - rows.mean(axis=0)) / (rows.std(axis=0) / 200)
        assert np.abs(z).max() < 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"response": Y[:-1]}, r"response must have shape \(60,\); got \(59,\). Give one response a row"),
        ({"clients": CLIENTS[:-1]}, "clients must name one client a row"),
        ({"features": np.where(X[3, 1] == X, np.nan, X)}, r"features must be finite; got nan at index \(3, 1\)"),
        ({"family": "logistic"}, "logistic responses must be 0 or 1; row 0 is"),
        ({"family": "poisson", "response": np.abs(Y)}, "poisson responses must be counts"),
        ({"family": "logits"}, "family must be one of .*'logistic'"),
        ({"family": "one_versus_rest", "n_classes": 2, "response": np.arange(60)}, "classes 0 to 1; row 2 is 2"),
        ({"order": "twice"}, "order must be one of 'once', 'replacement'"),
        ({"weights": "row"}, "Did you mean 'rows'"),
        ({"features": np.zeros((0, 3)), "response": [], "clients": []}, "at least one row"),
    ],
)
def test_bad_data_is_refused(changes, message):
    arguments = {"features": X, "response": Y, "clients": CLIENTS} | changes
    with pytest.raises(ValueError, match=message):
        fg.problems.from_arrays(**arguments)


def test_runs_need_no_optimum():
    doubled = np.column_stack([X, X[:, 0]])
    runs = fg.simulate(fg.problems.from_arrays(doubled, Y, CLIENTS), RING, fg.step_sizes.polynomial(0.05, 0.6), 5)
    assert np.isfinite(runs.average).all()


def test_newton_finds_far_optima():
    far = fg.problems.from_arrays(X, X @ [50.0, -80.0, 3.0] + 0.1 * Y, CLIENTS, "huber", order="replacement")
    assert np.isfinite(fg.linearize(far).optimum).all()
    lin = fg.linearize(fg.problems.poisson([[2.0, 1.0], [1.0, 2.0]]))
    np.testing.assert_allclose(lin.optimum, lin.optimum[::-1], rtol=1e-8)


def test_collinear_columns_and_separable_classes_have_no_optimum():
    doubled = np.column_stack([X, X[:, 0]])
    with pytest.raises(ValueError, match=r"singular .* collinear"):
        fg.linearize(fg.problems.from_arrays(doubled, Y, CLIENTS))
    with pytest.raises(ValueError, match="separable"):
        fg.linearize(fg.problems.from_arrays(X, (X[:, 0] > 0).astype(float), CLIENTS, "logistic"))
