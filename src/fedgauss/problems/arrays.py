"""Real data: rows that belong to clients, read once in random order or drawn with replacement."""

from dataclasses import field
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax
from scipy.linalg import block_diag

from fedgauss import _checks
from fedgauss._random import Noise, threefry
from fedgauss._types import ArrayLike, FloatArray, IntArray, JaxArray
from fedgauss.data import mnist_scores
from fedgauss.families import Family, as_family
from fedgauss.problems.base import Moments, pytree
from fedgauss.problems.family_problem import FamilyProblem

Order = Literal["once", "replacement"]

# The digits that the paper's label-flipping attack swaps.
MNIST_FLIP = ((1, 7), (2, 5), (4, 8))


@pytree
class ArrayProblem(FamilyProblem):
    """Rows sorted by client: client k holds the `counts[k]` rows from `firsts[k]` on."""

    serves_some = True

    features: FloatArray  # (N, p)
    response: FloatArray  # (N,)
    counts: IntArray  # (K,)
    firsts: IntArray  # (K,)
    weights: FloatArray  # (K,)
    family: Family = field(metadata={"static": True})
    order: Order = field(metadata={"static": True})

    @property
    def dim(self) -> int:
        """d."""
        return int(np.shape(self.features)[1]) * self.family.n_outputs

    def sample(self, noise: Noise, t: JaxArray) -> tuple[JaxArray, JaxArray]:
        """One row for each client and replicate: x (p, K, R) and y (K, R)."""
        counts = jnp.broadcast_to(jnp.uint32(noise.per_client(self.counts)), noise.shape)
        if self.order == "once":
            assert noise.of_run is not None
            row = _shuffled(noise.of_run.stream("order"), jnp.broadcast_to(jnp.uint32(t) - 1, noise.shape), counts)
        else:
            row = noise.stream("rows").words(1)[0] % counts
        place = jnp.uint32(noise.per_client(self.firsts)) + row
        return jnp.moveaxis(jnp.asarray(self.features)[place], -1, 0), jnp.asarray(self.response)[place]

    def max_steps(self) -> int | None:
        """One pass ends with the smallest client."""
        return int(np.min(self.counts)) if self.order == "once" else None

    def moments(self, theta: FloatArray) -> Moments:
        """Of each client's own rows, as a population."""
        parameter = np.asarray(theta, float)
        residuals, slopes = _residuals(self.family, parameter, self.features, self.response)
        clients = [
            _row_moments(parameter, self.features[i : i + m], residuals[:, i : i + m], slopes[:, i : i + m])
            for i, m in zip(self.firsts, self.counts, strict=True)
        ]
        return Moments(*(np.stack(part) for part in zip(*clients, strict=True)))

    def guess(self) -> FloatArray:
        """Least squares on all rows, for the families whose responses follow the predictor itself."""
        if not self.family.additive:
            return np.zeros(self.dim)
        owner = np.repeat(np.arange(self.n_clients), self.counts)
        scale = np.sqrt(np.asarray(self.weights)[owner] / self.counts[owner])
        fitted, *_ = np.linalg.lstsq(self.features * scale[:, None], self.response * scale, rcond=None)
        return np.asarray(fitted, dtype=float)


def from_arrays(
    features: ArrayLike,
    response: ArrayLike,
    clients: ArrayLike,
    family: str | Family = "linear",
    *,
    order: Order = "once",
    weights: ArrayLike | Literal["rows"] | None = None,
    n_classes: int | None = None,
) -> ArrayProblem:
    """A regression on rows of your own, each of which belongs to a client.

    Parameters
    ----------
    features : (N, p) array_like
        Add a column of ones for an intercept.
    response : (N,) array_like
    clients : (N,) array_like
        The client of each row. Clients are numbered in the sorted order of their labels.
    family : str or Family
        A registered name ("linear", "logistic", "poisson", "huber", "one_versus_rest", ...), or an instance.
    order : {"once", "replacement"}
        Whether each replicate reads every client's rows once, in a random order of its own, or each step draws a row.
    weights : (K,) array_like or "rows", optional
        Equal by default; "rows" for w_k = n_k / N, whose optimum is that of the pooled rows.
    n_classes : int, optional
        For families with an output for each class; one more than the largest response by default.

    Returns
    -------
    ArrayProblem

    Examples
    --------
    >>> problem = fg.problems.from_arrays(x, died, hospital, "logistic", weights="rows")
    """
    x = _checks.real_array("features", features, shape=(None, None))
    y = _checks.real_array("response", response, shape=(len(x),), fix="Give one response a row.")
    labels = np.asarray(clients)
    if labels.shape != y.shape:
        raise ValueError(f"clients must name one client a row, shape {y.shape}; got {labels.shape}.")
    if not x.size:
        raise ValueError(f"features must have at least one row and one column; got shape {x.shape}.")
    _checks.one_of("order", order, ["once", "replacement"])
    chosen = as_family(family)
    chosen.check_sgd()
    if chosen.by_class and isinstance(family, str):
        n_classes = int(y.max()) + 1 if n_classes is None else n_classes
        chosen = chosen.with_classes(_checks.whole("n_classes", n_classes, at_least=2))
    chosen.check_response(y)
    names, owner = np.unique(labels, return_inverse=True)
    counts = np.bincount(owner)
    by_client = np.argsort(owner, kind="stable")
    by_rows = isinstance(weights, str) and _checks.one_of("weights", weights, ["rows"]) == "rows"
    w = counts / counts.sum() if by_rows else _checks.client_weights(weights, len(names))
    return ArrayProblem(x[by_client], y[by_client], counts, np.cumsum(counts) - counts, w, chosen, order)


