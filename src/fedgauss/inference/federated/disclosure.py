"""What a site may release: why it refuses an order, and how many rows must stand behind a level or a value."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fedgauss.inference.tables import FrameColumn, coded

FEWEST = 5  # rows behind a level, or behind parameters


class Refused(ValueError):
    """Words without a value of a row. What any other error says stays at the site."""


@contextmanager
def in_words(before: str = "") -> Iterator[None]:
    """For checks whose messages name columns, levels and shapes, and no value of a row."""
    try:
        yield
    except ValueError as error:
        raise Refused(f"{before}{error}") from error


def check_many(column: FrameColumn, fewest: int = FEWEST) -> None:
    """Levels must each occur in at least `fewest` rows, and so must values other than the most common one, together."""
    counts = np.unique(column.values, return_counts=True)[1]
    if column.levels is not None and counts.min() < fewest:
        raise Refused(
            f"levels must have at least {fewest} rows each at this site, or sums would reveal single rows; some of "
            f"{column.name!r} have fewer. Merge rare levels, or leave the column out."
        )
    if 0 < len(column.values) - counts.max() < fewest:
        raise Refused(
            f"at least {fewest} rows must differ from the others in a column, or sums would reveal single rows; in "
            f"{column.name!r} fewer do at this site. Leave the column out, or the site."
        )


def plain_levels(column: FrameColumn) -> list[Any] | None:
    """As JSON has them."""
    if column.levels is None:
        return None
    levels = [level.item() if isinstance(level, np.generic) else level for level in column.levels]
    kinds = {float if type(level) is int else type(level) for level in levels}
    if kinds not in ({str}, {bool}, {float}):
        raise Refused(
            "categories must all be text, numbers or true and false to be compared with other sites'; those of "
            f"{column.name!r} are not. Make them text."
        )
    return levels


def recoded(column: FrameColumn, levels: list[Any] | None) -> FrameColumn:
    """The same column with the levels of all sites."""
    if levels is None and column.levels is None:
        return column
    if levels is None or column.levels is None or not set(column.levels) <= set(levels):
        raise Refused(f"the levels of {column.name!r} must be those of all sites, this one's among them.")
    return coded(column.name, column.labels, levels)
