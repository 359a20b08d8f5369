"""What a site has answered so far, so that it can refuse runs whose sums differ from earlier ones by few rows.

The same sums over 200 rows and over 199 of them tell the row that is missing; so do two 0/1 columns of different runs
that differ in one row. A site that is to notice must remember what its columns were, without keeping them. It keeps
sketches: each row has 512 random signs s_i, drawn from a keyed hash of all that the table says of it, and the sketch of
a column c is

    S(c) = sum_i c_i s_i,   512 numbers.

If two columns differ by d_i in m rows only, the entries of S(c) - S(c') are sums of these m numbers with random signs.
They have at most 2^(m - 1) sizes; the largest is sum |d_i| <= sqrt(m) |d|, where |d|^2 is about the mean of their
squares. Of columns of 0 and 1, and of which rows take part, no entry exceeds m. Differences in fewer than 5 rows are
thus never missed. In more rows entries have more sizes, or larger ones: of 0/1 columns that differ in 5 rows one pair
in 2e14 is taken for less. Other columns that differ by the same number in 5 or 6 rows are refused too.

Rows keep their signs when others come and go, or the table is sorted. A row that was corrected counts as one that left
and one that came. A site cannot tell where the table itself has other columns than before: all signs are then new. Nor
does it see what three columns of three runs have between them.
"""

import base64
import hashlib
import json
import math
import os
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss._types import AnyArray, FloatArray
from fedgauss.inference.federated.disclosure import FEWEST, Refused

try:
    import fcntl
except ImportError:  # not on Windows, where two runs at the same moment do not see each other
    fcntl = None  # type: ignore[assignment]

Signs = npt.NDArray[np.int8]

ROWS = "the rows"  # that take part, as a column of ones
_SIGNS = 512
_LARGEST = 2.5  # entry of a difference in four rows or fewer, over the root of the mean square: 2, and chance
_FEW_NUMBERS = 4  # rows: in more, 512 entries have too many sizes to tell
_CHUNK = 4096  # rows at a time: their signs as floats take 16 MB
_ROUNDING = 1e-9  # of a column's size


class Sketch(NamedTuple):
    """Of a column: its 512 sums, whether it is of 0 and 1, and its size, sqrt(sum c_i^2)."""

    sums: FloatArray  # (512,)
    binary: bool
    size: float


