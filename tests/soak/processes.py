"""Processes that a soak starts, and what can be done to them. All carry a mark, by which those left over are found."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import fedgauss

_MARK = "FEDGAUSS_SOAK"
_TESTS = Path(__file__).parents[1]


def environment(mark: str) -> dict[str, str]:
    """One thread each: many processes share few cores. No bytecode: a process on a full disk would write half of it."""
    paths = [Path(fedgauss.__file__).parents[1], _TESTS, _TESTS / "integrations"]
    return os.environ | {
        _MARK: mark,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "COLUMNS": "200",
    }


def write_bytecode() -> None:
    """Of what processes import, by one that nothing happens to: later ones start in half of the time."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    modules = "jax, scipy.stats, fedgauss.cli, fedgauss.integrations.live, fedgauss.integrations.sinks"
    subprocess.run([sys.executable, "-c", f"import {modules}"], env=env, check=True)


def command(*words: object) -> list[str]:
    """`fedgauss` with these words."""
    return [sys.executable, "-m", "fedgauss", *map(str, words)]


def program(module: str, *words: object) -> list[str]:
    """A module of the soak's own."""
    return [sys.executable, "-m", f"soak.{module}", *map(str, words)]


class Child:
    """A process in a session of its own; what it prints is kept in a file, through a pipe, as a supervisor would."""

    def __init__(self, words: Sequence[str], log: Path, mark: str) -> None:
        self.name, self.log = log.stem, log
        self.settled: tuple[int, int] | None = None  # bytes and open files once it had done some work
        self._process = subprocess.Popen(
            words, env=environment(mark), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self._said = bytearray()
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self.log.open("ab") as log:
            log.write(f"--- process {self.pid}\n".encode())
            while piece := self._process.stdout.read1(2**16):  # type: ignore[attr-defined]
                log.write(piece)
                log.flush()
                with self._news:
                    self._said += piece
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def said(self) -> str:
        """All that it has printed."""
        with self._news:
            return self._said.decode(errors="replace")

    def wait_for(self, words: str, seconds: float = 60.0) -> str:
        """What it has said once these words are in it; a TimeoutError where they never come."""
        with self._news:
            came = self._news.wait_for(lambda: words.encode() in self._said or not self._reader.is_alive(), seconds)
            text = self._said.decode(errors="replace")
        if not came or words not in text:
            raise TimeoutError(f"{self.name} never said {words!r}, but: {text[-1000:]}")
        return text

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def signal(self, kind: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.alive:
            os.kill(self.pid, kind)

    def wait(self, seconds: float = 60.0) -> int:
        """Its exit code; a TimeoutError where it does not end."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} did not end within {seconds:g} s: {self.said()[-1000:]}") from None
        self._reader.join(seconds)
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        return code

    def end(self) -> None:
        """At once, whatever it does."""
        self.signal(signal.SIGKILL)
        self.wait()

    def leave_room(self, size: int | None) -> None:
        """From now on no file of this process grows beyond so many bytes, as on a full disk; None lifts the limit."""
        if self.alive:
            hard = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))

    def memory(self) -> int:
        """Resident bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        """How many descriptors it has."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def settle(self) -> None:
        """Remember what it holds, once."""
        if self.settled is None and self.alive:
            self.settled = self.memory(), self.open_files()

    def children(self) -> list[int]:
        """Processes that it started and that live."""
        found: list[int] = []
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{self.pid}/task"):
                text = Path(f"/proc/{self.pid}/task/{thread}/children").read_text()
                found += map(int, text.split())
        return sorted(found)


def marked(mark: str) -> dict[int, str]:
    """All living processes with this mark, or one that begins with it and a slash, and their commands."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end meanwhile, or be somebody else's
            values = [
                word for word in (folder / "environ").read_bytes().split(b"\0") if word.startswith(_MARK.encode())
            ]
            said = values[0].decode().partition("=")[2] if values else ""
            if said == mark or said.startswith(f"{mark}/"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200].strip()
    return found


def end_marked(mark: str) -> None:
    """Kill what is left of a soak, process by process."""
    for pid in marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
