"""Whether what a table told, over all its runs, leaves single rows unknown; and whether two runs are about the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedgauss._types import AnyArray, FloatArray
from fedgauss.federated.refusal import Refused
from fedgauss.federated.spans import clash, overlap, rows_apart

ONES = "1"  # what the column of ones is called
_INVOLVED = 1e-3  # of the largest part in a combination that singles out rows

Read = Callable[[str], AnyArray]


class Told(NamedTuple):
    """A column that was told, with the digests by which its values and the numbers of its rows are read."""

    name: str
    rows: str
    values: str
    settled: bool


def check_spans(before: Sequence[Told], new: Sequence[Told], few: int, read: Read) -> None:
    """Raise `Refused` where some combination of all columns, old and new, vanishes but on fewer than `few` rows.

    Settled columns that are nearly empty here are set aside, as `spans` has it. A settled column s of zeros and ones that
    is nearly full has 1 - s nearly empty, which is set aside in its place: 1 - s is then a combination of ones and s that
    passes, but none of the other columns and s, or of the others and ones, may be non-zero in few rows.
    """
    told = list(dict.fromkeys((*before, *new)))
    columns, places = _padded(told, read)
    ones = np.array([one.name == ONES for one in told])
    sparse, full = np.zeros((2, len(told)), dtype=bool)
    aside, whose = [], []
    for j, one in enumerate(told):
        if not one.settled:
            continue
        own, here = columns[:, j], places[one.rows]
        sparse[j] = np.count_nonzero(own) < few
        full[j] = not sparse[j] and len(here) - np.count_nonzero(own) < few and np.all((own == 0.0) | (own == 1.0))
        if sparse[j] or full[j]:
            rest = own.copy()
            rest[here] -= full[j]
            aside.append(rest)
            whose.append(one.name)
    searches: list[tuple[AnyArray, FloatArray | None]] = [(~sparse & ~full, None)]
    if full.any():
        searches.append((~sparse & ~ones, None))
    if aside:
        settled = np.column_stack(aside)
        pair = clash(settled)
        if pair is not None:
            raise Refused(
                "levels that few rows of this site have, or few do not have, must be of the same rows in all runs, or of "
                f"none of them; {whose[pair[0]]!r} and {whose[pair[1]]!r} share some. Use one of them."
            )
        searches.append((~sparse, settled))
    for which, left in searches:
        search = rows_apart(columns[:, which], few, left)
        if not search.complete:
            raise Refused(
                "what this table told must leave single rows unknown, which cannot be shown of so many columns of so few "
                "rows. Use fewer columns, or ask for the same as before."
            )
        if search.weights is not None:
            parts = np.abs(search.weights)
            involved = {told[j].name for j in np.flatnonzero(which)[parts > _INVOLVED * parts.max()].tolist()}
            asked = {one.name for one in new}
            raise Refused(
                f"what this site tells, with all that it told, must rest on at least {few} rows; combinations with "
                f"{', '.join(map(repr, sorted(involved & asked or asked)))} would rest on fewer. Leave these columns out, "
                "or ask for the same columns and rows as before."
            )


def about_the_same(ours: Sequence[Told], theirs: Sequence[Told], read: Read) -> bool:
    """Whether the columns of two runs span more in common than ones."""
    columns, places = _padded([*ours, *theirs], read)
    ones = np.zeros((len(columns), len(places)))
    for j, here in enumerate(places.values()):
        ones[here, j] = 1.0
    return overlap(columns[:, : len(ours)], columns[:, len(ours) :], ones)


def _padded(told: Sequence[Told], read: Read) -> tuple[FloatArray, dict[str, AnyArray]]:
    """Columns over all rows, (n, q), zero where a column does not have one; and where each run's rows are."""
    numbers = {rows: read(rows) for rows in dict.fromkeys(one.rows for one in told)}
    union = np.unique(np.concatenate(list(numbers.values())))
    places = {rows: np.searchsorted(union, own) for rows, own in numbers.items()}
    columns = np.zeros((len(union), len(told)), order="F")
    for j, one in enumerate(told):
        columns[places[one.rows], j] = read(one.values)
    return columns, places
