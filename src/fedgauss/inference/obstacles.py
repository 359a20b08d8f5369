"""What no estimate can come from, found before a run: too few rows, columns that say nothing new, separable classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr, solve_triangular
from scipy.optimize import linprog
from scipy.stats import median_abs_deviation

from fedgauss._types import BoolArray, FloatArray
from fedgauss.inference.design import Design
from fedgauss.inference.frames import listed
from fedgauss.inference.standardise import Location
from fedgauss.problems.families import Family, Huber, Logistic, OneVersusRest, Poisson

_ROWS_A_CLIENT = 10
_ROWS_A_PARAMETER = 10
_SAME = 1e-12  # of its size: the spread of a column that is constant but for rounding
_NARROWEST, _REACH = 0.2, 2.0  # thresholds of Huber's loss in median absolute deviations: the least, and a usual one
_ROUNDING = 1e-6  # by which a row may lie on the wrong side of a plane: ten times what the solver allows
# Of a standard deviation, what is left of a column beside the others: less and a Hessian in single precision is lost.
_DEPENDENT = 3e-3
_ALL_BUT = 1e-6  # below that nothing is left but rounding


def check_rows(clients: Sequence[str], counts: npt.NDArray[np.int64], dim: int) -> None:
    """Every client needs a few rows of its own, and all together some for each parameter."""
    few = np.flatnonzero(counts < _ROWS_A_CLIENT).tolist()
    if few:
        who = [f"{clients[k]!r} ({counts[k]})" for k in few]
        raise ValueError(
            f"each client must have at least {_ROWS_A_CLIENT} rows; fewer has {listed(who, quote=False)}. Join small "
            "clients, or leave them out."
        )
    total = int(counts.sum())
    if total < _ROWS_A_PARAMETER * dim:
        raise ValueError(
            f"{dim} parameters need at least {_ROWS_A_PARAMETER * dim} rows; got {total}. Use fewer columns?"
        )


def check_constant(names: Sequence[str], columns: Location) -> None:
    """Columns that never vary, by name; without an intercept, columns of zeros."""
    flat = np.flatnonzero(columns.scale <= _SAME * (np.abs(columns.mean) + columns.scale)).tolist()
    if flat:
        which = [f"{names[j]!r} ({columns.mean[j]:g})" for j in flat]
        raise ValueError(f"columns must vary; constant is {listed(which, quote=False)}. Leave it out.")


def triangle(covariates: FloatArray, columns: Location) -> FloatArray:
    """What a client tells of how its columns hang together: the triangle of a QR, p x p numbers at most."""
    return np.asarray(np.linalg.qr((covariates - columns.mean) / columns.scale, mode="r"), dtype=np.float64)


def check_collinear(names: Sequence[str], triangles: Sequence[FloatArray], total: int, intercept: bool) -> None:
    """Columns that are sums of others, by name: pivoted QR of the clients' triangles, as good as that of all rows."""
    if not names:
        return
    joined, pivots = qr(np.concatenate(triangles), mode="r", pivoting=True)
    left = np.abs(np.diag(joined)) / np.sqrt(total)
    rank = int(np.sum(left > _DEPENDENT))
    if rank == len(names):
        return
    made_of = solve_triangular(joined[:rank, :rank], joined[:rank, rank])
    exact = left[rank] < _ALL_BUT
    others = [names[pivots[i]] for i in np.flatnonzero(np.abs(made_of) > (1e-6 if exact else 1e-2))]
    constant = " and a constant" if intercept else ""
    nearly = "" if exact else f"all but {100 * left[rank]:.2g} % "
    raise ValueError(
        f"columns must not be collinear; {names[pivots[rank]]!r} is {nearly}made up of {listed(sorted(others))}"
        f"{constant}. Leave one out."
    )


def check_huber(design: Design) -> None:
    """A threshold far below the spread of the target leaves hardly a row inside it, and a Hessian of nearly nothing."""
    if isinstance(design.family, Huber):
        spread, threshold = float(median_abs_deviation(design.response)), design.family.threshold
        if threshold < _NARROWEST * spread:
            raise ValueError(
                f"the threshold of family 'huber' must be at least {_NARROWEST:g} of the median absolute deviation of "
                f"the target; it is {threshold:g}, and that of {design.target!r} is {spread:.3g}. Measure the target "
                f"in other units, or use family=problems.families.Huber({_REACH * spread:.2g})."
            )


