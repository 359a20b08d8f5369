"""Sample means against stated ones, with a known chance of a false failure."""

from __future__ import annotations

import numpy as np
from scipy.stats import t as student

from fedgauss._types import FloatArray
from fedgauss.testing.battery import expect

FALSE_FAILURE = 1e-4  # the chance that a check by sampling fails although the rule holds, at a seed of its own
_GROUPS = 32  # draws are averaged in groups, whose means are near enough to normal
_ROUNDING = 1e-5  # relative, of float32: never held against anybody


def expect_mean(draws: FloatArray, stated: FloatArray, name: str, fix: str, widen: float = 1.0) -> None:
    """Expect the mean of `draws` over their last axis to be `stated`, entry by entry.

    Each entry is compared by Student's t of 32 group means, and Bonferroni's correction over the entries keeps the
    chance of any false failure below 1e-4. `widen` multiplies the standard errors, where what is stated has some too.
    """
    usable = draws.shape[-1] // _GROUPS * _GROUPS
    means = np.asarray(draws, float)[..., :usable].reshape(*draws.shape[:-1], _GROUPS, -1).mean(axis=-1)
    error = widen * means.std(axis=-1, ddof=1) / np.sqrt(_GROUPS)
    gap = np.abs(means.mean(axis=-1) - stated)
    scale = np.abs(means).mean(axis=-1).max(initial=0.0)
    allowed = student.isf(FALSE_FAILURE / 2 / max(gap.size, 1), _GROUPS - 1) * error + _ROUNDING * scale
    worst = np.unravel_index(np.argmax(gap - allowed), gap.shape) if gap.size else ()
    got = ""
    if gap.size:
        index = tuple(int(i) for i in worst)
        got = (
            f"{name} is {np.broadcast_to(stated, gap.shape)[worst]:.6g} at index {index}, but {usable} draws average "
            f"{means.mean(axis=-1)[worst]:.6g} with a standard error of {error[worst]:.2g}"
        )
    expect(np.all(gap <= allowed), got, fix)
