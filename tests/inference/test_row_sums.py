"""Sums over rows, read in blocks, beside plain loops."""

import numpy as np
import pytest

import fedgauss as fg
from fedgauss._random import stage_key
from fedgauss.inference import row_sums
from fedgauss.inference.client_steps import row_batches
from fedgauss.inference.client_sums import second_derivative
from fedgauss.inference.read_once import ReadOnce
from fedgauss.inference.row_sums import RowRange

D = 3


def logistic_rows(owner):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((60, D)), rng.integers(0, 2, 60).astype(float)
    return row_batches(fg.problems.from_arrays(x, y, owner, "logistic"))


def read(problem, replicates, first, last):
    return RowRange(problem, stage_key(0, "data"), np.arange(replicates), first, last)


@pytest.mark.parametrize(("first", "last"), [(0, 60), (5, 60), (7, 8), (3, 20)])
def test_sums_are_those_of_rows_at_the_parameter_of_each_replicate(first, last, monkeypatch):
    """With 70 replicates in chunks of 16, the last of them padded, and segments of 16 rows."""
    monkeypatch.setattr(row_sums, "_CACHE", 1)
    monkeypatch.setattr(row_sums, "_SEGMENT", 16)
    problem, theta = logistic_rows(np.zeros(60)), np.random.default_rng(2).standard_normal((70, D))
    found = read(problem, 70, first, last).sums_at(theta)
    x, y = (np.asarray(part[first:last], dtype=float) for part in (problem.rows.features, problem.rows.response))
    for r in (0, 33, 69):
        p = 1 / (1 + np.exp(-x @ theta[r]))
        g = (p - y)[:, None] * x
        np.testing.assert_allclose(found.gradients[r, 0], g.sum(axis=0), atol=1e-4)
        np.testing.assert_allclose(found.squares[r, 0], g.T @ g, atol=1e-4)
        np.testing.assert_allclose(found.largest[r, 0], np.abs(g).max(axis=0), atol=1e-6)
        np.testing.assert_allclose(found.hessians[r, 0], (x * (p * (1 - p))[:, None]).T @ x, atol=1e-4)


def test_clients_of_unequal_size_add_up_their_own_rows():
    """12 rows and 48 in 30 steps: the first client rests, the second reads up to two rows at once."""
    problem = logistic_rows(np.repeat([0, 1], [12, 48]))
    found = read(problem, 1, 0, problem.n_steps).sums_at(np.zeros((1, D)))
    x = np.asarray(problem.rows.features, dtype=float)
    for k, rows in enumerate((x[:12], x[12:])):
        np.testing.assert_allclose(found.hessians[0, k], rows.T @ rows / 4 * 30 / len(rows), rtol=1e-5)