class Ledger:
    """Sketches of all that was answered, in a file that only its owner can read.

    Parameters
    ----------
    path : path
        A file of JSON lines, made with mode 0600 if it is not there. It has a random key, names of columns and
        sketches, and no row; whoever has it and a guess of a whole row can check the guess. Keep it as the table.
    fewest : int, optional
        Columns of two runs must be the same, or differ in at least so many rows; of other columns than those of 0 and
        1, only differences in up to four rows are noticed.

    Examples
    --------
    >>> ledger = Ledger("answered.jsonl")
    >>> signs = ledger.signs({"age": age, "died": died, "name": name})
    >>> ledger.admit("run 7", {"age": age, "died": died}, signs)
    """

    def __init__(self, path: str | os.PathLike[str], fewest: int = FEWEST) -> None:
        self.path, self._fewest = Path(path), fewest
        with self._opened() as file:
            self._key = bytes.fromhex(_read(file, self.path)[0]["key"])

    def signs(self, table: Mapping[str, Iterable[Any]]) -> Signs:
        """512 random signs for each row, the same whenever a row says the same.

        Parameters
        ----------
        table : mapping of str to sequence
            All columns that the site has, before any row is dropped.

        Returns
        -------
        array of int8, shape (n, 512)
        """
        names = sorted(table)
        columns = [np.asarray(table[name]).tolist() for name in names]
        header, seen = repr(names), Counter[str]()
        digests = []
        for row in zip(*columns, strict=True):
            text = repr(row)
            seen[text] += 1  # rows that say the same have signs of their own
            said = f"{header}{text}{seen[text]}".encode(errors="surrogatepass")
            digests.append(hashlib.blake2b(said, key=self._key, digest_size=_SIGNS // 8).digest())
        bits = np.unpackbits(np.frombuffer(b"".join(digests), np.uint8).reshape(len(digests), -1), axis=1)
        return 2 * bits.astype(np.int8) - 1

    def admit(self, run: str, columns: Mapping[str, FloatArray], signs: Signs) -> None:
        """Write down what is about to be answered; refuse it if it differs from what was by few rows.

        Parameters
        ----------
        run : str
            A name for the run.
        columns : mapping of str to array, shape (n,)
            All that enters sums: columns of the design, the response, offset and row weights.
        signs : array, shape (n, 512)
            Of the rows that take part, as `signs` gave them.

        Raises
        ------
        Refused
            With names of columns, and no value of a row. Nothing is written down then.
        """
        new = sketches({ROWS: np.ones(len(signs))} | dict(columns), signs)
        with self._opened() as file:
            _, *earlier = _read(file, self.path)
            for entry in earlier:
                self._compare(new, {name: _restored(kept) for name, kept in entry["columns"].items()}, entry["time"])
            line = {
                "time": datetime.now(UTC).isoformat(timespec="seconds"), "run": run,
                "columns": {name: _kept(own) for name, own in new.items()},
            }  # fmt: skip
            _append(file, line)

    def __len__(self) -> int:
        """The number of runs that were answered."""
        with self._opened() as file:
            return len(_read(file, self.path)) - 1

    def _compare(self, new: Mapping[str, Sketch], old: Mapping[str, Sketch], when: str) -> None:
        for name, ours in new.items():
            for other, theirs in old.items():
                turned = (old[ROWS].sums - theirs.sums) if theirs.binary else theirs.sums  # 1 - c
                opposite = Sketch(turned, theirs.binary, old[ROWS].size)
                if differ_in_few(ours, theirs, self._fewest) or differ_in_few(ours, opposite, self._fewest):
                    raise Refused(
                        f"what this site tells must be of the same rows and columns as in earlier runs, or differ in "
                        f"at least {self._fewest} rows, or the difference of two runs would reveal single rows; "
                        f"{_what(name)} of this run and {_what(other)} of the run of {when} differ in fewer. Ask for "
                        "the same as then."
                    )

    @contextmanager
    def _opened(self) -> Iterator[IO[str]]:
        """The file, locked: of two runs at the same moment the second sees what the first was told."""
        try:
            number = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ValueError(f"the ledger {self.path} must be a file that can be written; {error.strerror}.") from error
        with os.fdopen(number, "r+", encoding="utf-8") as file:
            if fcntl is not None:
                fcntl.flock(number, fcntl.LOCK_EX)
            if os.fstat(number).st_size == 0:
                _append(file, {"ledger": 1, "key": secrets.token_hex(32)})
            yield file


def sketches(columns: Mapping[str, FloatArray], signs: Signs) -> dict[str, Sketch]:
    """sum_i c_i s_i of each column."""
    values = np.column_stack(list(columns.values())).astype(float)
    sums = np.zeros((values.shape[1], _SIGNS))
    for start in range(0, len(values), _CHUNK):
        part = slice(start, start + _CHUNK)
        sums += values[part].T @ signs[part].astype(float)
    binary = np.all((values == 0.0) | (values == 1.0), axis=0)
    sizes = np.sqrt(np.einsum("ij,ij->j", values, values))
    return {
        name: Sketch(own, bool(is_binary), float(size))
        for name, own, is_binary, size in zip(columns, sums, binary, sizes, strict=True)
    }


def differ_in_few(ours: Sketch, theirs: Sketch, fewest: int = FEWEST) -> bool:
    """Whether two columns may differ in 1 to fewest - 1 rows. If they do, the answer is yes."""
    entries, few = np.abs(ours.sums - theirs.sums), fewest - 1
    slack, largest = _ROUNDING * max(ours.size, theirs.size), float(entries.max())
    if largest <= slack:
        return False  # the same
    if ours.binary and theirs.binary:
        return largest < few + 0.5
    few = min(few, _FEW_NUMBERS)
    sizes = 1 + int((np.diff(np.sort(entries)) > 2 * slack).sum())
    middle = math.sqrt(float(np.mean((entries / largest) ** 2)))
    return sizes <= 2 ** (few - 1) and _LARGEST * math.sqrt(few / 4) * middle >= 1.0


def _what(name: str) -> str:
    return name if name == ROWS else repr(name)


def _kept(own: Sketch) -> dict[str, Any]:
    text = base64.b64encode(own.sums.astype("<f8").tobytes()).decode()
    return {"sums": text, "binary": own.binary, "size": own.size}


def _restored(kept: Mapping[str, Any]) -> Sketch:
    sums: AnyArray = np.frombuffer(base64.b64decode(kept["sums"], validate=True), "<f8").astype(float)
    if sums.shape != (_SIGNS,) or not np.all(np.isfinite(sums)):
        raise ValueError("a sketch has 512 numbers")
    return Sketch(sums, bool(kept["binary"]), float(kept["size"]))


def _append(file: IO[str], line: Mapping[str, Any]) -> None:
    """On the disk before any reply leaves."""
    file.seek(0, os.SEEK_END)
    file.write(json.dumps(line, separators=(",", ":")) + "\n")
    file.flush()
    os.fsync(file.fileno())


def _read(file: IO[str], path: Path) -> list[dict[str, Any]]:
    """All lines. One that cannot be read is an error: what it said might be just what must be refused."""
    file.seek(0)
    lines = []
    for number, text in enumerate(file, 1):
        try:
            line = json.loads(text)
            if number == 1:
                good = line["ledger"] == 1 and len(bytes.fromhex(line["key"])) == 32
            else:
                good = ROWS in line["columns"] and isinstance(line["time"], str)
                [_restored(kept) for kept in line["columns"].values()]
            if not good or not text.endswith("\n"):
                raise ValueError("a line lacks something")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"a ledger must be as fedgauss wrote it; line {number} of {path} is not. Take it out if it was cut "
                "short when the machine stopped, or begin a new ledger, which knows of no earlier run."
            ) from error
        lines.append(line)
    return lines