def mnist(
    n_clients: int = 5,
    seed: int = 0,
    *,
    scores: ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
    order: Order = "replacement",
    weights: ArrayLike | Literal["rows"] | None = None,
) -> ArrayProblem:
    """MNIST as the paper has it: ten one-versus-rest losses on (scores, 1), d = 10 x (3 + 1); rows split at random.

        f(theta, (x, y)) = sum_c log(1 + exp(x'theta_c)) - x'theta_y

    No ridge is needed: with an elementwise sigmoid the Hessian is positive definite (a softmax would leave a constant
    added to every theta_c undetermined).

    Parameters
    ----------
    n_clients : int
        K; their numbers of rows differ by one at most.
    seed : int
        Fixes the split.
    scores : (N, p) array_like, optional
        In place of the training set that comes with the package: for example
        data.principal_scores(data.read_images(path), 3), with labels data.read_labels(path).
    labels : (N,) array_like, optional
        One for each row of `scores`.
    order, weights
        As for `from_arrays`.

    Returns
    -------
    ArrayProblem
    """
    if (scores is None) != (labels is None):
        raise ValueError("scores and labels belong together: give both, or neither for those of the package.")
    if scores is None or labels is None:
        scores, labels = mnist_scores()
    x = _checks.real_array("scores", scores, shape=(None, None))
    n_clients = _checks.whole("n_clients", n_clients, at_most=len(x), fix="Every client needs a row.")
    order_of_rows = np.random.default_rng(_checks.seed(seed)).permutation(len(x))
    client = np.empty(len(x), dtype=np.int64)
    client[order_of_rows] = np.arange(len(x)) % n_clients
    with_intercept = np.column_stack([x, np.ones(len(x))])
    return from_arrays(with_intercept, labels, client, "one_versus_rest", order=order, weights=weights, n_classes=10)


def checked_weights(weights: Any, n_clients: int) -> Any:
    """Weights as `from_arrays` takes them: "rows", None for equal ones, or numbers."""
    if isinstance(weights, str):
        return None if _checks.one_of("weights", weights, ["rows", "equal"]) == "equal" else "rows"
    return None if weights is None else _checks.client_weights(weights, n_clients)


def _residuals(family: Family, theta: FloatArray, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The residuals of the rows (N, p) and their slopes in the predictors, (C, N), in float64."""
    with jax.enable_x64(True):
        value, slope = _with_slope(family, jnp.asarray(theta.reshape(family.n_outputs, -1) @ x.T), jnp.asarray(y))
        return np.asarray(value), np.asarray(slope)


@partial(jax.jit, static_argnames="family")
def _with_slope(family: Family, predictor: JaxArray, response: JaxArray) -> tuple[JaxArray, JaxArray]:
    columns = predictor[:, :, None]
    value, slope = jax.jvp(lambda eta: family.residual(eta, response[:, None]), (columns,), (jnp.ones_like(columns),))
    return value[..., 0], slope[..., 0]


def _row_moments(theta: FloatArray, x: FloatArray, r: FloatArray, s: FloatArray) -> tuple:
    """Mean gradient, mean Hessian and gradient covariance over rows (m, p), from residuals and slopes (C, m)."""
    gradients = (r[:, None] * x.T).reshape(theta.size, -1)
    blocks = [(x * weight[:, None]).T @ x / len(x) for weight in s]
    noise_cov = np.cov(gradients, ddof=0).reshape(theta.size, theta.size)
    return gradients.mean(axis=1), block_diag(*blocks), noise_cov


def _shuffled(noise: Noise, place: JaxArray, counts: JaxArray) -> JaxArray:
    """A pseudo-random permutation of {0, ..., counts - 1} at `place`, one for each client and replicate.

    Twelve Feistel rounds (four leave small ranges visibly uneven) permute {0, ..., 4^b - 1}, the least such
    range that holds `counts`; a value outside
    is permuted again until it lands inside (Black and Rogaway 2002). Nothing is stored.
    """
    keys = noise.words(2)
    place = place % counts  # a start outside could walk a cycle that never comes inside
    half = jnp.uint32((33 - lax.clz(counts - 1)) // 2)
    mask = (jnp.uint32(1) << half) - 1
    # A loop compiles in a fifth of the time, but an accelerator would start a program for each of its turns.
    written_out = jax.default_backend() != "cpu"

    def turn(number: JaxArray, halves: tuple[JaxArray, JaxArray]) -> tuple[JaxArray, JaxArray]:
        left, right = halves
        mixed, _ = threefry((keys[0], keys[1]), right, jnp.uint32(number))
        return right, left ^ (mixed & mask)

    def walk(state: tuple[JaxArray, JaxArray]) -> tuple[JaxArray, JaxArray]:
        value, inside = state
        left, right = lax.fori_loop(0, 12, turn, (value >> half, value & mask), unroll=written_out)
        value = jnp.where(inside, value, (left << half) | right)
        return value, value < counts

    return lax.while_loop(lambda state: ~jnp.all(state[1]), walk, (place, jnp.zeros_like(place, bool)))[0]
