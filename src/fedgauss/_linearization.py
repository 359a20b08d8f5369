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
    """

    optimum: FloatArray
    client_hessians: FloatArray
    client_noise_cov: FloatArray
    weights: FloatArray
    standard_errors: dict[str, FloatArray] = field(default_factory=dict)
    n_warmup: int | None = None

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
        exact = "estimated" if self.standard_errors else "exact"
        with np.printoptions(precision=4, suppress=True, threshold=36):
            return (
                f"Linearization of {self.n_clients} clients in {self.dim} dimensions ({exact})\n"
                f"optimum  {self.optimum}\n"
                f"hessian A\n{self.hessian}\n"
                f"noise covariance V_K\n{self.noise_cov}"
            )


def linearization(
    hessians: ArrayLike,
    covariances: ArrayLike,
    weights: ArrayLike | None = None,
    n_warmup: int | None = None,
    optimum: ArrayLike | None = None,
) -> Linearization:
    """A `Linearization` from what clients report: their Hessians and gradient covariances, (K, d, d) each.

    `n_warmup` is the number of steps a client used to estimate them; None means they are exact.
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
    if n_warmup is not None:
        n_warmup = _checks.whole("n_warmup", n_warmup)
    return Linearization(centre, curvature, noise, w, n_warmup=n_warmup)
