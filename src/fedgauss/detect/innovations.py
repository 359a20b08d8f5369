"""Block innovations: what a round of SGD steps shows of the gradient's mean, whatever the run's past, whitened."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._contraction import pulls_and_product
from fedgauss._linearization import Linearization, noise_dof
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.channel import TEMPERING
from fedgauss.step_sizes import Polynomial, StepSizes, WarmStart, as_step_sizes

_SAFETY = 3.0  # times the tempering that the reported kurtosis asks for
_RIDGE = 0.1  # of the mean variance, added to an estimated V ...
_RIDGE_FROM = 12  # ... from this many dimensions on


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

    def block(self, after: int, last: int, weights: FloatArray | None = None) -> Block:
        """What steps after + 1, ..., last do, when clients took part with these weights (None: those of `lin`)."""
        values, rotated, back, noise = (
            self.everybody if weights is None else _curvature(self.lin, weights, self.whitening.matrix)
        )
        # In the eigenvectors of A every matrix of the block is diagonal: one column for each eigenvalue.
        pulls, _ = pulls_and_product(step_sizes_between(self.steps, after, last), values)
        total = pulls.sum(axis=0)
        if not np.all(total > 0.0):  # NaN is not, where a product of steps overflowed
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

    def blocks(self, after: npt.NDArray[np.int64], length: int, weights: FloatArray | None = None) -> Blocks | None:
        """Those of rounds of `length` steps that begin after these, in a row; None where `block` must say why not."""
        values, rotated, back, noise = (
            self.everybody if weights is None else _curvature(self.lin, weights, self.whitening.matrix)
        )
        try:
            eta = step_sizes_of_rounds(self.steps, after, length)
        except ValueError:
            return None
        pulls, product = pulls_and_product(eta.T, np.broadcast_to(values, (len(after), len(values))))
        pulls = np.ascontiguousarray(pulls.transpose(1, 0, 2))
        total = pulls.sum(axis=1)
        if len(eta) < len(after) or np.any(total <= 0.0):
            return None
        shares = pulls / total[:, None]
        squares = shares.transpose(0, 2, 1) @ shares
        spread = np.linalg.eigvalsh(rotated @ (squares * noise) @ rotated.T)
        sizes = np.cumsum(spread[:, ::-1], axis=1)
        slope, pull = (rotated / total[:, None, :]) @ back, (rotated * values) @ back
        least = (self.whitening.sizes / sizes).min(axis=1)
        squares *= total[:, :, None] * total[:, None, :]
        return Blocks(slope, pull, least, self._offset(weights), Contractions(squares, product))

    def _offset(self, weights: FloatArray | None) -> FloatArray:
        """M sum_k (v_k - w_k) grad F_k(theta*) for a round with weights v_k."""
        pulls = self.lin.client_gradients
        if weights is None or pulls is None:
            return np.zeros(self.lin.dim)
        return self.whitening.matrix @ ((weights - self.lin.weights) @ pulls)

    def whiten(self, block: Block, before: FloatArray, now: FloatArray) -> FloatArray:
        """x_j = M E_j from Y_{j-1} and Y_j: (d,), or (d, R) for R runs."""
        shift = self._optimum(now)
        offset = block.offset if now.ndim == 1 else block.offset[:, None]
        return block.slope @ (now - before) + block.pull @ (before - shift) + offset

    def places(self, rows: FloatArray) -> FloatArray:
        """`place` of each row, (n, d)."""
        gaps = (rows - self.lin.optimum)[..., None]
        return np.asarray((self.whitening.matrix @ (self.lin.hessian @ gaps))[..., 0])

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


class Contractions(NamedTuple):
    """What the steps of rounds in a row come to, in the eigenvectors of A."""

    squares: FloatArray  # sum_t W_t W_t'    (n, d, d)
    product: FloatArray  # P_j               (n, d)


class Blocks(NamedTuple):
    """Rounds in a row, as a `Block` each."""

    slope: FloatArray  # (n, d, d)
    pull: FloatArray  # (d, d)
    weight: FloatArray  # (n,)
    offset: FloatArray  # (d,)
    contractions: Contractions

    def whiten(self, before: FloatArray, now: FloatArray, optimum: FloatArray) -> FloatArray:
        """x_j of each round from Y_{j-1} and Y_j, (n, d)."""
        moved = (self.slope @ (now - before)[..., None])[..., 0]
        return np.asarray(moved + (self.pull @ (before - optimum)[..., None])[..., 0] + self.offset)


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


def server_only(
    hessian: ArrayLike, means: ArrayLike, steps: StepSizes | ArrayLike, sync_every: int, after: int = 0
) -> Linearization:
    """A linearisation for a monitor from what a server sees of J honest rounds.

    Parameters
    ----------
    hessian : (d, d) array_like
        A, which a server may know from data of its own. It must not be regressed on the averaged path: that makes most
        runs alarm.
    means : (J + 1, d) array_like
        Y before and after each of the rounds.
    steps : StepSizes or array_like
        eta_t.
    sync_every : int
        Steps between two rounds.
    after : int
        Steps made before the first of these rounds.

    Returns
    -------
    Linearization
        Of one client that stands for the average of all.

    Notes
    -----
    With E_j the innovation of round j (`Innovations`) and Omega_j = V / w_j, w_j its mean weight, near enough from the
    second round on, V is estimated by sum_j w_j (E_j - mean)(E_j - mean)' / (J - 1). Innovations are nearly Gaussian,
    so the estimate is a Wishart matrix with J - 1 degrees of freedom, and a monitor's thresholds are calibrated for it
    (Hotelling).

    Examples
    --------
    >>> import numpy as np
    >>> import fedgauss as fg
    >>> rng, means = np.random.default_rng(0), [np.zeros(2)]
    >>> for _ in range(60):  # honest rounds of ten steps
    ...     y = means[-1]
    ...     for _ in range(10):
    ...         y = y - 0.05 * (y + 0.3 * rng.normal(size=2))
    ...     means.append(y)
    >>> steps = fg.step_sizes.constant(0.05)
    >>> lin = fg.server_only(np.eye(2), means, steps, sync_every=10)
    >>> lin.noise_cov.round(2)  # near 0.09 I
    array([[0.1 , 0.01],
           [0.01, 0.09]])
    """
    a = _checks.covariance("hessian", hessian, definite=True)
    dim = len(a)
    y = _checks.real_array("means", means, shape=(None, dim))
    tau = _checks.whole("sync_every", sync_every)
    first = _checks.whole("after", after, at_least=0)
    n_rounds = len(y) - 1
    needed = dof_needed(dim) + 1
    if n_rounds < needed:
        raise ValueError(
            f"means must hold at least {needed + 1} rows in {dim} dimensions, a start and {needed} rounds; got "
            f"{len(y)}. Wait for {needed - n_rounds} more rounds."
        )
    # Only A is used before V is known; any V will do.
    parts = innovations(Linearization(y[-1], a[None], np.eye(dim)[None], np.ones(1)), steps)
    blocks = [parts.block(first + j * tau, first + (j + 1) * tau) for j in range(n_rounds)]
    e = np.stack([parts.whiten(block, y[j], y[j + 1]) for j, block in enumerate(blocks)])
    weights = np.array([block.mean_weight for block in blocks])
    centred = (e - np.average(e, axis=0, weights=weights)) * np.sqrt(weights)[:, None]
    noise = centred.T @ centred / (n_rounds - 1)
    return Linearization(y[-1], a[None], noise[None], np.ones(1), dof=float(n_rounds - 1))


def step_sizes_between(steps: StepSizes, after: int, last: int) -> FloatArray:
    """eta_t for t = after + 1, ..., last, without those before where the schedule has a formula.

    One of a kind that is not known here is asked for all of its steps each time: give long runs a formula.
    """
    if isinstance(steps, Polynomial):
        return replace(steps, shift=steps.shift + after).eta(last - after)
    if isinstance(steps, WarmStart):
        warm = np.full(min(max(steps.n_warm - after, 0), last - after), steps.constant)
        begun = max(after - steps.n_warm, 0)
        return np.concatenate([warm, step_sizes_between(steps.decay, begun, begun + last - after - len(warm))])
    return np.asarray(steps.eta(last), dtype=np.float64)[after:]


def step_sizes_of_rounds(steps: StepSizes, after: npt.NDArray[np.int64], length: int) -> FloatArray:
    """`step_sizes_between` for rounds of one length that follow each other, (n, length)."""
    if isinstance(steps, WarmStart) and after[0] >= steps.n_warm:
        return step_sizes_of_rounds(steps.decay, after - steps.n_warm, length)
    if isinstance(steps, Polynomial):
        t = np.arange(1.0, length + 1.0) + (steps.shift + after)[:, None]
        return np.asarray(steps.eta0 * t**-steps.beta)
    last = int(after[-1]) + length
    return np.asarray(steps.eta(last), dtype=np.float64)[int(after[0]) :].reshape(-1, length)


def dof_needed(dim: int) -> int:
    """Degrees of freedom behind an estimated V, at least: with fewer its inverse has no useful law."""
    return 2 * dim + 4


@dataclass(frozen=True)
class Whitening:
    """x = M E, scaled so that tr(M V M) = d, and what a calibration must know of M.

    With V known, M = V^-1/2. An estimated V has small eigenvalues that are too small, and its inverse makes much of
    them: from 12 dimensions on M = (V + .1 (tr V / d) I)^-1/2 instead.

    spectrum   eigenvalues of V, all that a calibration needs of it: the statistics do not change under rotation   (d,)
    ridge      what is added to an estimated V, in units of tr V / d
    dof        degrees of freedom behind V; infinite when it is known
    tempering  how much less short segments count, see `mean_channel.tempered`
    """

    matrix: FloatArray
    spectrum: FloatArray
    ridge: float
    dof: float
    tempering: float

    @cached_property
    def sizes(self) -> FloatArray:
        """Sums of the 1, 2, ..., d largest eigenvalues of M V M."""
        return np.cumsum(np.sort(scales(self.spectrum, self.ridge) ** 2 * self.spectrum)[::-1])

    @property
    def in_table(self) -> bool:
        """Whether the thresholds that come with the package are this one's."""
        return math.isinf(self.dof) and self.tempering == TEMPERING


