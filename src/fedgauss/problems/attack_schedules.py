"""When an attack acts: at once, slowly, or on and off."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._types import JaxArray
from fedgauss.problems.base import pytree

_NEVER = np.int32(2**31 - 1)


@pytree
class Schedule:
    """The intensity of an attack at step t, from 0 (honest) to 1 (full strength).

        intensity(t) = min((t - start + 1) / over, 1)   if start <= t < until and (t - start) mod (on + off) < on
                     = 0                                otherwise

    All of it is traced: another onset or another rhythm needs no other compilation.
    """

    start: np.int32
    until: np.int32 = _NEVER
    over: np.float32 = np.float32(1.0)  # a float, so that settings run together may drift at several speeds
    on: np.int32 = np.int32(1)
    off: np.int32 = np.int32(0)

    def intensity(self, t: JaxArray) -> JaxArray:
        """A number from 0 to 1."""
        age = jnp.int32(t) - self.start
        acts = (age >= 0) & (t < self.until) & (age % (self.on + self.off) < self.on)
        return jnp.where(acts, jnp.minimum((age + 1) / self.over, 1.0), 0.0).astype(jnp.float32)


def from_step(start: int, until: int | None = None) -> Schedule:
    """Full strength at steps start, ..., until - 1; without `until`, for ever.

    Parameters
    ----------
    start, until : int
        The first affected step, and the first honest one after it.
    """
    start = _checks.step_number("start", start)
    if until is None:
        return Schedule(np.int32(start))
    until = _checks.step_number("until", until)
    if until <= start:
        raise ValueError(f"until must come after start = {start}; got {until}. The attack acts before step `until`.")
    return Schedule(np.int32(start), until=np.int32(until))


def slow_drift(start: int, over: float) -> Schedule:
    """From nothing to full strength in `over` equal steps, the first of them at step `start`.

    Parameters
    ----------
    start : int
        The first affected step.
    over : float
        Over how many steps it grows.
    """
    start = _checks.step_number("start", start)
    length = _checks.real("over", over, fix="It is the number of steps that the drift takes.")
    if length < 1:
        raise ValueError(f"over must be at least 1 step; got {length:g}. Use from_step(start) for a sudden attack.")
    return Schedule(np.int32(start), over=np.float32(length))


def on_off(start: int, on: int, off: int) -> Schedule:
    """Full strength for `on` steps from `start`, then `off` honest steps, and so on: an attacker that hides.

    Parameters
    ----------
    start : int
        The first affected step.
    on, off : int
        Lengths of the spells.
    """
    start = _checks.step_number("start", start)
    largest = 2**30 - 1  # on + off is a 32-bit number too
    on = _checks.whole("on", on, at_most=largest)
    off = _checks.whole("off", off, at_most=largest, fix="Use from_step(start) for an attack without pauses.")
    return Schedule(np.int32(start), on=np.int32(on), off=np.int32(off))


def as_schedule(start: int | Schedule) -> Schedule:
    """A step number stands for full strength from that step on."""
    return start if isinstance(start, Schedule) else from_step(start)
