"""Files that hold a table: CSV and Parquet, read by pandas."""

import csv
from pathlib import Path
from typing import Any


def read_table(path: str | Path) -> Any:
    """A pandas frame from a .csv or .parquet file."""
    file = Path(path)
    kind = file.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise ValueError(f"data must be a .csv or .parquet file; got {file}.")
    if file.is_dir():
        raise ValueError(f"data must be a file; {file} is a folder.")
    if not file.is_file():
        raise ValueError(f"data must be a file that exists; there is no {file}.")
    try:
        import pandas  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ValueError("reading a table needs pandas: pip install 'fedgauss[frames]'.") from error
    try:
        if kind == ".csv":
            _check_header(file)
        return pandas.read_csv(file) if kind == ".csv" else pandas.read_parquet(file)
    except ImportError as error:
        raise ValueError("reading Parquet needs pyarrow: pip install pyarrow. Or save the table as .csv.") from error
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors, and so are pyarrow's
        raise ValueError(f"{file} could not be read as {kind[1:]}: {' '.join(str(error).split())}.") from error


def _check_header(file: Path) -> None:
    """Pandas would rename columns that have one name, and name those that have none."""
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as text:
        header = next(csv.reader(text), [])
    repeated = sorted({name for name in header if name and header.count(name) > 1})
    if repeated:
        raise ValueError(f"columns must have different names; {repeated[0]!r} is repeated in {file}. Rename one")
    if len(header) > 1 and "" in header:
        raise ValueError(
            f"columns must have names; column {header.index('') + 1} of {file} has none. If it holds row numbers, "
            "leave it out of the file"
        )
    if len(header) == 1 and ";" in header[0]:
        raise ValueError(f"columns must be separated by commas; {file} seems to have semicolons. Save it with commas")
