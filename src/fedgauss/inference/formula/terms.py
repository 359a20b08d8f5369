"""What a formula is read into: terms, which are products of factors, each about one column; and their values.

What no column may be, too: numbers stored as text, or numbers among which one is wild. Messages name the column and
quote none of its values: a site sends them.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.families.base import is_number
from fedgauss.inference.formula.splines import natural_basis, normal_knots
from fedgauss.inference.tables import FrameColumn, listed

SITE = "\0site"  # the sites as a column among those of a frame, whose names it cannot be
Step = tuple[str, float]  # a sign and a number, or a function and 0
_SIGNS = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "**": np.power}
FUNCTIONS = {"log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt}
STEPS = (*_SIGNS, *FUNCTIONS)  # that may be done to the values of a column
_LARGEST = 1e100  # sums of squares are finite below
_RANGES = 1e4  # interquartile ranges from the median, beyond which a value is wild
_SHARE = 0.99  # of a column's squares about the median, which one value may not have for itself
_READ_AS_NUMBERS = 0.8  # of the levels of a column of text, from which it is one of numbers
_FEW_LEVELS = 10  # whole numbers as text may be codes
_NEEDS = {"sqrt": "from 0", "log1p": "above -1"}  # all others: above 0


class Expression(NamedTuple):
    """A column, and what is done to its values one after the other; without steps, the column as it is."""

    column: str
    steps: tuple[Step, ...]
    name: str


class Levels(NamedTuple):
    """C(column): its values are levels, also where they are numbers. `reference` is the base, by default the first."""

    column: str
    reference: str | float | bool | None
    name: str


class Pooled(NamedTuple):
    """Values less their mean over all sites and, for `scaled`, over their standard deviation (by n, not n - 1)."""

    of: Expression
    scaled: bool
    name: str


class Spline(NamedTuple):
    """A natural cubic spline with `df` columns: df + 1 knots, the outer two of which are the bounds."""

    of: Expression
    df: int
    knots: tuple[float, ...] | None  # the inner ones
    bounds: tuple[float, float] | None
    name: str


Factor = Expression | Levels | Pooled | Spline
Term = tuple[Factor, ...]  # their product


def column_of(factor: Factor) -> str:
    """The column that a factor is about."""
    return factor.of.column if isinstance(factor, Pooled | Spline) else factor.column


class Formula(NamedTuple):
    """What a formula says. `regrouped` if columns come in statsmodels' order, not in that of the terms.

    `others` are the columns that "." stands for.
    """

    terms: tuple[Term, ...]
    intercept: bool
    offsets: tuple[Expression, ...] = ()
    regrouped: bool = False
    others: tuple[str, ...] = ()

    @property
    def factors(self) -> list[Factor]:
        """Of all terms."""
        return [factor for term in self.terms for factor in term]

    @property
    def columns(self) -> list[str]:
        """All columns that are used, each once."""
        used = [column_of(factor) for factor in (*self.factors, *self.offsets)]
        return list(dict.fromkeys(used))

    @property
    def as_levels(self) -> set[str]:
        """Columns whose values are levels because the formula says so."""
        return {factor.column for factor in self.factors if isinstance(factor, Levels)}


def same(one: Term, other: Term) -> bool:
    """Whether two terms are the same product, in whatever order."""
    return frozenset(one) == frozenset(other)


class Summary(NamedTuple):
    """Mean and standard deviation (by n) over all rows of all sites."""

    mean: float
    sd: float


Agreed = Mapping[str, Summary]  # by the name of an expression


def values_of(part: Expression, rows: Mapping[str, FrameColumn]) -> FloatArray:
    """The values of an expression, (n,)."""
    column = rows[part.column]
    if column.levels is not None:
        raise ValueError(f"{part.name} needs numbers; column {part.column!r} holds text, categories or true and false.")
    values = column.values
    with np.errstate(all="ignore"):  # what is not finite is refused
        for step, number in part.steps:
            values = _SIGNS[step](values, number) if step in _SIGNS else _called(step, values, part)
    if not np.all(np.isfinite(values)):
        raise ValueError(f"{part.name} must be finite; it is not for all values of column {part.column!r}.")
    return np.asarray(values, dtype=float)


def _called(function: str, values: FloatArray, part: Expression) -> FloatArray:
    limit = {"log1p": -1.0}.get(function, 0.0)
    if not (np.all(values >= limit) if function == "sqrt" else np.all(values > limit)):
        fix = f" Use log({part.column} + 1) where 0 occurs?" if part.name.endswith(f"log({part.column})") else ""
        raise ValueError(
            f"{part.name} needs values {_NEEDS.get(function, 'above 0')}; column {part.column!r} has others.{fix}"
        )
    return FUNCTIONS[function](values)


def pooled_values(factor: Pooled, values: FloatArray, about: Summary) -> FloatArray:
    """Less the mean; over the standard deviation where `factor.scaled`."""
    if factor.scaled and about.sd == 0.0:
        raise ValueError(f"columns must vary; column {factor.of.column!r} is constant. Leave {factor.name} out.")
    centred = values - about.mean
    return centred / about.sd if factor.scaled else centred


def knots_of(factor: Spline, about: Summary | None) -> FloatArray:
    """All knots, the bounds first and last."""
    knots, bounds = factor.knots, factor.bounds
    if knots is None or bounds is None:
        assert about is not None
        if not about.sd > 0.0:
            raise ValueError(f"columns must vary; column {factor.of.column!r} is constant. Leave {factor.name} out.")
        usual = normal_knots(about.mean, about.sd, factor.df)
        knots = tuple(usual[1:-1]) if knots is None else knots
        bounds = (usual[0], usual[-1]) if bounds is None else bounds
    all_knots = np.array([bounds[0], *knots, bounds[1]], dtype=float)
    if not np.all(np.diff(all_knots) > 0.0):
        shown = listed([f"{knot:g}" for knot in all_knots], quote=False)
        raise ValueError(
            f"knots must rise and lie between the bounds; those of {factor.name} are {shown}. Give both, as in "
            f"ns({factor.of.name}, knots=[30, 50], bounds=[20, 80])."
        )
    return all_knots


def spline_values(factor: Spline, values: FloatArray, about: Summary | None) -> FloatArray:
    """The spline's columns, (n, df)."""
    return natural_basis(values, knots_of(factor, about))


