"""What the theory needs to know of a problem: optimum, Hessians and gradient noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray


@dataclass(frozen=True)
class Linearization:
    """Local SGD near its optimum, as Sections 2 and 3 of the paper see it.

    optimum           theta*_K, the minimiser of sum_k w_k F_k                       (d,)
    client_hessians   the Hessian of F_k at theta*_K                                 (K, d, d)
    client_noise_cov  Var(W^k), the covariance of client k's gradient at theta*_K    (K, d, d)
    weights           w_k                                                            (K,)
    standard_errors   of `optimum`, `hessian`, `noise_cov` ... when they were estimated, else empty
    n_warmup          the steps that clients estimated their matrices from, None when exact
    freedom           degrees of freedom behind an estimated `noise_cov`, None when exact
    kurtosis          of the clients' gradients, 1 for Gaussian ones (`gradient_moments`); None when not known   (K,)
    client_gradients  of F_k at theta*_K, by which clients differ; None when not known (K, d)
    """

    optimum: FloatArray
    client_hessians: FloatArray
    client_noise_cov: FloatArray
    weights: FloatArray
    standard_errors: dict[str, FloatArray] = field(default_factory=dict)
    n_warmup: int | None = None
    freedom: float | None = None
    kurtosis: FloatArray | None = None
    client_gradients: FloatArray | None = None

    def __post_init__(self) -> None:
        # Linearisations are cached and shared: nobody may change one in place.
        for name in ("optimum", "client_hessians", "client_noise_cov", "weights"):
            array = np.array(getattr(self, name), dtype=np.float64)
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
        exact = "estimated" if self.standard_errors or self.freedom is not None else "exact"
        with np.printoptions(precision=4, suppress=True, threshold=36):
            return (
                f"Linearization of {self.n_clients} clients in {self.dim} dimensions ({exact})\n"
                f"optimum  {self.optimum}\n"
                f"hessian A\n{self.hessian}\n"
                f"noise covariance V_K\n{self.noise_cov}"
            )


# That of the gradient x (x'b - y) with Gaussian x and errors, whatever d is: the safe guess where nothing is known.
_REGRESSION_KURTOSIS = 3.0


def linearization(
    hessians: ArrayLike,
    covariances: ArrayLike,
    weights: ArrayLike | None = None,
    n_warmup: int | None = None,
    optimum: ArrayLike | None = None,
    kurtosis: ArrayLike | None = None,
    gradients: ArrayLike | None = None,
) -> Linearization:
    """A `Linearization` from what clients report: their Hessians and gradient covariances, (K, d, d) each.

    n_warmup   the number of steps a client used to estimate them; None means that they are exact
    optimum    the point at which they did
    kurtosis   (K,), from `gradient_moments`: how much less such an estimate is worth than with Gaussian gradients;
               without it that of a linear regression, 3, is supposed
    gradients  (K, d), the clients' mean gradients there: only for rounds in which some clients take no part
    """
    noise = _checks.covariance("covariances", covariances)
    if noise.ndim != 3:
        raise ValueError(f"covariances must have shape (K, d, d); got {noise.shape}. Use covariances[None]?")
    n_clients, dim, _ = noise.shape
    curvature = _checks.real_array("hessians", hessians, shape=noise.shape)
    _checks.covariance("hessians", curvature)
    w = _checks.client_weights(weights, n_clients)
    _checks.covariance("hessian A = sum_k w_k hessians[k]", np.einsum("k,kij->ij", w, curvature), definite=True)
    centre = np.zeros(dim) if optimum is None else _checks.real_array("optimum", optimum, shape=(dim,))
    tails = None if kurtosis is None else _checks.real_array("kurtosis", kurtosis, shape=(n_clients,))
    if tails is not None and tails.min() <= 0.0:
        raise ValueError(f"kurtosis must be positive; got {tails.min():g}. Gaussian gradients have 1, not 0 or 3.")
    pulls = None if gradients is None else _checks.real_array("gradients", gradients, shape=(n_clients, dim))
    freedom = None
    if n_warmup is not None:
        n_warmup = _checks.whole("n_warmup", n_warmup, at_least=2, fix="One gradient shows no spread.")
        guess = np.full(n_clients, _REGRESSION_KURTOSIS) if tails is None else tails
        freedom = (n_warmup - 1) * _freedom_of_one(noise * (w**2)[:, None, None], guess)
    return Linearization(centre, curvature, noise, w, {}, n_warmup, freedom, tails, pulls)


def gradient_moments(gradients: ArrayLike) -> tuple[FloatArray, float]:
    """What a client reports of its gradients g_1, ..., g_m (m, d) at one point: their covariance and their kurtosis.

    The kurtosis is that of an elliptical law with covariance V, mean |g - mean|^4 / (tr(V)^2 + 2 |V|_F^2): 1 for
    Gaussian gradients, 3 for those of a linear regression with Gaussian data.
    """
    g = _checks.real_array("gradients", gradients, shape=(None, None))
    if len(g) < 2:
        raise ValueError(
            f"gradients must have at least 2 rows, one a step; got {len(g)}. Report after a longer warm-up."
        )
    centred = g - g.mean(axis=0)
    covariance = centred.T @ centred / (len(g) - 1)
    gaussian = np.trace(covariance) ** 2 + 2.0 * np.sum(covariance**2)
    fourth = np.mean(np.sum(centred**2, axis=1) ** 2)
    return covariance, float(fourth / gaussian) if gaussian > 0.0 else 1.0


def _freedom_of_one(parts: FloatArray, kurtosis: FloatArray) -> float:
    """Degrees of freedom that one step of every client adds to V = sum_k V_k; `parts` are the V_k = w_k^2 Var(W^k).

    An estimate from m gradients with kurtosis c_k has an error of mean square, in Frobenius' norm,
    sum_k [c_k (tr(V_k)^2 + 2 |V_k|^2) - |V_k|^2] / m, and a Wishart matrix with f degrees of freedom, over f, one of
    (tr(V)^2 + |V|^2) / f. This is the f / m that makes them equal.
    """
    traces = np.trace(parts, axis1=1, axis2=2) ** 2
    squares = np.sum(parts**2, axis=(1, 2))
    error = float(np.sum(kurtosis * (traces + 2.0 * squares) - squares))
    whole = parts.sum(axis=0)
    return float(np.trace(whole) ** 2 + np.sum(whole**2)) / error if error > 0.0 else np.inf
