"""How many digits a site gives along the path of a fit: as many as the next step needs.

Scoring goes from the model without covariates to the estimate, and a dishonest site can lead it elsewhere by lying
about its sums. Sums at many parameters of its choice, with all of their digits, would tell of single rows: some
combination of them weighs rows by a function that is next to nothing but on a few. So a site rounds what it says at a
parameter to multiples of about

    2^-10 min(1, d),

in units in which columns and residuals have size 1, where d is how far the parameter moved in the longer of the last
two steps (one may be short by chance). The next step errs by some d / 1000 for it, and those after it mend that: digits
come as steps shrink, and a fit has all of them in the end.

A path also contracts. From a place to which steps of length d led it goes no further than 32 d; a round that goes
further is void, which halves its step. So there is one place in a run where sums are known exactly, and what rows count
for there goes by the ledger.

Where the predictors of a site's rows spread by more than about 8 nothing is told: weights would jump from row to row.
Silence tells of rows, and is counted; spreads are taken in few digits, in units that nobody else can move, so that a
site that lies finds no sum of another by it. Where slopes are zero all rows count alike, unless they have offsets or
the loss bends with the response, and where the loss is quadratic sums at one parameter tell those at all: these are
sums of columns, and have all of their digits. Where rows do not count alike, the model without covariates has a path
and a place of its own.
"""

from __future__ import annotations

import math

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.families import Family
from fedgauss.families.rows import Ask, Rows

_DIGITS = 2.0**-10
_EXACT = 2.0**-7  # a step below which sums have digits enough for the ledger to know what they are of
_FURTHEST = 32.0  # steps; honest fits reach some ten, and now and then one goes further and is halved
_WIDEST = 8.0  # standard deviations; slopes of 1 in all of twenty columns make 4.5
_LEAST_LEFT = 2.0**-10  # of a column's spread beside others: less is taken for it


class Path:
    """The path of one run, as one site sees it.

    Parameters
    ----------
    family : Family
    rows : Rows
        Of the site, in the units of the fit.
    intercept : bool
        Whether the first column is one of ones.
    scale : (p,) ndarray, optional
        Of the other columns, by which they were divided.

    Attributes
    ----------
    exact : bool
        Whether a step has been so short that what is told since has to be known to the ledger.
    """

    def __init__(self, family: Family, rows: Rows, intercept: bool, scale: FloatArray | float = 1.0) -> None:
        self._first, self._outputs, self._extra = int(intercept), family.n_outputs, len(family.extra_names)
        spread = np.sqrt(np.mean(np.square(rows.x), axis=0))  # 1, unless somebody lies about scales
        self._units = np.concatenate([np.tile(_power(np.maximum(spread, 1.0)), self._outputs), np.ones(self._extra)])
        self._size, self._residual = _power(np.array(family.sizes(rows.response)))
        self._offset, self._anywhere = np.broadcast_to(rows.offset, rows.n), family.quadratic
        self._alike = not np.ptp(self._offset) and not family.additive  # where slopes are zero
        own = rows.x[:, self._first :] * scale
        self._spreads = spreads(np.column_stack([own, self._offset]))
        self._spreads[:, :-1] /= scale
        self._sloped = False  # whether they have been other than zero
        self._at: FloatArray | None = None
        self._moved = 1.0  # in the last step
        self._places: list[FloatArray] = []
        self._reach: list[float] = []  # how far the path may go from each of them
        self.exact = False

    def step(self, ask: Ask) -> float | None:
        """How far the parameter has moved, at most 1; 0 where all digits are told, and None where nothing is."""
        theta, last = ask.theta, self._at
        if ask.kind not in ("score", "sums"):  # where the path has ended
            at_the_end = last is None or self._anywhere or bool(self._between(theta, last) <= _EXACT)
            return 0.0 if at_the_end else None
        self._at = theta
        slopes = theta[: len(theta) - self._extra].reshape(self._outputs, -1)[:, self._first :]
        sloped = bool(slopes.any())
        if self._anywhere or (self._alike and not sloped):
            return 0.0
        if sloped and not self._sloped:  # from the model without covariates
            self._sloped, self._places, self._reach, self.exact = True, [], [], False
        spread = self._spreads[:, :-1] @ slopes.T + self._spreads[:, -1:]
        if not (np.sqrt(np.square(spread).sum(axis=0)) <= _WIDEST * self._size).all():
            return None
        if self._places and (self._between(theta, np.array(self._places)) > self._reach).any():
            return None
        moved = 1.0 if last is None else float(self._between(theta, last))
        longer, self._moved = min(1.0, max(moved, self._moved)), moved or self._moved
        self._places.append(theta)
        self._reach.append(_FURTHEST * longer)
        self.exact |= longer <= _EXACT
        return longer

    def rounded(self, numbers: dict[str, FloatArray], step: float) -> dict[str, FloatArray]:
        """The log-likelihood, the score and the information with the digits that a step of this length asks for."""
        length, units = np.ldexp(_DIGITS, math.frexp(step)[1] - 1), self._units
        grids = [length**2 / _DIGITS * self._size * self._residual, length * self._residual * units]
        grids.append(length * self._residual / self._size * np.multiply.outer(units, units))
        return {name: np.rint(value / grids[value.ndim]) * grids[value.ndim] for name, value in numbers.items()}

    def _between(self, one: FloatArray, others: FloatArray) -> FloatArray:
        return np.asarray((np.abs(one - others) * self._units).max(axis=-1) / self._size)


def spreads(columns: FloatArray) -> FloatArray:
    """R, (p, p), with |R a| about the standard deviation of columns times a.

    Of each column the part that those before it leave is rounded up to a power of two, and what they have of it to
    multiples of that.
    """
    padded = np.vstack([columns - columns.mean(axis=0), np.zeros((columns.shape[1],) * 2)])
    root = np.linalg.qr(padded, mode="r") / np.sqrt(len(columns))
    least = _LEAST_LEFT * np.linalg.norm(root, axis=0)
    grid = np.exp2(np.ceil(np.log2(np.maximum(np.abs(np.diag(root)), np.where(least > 0.0, least, 1.0)))))
    return np.asarray(np.rint(root / grid) * grid)


def _power(sizes: FloatArray) -> FloatArray:
    """The power of two below, whose multiples add up without rounding; 1 for 0."""
    return np.asarray(np.exp2(np.floor(np.log2(np.where(sizes > 0.0, sizes, 1.0)))))
