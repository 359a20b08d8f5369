"""Whether what a table told, over all its runs, leaves single rows unknown; and whether two runs are about the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedgauss._types import AnyArray, FloatArray
from fedgauss.federated.refusal import Refused
from fedgauss.federated.spans import Span, extend, in_reach, overlap, search, span_of

_INVOLVED = 1e-3  # of the largest part in a combination that singles out rows

Read = Callable[[str], AnyArray]


class Told(NamedTuple):
    """A column that was told, with the digests by which its values and the numbers of its rows are read."""

    name: str
    rows: str
    values: str


class Known(NamedTuple):
    """The span of what was told, over all rows that it was told of: columns are zero in rows that they do not have."""

    rows: AnyArray = np.zeros(0, dtype=np.uint64)  # sorted numbers, (n,)
    span: Span = Span(np.zeros((0, 0)), np.zeros((0, 0)))
    columns: frozenset[tuple[str, str]] = frozenset()  # digests of rows and values

    def add(self, told: Sequence[Told], read: Read) -> Known:
        """With more columns; the same where there are none that are new."""
        new = list(dict.fromkeys(one[1:] for one in told if one[1:] not in self.columns))
        if not new:
            return self
        rows = np.unique(np.concatenate([self.rows, *map(read, dict.fromkeys(own for own, _ in new))]))
        basis = self.span.basis
        if len(rows) > len(self.rows):
            basis = np.zeros((len(rows), basis.shape[1]))
            basis[np.searchsorted(rows, self.rows)] = self.span.basis
        span = extend(Span(basis, self.span.weights), _padded(new, rows, read))
        return Known(rows, span, self.columns | set(new))


def check_spans(known: Known, new: Sequence[Told], few: int, read: Read) -> Known:
    """What is known once new columns are told.

    Raise `Refused` where some combination of all columns vanishes but on fewer than `few` rows.
    """
    more = known.add(new, read)
    found = search(more.span, few)
    if not found.complete:
        raise Refused(
            "what this table told must leave single rows unknown, which cannot be shown of so many columns of so few "
            "rows. Use fewer columns, or ask for the same as before."
        )
    if found.weights is not None:
        parts = np.abs(found.weights)
        fresh = list(dict.fromkeys(one[1:] for one in new if one[1:] not in known.columns))
        involved = {key for key, part in zip(fresh[::-1], parts[::-1], strict=False) if part > _INVOLVED * parts.max()}
        names = ", ".join(map(repr, sorted({one.name for one in new if one[1:] in (involved or fresh)})))
        raise Refused(
            f"what this site tells, with all that it told, must rest on at least {few} rows; combinations with {names} "
            "would rest on fewer. Leave these columns out, or ask for the same columns and rows as before."
        )
    return more


def check_places(
    known: Known, own: Known, elsewhere: Sequence[AnyArray], before: Sequence[AnyArray], few: int
) -> AnyArray:
    """The numbers of the rows that one run could single out by what rows count for at the place where it ends.

    To single a row out by one run alone one must know what it counts for there, which takes its values. Several runs
    could do without: whoever leads them knows how weights change with a value from one place to another. So a row may
    be in reach of one run, and runs together must reach no others.

    Parameters
    ----------
    known, own : Known
        What all runs told, this one among them, with their places; and what this one alone did.
    elsewhere, before : sequence of ndarray
        Numbers of the rows that runs at other places could single out by themselves, and that any run before could.
    """
    alone = own.rows[in_reach(own.span, few)]
    if any(len(np.intersect1d(alone, rows)) for rows in elsewhere):
        raise _too_few(few)
    if before:
        check_together(known, [alone, *before], few)
    return alone


def check_together(known: Known, reach: Sequence[AnyArray], few: int) -> None:
    """Raise `Refused` where all runs together reach other rows than those that single ones do."""
    found = search(span_of(known.span.basis[~np.isin(known.rows, np.concatenate(reach))]), few)
    if found.rows is not None or not found.complete:
        raise _too_few(few)


def _too_few(few: int) -> Refused:
    return Refused(
        f"what this site tells at the ends of several fits must rest on at least {few} rows; with this one it would "
        "rest on fewer. Pool rare levels, take the logarithm of skewed columns, or ask for fits of before."
    )


def about_the_same(ours: Sequence[Told], theirs: Sequence[Told], read: Read) -> bool:
    """Whether the columns of two runs, or of one and several, span more in common than ones."""
    numbers = {rows: read(rows) for rows in dict.fromkeys(one.rows for one in (*ours, *theirs))}
    union = np.unique(np.concatenate(list(numbers.values())))
    ones = np.column_stack([np.isin(union, own) for own in numbers.values()]).astype(float)
    one, other = (_padded(list(dict.fromkeys(own[1:] for own in told)), union, read) for told in (ours, theirs))
    return overlap(one, other, ones)


def _padded(columns: Sequence[tuple[str, str]], union: AnyArray, read: Read) -> FloatArray:
    """Columns over all rows, (n, q), zero where a column does not have one."""
    places = {rows: np.searchsorted(union, read(rows)) for rows in dict.fromkeys(rows for rows, _ in columns)}
    padded = np.zeros((len(union), len(columns)), order="F")
    for j, (rows, values) in enumerate(columns):
        padded[places[rows], j] = read(values)
    return padded
