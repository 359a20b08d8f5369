"""How far more steps can still move an average of iterates.

On a stream of fresh data Ybar_n has covariance S / n, and continued to m n steps it moves by Ybar_mn - Ybar_n, which is
about

    N(-(1 - 1/m) b_n, (1 - 1/m) S / n),    b_n = E Ybar_n - theta*, what is left of the start and of drift.

The noise of that movement is sqrt(1 - 1/m) standard errors at every n: .95 of them for m = 10. No number of steps makes
it a small share of the standard error. What a run can reach is a transient b_n that is small beside the standard error,
and a movement below a tolerance in the parameter's own units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from fedgauss import _checks
from fedgauss._shown import ShownInSentences
from fedgauss._types import ArrayLike, BoolArray, FloatArray

_FEWEST = 30  # replicates that a covariance and a mean are estimated from
_REMEMBERS = 0.55  # correlation of average and last iterate: .87 in a random walk, .5 after three relaxation times
_SURE = 1.645  # standard errors: the transient is less than estimated plus these in 95 of 100 studies


@dataclass(frozen=True, repr=False)
class Convergence(ShownInSentences):
    """Whether runs may stop, and what more steps would change; from `Runs.converged`. Printed, it is sentences.

    Attributes
    ----------
    settled : (R,) ndarray of bool
        Which runs may stop; `bool(convergence)` says whether all of them may.
    movement : (R, d) ndarray
        By how much `times` as many steps would move each coordinate of the average at most, all coordinates at once, in
        a share `level` of runs.
    transient : (d,) ndarray
        Upper bound of what the start and drift still contribute to the average.
    std_errors : (R, d) ndarray
        Standard errors of the average.
    n_steps : int
        Steps made so far.
    times : float
        The longer run has times * n_steps steps.
    level : float
        In what share of runs `movement` is not exceeded.
    tolerance : (d,) ndarray or None
        The movement that is tolerated; None where the transient decides.
    share : float
        The transient, in standard errors, that is tolerated where no tolerance is given.
    memory : float
        Largest correlation of a coordinate's average with its last iterate; above 0.55 a run has hardly begun. It
        is 0 where a covariance or a transient was given.
    """

    settled: BoolArray
    movement: FloatArray
    transient: FloatArray
    std_errors: FloatArray
    n_steps: int
    times: float
    level: float
    tolerance: FloatArray | None
    share: float
    memory: float

    def __bool__(self) -> bool:
        return bool(self.settled.all())

    @property
    def needed_steps(self) -> int:
        """After how many steps the typical run may stop; n_steps if it may now.

        The noise falls as n^-1/2 and the transient as 1/n.
        """
        error = np.median(self.std_errors, axis=0)
        if self.tolerance is None:
            ratio = np.maximum(self.transient / (self.share * error), 1.0)
            return int(np.ceil(self.n_steps * float(ratio.max()) ** 2))
        noise = np.maximum(np.median(self.movement, axis=0) - self.transient, np.finfo(float).tiny)
        # noise x + transient x^2 = tolerance, with x = (n / n_needed)^1/2
        x = 2 * self.tolerance / (noise + np.sqrt(noise**2 + 4 * self.transient * self.tolerance))
        return int(np.ceil(self.n_steps * max(1.0, float((1 / x**2).max()))))

    def __str__(self) -> str:
        error, move = np.median(self.std_errors, axis=0), np.median(self.movement, axis=0)
        worst, left = int((move / error).argmax()), float((self.transient / error).max())
        j = int(move.argmax()) if self.tolerance is None else int((move / self.tolerance).argmax())
        lines = [
            f"After {self.n_steps:,} steps the start and drift account for at most {left:.2f} standard errors of the "
            "average.",
            f"With {self.times:g} times as many steps the average would move by at most {move[j]:.3g} (coordinate {j}) "
            f"in {100 * self.level:g} of 100 runs; its standard error would fall from {error[j]:.3g} to "
            f"{error[j] / self.times**0.5:.3g}.",
            f"In standard errors of today that is up to {move[worst] / error[worst]:.1f}, of which "
            f"{(move[worst] - self.transient[worst]) / error[worst]:.1f} are noise of new data: these stay however "
            "long a run is.",
            self._advice(),
        ]
        return "\n".join(lines)

    def _advice(self) -> str:
        if self.memory > _REMEMBERS:
            return (
                f"Go on: runs have hardly begun. Average and last iterate have a correlation of {self.memory:.2f}, "
                f"above {_REMEMBERS:g}; use more steps, or larger ones."
            )
        what = f"a transient of {self.share:g} standard errors"
        if self.tolerance is not None:
            what = f"a movement of {self.tolerance.min():.3g}"
        if self:
            return f"Stop: that is within {what}."
        stopped = "" if len(self.settled) == 1 else f" ({int(self.settled.sum()):,} of {len(self.settled):,} runs may)"
        return f"Go on{stopped}: {what} takes about {self.needed_steps:,} steps."


def converged(
    average: FloatArray,
    last: FloatArray,
    n_steps: int,
    tolerance: ArrayLike | float | None = None,
    share: float = 0.25,
    times: float = 10.0,
    level: float = 0.95,
    cov: ArrayLike | None = None,
    transient: ArrayLike | None = None,
    dof: float = np.inf,
) -> Convergence:
    """The answer of `Runs.converged`, for averages and last iterates (R, d)."""
    average, last = np.asarray(average, dtype=float), np.asarray(last, dtype=float)
    runs, dim = average.shape
    level, share = _checks.level(level), _checks.real("share", share, above=0.0, fix="Use 0.25?")
    times = _checks.real("times", times, above=1.0, fix="It says how much longer a run might be: use 10?")
    if not dof > 0:
        raise ValueError(f"dof must be above 0; got {dof}. It counts the batches behind `cov`, less one.")
    if runs < _FEWEST and (cov is None or transient is None):
        raise ValueError(
            f"converged needs at least {_FEWEST} replicates, or both `cov` and `transient`; there are {runs} "
            "replicates. Use theory.average_covariance(lin, steps, n) / n and theory.start_bias(lin, steps, n, start)?"
        )
    memory = _memory(average, last) if cov is None and transient is None else 0.0
    variance = average.var(axis=0, ddof=1)[None] if cov is None else _variances(cov, runs, dim)
    if transient is None:
        ahead = average - last  # the last iterate has forgotten the start long before the average has
        left = np.abs(ahead.mean(axis=0)) + _SURE * ahead.std(axis=0, ddof=1) / np.sqrt(runs)
    else:
        left = np.abs(_checks.real_array("transient", transient, shape=(dim,)))
    error = np.sqrt(variance)
    # Sidak's inequality: intervals of level^(1/d) each hold at once, whatever the correlation of coordinates.
    one = 0.5 + level ** (1 / dim) / 2
    z = ndtri(one) if np.isinf(dof) else stdtrit(dof, one)
    movement = left + z * np.sqrt(1 - 1 / times) * error
    allowed = None
    if tolerance is None:
        settled = np.all(left <= share * error, axis=1)
    else:
        allowed = np.broadcast_to(_checks.real_array("tolerance", tolerance), (dim,))
        if not np.all(allowed > 0):
            raise ValueError(f"tolerance must be above 0; its smallest is {allowed.min():g}. It is in the parameters' "
                             "own units.")  # fmt: skip
        settled = np.all(movement <= allowed, axis=1)
    settled = np.broadcast_to(settled & (memory <= _REMEMBERS), (runs,))
    shape = (runs, dim)
    return Convergence(
        settled, np.broadcast_to(movement, shape), left, np.broadcast_to(error, shape), n_steps, times, level, allowed,
        share, memory,
    )  # fmt: skip


def _variances(cov: ArrayLike, runs: int, dim: int) -> FloatArray:
    """The diagonals of one covariance for all runs, or one for each; (1 or R, d)."""
    given = _checks.real_array("cov", cov)
    if given.shape not in ((dim, dim), (runs, dim, dim)):
        raise ValueError(
            f"cov must have shape ({dim}, {dim}), or ({runs}, {dim}, {dim}) with one for each run; got {given.shape}."
        )
    found = np.diagonal(given, axis1=-2, axis2=-1).reshape(-1, dim)
    if not np.all(found > 0):
        raise ValueError(f"cov must have positive variances; the smallest is {found.min():.3g}.")
    return found


def _memory(average: FloatArray, last: FloatArray) -> float:
    """The largest correlation, over replicates, of a coordinate's average with its last iterate."""
    a, b = average - average.mean(axis=0), last - last.mean(axis=0)
    return float(((a * b).sum(axis=0) / np.sqrt((a**2).sum(axis=0) * (b**2).sum(axis=0))).max())
