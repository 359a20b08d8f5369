"""Columns that are not what they seem: one wild value, or numbers stored as text.

Messages name the column and quote none of its values: a site sends them.
"""

from collections.abc import Mapping

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.families.base import is_number
from fedgauss.inference.formula.terms import Expression, Factor, Formula, Levels, Pooled, Spline
from fedgauss.inference.formula.values import values_of
from fedgauss.inference.tables import FrameColumn

_LARGEST = 1e100  # sums of squares are finite below
_RANGES = 1e4  # interquartile ranges from the median, beyond which a value is wild
_SHARE = 0.99  # of a column's squares about the median, which one value may not have for itself
_READ_AS_NUMBERS = 0.8  # of the levels of a column of text, from which it is one of numbers
_FEW_LEVELS = 10  # whole numbers as text may be codes


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
        if np.median(np.abs(values)) > _LARGEST:
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
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    away = np.abs(values - median)
    largest = away.max()
    if high > low and largest > _RANGES * (high - low):
        return True
    if largest == 0.0 or _SHARE * np.sum((away / largest) ** 2) >= 1.0:
        return False
    return len(np.unique(values)) > 2


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
