"""What the theory needs to know of a problem: optimum, Hessians and gradient noise."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedgauss import _checks
from fedgauss._shown import Shown
from fedgauss._types import ArrayLike, FloatArray


class Moments(NamedTuple):
    """Client risks at one parameter: gradient (K, d), Hessian (K, d, d), gradient covariance (K, d, d)."""

    gradient: FloatArray
    hessian: FloatArray
    noise_cov: FloatArray


@dataclass(frozen=True, repr=False)
class Linearization(Shown):
    """Local SGD near its optimum, as Sections 2 and 3 of the paper see it.

    Parameters
    ----------
    optimum : array of shape (d,)
        theta*_K, the minimiser of sum_k w_k F_k.
    client_hessians : array of shape (K, d, d)
        The Hessian of F_k at theta*_K.
    client_noise_cov : array of shape (K, d, d)
        Var(W^k), the covariance of client k's gradient at theta*_K.
    weights : array of shape (K,)
        w_k.
    standard_errors : dict of str to array
        Of `optimum`, `hessian`, `noise_cov` and so on when they were estimated, else empty.
    n_warmup : int, optional
        The steps that clients estimated their matrices from, None when exact.
    dof : float, optional
        Degrees of freedom behind an estimated `noise_cov`, None when exact.
    kurtosis : array of shape (K,), optional
        Of the clients' gradients, 1 for Gaussian ones (`gradient_moments`); None when not known.
    client_gradients : array of shape (K, d), optional
        Of F_k at theta*_K, by which clients differ; None when not known.

    Examples
    --------
    >>> import fedgauss as fg
    >>> lin = fg.linearize(fg.problems.random_effects(n_clients=10, seed=1907))
    >>> lin.n_clients, lin.dim, lin.dof
    (10, 2, None)
    """

    optimum: FloatArray
    client_hessians: FloatArray
    client_noise_cov: FloatArray
    weights: FloatArray
    standard_errors: dict[str, FloatArray] = field(default_factory=dict)
    n_warmup: int | None = None
    dof: float | None = None
    kurtosis: FloatArray | None = None
    client_gradients: FloatArray | None = None

    def __post_init__(self) -> None:
        # Linearisations are cached and shared: nobody may change one in place.
        for name in ("optimum", "client_hessians", "client_noise_cov", "weights", "kurtosis", "client_gradients"):
            if getattr(self, name) is not None:
                array = np.array(getattr(self, name), dtype=float)
                array.setflags(write=False)
                object.__setattr__(self, name, array)

    @property
    def n_clients(self) -> int:
        """K."""
        return len(self.weights)

    @property
    def dim(self) -> int:
        """d."""
        return len(self.optimum)

    @cached_property
    def hessian(self) -> FloatArray:
        """A = sum_k w_k (Hessian of F_k at theta*_K)."""
        return np.einsum("k,kij->ij", self.weights, self.client_hessians)

    @cached_property
    def noise_cov(self) -> FloatArray:
        """V_K = Var(sum_k w_k W^k) = sum_k w_k^2 Var(W^k), of order 1/K."""
        return np.einsum("k,kij->ij", self.weights**2, self.client_noise_cov)

    def __str__(self) -> str:
        exact = "estimated" if self.standard_errors or self.dof is not None else "exact"
        with np.printoptions(precision=4, suppress=True, threshold=36):
            return (
                f"Linearization of {self.n_clients} clients in {self.dim} dimensions ({exact})\n"
                f"optimum  {self.optimum}\n"
                f"hessian A\n{self.hessian}\n"
                f"noise covariance V_K\n{self.noise_cov}"
            )


# That of the gradient x (x'b - y) with Gaussian x and errors, whatever d is: the safe guess where nothing is known.
_REGRESSION_KURTOSIS = 3.0
_PRIOR_ROWS = 50.0  # rows of such a regression that a sample of gradients is mixed with, over its dimensions
_ASCENT = 30  # steps; each at least keeps the error in that direction


def linearization(
    hessians: ArrayLike,
    covariances: ArrayLike,
    weights: ArrayLike | None = None,
    n_warmup: int | None = None,
    optimum: ArrayLike | None = None,
    kurtosis: ArrayLike | None = None,
    gradients: ArrayLike | None = None,
) -> Linearization:
    """A `Linearization` from what clients report.

    Parameters
    ----------
    hessians : array of shape (K, d, d)
        The clients' Hessians.
    covariances : array of shape (K, d, d)
        The covariances of their gradients.
    weights : array of shape (K,), optional
        w_k; equal by default.
    n_warmup : int, optional
        The number of steps from which each client estimated its matrices; None means that they are exact.
    optimum : array of shape (d,), optional
        The point at which they were taken; zero by default.
    kurtosis : array of shape (K,), optional
        From `gradient_moments`: heavier tails make an estimated covariance less precise. By default 3, the value for a
        linear regression.
    gradients : array of shape (K, d), optional
        The clients' mean gradients at `optimum`; needed only for rounds in which some clients do not take part.

    Returns
    -------
    Linearization

    Examples
    --------
    >>> import numpy as np
    >>> import fedgauss as fg
    >>> lin = fg.linearization(np.stack([np.eye(2)] * 3), np.stack([0.5 * np.eye(2)] * 3))
    >>> lin.n_clients, lin.dim
    (3, 2)
    """
    noise = _checks.covariance("covariances", covariances)
    if noise.ndim != 3:
        raise ValueError(f"covariances must have shape (K, d, d); got {noise.shape}. Use covariances[None]?")
    n_clients, dim, _ = noise.shape
    if not noise.size:
        raise ValueError(f"covariances must be of at least one client and one dimension; got shape {noise.shape}.")
    curvature = _checks.real_array("hessians", hessians, shape=noise.shape)
    _checks.covariance("hessians", curvature)
    w = _checks.client_weights(weights, n_clients)
    _checks.covariance("hessian A = sum_k w_k hessians[k]", np.einsum("k,kij->ij", w, curvature), definite=True)
    centre = np.zeros(dim) if optimum is None else _checks.real_array("optimum", optimum, shape=(dim,))
    tails = None if kurtosis is None else _checks.real_array("kurtosis", kurtosis, shape=(n_clients,))
    if tails is not None and tails.min() <= 0.0:
        raise ValueError(f"kurtosis must be positive; got {tails.min():g}. Gaussian gradients have 1, not 0 or 3.")
    if gradients is not None and optimum is None:
        raise ValueError("gradients must come with the optimum: the point at which clients took them. Give both.")
    pulls = None if gradients is None else _checks.real_array("gradients", gradients, shape=(n_clients, dim))
    if n_warmup is not None:
        n_warmup = _checks.whole("n_warmup", n_warmup, at_least=2, fix="One gradient shows no spread.")
    found = Linearization(centre, curvature, noise, w, {}, n_warmup, None, tails, pulls)
    return found if n_warmup is None else replace(found, dof=noise_dof(found))


def gradient_moments(gradients: ArrayLike) -> tuple[FloatArray, float]:
    """The covariance and the kurtosis of a client's gradients g_1, ..., g_m at one point.

    The kurtosis is that of an elliptical law with covariance V, k = mean |g - mean|^4 / (tr(V)^2 + 2 |V|_F^2): 1 for
    Gaussian gradients, 3 for those of a linear regression with Gaussian data. Short samples from heavy tails
    underestimate it (1.5 instead of 3 with m = 20 in one dimension), so 50 / e observations of a regression are counted
    with the m, where e = tr(V)^2 / |V|_F^2 is the effective number of dimensions; and it is never less than 1.

    Parameters
    ----------
    gradients : array of shape (m, d)
        One row per step; at least two.

    Returns
    -------
    covariance : array of shape (d, d)
    kurtosis : float

    Examples
    --------
    >>> import numpy as np
    >>> import fedgauss as fg
    >>> gradients = np.random.default_rng(0).normal(size=(1000, 2)) * [1.0, 2.0]
    >>> covariance, kurtosis = fg.gradient_moments(gradients)
    >>> covariance.diagonal().round(1), round(kurtosis, 1)
    (array([1. , 3.9]), 1.1)
    """
    g = _checks.real_array("gradients", gradients, shape=(None, None))
    if len(g) < 2:
        raise ValueError(f"gradients must have at least 2 rows, one a step; got {len(g)}. Warm up longer.")
    centred = g - g.mean(axis=0)
    covariance = centred.T @ centred / (len(g) - 1)
    trace2, square = np.trace(covariance) ** 2, float(np.sum(covariance**2))
    if square == 0.0:
        return covariance, 1.0
    seen = np.mean(np.sum(centred**2, axis=1) ** 2) / (trace2 + 2.0 * square)
    prior = _PRIOR_ROWS * square / trace2
    return covariance, max(1.0, float((len(g) * seen + prior * _REGRESSION_KURTOSIS) / (len(g) + prior)))


def client_dof(lin: Linearization) -> FloatArray:
    """Degrees of freedom behind each client's own gradient covariance, (K,); infinite where they are exact.

    The variance of m gradients with kurtosis c, in any direction, has the relative error of 2 (m - 1) / (3 c - 1)
    Gaussian ones.
    """
    if lin.n_warmup is None:
        return np.full(lin.n_clients, np.inf)
    return (lin.n_warmup - 1) * 2.0 / (3.0 * _known_tails(lin.kurtosis, lin.n_clients) - 1.0)


def noise_dof(lin: Linearization, ridge: float = 0.0) -> float:
    """Degrees of freedom behind V_K after a warm-up of m steps, or behind V_K + ridge (tr V_K / d) I.

    In the direction a client k has a share q_k = a' w_k^2 Var(W^k) a of the variance, of which the ridge has some too,
    and the estimate a relative error of variance sum_k (3 c_k - 1) q_k^2 / m; a Wishart matrix with f degrees of
    freedom has 2 / f. This is the smallest f over directions, found by an ascent from the main directions of each
    client: where one client makes all the noise of a direction, only its own rows speak for it.
    """
    assert lin.n_warmup is not None
    parts = lin.client_noise_cov * (lin.weights**2)[:, None, None]
    values, vectors = np.linalg.eigh(lin.noise_cov)
    if values[-1] <= 0.0:
        return np.inf
    white = vectors / np.sqrt(np.maximum(values + ridge * values.mean(), 1e-12 * values[-1]))
    shares = np.einsum("ip,kij,jq->kpq", white, parts, white)
    tails = 3.0 * _known_tails(lin.kurtosis, lin.n_clients) - 1.0
    directions = np.concatenate([np.linalg.eigh(shares)[1][:, :, -1], np.eye(lin.dim)])
    for _ in range(_ASCENT):
        pulled = np.einsum("kij,aj->aki", shares, directions)
        q = np.einsum("ai,aki->ak", directions, pulled)
        moved = np.einsum("k,ak,aki->ai", tails, q, pulled)
        directions = moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-300)
    q = np.einsum("ai,kij,aj->ak", directions, shares, directions)
    return (lin.n_warmup - 1) * 2.0 / float(np.max(np.sum(tails * q**2, axis=1)))


def _known_tails(kurtosis: FloatArray | None, n_clients: int) -> FloatArray:
    return np.full(n_clients, _REGRESSION_KURTOSIS) if kurtosis is None else np.maximum(kurtosis, 1.0)
