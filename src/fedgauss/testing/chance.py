"""Sample means against stated ones, with a known chance of a false failure."""

from __future__ import annotations

import numpy as np
from scipy.stats import t as student

from fedgauss._types import BoolArray, FloatArray
from fedgauss.testing.battery import expect, not_applicable

FALSE_FAILURE = 1e-4  # the chance that a check by sampling fails although the rule holds, at a seed of its own
_GROUPS = 32  # draws are averaged in groups, whose means are near enough to normal
_ROUNDING = 1e-5  # relative, of float32: never held against anybody
_HEAVY = 1 / 3  # the share of one draw in the sum of squares, beyond which a standard error cannot be trusted


def expect_mean(draws: FloatArray, stated: FloatArray, name: str, fix: str, widen: float = 1.0) -> None:
    """Expect the mean of `draws` over their last axis to be `stated`, entry by entry.

    Each entry is compared by Student's t of 32 group means, and Bonferroni's correction over the entries keeps the
    chance of any false failure below 1e-4. `widen` multiplies the standard errors, where what is stated has some too.
    Entries whose draws have too heavy a tail are not judged.
    """
    usable = draws.shape[-1] // _GROUPS * _GROUPS
    values = np.asarray(draws, float)[..., :usable]
    means = values.reshape(*values.shape[:-1], _GROUPS, -1).mean(axis=-1)
    average, error = means.mean(axis=-1), widen * means.std(axis=-1, ddof=1) / np.sqrt(_GROUPS)
    gap = np.abs(average - stated)
    limit = student.isf(FALSE_FAILURE / 2 / gap.size, _GROUPS - 1)
    allowed = limit * error + _ROUNDING * np.abs(means).mean(axis=-1).max()
    judged = ~_dominated(values)
    if not judged.any():
        not_applicable(f"{name} has tails too heavy for an average over {usable} draws to tell")
    worst = np.unravel_index(np.argmax(np.where(judged, gap - allowed, -np.inf)), gap.shape)
    index = tuple(int(i) for i in worst)
    got = (
        f"{name} is {np.broadcast_to(stated, gap.shape)[worst]:.6g} at index {index}, but {usable} draws average "
        f"{average[worst]:.6g} with a standard error of {error[worst]:.2g}"
    )
    expect(np.all((gap <= allowed) | ~judged), got, fix)


def _dominated(values: FloatArray) -> BoolArray:
    """Where one draw makes up most of the spread of all: its like may be missing, and the standard error too small."""
    squares = (values - values.mean(axis=-1, keepdims=True)) ** 2
    return squares.max(axis=-1) > _HEAVY * squares.sum(axis=-1)