def check_columns(formula: Formula, columns: Mapping[str, FrameColumn]) -> None:
    """Refuse numbers stored as text, and columns of numbers with a wild value, each by its name."""
    for factor in (*formula.factors, *formula.offsets):
        if isinstance(factor, Levels):
            continue
        part = _before_powers(factor)
        column = columns[part.column]
        if column.levels is not None:
            _check_text(column)
            continue
        values = values_of(part, columns)
        shown = part.name if part.steps else f"column {part.column!r}"
        if np.abs(values).max(initial=0.0) > _LARGEST and np.median(np.abs(values)) > _LARGEST:
            raise ValueError(f"numbers must be at most {_LARGEST:g} in size; {shown} has larger ones. Change its unit.")
        if is_wild(values):
            fix = "leave the rows out" if part.steps else f"use log({part.column}), or leave the rows out"
            raise ValueError(
                f"no single value may outweigh all others; one of {shown} does. Is it a typing error, in another unit, "
                f"or a code for a missing value, such as 999999? Look at the smallest and the largest values of "
                f"{part.column!r}. If they are right, {fix}."
            )


def is_wild(values: FloatArray) -> bool:
    """Whether one value lies absurdly far from the others, or makes up nearly all of the squares about the median.

    Columns with at most two values are left alone: where one row has a 1 and all others a 0, the 1 is no mistake.
    """
    if len(values) < 3:
        return False
    low, median, high = _quartiles(values)
    away = np.abs(values - median)
    largest = away.max()
    if high > low and largest > _RANGES * (high - low):
        return True
    if largest == 0.0 or _SHARE * np.sum((away / largest) ** 2) >= 1.0:
        return False
    return len(np.unique(values)) > 2


def _quartiles(values: FloatArray) -> FloatArray:
    """Three, between neighbours in proportion; NumPy's quantiles take ten times as long for a hundred rows."""
    ordered, places = np.sort(values), (len(values) - 1) * np.array([0.25, 0.5, 0.75])
    below = places.astype(int)
    return ordered[below] + (places - below) * (ordered[below + 1] - ordered[below])


def reads_as_numbers(column: FrameColumn) -> bool:
    """Whether a column of text is one of numbers: most levels read so, and they are many, or have fractions."""
    levels = column.levels or ()
    if not levels or not all(isinstance(level, str) for level in levels):
        return False
    points = [level.replace(",", ".") for level in levels]  # as in 2,5
    found = [float(level) for level in points if is_number(level)]
    fractions = any(number != np.floor(number) for number in found if np.isfinite(number))
    return len(found) >= _READ_AS_NUMBERS * len(levels) and (len(levels) > _FEW_LEVELS or fractions)


def _check_text(column: FrameColumn) -> None:
    if reads_as_numbers(column):
        name = column.name
        raise ValueError(
            f"column {name!r} holds numbers as text, and would become an indicator for each of its values. Make it "
            f"numbers: pandas.to_numeric(frame[{name!r}], errors='coerce') shows by NaN what is none. For levels write "
            f"C({name}) in a formula, or make it a category."
        )


def _before_powers(factor: Factor) -> Expression:
    """What a factor is a function of: a column or its logarithm, before powers make large values larger."""
    part = factor.of if isinstance(factor, Pooled | Spline) else factor
    assert isinstance(part, Expression)
    functions = [i for i, (step, _) in enumerate(part.steps) if step.isalnum()]
    kept = part.steps[: functions[-1] + 1] if functions else ()
    return part._replace(steps=kept)
