"""A run that goes on after its server was restarted: the monitor, who is who, and who is out and why, in one file."""

from __future__ import annotations

import os
from pathlib import Path

from fedgauss.detect import storage
from fedgauss.detect.clients import ClientMonitor
from fedgauss.detect.clients.stored import FORMAT
from fedgauss.integrations.flower.clients import Clients
from fedgauss.integrations.flower.records import log
from fedgauss.integrations.flower.standing import Standing

_WORD = "flower"  # beside the monitor's own words, which others read without it
_BY = "Monitored(..., state=)"
_NOBODY_CAME_BACK = (
    "fedgauss, round %d: nobody who answered was there before the restart: names did not outlive it, so that who was "
    "left out may be back. Use identity='key', identity='partition' or a function of the reply."
)


class State:
    """The file of a run, written whole or not at all. It is a monitor's, too: `ClientMonitor.load` reads it."""

    def __init__(self, path: str | os.PathLike[str], standing: Standing) -> None:
        self.path, self.standing = Path(path), standing
        self._known: set[int] = set()  # clients of before a restart, until one of them has come back

    def save(self, number: int) -> None:
        """Write it; a disk that is full stops no run."""
        standing = self.standing
        assert standing.acting is not None
        mine = {"names": [*standing.roster.names.items()], "out": [*standing.out.items()], **standing.acting.state()}
        words, arrays = standing.monitor.state()
        try:
            storage.write(self.path, {**words, _WORD: mine}, arrays, FORMAT)
        except (OSError, ValueError) as error:  # no room, or more names than a file holds
            log.error("fedgauss, round %d: the state is not saved. %s", number, error)

    def resume(self, watcher: Clients) -> None:
        """Go on where the run was saved, if it was."""
        if not self.path.exists():
            return
        standing = self.standing
        assert standing.acting is not None
        monitor = ClientMonitor.load(self.path)
        mine = storage.read(self.path, FORMAT, _BY)[0].get(_WORD)
        if not isinstance(mine, dict):
            raise ValueError(f"{self.path} must be a file that {_BY} wrote; it has a monitor only.")
        for name in ("alpha", "horizon", "rate"):
            saved, asked = getattr(monitor, name), getattr(watcher.monitor, name)
            if saved != asked:
                raise ValueError(
                    f"{name} must be {saved!r}, as in {self.path}; got {asked!r}. A watch that was begun keeps its "
                    "level: give the same Clients, or another file."
                )
        try:
            standing.roster.take_up({int(number): str(name) for number, name in mine["names"]})
            standing.out.update({int(client): str(why) for client, why in mine["out"]})
            standing.acting.restore(mine)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self.path} is not a whole state of a run: {error!r}.") from error
        watcher.monitor = monitor
        self._known = set(standing.roster.names)
        log.info("fedgauss: the watch of %s goes on after round %d.", self.path, monitor.round)
        for client, why in standing.out.items():
            log.warning("fedgauss: left out since before: %s. %s", standing.roster.label(client), why)

    def note(self, number: int, clients: set[int]) -> None:
        """Say so, once, if nobody of before the restart is among the first who answer."""
        if self._known and clients:
            if not clients & self._known:
                log.warning(_NOBODY_CAME_BACK, number)
            self._known = set()
