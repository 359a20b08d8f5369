"""A CSV file as columns, read as pandas reads it, without pandas: its import takes longer than a site's part in a fit.

A column is of numbers if every value is one or missing, of true and false likewise, and of text otherwise. What is
missing is an empty field, or one of the words that pandas takes for it.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fedgauss._types import AnyArray, FloatArray

_CHUNK = 4096  # rows at a time: as text they take much more memory than as numbers
_LONGEST = 400  # characters of a number
_MISSING = frozenset(
    {
        "", "NA", "N/A", "n/a", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None", "<NA>", "#N/A", "#N/A N/A", "#NA",
        "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN",
    }
)  # fmt: skip
_TRUTHS = {word: value for value in (True, False) for word in (str(value), str(value).lower(), str(value).upper())}


def csv_columns(file: Path) -> dict[str, AnyArray]:
    """The columns of a file by name: of floats, of truths, or of objects, text with None for what is missing.

    Raises
    ------
    ValueError
        If the file is not UTF-8, has no columns, or a line has more fields than there are columns.
    """
    text: set[str] = set()
    while True:
        columns = _read(file, text)
        late = {name for name, parts in columns.items() if any(part is None for part in parts)}
        if not late:
            return {name: _joined(parts, name in text) for name, parts in columns.items()}
        text |= late  # numbers were kept of these until there were none: read them once more, as text


def _read(file: Path, text: set[str]) -> dict[str, list[Any]]:
    """Parts of each column: texts of those in `text`, to which the first part adds; numbers of others, or None."""
    columns: dict[str, list[Any]] = {}
    for number, (names, part) in enumerate(_parts(file)):
        for name, values in zip(names, part, strict=True):
            numbers = None if name in text else _numbers(values)
            if number == 0 and numbers is None:
                text.add(name)
            columns.setdefault(name, []).append(values if name in text else numbers)
    return columns


def _parts(file: Path) -> Iterator[tuple[list[str], list[Sequence[str]]]]:
    """Names, and some rows as columns; there is a first part even if there are no rows."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines)
        try:
            names = next(filter(None, reader), [])
            if not names:
                raise ValueError("No columns to parse")
            rows = (_filled(row, len(names), reader.line_num) for row in reader if row)
            first = True
            while (some := list(islice(rows, _CHUNK))) or first:
                first = False
                yield names, list(zip(*some, strict=True)) if some else [()] * len(names)
        except csv.Error as error:
            raise ValueError(f"line {reader.line_num}: {error}") from error


def _filled(row: list[str], width: int, line: int) -> list[str]:
    if len(row) > width:
        raise ValueError(f"line {line} has {len(row)} fields, and the first line has {width}")
    return row + [""] * (width - len(row))


def _numbers(values: Sequence[str]) -> FloatArray | None:
    """The numbers that these are, missing ones as NaN; None if there are others."""
    together = "".join(values)
    # What NumPy takes for numbers and pandas does not: 1_000, and digits of other alphabets.
    if not together.isascii() or "_" in together or "\0" in together or _too_long(values):
        return None
    for attempt in (values, ["nan" if value in _MISSING else value for value in values]):
        try:
            return np.array(attempt, dtype=str).astype(float)
        except ValueError:
            continue
    return None


def _too_long(values: Collection[str]) -> bool:
    return max(map(len, values), default=0) > _LONGEST


def _joined(parts: list[Any], is_text: bool) -> AnyArray:
    if not is_text:
        return np.concatenate(parts)
    words: dict[str, Any] = {}  # each text once
    values = [words.setdefault(value, value) for part in parts for value in part]
    said = words.keys() - _MISSING
    if said and said <= _TRUTHS.keys():
        truths = [_TRUTHS.get(value) for value in values]
        return np.array(truths, dtype=object if None in truths else bool)
    joined = np.empty(len(values), dtype=object)
    joined[:] = [None if value in _MISSING else value for value in values]
    return joined
