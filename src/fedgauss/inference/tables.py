"""Tables: files (CSV, and Parquet by pandas), and the columns of a frame as numbers or as levels.

A frame is one of pandas or polars, or a plain dictionary.
"""

from __future__ import annotations

import csv
import difflib
import numbers
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from fedgauss._types import AnyArray, BoolArray, FloatArray
from fedgauss.inference.csv_columns import csv_columns

_LONGEST_LIST = 60  # characters of a list of names, beyond which it is cut


def read_table(path: str | Path) -> Any:
    """A frame from a file: a dictionary of columns from a .csv file, pandas' own from a .parquet file."""
    file = Path(path)
    kind = file.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise ValueError(f"data must be a .csv or .parquet file; got {file}.")
    if file.is_dir():
        raise ValueError(f"data must be a file; {file} is a folder.")
    if not file.is_file():
        raise ValueError(f"data must be a file that exists; there is no {file}.")
    try:
        if kind == ".parquet":
            return _read_parquet(file)
        _check_header(file)
        return csv_columns(file)
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} must be text in UTF-8; it is in another encoding. Save it as UTF-8.") from error
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors, and so are pyarrow's
        reason = " ".join(str(error).split()).removesuffix(".")
        raise ValueError(f"{file} could not be read as {kind[1:]}: {reason}.") from error


def _read_parquet(file: Path) -> Any:
    try:
        import pandas  # type: ignore[import-untyped,unused-ignore]

        return pandas.read_parquet(file)
    except (OSError, ValueError):
        raise
    except ImportError as error:
        raise ValueError("it needs pandas and pyarrow: pip install pandas pyarrow. Or save it as .csv") from error
    except Exception as error:  # a damaged file may break anything in the libraries that read it
        raise ValueError(f"it is damaged ({type(error).__name__})") from error


def _check_header(file: Path) -> None:
    """Columns that have one name, or none, could not be told apart."""
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as text:
        header = next(csv.reader(text), [])
    repeated = repeats(filter(None, header))
    if repeated:
        raise ValueError(f"columns must have different names; {repeated[0]!r} is repeated in {file}. Rename one")
    if len(header) > 1 and "" in header:
        raise ValueError(
            f"columns must have names; column {header.index('') + 1} of {file} has none. If it holds row numbers, "
            "leave it out of the file"
        )
    for sign, words in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and sign in header[0]:
            raise ValueError(f"columns must be separated by commas; {file} seems to have {words}. Save it with commas")


@dataclass(frozen=True)
class FrameColumn:
    """Numbers, or the numbers of levels: values[i] is then an index into `levels`."""

    name: str
    values: FloatArray
    levels: tuple[Any, ...] | None = None

    @property
    def labels(self) -> list[Any]:
        """What each row holds, as the frame has it."""
        if self.levels is None:
            return [int(v) if v == np.floor(v) else v for v in self.values.tolist()]
        return [self.levels[int(i)] for i in self.values]

    def as_levels(self) -> FrameColumn:
        """Distinct values as levels, in their order."""
        if self.levels is not None:
            return self
        levels, codes = np.unique(self.values, return_inverse=True)
        kind = int if np.all(levels == np.floor(levels)) else float
        return FrameColumn(self.name, codes.astype(float), tuple(map(kind, levels)))

    def relabelled(self, became: Mapping[str, str]) -> FrameColumn:
        """The column with some of its levels become others. Levels keep their order, and new ones come last."""
        if not became:
            return self
        if self.levels is None:
            raise ValueError(
                f"levels must be those of a column of text or categories to be merged; {self.name!r} holds numbers."
            )
        labels = [became.get(label, label) for label in self.labels]
        order = dict.fromkeys([*(level for level in self.levels if level not in became), *became.values()])
        present = set(labels)
        return coded(self.name, labels, [level for level in order if level in present])


