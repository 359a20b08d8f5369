"""A factor's columns, from the values of its column and what all sites agreed on."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.inference.formula.splines import natural_basis, normal_knots
from fedgauss.inference.formula.terms import Expression, Pooled, Spline
from fedgauss.inference.tables import FrameColumn, listed

_SIGNS = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "**": np.power}
_FUNCTIONS = {"log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt}
STEPS = (*_SIGNS, *_FUNCTIONS)  # that may be done to the values of a column
_NEEDS = {"sqrt": "from 0", "log1p": "above -1"}  # all others: above 0


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
    return _FUNCTIONS[function](values)


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
        usual = normal_knots(about.mean, about.sd, factor.df)
        if about.sd == 0.0:
            raise ValueError(f"columns must vary; column {factor.of.column!r} is constant. Leave {factor.name} out.")
        knots = tuple(usual[1:-1]) if knots is None else knots
        bounds = (usual[0], usual[-1]) if bounds is None else bounds
    all_knots = np.array([bounds[0], *knots, bounds[1]], dtype=float)
    if np.any(np.diff(all_knots) <= 0.0):
        shown = listed([f"{knot:g}" for knot in all_knots], quote=False)
        raise ValueError(
            f"knots must rise and lie between the bounds; those of {factor.name} are {shown}. Give both, as in "
            f"ns({factor.of.name}, knots=[30, 50], bounds=[20, 80])."
        )
    return all_knots


def spline_values(factor: Spline, values: FloatArray, about: Summary | None) -> FloatArray:
    """The spline's columns, (n, df)."""
    return natural_basis(values, knots_of(factor, about))
