"""Block innovations: what a round of SGD steps shows of the gradient's mean, whatever the run's past."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._contraction import pulls_and_product
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.whitening import Whitening, whitening
from fedgauss.step_sizes import Polynomial, StepSizes, WarmStart, as_step_sizes


@dataclass(frozen=True)
class Innovations:
    """Whitened innovations of a run near its optimum, with the weight that each one deserves.

    Over a block of steps the linearised mean obeys Y_j = P_j Y_{j-1} + (noise) + (I - P_j) theta*, with
    P_j = prod_t (I - eta_t A) and W_t = eta_t prod_{u > t} (I - eta_u A). The innovation

        E_j = A (I - P_j)^-1 (Y_j - P_j Y_{j-1})

    has mean A theta* and covariance Omega_j = sum_t w_t V w_t' with w_t = (sum_u W_u)^-1 W_t, since
    I - P_j = A sum_t W_t. Blocks are independent, Omega_j is near V / (steps in the block), and neither theta*
    nor the start enters. Whitened: x_j = M E_j; M = V^-1/2 where V is known, and see `whitening` where it is not. Its
    weight, in steps, is the largest w for which the k noisiest directions of M Omega_j M, for every k, are together no
    noisier than those of M V M / w, which thresholds are calibrated for: a round that says more in some directions than
    in others counts by the least.

    V = sum_k w_k^2 Var(W^k) and A = sum_k w_k H_k are those of the clients in `weights`; a round in which others
    took part, or with other weights v_k, has its own A and V, and is whitened by the M of the whole. Where clients
    differ in optimum its innovation has another mean: sum_k (v_k - w_k) grad F_k(theta*) is added to make up for it,
    when `lin` knows the clients' gradients.
    """

    lin: Linearization
    steps: StepSizes
    whitening: Whitening
    everybody: Curvature  # A and V of a round in which all clients took part

    def contraction_at(self, steps: npt.NDArray[np.int64]) -> FloatArray:
        """eta_t lambda_max(A) at each of several steps, of which few differ."""
        different, which = np.unique(np.maximum(steps, 1), return_inverse=True)
        eta = [step_sizes_between(self.steps, int(step) - 1, int(step))[0] for step in different]
        return np.array(eta)[which] * float(self.everybody.values[-1])

    @property
    def dim(self) -> int:
        """d."""
        return self.lin.dim

    def block(self, after: int, last: int, weights: FloatArray | None = None) -> Block:
        """What steps after + 1, ..., last do, when clients took part with these weights (None: those of `lin`)."""
        values, rotated, back, noise = (
            self.everybody if weights is None else _curvature(self.lin, weights, self.whitening.matrix)
        )
        # In the eigenvectors of A every matrix of the block is diagonal: one column for each eigenvalue.
        pulls, _ = pulls_and_product(step_sizes_between(self.steps, after, last), values)
        total = pulls.sum(axis=0)
        if np.any(total <= 0.0):
            raise ValueError(
                f"steps {after + 1} to {last} must move the mean towards the optimum; they do not in the direction "
                f"of eigenvalue {values[int(np.argmin(total))]:.3g} of A. Use smaller step sizes: eta_t below 2 / that."
            )
        shares = pulls / total
        # M Omega M, from Omega = U (shares' shares * U'VU) U'.
        sizes = np.cumsum(np.linalg.eigvalsh(rotated @ ((shares.T @ shares) * noise) @ rotated.T)[::-1])
        weights_by_direction = self.whitening.sizes / sizes
        # E = (Y_j - Y_{j-1}) / total + A Y_{j-1}: the same as above, without forming (I - P_j)^-1.
        slope, pull = (rotated / total) @ back, (rotated * values) @ back
        least, mean = float(weights_by_direction.min()), float(weights_by_direction[-1])
        return Block(slope, pull, least, mean, self._offset(weights))

    def _offset(self, weights: FloatArray | None) -> FloatArray:
        """M sum_k (v_k - w_k) grad F_k(theta*) for a round with weights v_k."""
        pulls = self.lin.client_gradients
        if weights is None or pulls is None:
            return np.zeros(self.dim)
        return self.whitening.matrix @ ((weights - self.lin.weights) @ pulls)

    def whiten(self, block: Block, before: FloatArray, now: FloatArray) -> FloatArray:
        """x_j = M E_j from Y_{j-1} and Y_j: (d,), or (d, R) for R runs."""
        shift = self._optimum(now)
        offset = block.offset if now.ndim == 1 else block.offset[:, None]
        return block.slope @ (now - before) + block.pull @ (before - shift) + offset

    def place(self, y: FloatArray) -> FloatArray:
        """u = M A (y - theta*), (d,) or (d, R): where a run is, in the units of its innovations."""
        return self.whitening.matrix @ (self.lin.hessian @ (y - self._optimum(y)))

    def distances(self, rows: FloatArray, other: FloatArray) -> FloatArray:
        """|M A (y - other)| for each row y: how mean gradients differ, in standard deviations of one step's."""
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = self.whitening.matrix @ (self.lin.hessian @ (rows - other).T)
            return np.asarray(np.sqrt((gaps * gaps).sum(axis=0)))

    def _optimum(self, like: FloatArray) -> FloatArray:
        """The point that Y is taken from. With one A for all rounds no statistic depends on it.

        Rounds with another A do, and there it must be the point at which clients took their gradients.
        """
        return self.lin.optimum if like.ndim == 1 else self.lin.optimum[:, None]


