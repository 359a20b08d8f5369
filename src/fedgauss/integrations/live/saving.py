"""`--save`: a watch that can be killed at any moment, and goes on without a round lost or counted twice."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from fedgauss.integrations.live.history import Kind
from fedgauss.integrations.live.journal import Journal

try:
    import fcntl
except ImportError:  # not on Windows, where two watches must be kept apart by hand
    fcntl = None  # type: ignore[assignment]

_EVERY = 1.0  # seconds, at least, between two saves of a watch that follows a log
_COST = 20.0  # times what a save takes, at least, lie between two
_RAREST = 30.0  # seconds, at most: a process that was stopped in the middle of a save would wait for hours after it
_ROUNDS, _BYTES = 1000, 16 * 2**20  # of a journal, after which the monitor is saved and it begins again
_UNSAVED = 1000  # rounds that may wait for a disk with room


class NotSaved(ValueError):
    """A round could not be brought to disk."""


class Saveable(Protocol):
    """What is saved of a run."""

    @property
    def monitor(self) -> Any:
        """Has `save`; None as long as there is a warm-up."""

    def kept(self) -> dict[str, Any]:
        """What a resumed run must know and its monitor does not, for JSON."""


class SaveFile:
    """The monitor's file, FILE; FILE.journal, with rounds since; and FILE.lock, which one watch holds at a time.

    With POSTed rounds each one is in the journal, and on disk, before it is answered. A log can be read again, so
    there the monitor is saved once a second at most.

    Parameters
    ----------
    path : Path
        FILE; through a link, the file that it leads to.
    posted : bool
        Whether rounds are POSTed.
    """

    def __init__(self, path: Path, posted: bool) -> None:
        self.path, self._posted = Path(os.path.realpath(path)), posted
        self._lock = _locked(self.path)
        self.journal = Journal(self.path.with_name(self.path.name + ".journal"))
        self.trouble = ""  # why the last attempt to save failed
        self._run: Saveable | None = None
        self._saved_monitor = False
        self._begun = False  # whether the files on disk are those of this watch
        self._earlier: Sequence[bytes] = ()  # rounds that they need until then
        self._dirty = False
        self._next = 0.0  # when a log's monitor may be saved again

    def begin(self, run: Saveable, rounds: Sequence[bytes] = ()) -> None:
        """Save a run from here on; `rounds` were in the journal, and are needed until there is a monitor.

        On a full disk that is tried again, with every POSTed round and now and then.
        """
        self._run, self._earlier = run, rounds
        self._try(self._begin)

    def _begin(self) -> None:
        if not self.save() and self._posted:
            self.journal.begin(self._words(), [*self._earlier, *self.journal.waiting])
        self._begun, self._earlier, self.trouble = True, (), ""

    def check(self) -> None:
        """Refuse to take rounds when a thousand could not be saved."""
        if len(self.journal.waiting) >= _UNSAVED:
            self._commit()

    def after(self, kind: Kind, text: bytes | None = None) -> None:
        """A line was taken; `text` is what was POSTed."""
        if kind in ("invalid update", "seen before", "already taken"):
            self._commit()
            return
        self._dirty = True
        if not self._posted or text is None:
            self.tick()
            return
        if kind == "begun anew" and not self.journal.waiting:  # earlier rounds no longer matter
            self._earlier = ()
            self._try(lambda: self.journal.begin(self._words()))
        self.journal.add(text)
        self._commit()
        begun = self._run is not None and self._run.monitor is not None and not self._saved_monitor
        if begun or self.journal.rounds >= _ROUNDS or self.journal.size >= _BYTES:
            self._try(self.save)

    def tick(self) -> None:
        """Save a log's monitor where it is time to, and what could not be saved at the beginning."""
        wanted = not self._begun or (self._dirty and not self._posted)
        if wanted and time.monotonic() >= self._next:
            began = time.monotonic()
            self._try(self.save if self._begun else self._begin)
            now = time.monotonic()
            self._next = now + min(max(_EVERY, _COST * (now - began)), _RAREST)

    def save(self) -> bool:
        """Save the monitor, and then begin the journal again; returns whether there is a monitor yet.

        Killed in between, the journal has rounds that the monitor has seen: they are not judged again.
        """
        assert self._run is not None
        if (monitor := self._run.monitor) is None:
            return False
        monitor.save(self.path)
        self.journal.begin(self._words())
        self._saved_monitor, self._dirty, self.trouble = True, False, ""
        return True

    def close(self) -> None:
        """Give the files free."""
        self.journal.close()
        os.close(self._lock)

    def _words(self) -> dict[str, Any]:
        return {} if self._run is None else self._run.kept()

    def _try(self, act: Callable[[], object]) -> None:
        """A save that is only in time: the next one may do."""
        try:
            act()
        except OSError as error:
            self.trouble = self.why_not(error)

    def why_not(self, error: OSError) -> str:
        """Why a save failed."""
        return f"the watch cannot be saved as {self.path}: {error.strerror or error}."

    def _commit(self) -> None:
        try:
            if not self._begun:
                self._begin()
            self.journal.commit()
        except OSError as error:
            self.trouble = f"rounds cannot be saved beside {self.path}: {error.strerror or error}."
            raise NotSaved(f"{self.trouble} Send the round again when there is room.") from error
        if self._posted:
            self.trouble = ""


def _locked(path: Path) -> int:
    """An open file that says that this process has it; the system gives it free when the process ends, however."""
    name = path.with_name(path.name + ".lock")
    try:
        handle = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ValueError(
            f"--save must be a file beside which a lock can be made; {name}: {error.strerror}. Use another folder?"
        ) from error
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            who = os.read(handle, 20).decode("ascii", "replace").strip()
            os.close(handle)
            raise ValueError(
                f"--save {path} must be the file of one watch; process {who or 'unknown'} has it. End that watch, or "
                "use another file."
            ) from None
    os.ftruncate(handle, 0)
    with suppress(OSError):  # on a full disk nobody will be told who has it
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle
