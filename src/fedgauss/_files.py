"""Files that are written whole or not at all, files that only their owner can read, folders to write to,
and where the key and the ledger of a table are."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_LONGEST_PREFIX = 100  # of a temporary file's name: with what is random it must stay below 255


def append_private(path: str | os.PathLike[str]) -> IO[str]:
    """A file to add lines to, made so that only its owner can read it."""
    return open(path, "a", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600))


def write_whole(path: str | os.PathLike[str], content: bytes, public: bool = False) -> None:
    """Write a file as `whole_file` does."""
    with whole_file(path, public) as file:
        file.write(content)


@contextmanager
def whole_file(path: str | os.PathLike[str], public: bool = False) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when the block ends, and is on disk by then.

    If the block fails, the disk is full or the process is killed, `path` is as it was before. Several threads or
    processes may write to one path: each has a temporary file of its own, and the last to finish wins.

    Parameters
    ----------
    path : str or path-like
        In a folder that exists.
    public : bool
        Whether others may read it (mode 0644), as with a page or a table. By default only its owner may (0600).

    Yields
    ------
    file
        To write bytes to.
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}"[:_LONGEST_PREFIX] + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if public:
                os.chmod(name, 0o644)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """A new name is on disk only once its folder is."""
    if os.name == "nt":  # where folders cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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


def place_of(table_path: str | os.PathLike[str] | None, name: str | None) -> Path:
    """Where the ledger of a table is: beside it, or in a folder for the state of programs.

    Parameters
    ----------
    table_path : path or None
        A table's file. Its ledger is beside it where files can be made there.
    name : str or None
        What the ledger is called in the other folder, $XDG_STATE_HOME/fedgauss or ~/.local/state/fedgauss; for a table
        that is no file, or is in a folder that cannot be written.

    Returns
    -------
    path
    """
    if table_path is not None:
        table = Path(table_path).resolve()
        beside = table.with_name(table.name + ".ledger")
        if beside.exists() or os.access(table.parent, os.W_OK):
            return beside
        name = name or f"{table.name}-{hashlib.sha256(str(table).encode()).hexdigest()[:16]}"
    if not name or name.startswith(".") or set(name) & set("/\\\0"):
        raise ValueError(
            f"the ledger of a table that is no file must have a name, of which a file name can be made; got {name!r}."
        )
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "fedgauss"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{name}.ledger"


def key_place(table: str | Path) -> Path:
    """The file of a table's key."""
    place = ledger_place(table)
    return place.with_name(place.name.removesuffix(".ledger") + ".key")


def ledger_place(table: str | Path) -> Path:
    """The file of a table's ledger; a table that is no file goes by its name."""
    path = Path(table)
    return place_of(path, None) if path.is_file() else place_of(None, str(table))
