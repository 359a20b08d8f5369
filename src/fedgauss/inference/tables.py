"""Files that hold a table: CSV and Parquet, read by pandas."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_table(path: str | Path) -> Any:
    """A pandas frame from a .csv or .parquet file."""
    file = Path(path)
    kind = file.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise ValueError(f"data must be a .csv or .parquet file; got {file}.")
    if not file.is_file():
        raise ValueError(f"data must be a file that exists; there is no {file}.")
    try:
        import pandas  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ValueError("reading a table needs pandas: pip install 'fedgauss[frames]'.") from error
    try:
        return pandas.read_csv(file) if kind == ".csv" else pandas.read_parquet(file)
    except ImportError as error:
        raise ValueError("reading Parquet needs pyarrow: pip install pyarrow. Or save the table as .csv.") from error
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors, and so are pyarrow's
        raise ValueError(f"{file} could not be read as {kind[1:]}: {' '.join(str(error).split())}.") from error
