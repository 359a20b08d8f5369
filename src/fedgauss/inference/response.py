"""The target as its family reads it, and the column that may stand beside it: trials, or events."""

from typing import Any

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.families import Family, chosen, names
from fedgauss.families.base import is_number
from fedgauss.inference.tables import FrameColumn

# The values of a target as its family reads them, its classes if it has them, and the family.
Response = tuple[FloatArray, tuple[Any, ...], Family]


def family_of(column: FrameColumn, family: str | Family | None) -> str | Family:
    """The family that was asked for; "gaussian" where none was and the target can be nothing else.

    Parameters
    ----------
    column : FrameColumn
        The target.
    family : str, Family or None
        As given to `fit`.

    Returns
    -------
    str or Family

    Raises
    ------
    ValueError
        If no family was given and the target has two values, or is text.

    Examples
    --------
    >>> family_of(FrameColumn("cost", np.array([1.5, 2.0, 7.1])), None)
    'gaussian'
    """
    if family is not None:
        return family
    target, levels = column.name, column.levels
    if levels is None:
        seen = np.unique(column.values)
        if len(seen) != 2:
            return "gaussian"
        low, high = (int(v) if v == np.floor(v) else v for v in seen.tolist())
        fix = "" if (low, high) == (0, 1) else f" and frame[{target!r}] == {high!r} as the target"
        raise ValueError(
            f"family must be given for a target with two values; {target!r} has {low} and {high}. Use "
            f"family='binomial'{fix} for odds, or family='gaussian' for a linear model."
        )
    if all(isinstance(level, bool) for level in levels):
        raise ValueError(
            f"family must be given for a target with two values; {target!r} is true or false. Use family='binomial'?"
        )
    if all(map(is_number, levels)):
        raise ValueError(
            f"the target {target!r} holds numbers as text or as categories. Make them numbers: "
            f"frame[{target!r}].astype(float), or give a family for classes."
        )
    if len(levels) == 2:
        raise ValueError(
            f"family must be given for a target with two values; {target!r} has {levels[0]!r} and {levels[1]!r}. Use "
            f"family='binomial' and frame[{target!r}] == {levels[1]!r} as the target, or write 0 and 1 in the file?"
        )
    classes = "multinomial" if "multinomial" in names() else "one_versus_rest"
    raise ValueError(f"family must be given for a target of text; {target!r} is. Use family={classes!r} for classes?")


def usual_family(family: str | Family | None, trials: str | None, event: str | None) -> str | Family | None:
    """The family that was given, or that of a target with trials or events; None where only its values can tell."""
    if family is None and trials is not None:
        return "binomial"
    return "cox" if family is None and event is not None else family


def response_of(
    column: FrameColumn,
    family: str | Family | None,
    trials: FrameColumn | None = None,
    event: FrameColumn | None = None,
    link: str | None = None,
) -> Response:
    """The target as its family reads it; with trials it is successes, with events it is times."""
    if trials is not None and event is not None:
        raise ValueError("give trials, for counts out of so many, or event, for times; not both.")
    if trials is not None:
        return _successes(column, trials), (), chosen("binomial" if family is None else family, link)
    if event is not None:
        return _times(column), (), chosen("cox" if family is None else family, link)
    found = chosen(family_of(column, family), link)
    if not found.by_class:
        return found.read(column.name, column.values, column.levels), (), found
    if column.levels is None and np.any(column.values != np.floor(column.values)):
        raise ValueError(f"{found.name} needs classes; {column.name!r} has fractions. Use family='linear'?")
    column = column.as_levels()
    classes = column.levels or ()
    return found.read(column.name, column.values, classes), classes, found.with_classes(len(classes))


def beside_of(trials: FrameColumn | None, event: FrameColumn | None) -> FloatArray | None:
    """The number of trials of each row, or whether its time ends in an event (1) or is censored (0)."""
    if trials is not None:
        return numbers(trials, "trials")
    if event is None:
        return None
    truths = event.levels is None or all(isinstance(level, bool) for level in event.levels)
    values = np.array([float(label) for label in event.labels]) if truths else np.empty(0)
    if not truths or not np.all(np.isin(values, (0.0, 1.0))):
        raise ValueError(
            f"event must be a column of 1 (it happened) and 0 (censored), or true and false; {event.name!r} is not."
        )
    return values


def _successes(column: FrameColumn, trials: FrameColumn) -> FloatArray:
    values, of = numbers(column, "target"), numbers(trials, "trials")
    whole = np.all(values == np.floor(values)) and np.all(of == np.floor(of))
    if not whole or np.any(values < 0.0) or np.any(values > of) or np.any(of < 1.0):
        raise ValueError(
            f"successes must be whole numbers from 0 to the trials of their row, of which there is at least one; "
            f"{column.name!r} and {trials.name!r} are not so in every row."
        )
    return values


def _times(column: FrameColumn) -> FloatArray:
    values = numbers(column, "target")
    if np.any(values < 0.0):
        raise ValueError(f"times must not be negative; {column.name!r} has negative values.")
    return values


def numbers(column: FrameColumn, role: str) -> FloatArray:
    """The values of a column that has to be numeric for its role."""
    if column.levels is not None:
        raise ValueError(f"{role} must be a column of numbers; {column.name!r} holds text or categories.")
    return column.values
