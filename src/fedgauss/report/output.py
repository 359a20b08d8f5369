"""Folders and files that results are written to."""

from __future__ import annotations

import csv
import io
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path


def writable_folder(path: str | Path, room: int = 0) -> Path:
    """`path` as a folder that exists and takes files, so that hours of work are not lost at the end.

    room   bytes that must be free there
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
    """Write a file so that it is there whole or, if this is interrupted, as it was before."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def rows_csv(rows: Sequence[object]) -> bytes:
    """Dataclass rows under the names of their columns; None is an empty field, and an empty column is left out."""
    records = [{name: value for name, value in vars(row).items() if value is not None} for row in rows]
    columns = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().encode()
