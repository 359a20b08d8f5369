"""Folders and files that results are written to."""

from __future__ import annotations

import csv
import io
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedgauss.sweep.cell import Row


def writable_folder(path: str | Path, room: int = 0) -> Path:
    """Make sure that a folder exists and takes files, before hours of work are spent on what goes there.

    Parameters
    ----------
    path : str or Path
        The folder; it is made, with its parents, if need be.
    room : int
        Bytes that must be free there.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ValueError
        If the folder cannot be made or written to, or has too little room.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(
            f"the output must be a folder that can be written to; {folder}: {reason.lower()}. Choose another folder."
        ) from error
    if (free := shutil.disk_usage(folder).free) < room:
        raise ValueError(
            f"the output needs about {room / 1e6:.0f} MB; {folder} has {free / 1e6:.0f} MB free. "
            "Free some space, or choose another folder."
        )
    return folder


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is complete or, if this is interrupted, as it was before."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def rows_csv(rows: Sequence[Row]) -> bytes:
    """Rows as CSV, under the names of their fields.

    Parameters
    ----------
    rows : sequence of dataclasses
        They may be of several kinds. None, and a field that a row does not have, is left empty.

    Returns
    -------
    bytes
        The file. Columns stand in the order in which the rows first have them; those that are None in every row are
        left out.
    """
    columns: dict[str, bool] = {}  # whether some row has a value there
    for row in rows:
        for name, value in vars(row).items():
            columns[name] = columns.get(name, False) or value is not None
    text = io.StringIO(newline="")
    names = [name for name, used in columns.items() if used]
    writer = csv.DictWriter(text, names, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(vars(row) for row in rows)
    return text.getvalue().encode()