class Frame:
    """A frame of any kind, read column by column."""

    def __init__(self, frame: Any) -> None:
        if isinstance(frame, Mapping):
            keys: Iterable[Any] = frame.keys()
        elif not hasattr(frame, "collect") and hasattr(frame, "columns") and hasattr(frame, "__getitem__"):
            keys = frame.columns
        else:
            raise ValueError(
                f"frame must be a pandas or polars DataFrame, or a dictionary of columns; got {type(frame).__name__}."
                + (" Use frame.collect()." if hasattr(frame, "collect") else "")
            )
        self._frame = frame
        self._keys = {str(key): key for key in keys}
        if len(self._keys) < len(list(keys)):
            raise ValueError(
                f"columns must have different names; {listed(repeats(keys))} occurs more than once. Rename it."
            )

    @property
    def names(self) -> list[str]:
        """Of all columns."""
        return list(self._keys)

    @property
    def n_rows(self) -> int:
        """As many as the first column has."""
        return len(next(iter(self._all_raw(self.names[:1]).values()))[0])

    def column(self, name: str) -> Any:
        """A column as the frame has it."""
        return self._frame[self._keys[name]]

    def check_name(self, name: Any, role: str) -> str:
        """`name` if there is such a column; otherwise an error that suggests the nearest."""
        if isinstance(name, str) and name in self._keys:
            return name
        shown = repr(name) if isinstance(name, str | int | None) else f"a {type(name).__name__}"
        called = str(getattr(name, "name", name))  # of a column that was given in place of its name
        lower = {other.lower(): other for other in self.names}
        near = [lower[match] for match in difflib.get_close_matches(called.lower(), lower, n=1)]
        fix = f"Did you mean {near[0]!r}?" if near else f"The columns are {listed(self.names)}."
        raise ValueError(f"{role} must name a column of the frame; got {shown}. {fix}")

    def complete(self, names: Sequence[str]) -> BoolArray:
        """The rows in which none of these columns has a missing value."""
        raw = self._all_raw(names)
        return ~np.logical_or.reduce([_missing(values) for values, _ in raw.values()])

    def zeros(self, name: str) -> BoolArray:
        """The rows in which this column is 0."""
        values, _ = self._raw(name)
        if values.dtype.kind == "O":
            values = np.array([float(value) if isinstance(value, numbers.Real) else np.nan for value in values])
        return np.asarray(values == 0, dtype=bool)

    def read(
        self, names: Sequence[str], kept: BoolArray | None = None, fix: str = "Drop those rows, or fill them in."
    ) -> dict[str, FrameColumn]:
        """Columns by name, of the rows that are kept, by default all.

        Missing and infinite values are refused, with all columns that have them. `fix` says what to do about
        missing ones.
        """
        raw = self._all_raw(names)
        if kept is not None:
            raw = {name: (values[kept], levels) for name, (values, levels) in raw.items()}
        missing = _counted({name: _missing(values) for name, (values, _) in raw.items()})
        if missing:
            raise ValueError(f"values must not be missing; they are in {missing}. {fix}")
        columns = {name: _column(name, values, levels) for name, (values, levels) in raw.items()}
        infinite = _counted({name: ~np.isfinite(column.values) for name, column in columns.items()})
        if infinite:
            raise ValueError(f"values must be finite; they are not in {infinite}. Drop those rows?")
        return columns

    def _all_raw(self, names: Sequence[str]) -> dict[str, tuple[AnyArray, list[Any] | None]]:
        raw = {name: self._raw(name) for name in names}
        lengths = {name: len(values) for name, (values, _) in raw.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns must be of one length; got {lengths}.")
        if not all(lengths.values()):
            raise ValueError("the frame must have rows; it has none.")
        return raw

    def _raw(self, name: str) -> tuple[AnyArray, list[Any] | None]:
        """Values as NumPy has them, and levels where the frame declares them."""
        column = self._frame[self._keys[name]]
        declared = getattr(getattr(column, "dtype", None), "categories", None)
        values = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
        if values.dtype.kind == "U" and not isinstance(column, np.ndarray):
            values = np.asarray(column, dtype=object)  # of a list: None and NaN must not become text
        if values.ndim != 1:
            raise ValueError(f"column {name!r} must be one value a row; got shape {values.shape}.")
        return values, list(declared) if isinstance(declared, Iterable) else None


def repeats(names: Iterable[Any]) -> list[str]:
    """Those that occur more than once, sorted."""
    return sorted(name for name, count in Counter(map(str, names)).items() if count > 1)


def listed(names: Iterable[str], quote: bool = True) -> str:
    """'a', 'b' and 'c'; a long list is cut."""
    words = [repr(name) if quote else name for name in names]
    kept = len(words)
    while kept > 3 and sum(len(word) + 2 for word in words[:kept]) > _LONGEST_LIST:
        kept -= 1
    if kept < len(words):
        return ", ".join(words[:kept]) + f" and {len(words) - kept} more"
    return ", ".join(words[:-1]) + f" and {words[-1]}" if len(words) > 1 else (words or ["nothing"])[0]


def _counted(rows: dict[str, BoolArray]) -> str:
    """The columns that have such rows, and how many; empty where none has."""
    counts = {name: int(which.sum()) for name, which in rows.items() if which.any()}
    return listed([f"{name!r} ({count:,})" for name, count in counts.items()], quote=False) if counts else ""


def _missing(values: AnyArray) -> AnyArray:
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind in "mM":
        return np.isnat(values)
    if values.dtype.kind != "O":
        return np.zeros(len(values), dtype=bool)
    return np.array([_is_missing(value) for value in values], dtype=bool)


def _is_missing(value: Any) -> bool:
    """None, NaN, or pandas' NA, whose comparison with itself is neither true nor false."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _column(name: str, values: AnyArray, declared: list[Any] | None) -> FrameColumn:
    kind = values.dtype.kind
    if kind in "iuf" and declared is None:
        return FrameColumn(name, values.astype(np.float64))
    some = values.tolist()
    if declared is not None:
        present = set(some)
        return coded(name, some, [level for level in declared if level in present])
    if kind == "b" or (kind == "O" and all(isinstance(value, bool | np.bool_) for value in some)):
        return coded(name, [bool(value) for value in some])
    if kind == "O" and all(isinstance(value, numbers.Real | Decimal) for value in some):
        return FrameColumn(name, np.asarray(some, dtype=float))
    if kind in "UT" or (kind == "O" and all(isinstance(value, str) for value in some)):
        return coded(name, [str(value) for value in some])
    kinds = sorted({type(value).__name__ for value in some[:1000]})
    raise ValueError(
        f"column {name!r} must hold numbers, text, categories or true and false; got {listed(kinds, quote=False)}. "
        + (
            "Make it a number first, such as days since a first date."
            if kind in "mM"
            else "Convert it, or leave it out of the features."
        )
    )


def coded(name: str, values: list[Any], levels: Sequence[Any] | None = None) -> FrameColumn:
    """Values as the numbers of their levels, by default all that occur, sorted."""
    levels = sorted(set(values)) if levels is None else levels
    place = {level: i for i, level in enumerate(levels)}
    return FrameColumn(name, np.array([place[value] for value in values], dtype=float), tuple(levels))