def check_separable(design: Design, rows: FloatArray) -> None:
    """Classes that a plane parts without error, or counts that are zero all along a direction: no finite optimum.

    If the rows of one client overlap, and span all directions, so do all; so each looks at its own rows first.
    """
    one = design.names if design.constant is None else (design.constant, *design.names)
    for what, side in sides_of(design.family, design.target, design.classes, design.response).items():
        direction = _separating_direction(rows, side, design)
        if direction is None:
            continue
        by_size = [j for j in np.argsort(-np.abs(direction)) if abs(direction[j]) > 1e-3]
        strong = [one[j] for j in by_size if one[j] != design.constant]
        kind = "zero counts" if isinstance(design.family, Poisson) else "the two classes"
        raise ValueError(
            f"{what} is linearly separable: {kind} can be told apart without error by {listed(strong)}, so "
            "coefficients grow without bound and have no estimate. Use fewer columns, or join rare levels."
        )


def sides_of(family: Family, target: str, classes: Sequence[Any], response: FloatArray) -> dict[str, FloatArray]:
    """On which side of a plane each row should lie, for every pair of classes that one might part."""
    if isinstance(family, Logistic):
        return {target: np.where(response > 0, 1.0, -1.0)}
    if isinstance(family, OneVersusRest):
        return {f"{target} == {label!r}": np.where(response == i, 1.0, -1.0) for i, label in enumerate(classes)}
    if isinstance(family, Poisson):
        # Rows with a count hold the direction fast; it may only lead rows without one further down.
        return {target: np.where(response > 0, 0.0, -1.0)}
    return {}


def separable(rows: FloatArray, side: FloatArray) -> bool:
    """Whether a plane parts these rows, which have full rank, without error."""
    return _separated(rows, side) is not None


def _separating_direction(rows: FloatArray, side: FloatArray, design: Design) -> FloatArray | None:
    """A direction that separates all rows, or None."""
    largest_first = np.argsort(-design.counts)
    for k in largest_first:
        own = slice(design.firsts[k], design.firsts[k] + design.counts[k])
        if np.linalg.matrix_rank(rows[own]) == rows.shape[1] and not separable(rows[own], side[own]):
            return None
    return _separated(rows, side)


def _separated(rows: FloatArray, side: FloatArray) -> FloatArray | None:
    """A direction v with side_i x_i'v >= 0 for all rows, not zero for all; x_i'v = 0 where side is 0.

    Cutting planes: a direction for a few rows, then those that it gets most wrong as well, until none is left. The few
    have full rank: if no direction parts them, none parts all. (Rows that are all zero along some direction would say
    nothing about it.)
    """
    spanning = qr(rows.T, mode="r", pivoting=True)[1][: rows.shape[1]]
    order = np.random.default_rng(0).permutation(len(rows))
    some = np.union1d(spanning, order[: 20 * rows.shape[1]])
    while True:
        direction = _best_direction(rows[some], side[some])
        if direction is None:
            return None
        along = rows @ direction
        wrong = np.where(side == 0.0, np.abs(along), -side * along)
        wrong[some] = 0.0
        worst = np.argsort(-wrong)[: len(some)]
        broken = worst[wrong[worst] > _ROUNDING]
        if not len(broken):
            return direction
        some = np.concatenate([some, broken])


def _best_direction(rows: FloatArray, side: FloatArray) -> FloatArray | None:
    """The linear programme: maximise sum_i side_i x_i'v over |v_j| <= 1 under those rules."""
    fixed: BoolArray = side == 0.0
    signed = side[~fixed, None] * rows[~fixed]
    solved = linprog(
        -signed.sum(axis=0),
        A_ub=-signed, b_ub=np.zeros(len(signed)),
        A_eq=rows[fixed] if fixed.any() else None, b_eq=np.zeros(int(fixed.sum())) if fixed.any() else None,
        bounds=(-1.0, 1.0), method="highs",
    )  # fmt: skip
    # The solver lets each rule be broken by 1e-7, which a direction of that length would use up.
    return solved.x if solved.status == 0 and -solved.fun > 1e-5 * len(rows) else None
