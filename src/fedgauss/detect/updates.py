"""What comes with an update, checked before anything is done with it: the mean, uploads, and who took part."""

import warnings

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, BoolArray, FloatArray
from fedgauss.detect.innovations import Innovations

LONGEST_GAP = 1_000_000  # steps between two updates: their product is computed at once
_HUGE = 1e100
PLAUSIBLE = 1e8  # standard deviations of one step's gradient: an update whose gradient is larger is broken or hostile


def mean_vector(y: ArrayLike, dim: int) -> FloatArray:
    """Y as an array (d,), finite or not; a wrong shape is the caller's mistake and a ValueError."""
    value = _numbers("y", y)
    if value.shape != (dim,):
        raise ValueError(f"y must have shape ({dim},), the clients' mean; got {value.shape}. Use theta.mean(axis=0)?")
    return value


def client_table(name: str, value: ArrayLike, n_clients: int, dim: int, present: BoolArray | None) -> FloatArray:
    """A row for each client, (K, d), finite or not; those of clients that took no part are NaN, whatever was given."""
    table = _numbers(name, value)
    if table.shape != (n_clients, dim):
        raise ValueError(f"{name} must have shape {(n_clients, dim)}, a row each; got {table.shape}.")
    if present is not None:
        table[~present] = np.nan
    return table


def next_step(step: int | None, last: int, sync_every: int, begun: bool) -> int:
    """The step after which a round ended, by default sync_every after the last, where Y is known if it has `begun`."""
    if step is None:
        return last + sync_every
    now = _checks.whole("step", step, fix="Steps count from 1.")
    if now <= last:
        raise ValueError(
            f"step must grow from round to round; got {now} after {last}. "
            f"Use {last + sync_every}, or reset(step=..., y=...) after a rollback?"
        )
    gap = now - last
    if begun and gap < sync_every:
        raise ValueError(
            f"step must lie at least sync_every = {sync_every} steps after the last; got {gap}. "
            "Thresholds are for rounds of that length or longer."
        )
    if gap > LONGEST_GAP:
        raise ValueError(
            f"step must lie at most {LONGEST_GAP:,} steps after the last, {last}; got {now}. "
            "Use reset(step=...) first, to begin in the middle of a run?"
        )
    return now


def fault(
    parts: Innovations,
    last: FloatArray | None,
    y: FloatArray,
    clients: FloatArray | None,
    began: FloatArray | None,
    present: BoolArray | None,
) -> str:
    """Which value is not finite or not plausible, in words; empty when none is. Absent clients may send anything.

    Plausible is what lies near the last mean, in the units of the noise; before there is one, any finite number below
    1e100.
    """
    here = np.arange(parts.lin.n_clients) if present is None else np.flatnonzero(present)
    for name, table in (("y", y[None]), ("client", clients), ("the beginning of client", began)):
        if table is None:
            continue
        rows = table if name == "y" else table[here]
        wrong = ~np.isfinite(rows).all(axis=1)
        with np.errstate(invalid="ignore"):
            far = np.abs(rows).max(axis=1) if last is None else parts.distances(rows, last)
            wrong |= ~(far <= (_HUGE if last is None else PLAUSIBLE))
        if not wrong.any():
            continue
        i = int(np.argmax(wrong))
        whose = name if name == "y" else f"{name} {here[i]}"
        if not np.isfinite(rows[i]).all():
            return f"The value of {whose} is not finite."
        if last is None:
            return f"The value of {whose} is not plausible: more than {_HUGE:.0e} is refused."
        return (
            f"The value of {whose} is not plausible: the mean gradient there would be {far[i]:.2g} standard "
            f"deviations of one step's noise from the last, and more than {PLAUSIBLE:.0e} is refused."
        )
    return ""


def _numbers(name: str, value: ArrayLike) -> FloatArray:
    given = np.asarray(value)
    if given.dtype.kind not in "iufb":  # strings, complex numbers, dates and integers too large for any type
        raise ValueError(f"{name} must be an array of real numbers; got {given.dtype} values.")
    return given.astype(np.float64)  # a copy, since it is kept until the next round


def participant_weights(present: BoolArray, weights: FloatArray) -> FloatArray:
    """w_k / sum of w over those who took part, and zero for the others."""
    if weights[present].sum() <= 0.0:
        raise ValueError("participants must have weight; got clients of weight zero only. Leave the round out?")
    return np.where(present, weights, 0.0) / weights[present].sum()


def participant_mask(participants: ArrayLike, count: int) -> BoolArray:
    """Who took part, (K,) booleans, from indices or booleans."""
    given = np.asarray(participants)
    if given.dtype == np.bool_:
        if given.shape != (count,):
            raise ValueError(f"participants as booleans must be {count}, one a client; got shape {given.shape}.")
        mask = given
    else:
        if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer) or not given.size:
            raise ValueError(f"participants must be client indices or {count} booleans; got {participants!r}.")
        if given.min() < 0 or given.max() >= count:
            raise ValueError(f"participants must lie in 0..{count - 1}; got {given.tolist()}. Clients count from 0.")
        mask = np.zeros(count, dtype=np.bool_)
        mask[given] = True
        if mask.sum() != given.size:
            raise ValueError(f"participants must be named once each; got {given.tolist()}.")
    if not mask.any():
        raise ValueError("participants must be at least one client; got none. Leave the round out: pass the next step.")
    return mask


def warn_of_optima(stacklevel: int) -> None:
    """Say that rounds of other clients cannot be made comparable."""
    warnings.warn(
        "alpha holds for rounds with other clients or weights only where all clients have one optimum, since lin has "
        "no client gradients. Use linearize(problem), or linearization(..., gradients=...).",
        _checks.FedgaussWarning,
        stacklevel=stacklevel,
    )
