"""Undisturbed twins: the lines of a run, and what a monitor holds after each when nothing goes wrong."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import client_runs
import live_runs
import numpy as np

import fedgauss as fg
from fedgauss.integrations.live.saving import Kept, SaveFile

_LONGEST = 100_000  # rounds that a run may have


class Twin(ABC):
    """A run and its monitor, in this process. Rounds are made when they are first asked for, and count from 1."""

    def __init__(self) -> None:
        self._monitor = self._fresh()
        self._lines, self._states, self.alarms = [b""], [self._state(self._monitor)], set[int]()
        self._rounds = self._seen()

    @abstractmethod
    def _fresh(self) -> Any:
        """A monitor that has seen nothing."""

    @abstractmethod
    def _seen(self) -> Iterator[tuple[bytes, Any]]:
        """Lines, and verdicts on them."""

    @abstractmethod
    def _state(self, monitor: Any) -> str:
        """All that a monitor holds."""

    @abstractmethod
    def _load(self, path: BytesIO) -> Any:
        """A monitor that was saved."""

    @abstractmethod
    def _take(self, monitor: Any, said: dict[str, Any]) -> None:
        """Show a round to a monitor."""

    def save_fresh(self, path: Path) -> None:
        """What a watcher begins with."""
        self._fresh().save(path)

    def line(self, number: int) -> bytes:
        """A round as JSON."""
        while len(self._lines) <= number:
            line, verdict = next(self._rounds)
            if verdict is self._monitor.alarm or (verdict.alarm and verdict == self._monitor.alarm):
                self.alarms.add(len(self._lines))
            self._lines.append(line)
            self._states.append(self._state(self._monitor))
        return self._lines[number]

    def first_alarm(self, until: int) -> int | None:
        """The round whose verdict began the alarm that is on after round `until`."""
        self.line(until)
        return min((number for number in self.alarms if number <= until), default=None)

    def next_alarm(self, after: int) -> int:
        """The round whose verdict will begin the next alarm."""
        number = after + 1
        while self.line(number) and number not in self.alarms:
            number += 1
        return number

    def round_of(self, path: Path) -> int | None:
        """The round after which the twin held what was saved here; None where it never did.

        What `fedgauss watch` saves is a monitor and the rounds since. A copy is read: a watch that runs has the file.
        """
        kept = None
        for again in range(5):  # a watch may write while it is copied
            try:
                kept = _copied(path)
                break
            except ValueError:
                if again == 4:
                    raise
                time.sleep(0.05)
        if kept is None:
            return 0
        restored = self._load(BytesIO(kept.watcher))
        for line in kept.rounds:
            said = json.loads(line)
            if said["round"] == restored.round + 1:
                self._take(restored, said)
        number = int(restored.round)
        self.line(number)
        return number if self._states[number] == self._state(restored) else None


class ParameterTwin(Twin):
    """Six clients on a linear problem, two of which turn malicious after round `last_honest`."""

    def __init__(self, seed: int, last_honest: int = _LONGEST) -> None:
        self._seed, self._last_honest = seed, last_honest
        super().__init__()

    def _fresh(self) -> fg.Monitor:
        return live_runs.monitor()

    def _seen(self) -> Iterator[tuple[bytes, Any]]:
        onset = self._last_honest * live_runs.TAU
        for j, (y, theta) in enumerate(live_runs.rounds(_LONGEST, onset, seed=self._seed), start=1):
            yield live_runs.line(j, y, theta), self._monitor.update(y, clients=theta, step=j * live_runs.TAU)

    def _state(self, monitor: Any) -> str:
        return _digest(live_runs.state_bytes(monitor))

    def _load(self, path: BytesIO) -> fg.Monitor:
        return fg.Monitor.load(path)

    def _take(self, monitor: Any, said: dict[str, Any]) -> None:
        clients = np.array([said["clients"][name] for name in live_runs.NAMES])
        monitor.update(np.array(said["parameters"]), clients=clients, step=said["round"] * live_runs.TAU)

    def with_nan(self, number: int) -> bytes:
        """A round that has lost a number."""
        said = json.loads(self.line(number))
        said["parameters"][0] = float("nan")
        return json.dumps(said).encode()


class ClientTwin(Twin):
    """Ten clients of a small model, two of which turn round after `last_honest`."""

    def __init__(self, seed: int, last_honest: int = _LONGEST) -> None:
        self._seed, self._last_honest = seed, last_honest
        super().__init__()

    def _fresh(self) -> fg.ClientMonitor:
        return fg.ClientMonitor(seed=1)

    def _seen(self) -> Iterator[tuple[bytes, Any]]:
        seen = client_runs.rounds(_LONGEST, onset=self._last_honest + 1, seed=self._seed)
        for j, moves in enumerate(seen, start=1):
            yield client_runs.line(j, moves), self._monitor.update(moves)

    def _state(self, monitor: Any) -> str:
        return _digest(client_runs.held(monitor))

    def _load(self, path: BytesIO) -> fg.ClientMonitor:
        return fg.ClientMonitor.load(path)

    def _take(self, monitor: Any, said: dict[str, Any]) -> None:
        monitor.update({name: np.array(move) for name, move in said["moves"].items()})

    def with_nan(self, number: int) -> bytes:
        """A round that has lost a number."""
        said = json.loads(self.line(number))
        next(iter(said["moves"].values()))[0] = float("nan")
        return json.dumps(said).encode()


def _digest(held: tuple[str, dict[str, bytes]]) -> str:
    words, arrays = held
    whole = hashlib.blake2b(words.encode())
    for name in sorted(arrays):
        whole.update(name.encode() + b"\0" + arrays[name])
    return whole.hexdigest()


def _copied(path: Path) -> Kept | None:
    """What a watch keeps, read from a copy."""
    with tempfile.TemporaryDirectory() as folder:
        for end in ("", "-wal"):
            if (part := path.with_name(path.name + end)).exists():
                shutil.copyfile(part, Path(folder, f"copy{end}"))
        file = SaveFile(Path(folder, "copy"), True)
        try:
            return file.read()
        finally:
            file.close()


def damaged(content: bytes, rng: Any) -> bytes:
    """A file with some bytes changed in its middle."""
    spoilt = np.frombuffer(content, dtype=np.uint8).copy()
    place = rng.randrange(len(spoilt))
    spoilt[place : place + 16] ^= 0x5A
    return spoilt.tobytes()