def test_bends_and_fourth_moments_are_those_of_rows():
    problem, rng = logistic_rows(np.zeros(60)), np.random.default_rng(3)
    theta, r, root = rng.standard_normal(D), rng.standard_normal(D), rng.standard_normal((D, D))
    x, y = (np.asarray(part[:27], dtype=float) for part in (problem.rows.features, problem.rows.response))

    def p(at):
        return 1 / (1 + np.exp(-x @ at))

    rows = read(problem, 1, 0, 27)
    bends = (p(r) + p(r) * (1 - p(r)) * (x @ (theta - r)) - p(theta))[:, None] * x
    mean, cov = rows.bends_at(theta[None], r[None])
    np.testing.assert_allclose(mean[0, 0], bends.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(cov[0, 0], np.cov(bends.T, ddof=0) / 26, atol=1e-6)
    g = (p(theta) - y)[:, None] * x
    u, w = g - g.mean(axis=0), root @ root.T
    found = rows.fourths_at(theta[None], g.mean(axis=0)[None, None], w[None])
    np.testing.assert_allclose(found[0, 0], np.sum(np.einsum("ti,ij,tj->t", u, w, u) ** 2), rtol=1e-4)


@fg.problems.pytree
class Cubes(fg.problems.Problem):
    """theta^4 / 4 in each coordinate, and noise: second derivatives have no factors that anybody told."""

    weights: np.ndarray
    dim = 2

    def sample(self, noise, t):
        return noise.normal(2)

    def gradient(self, theta, data):
        return theta**3 + data


def test_second_derivatives_without_factors_count_rows_once():
    """11 rows in blocks of eight: five places of the second block must add nothing."""
    theta = np.array([[1.0, 2.0]])
    found = read(Cubes(np.full(2, 0.5)), 1, 0, 11).sums_at(theta)
    np.testing.assert_allclose(found.hessians[0, 1], np.diag([33.0, 132.0]), rtol=1e-6)


def test_long_sums_keep_their_digits():
    """100,000 rows whose gradient is 1.1: added up in single precision the sum would be off by 2e-4 of itself."""
    x = np.full((100_000, 1), 1.1)
    problem = row_batches(fg.problems.from_arrays(x, np.zeros(100_000), np.zeros(100_000), "linear"))
    found = read(problem, 1, 0, 100_000).sums_at(np.ones((1, 1)))
    np.testing.assert_allclose(found.hessians[0, 0, 0, 0], 121_000.0, rtol=2e-6)


def test_gradients_are_those_at_the_parameter_and_not_at_what_it_is_rounded_to():
    """Near 1e6 single precision knows every sixteenth: the mean gradient would be .03, where it vanishes."""
    y = np.array([1e6, 1e6, 1e6, 1e6 + 0.125])
    problem = row_batches(fg.problems.from_arrays(np.ones((4, 1)), y, np.zeros(4), "linear"))
    found = read(problem, 1, 0, 4).sums_at(np.array([[1e6 + 0.03125]]))
    np.testing.assert_allclose(found.gradients, 0.0, atol=1e-9)


@pytest.mark.parametrize("family", ["linear", "logistic", "poisson", "huber"])
def test_factors_are_those_of_the_second_derivative(family):
    """Beside derivatives of the gradient along each direction."""
    rng = np.random.default_rng(4)
    rows = fg.problems.from_arrays(rng.standard_normal((40, D)), rng.integers(0, 2, 40), np.arange(40) % 2, family)
    problem = row_batches(rows)
    theta = np.float32(rng.standard_normal((D, 2, 5)))
    noise = fg._random.Noise(stage_key(0, "data"), np.uint32(0), 2, 5)
    data = problem.sample(noise.at_step(3), np.int32(3))
    wanted = np.stack([
        problem.curvature(theta, data, np.broadcast_to(direction[:, None, None], theta.shape))
        for direction in np.eye(D, dtype=np.float32)
    ])  # fmt: skip
    np.testing.assert_allclose(second_derivative(problem, theta, data), wanted, atol=1e-5)


def test_rows_read_once_at_several_references_add_up():
    """Gradients of linear models are straight: carried along over three references they are those of all rows."""
    rng = np.random.default_rng(6)
    problem, theta = fg.problems.linear(rng.standard_normal((3, 2))), rng.standard_normal((4, 2))
    once, parts = ReadOnce.nothing(4, 3, 2), []
    for first, last in ((0, 10), (10, 25), (25, 60)):
        place = rng.standard_normal((4, 2)).astype(np.float32).astype(float)
        once = once.and_also(read(problem, 4, first, last), place)
        parts.append(read(problem, 4, first, last).sums_at(place))
    whole = read(problem, 4, 0, 60).sums_at(theta)
    np.testing.assert_allclose(once.gradients_at(theta), whole.gradients, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(once.hessians, whole.hessians, rtol=1e-5)
    np.testing.assert_allclose(once.squares, sum(part.squares for part in parts), rtol=1e-12)
    np.testing.assert_array_equal(once.largest, np.max([part.largest for part in parts], axis=0))
    assert once.n_rows == 60
    some = once.of_runs(np.array([3, 1]))
    np.testing.assert_array_equal(some.gradients_at(theta[[3, 1]]), once.gradients_at(theta)[[3, 1]])
