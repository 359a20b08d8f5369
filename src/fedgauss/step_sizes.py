"""Step sizes eta_t, and the steps after which clients synchronise. Time starts at t = 1."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._types import ArrayLike, BoolArray, FloatArray


@runtime_checkable
class StepSizes(Protocol):
    """A schedule of step sizes: anything with these two members."""

    @property
    def beta(self) -> float | None:
        """The exponent at which eta_t decays; None when there is no single one."""

    def eta(self, n_steps: int) -> FloatArray:
        """eta_1, ..., eta_n: (n,), or (n, K) when clients differ."""


Steps: TypeAlias = StepSizes | ArrayLike


@dataclass(frozen=True)
class Polynomial:
    """eta_t = eta0 (t + shift)^-beta."""

    eta0: float
    beta: float
    shift: float = 0.0

    def eta(self, n_steps: int) -> FloatArray:
        """eta_1, ..., eta_n as an array (n,)."""
        t = np.arange(1.0, _number_of_steps(n_steps) + 1.0)
        return self.eta0 * (t + self.shift) ** -self.beta

    def __str__(self) -> str:
        if self.beta == 0:
            return f"eta_t = {self.eta0:g}"
        t = f"(t {'+' if self.shift > 0 else '-'} {abs(self.shift):g})" if self.shift else "t"
        return f"eta_t = {self.eta0:g} {t}^-{self.beta:g}"


@dataclass(frozen=True)
class WarmStart:
    """eta_t = constant for t <= n_warm, then `decay` counted from there."""

    constant: float
    n_warm: int
    decay: Polynomial

    @property
    def beta(self) -> float:
        """The exponent of the decay."""
        return self.decay.beta

    def eta(self, n_steps: int) -> FloatArray:
        """eta_1, ..., eta_n as an array (n,)."""
        n = _number_of_steps(n_steps)
        warm = np.full(min(n, self.n_warm), self.constant)
        return np.concatenate([warm, self.decay.eta(n - len(warm))])

    def __str__(self) -> str:
        decay = Polynomial(self.decay.eta0, self.beta, self.decay.shift - self.n_warm)
        return f"eta_t = {self.constant:g} for t <= {self.n_warm}, then {decay}"


@dataclass(frozen=True, eq=False)
class Listed:
    """eta_t = values[t - 1], for as many steps as there are values."""

    values: FloatArray
    beta: None = None

    def eta(self, n_steps: int) -> FloatArray:
        """The first n values, (n,) or (n, K), read-only."""
        n = _checks.whole("n_steps", n_steps, at_least=0)
        if n > len(self.values):
            raise ValueError(
                f"step sizes must cover all {n} steps; the array has {len(self.values)}. "
                "Give a longer array, or use step_sizes.polynomial(eta0, beta)."
            )
        return self.values[:n]

    def __str__(self) -> str:
        clients = f" for each of {self.values.shape[1]} clients" if self.values.ndim == 2 else ""
        return f"eta_t from an array of {len(self.values)} steps{clients}"


@dataclass(frozen=True)
class PerClient:
    """eta_{t,k} = eta_t of schedule k."""

    schedules: tuple[StepSizes, ...]

    @property
    def beta(self) -> float | None:
        """The exponent shared by all clients; None when they differ."""
        betas = {schedule.beta for schedule in self.schedules}
        return betas.pop() if len(betas) == 1 else None

    def eta(self, n_steps: int) -> FloatArray:
        """eta_{t,k} as an array (n, K)."""
        _number_of_steps(n_steps, len(self.schedules))
        return np.stack([schedule.eta(n_steps) for schedule in self.schedules], axis=1)

    def __str__(self) -> str:
        lines = [f"client {k}: {schedule}" for k, schedule in enumerate(self.schedules[:10])]
        return "\n".join(lines + ["..."] * (len(self.schedules) > 10))


def polynomial(eta0: float, beta: float, shift: float = 0.0) -> Polynomial:
    """Polynomially decaying step sizes, eta_t = eta0 (t + shift)^-beta for t = 1, 2, ...

    Theorem 2.1 covers 1/2 < beta < 1; other values give a warning.

    Parameters
    ----------
    eta0 : float
        Positive.
    beta : float
        The exponent of the decay.
    shift : float
        Greater than -1. A larger shift makes the first steps smaller.

    Returns
    -------
    Polynomial

    Examples
    --------
    >>> import fedgauss as fg
    >>> fg.step_sizes.polynomial(0.3, beta=0.75).eta(4).round(3)
    array([0.3  , 0.178, 0.132, 0.106])
    """
    return _polynomial(eta0, beta, shift)


def warm_start(constant: float, n_warm: int, eta0: float, beta: float, shift: float = 0.0) -> WarmStart:
    """Constant step sizes, then decaying ones: eta_t = constant for t <= n_warm, then eta0 (t - n_warm + shift)^-beta.

    Parameters
    ----------
    constant : float
        The step size of the first `n_warm` steps.
    n_warm : int
        The number of these steps.
    eta0, beta, shift : float
        As in `polynomial`.

    Returns
    -------
    WarmStart
    """
    level = _checks.real("constant", constant, above=0.0, fix="Use a small positive step size, say 0.1.")
    return WarmStart(level, _checks.whole("n_warm", n_warm, at_least=0), _polynomial(eta0, beta, shift))


def constant(eta: float) -> Polynomial:
    """Constant step sizes, eta_t = eta.

    Iterates then hover around the optimum at a distance of order eta^(1/2) and do not converge.

    Parameters
    ----------
    eta : float
        Positive.

    Returns
    -------
    Polynomial
        With beta = 0.
    """
    return Polynomial(_checks.real("eta", eta, above=0.0, fix="Use a small positive step size, say 0.1."), 0.0)


def from_array(values: ArrayLike) -> Listed:
    """Step sizes from an array, eta_t = values[t - 1].

    Parameters
    ----------
    values : array of shape (n,) or (n, K)
        Positive; with one column for each client if they differ.

    Returns
    -------
    Listed
    """
    array = _checks.real_array("step sizes", values).copy()
    if array.ndim == 0:
        raise ValueError(
            f"step sizes must be an array (n,) or (n, K); got {array:g}. Use step_sizes.constant({array:g})?"
        )
    if array.ndim > 2 or array.size == 0:
        raise ValueError(
            f"step sizes must be an array (n,) or (n, K); got shape {array.shape}. "
            "Give a row for each step and, if clients differ, a column for each client."
        )
    if np.any(array <= 0):
        first = tuple(int(i) for i in np.argwhere(array <= 0)[0])
        at = f"eta_{first[0] + 1}" + (f" of client {first[1]}" if len(first) == 2 else "")
        raise ValueError(f"step sizes must be positive; {at} is {array[first]:g}. Drop that step instead?")
    array.setflags(write=False)
    return Listed(array)


def per_client(schedules: Sequence[Steps]) -> PerClient:
    """Step sizes eta_{t,k} that differ between clients, as in Theorem 2.2.

    Parameters
    ----------
    schedules : sequence of StepSizes or arrays of shape (n,)
        One for each client.

    Returns
    -------
    PerClient

    Examples
    --------
    >>> import fedgauss as fg
    >>> fast, slow = (fg.step_sizes.polynomial(eta0, beta=0.75) for eta0 in (0.4, 0.2))
    >>> fg.step_sizes.per_client([fast, slow]).eta(2).shape
    (2, 2)
    """
    if isinstance(schedules, np.ndarray):
        raise ValueError(
            "schedules must be a list with one entry for each client; got an array of shape "
            f"{schedules.shape}. Use step_sizes.from_array(values) with values (n, K)?"
        )
    if isinstance(schedules, StepSizes) or len(schedules) == 0:
        raise ValueError(
            f"schedules must be a list with one entry for each client; got {schedules!r}. "
            "Use [step_sizes.polynomial(eta0, beta)] * n_clients?"
        )
    each = tuple(as_step_sizes(schedule) for schedule in schedules)
    for k, schedule in enumerate(each):
        if schedule.eta(1).ndim != 1:
            raise ValueError(
                f"each of the schedules must be for one client; schedule {k} is {schedule}. "
                "Give it as its columns, one array (n,) for each client."
            )
    return PerClient(each)


def as_step_sizes(value: Steps) -> StepSizes:
    """A schedule, or an array of step sizes, as a schedule."""
    return value if isinstance(value, StepSizes) else from_array(value)


def warn_if_unstable(eta: ArrayLike, client_hessians: ArrayLike, weights: ArrayLike) -> None:
    """Warn when eta_t lambda_max(A) > 2 for some t, with A = sum_k w_k H_k.

    I - eta_t A then has an eigenvalue below -1, so that a step carries the mean away from the optimum. A
    decreasing schedule is worst at eta_1. When clients differ, eta_t is the largest of theirs.
    """
    hessian = np.einsum("k,kij->ij", np.asarray(weights), np.asarray(client_hessians))
    curvature = float(np.linalg.eigvalsh(hessian)[-1])
    steps = np.asarray(eta, dtype=float)
    largest = steps.max(axis=1) if steps.ndim == 2 else steps
    t = int(np.argmax(largest))
    if largest[t] * curvature > 2.0:
        warnings.warn(
            f"eta_t should not exceed 2 / lambda_max(A) = {2.0 / curvature:.3g}, or steps lead away from the "
            f"optimum; eta_{t + 1} = {largest[t]:.3g}. Use a smaller eta0 or a larger shift so that "
            f"eta_{t + 1} <= {2.0 / curvature:.3g}.",
            _checks.FedgaussWarning,
            stacklevel=3,
        )


def sync_mask(sync_every: Any, n_steps: int, phase: int = 0) -> BoolArray:
    """The steps after which clients mix: those with t = phase (mod tau).

    Phase 0 gives E_tau = {tau, 2 tau, ...} of Algorithm 1, and no synchronisation when tau > n.

    Parameters
    ----------
    sync_every : int, array of n booleans or None
        tau, or the mask itself, or None for never.
    n_steps : int
        n.
    phase : int
        Must be 0 when `sync_every` is a mask.

    Returns
    -------
    array of n booleans
        Entry t - 1 belongs to step t.

    Examples
    --------
    >>> import fedgauss as fg
    >>> fg.step_sizes.sync_mask(3, 7)
    array([False, False,  True, False, False,  True, False])
    """
    n = _number_of_steps(n_steps)
    phase = _checks.whole("phase", phase, at_least=0)
    if sync_every is None:
        return np.zeros(n, dtype=np.bool_)
    if np.ndim(sync_every) > 0:
        mask = np.array(sync_every)
        if mask.dtype != np.bool_ or mask.shape != (n,):
            raise ValueError(
                f"sync_every as a mask must be {n} booleans, one for each step; got {mask.dtype} of shape "
                f"{mask.shape}. Use mask[:n_steps].astype(bool), or a whole number tau?"
            )
        if phase:
            raise ValueError(f"phase must be 0 when sync_every is a mask; got {phase}. Use np.roll(sync_every, phase)?")
        return mask
    tau = _checks.whole("sync_every", sync_every, fix="Use 1 for every step, None for never.")
    return np.arange(1, n + 1) % tau == phase % tau


def _number_of_steps(n_steps: Any, each: int = 1) -> int:
    """n, if so many numbers for each step fit into memory."""
    n = _checks.whole("n_steps", n_steps, at_least=0)
    check_memory(f"a schedule of {n:,} steps", 24 * n * each, "Use fewer steps.")
    return n


def _polynomial(eta0: float, beta: float, shift: float) -> Polynomial:
    eta0 = _checks.real("eta0", eta0, above=0.0, fix="Use a small positive step size, say 0.3.")
    beta = _checks.real("beta", beta, fix="Use 0.75?")
    shift = _checks.real("shift", shift, above=-1.0, fix="Use 0: t starts at 1, so t + shift stays positive.")
    if beta < 0:
        raise ValueError(f"beta must not be negative, or steps grow; got {beta:g}. Use {-beta:g}?")
    if not 0.5 < beta < 1:
        warnings.warn(
            f"beta should lie in (1/2, 1) for Theorem 2.1 to hold; got {beta:g}. Use 0.75?",
            _checks.FedgaussWarning,
            stacklevel=3,
        )
    return Polynomial(eta0, beta, shift)
