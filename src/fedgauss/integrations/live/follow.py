"""Following a log: new rounds go to the run, what changes goes to the terminal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from fedgauss.integrations.live.history import Kind
from fedgauss.integrations.live.logs import ArrayLog, LineLog, Replaced
from fedgauss.integrations.live.rounds import LoggedRound
from fedgauss.integrations.live.run import LiveRun, Told

_PERIOD = 0.2  # seconds between two looks at the log
_SAID = 20  # refusals that the terminal hears of

Say = Callable[[str], None]


class Teller:
    """Says what a round brought when it is not what the round before brought."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._kind: Kind = "waiting"
        self._lock = threading.Lock()

    def __call__(self, told: Told) -> None:
        """Of one round."""
        with self._lock:
            if told.kind != self._kind:
                self._say(told.words)
            self._kind = told.kind


def follow(log: Path, run: LiveRun, tell: Callable[[Told], None], say: Say, stop: threading.Event) -> str:
    """Read a log until told to stop, or until another run's takes its place; returns why it ended."""
    source = ArrayLog(log) if log.suffix.lower() == ".npz" else LineLog(log)
    troubles: set[str] = set()
    try:
        while True:
            for found in _patient(source, log, troubles):
                if stop.is_set():
                    return ""
                try:
                    if isinstance(found, ValueError):
                        raise found
                    tell(run.take(found))
                except ValueError as error:
                    run.refuse(str(error))
                    if run.n_refused <= _SAID:
                        say(f"refused: {error}" + " Further ones are only counted." * (run.n_refused == _SAID))
            if stop.wait(_PERIOD):
                return ""
    except Replaced as ended:
        return f"{ended}: another run seems to have begun. Start again to watch it."


def _patient(source: ArrayLog | LineLog, log: Path, troubles: set[str]) -> Iterator[LoggedRound | ValueError]:
    """What is new in a log. One that cannot be opened now, as with too many open files, is tried again; said once."""
    try:
        yield from source.poll()
    except OSError as error:
        if (words := f"{log} cannot be read now, and is tried again; {error.strerror}.") not in troubles:
            troubles.add(words)
            yield ValueError(words)