class Curvature(NamedTuple):
    """A in its eigenvectors U, beside V and the whitener."""

    values: FloatArray  # eigenvalues of A
    rotated: FloatArray  # M U, with the M of all clients
    back: FloatArray  # U'
    noise: FloatArray  # U'VU, of those who took part


def _curvature(lin: Linearization, weights: FloatArray, whitener: FloatArray) -> Curvature:
    values, vectors = np.linalg.eigh(np.einsum("k,kij->ij", weights, lin.client_hessians))
    noise = np.einsum("k,kij->ij", weights**2, lin.client_noise_cov)
    return Curvature(values, whitener @ vectors, vectors.T, vectors.T @ noise @ vectors)


class Block(NamedTuple):
    """One round: x_j = slope (Y_j - Y_{j-1}) + pull (Y_{j-1} - theta*) + offset, and its weight in steps."""

    slope: FloatArray
    pull: FloatArray
    weight: float
    mean_weight: float  # by the mean over directions in place of the worst
    offset: FloatArray


def innovations(lin: Linearization, steps: StepSizes | ArrayLike) -> Innovations:
    """The innovations of a run, after checking that A and V are what they must be."""
    if not isinstance(lin, Linearization):
        raise ValueError(f"lin must be a Linearization; got {type(lin).__name__}. Use linearize(problem)?")
    shape = (lin.n_clients, lin.dim, lin.dim)
    for name in ("client_hessians", "client_noise_cov"):
        _checks.real_array(f"lin.{name}", getattr(lin, name), shape=shape)
    _checks.real_array("lin.optimum", lin.optimum, shape=(lin.dim,))
    if lin.client_gradients is not None:
        _checks.real_array("lin.client_gradients", lin.client_gradients, shape=shape[:2])
    _checks.covariance("hessian A = sum_k w_k H_k", lin.hessian, definite=True)
    _checks.covariance("client_noise_cov", lin.client_noise_cov)
    _checks.covariance("noise covariance V_K = sum_k w_k^2 Var(W^k)", lin.noise_cov, definite=True)
    schedule = as_step_sizes(steps)
    if np.ndim(schedule.eta(1)) != 1:
        raise ValueError("steps must be the same for all clients; got one for each. Use their mean schedule?")
    white = whitening(lin)
    return Innovations(lin, schedule, white, _curvature(lin, lin.weights, white.matrix))


def step_sizes_between(steps: StepSizes, after: int, last: int) -> FloatArray:
    """eta_t for t = after + 1, ..., last, without those before where the schedule has a formula.

    A schedule without one is asked for all of its steps each time: give long runs a formula.
    """
    if isinstance(steps, Polynomial):
        return replace(steps, shift=steps.shift + after).eta(last - after)
    if isinstance(steps, WarmStart) and after >= steps.n_warm:
        return step_sizes_between(steps.decay, after - steps.n_warm, last - steps.n_warm)
    return np.asarray(steps.eta(last), dtype=np.float64)[after:]