def whitening(lin: Linearization) -> Whitening:
    """The whitening that suits what is known of V, or a ValueError when a warm-up was too short to know it."""
    dim = lin.dim
    spectrum, axes = np.linalg.eigh(lin.noise_cov)
    ridge = _RIDGE if lin.dof is not None and dim >= _RIDGE_FROM else 0.0
    dof = _noise_dof(lin, ridge)
    if dof < dof_needed(dim):
        raise ValueError(_too_short(lin, dof))
    matrix = (axes * scales(spectrum, ridge)) @ axes.T
    return Whitening(matrix, spectrum, ridge, dof, _tempering(lin))


def scales(values: FloatArray, ridge: float) -> FloatArray:
    """Eigenvalues of M from those of the V that it is made of, (..., d)."""
    plain = 1.0 / np.sqrt(values + ridge * values.mean(axis=-1, keepdims=True))
    return plain / np.sqrt((plain**2 * values).mean(axis=-1, keepdims=True))


def _noise_dof(lin: Linearization, ridge: float) -> float:
    if lin.dof is None:
        return math.inf
    return lin.dof if lin.n_warmup is None else noise_dof(lin, ridge)


def _tempering(lin: Linearization) -> float:
    """c = 3 (excess kurtosis of the averaged gradient) / 12, by Cramer's correction; .25 at most, and when not known.

    In every direction client k's gradient has the excess kurtosis 3 (kurtosis_k - 1), of which the average over
    clients keeps the square of k's share in V.
    """
    if lin.kurtosis is None:
        return TEMPERING
    shares = lin.weights**2 * np.trace(lin.client_noise_cov, axis1=1, axis2=2) / np.trace(lin.noise_cov)
    excess = float(np.sum(shares**2 * 3.0 * (lin.kurtosis - 1.0)))
    return min(TEMPERING, max(_SAFETY * excess / 12.0, 0.0))


def _too_short(lin: Linearization, dof: float) -> str:
    needed = dof_needed(lin.dim)
    said = f"the noise covariance must rest on at least {needed} degrees of freedom in {lin.dim} dimensions"
    if lin.n_warmup is None:
        return f"{said}; it has {dof:.0f}. Use a longer warm-up."
    steps = 1 + math.ceil((lin.n_warmup - 1) * needed / dof)
    return f"{said}; a warm-up of {lin.n_warmup} steps gives {dof:.0f}. Use a warm-up of {steps} steps at least."
