"""The rounds of a run on disk, so that a run that was stopped continues where it was.

Sites check what was kept as they check what is new: every commitment of the past is signed, every message is the one
that was committed to. A journal that was changed ends the run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fedgauss._files import append_private
from fedgauss.federated.plan import Plan
from fedgauss.federated.roster import Roster
from fedgauss.federated.wire import Message, decode, encode

_BEGINNING = b'{"plan":'


class Journal:
    """Runs about one thing, each line a beginning or a round, in a file that only its owner can read.

    Parameters
    ----------
    path : path
        The file; it is made where there is none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._runs: list[Message] = []
        if self.path.exists():
            self._read()

    def __len__(self) -> int:
        """The number of rounds."""
        return sum(len(run["rounds"]) for run in self._runs)

    def begin(self, plan: Plan, roster: Roster) -> list[Message]:
        """Note a new run; the earlier ones about the same that had rounds, if there are any."""
        about, who = plan.about, roster.who
        if any(_about(run) != about or _who(run) != who for run in self._runs):
            self.remove()
        past = [run for run in self._runs if run["rounds"]]
        self._append({"plan": plan.to_wire(), "roster": roster.to_wire()})
        return past

    def keep(self, one: Message) -> None:
        """Note a round, on disk before the next begins."""
        self._append({"round": one})

    def remove(self) -> None:
        """Once a fit is done, or was of something else."""
        self._runs = []
        self.path.unlink(missing_ok=True)

    def _append(self, line: Message) -> None:
        with append_private(self.path) as file:
            file.write(encode(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._note(line)

    def _note(self, line: Message) -> None:
        """A line is a round of the last run, or the beginning of one."""
        if line.keys() == {"round"} and self._runs:
            self._runs[-1]["rounds"].append(line["round"])
        elif line.keys() == {"plan", "roster"}:
            self._runs.append({**line, "rounds": []})
        else:
            raise ValueError("a line of a journal must be a round, or a plan with its roster.")

    def _read(self) -> None:
        """All runs, up to a line that a kill cut off; that one goes, or the next would be written behind it."""
        lines, size = self.path.read_bytes().splitlines(keepends=True), 0
        if lines and not lines[0].startswith(_BEGINNING):
            raise ValueError(
                f"a journal must begin with a plan; {self.path} is another file. Give the journal another name."
            )
        for line in lines:
            if not line.endswith(b"\n"):
                break
            try:
                self._note(decode(line))
            except ValueError:
                break
            size += len(line)
        os.truncate(self.path, size)


def _about(run: Message) -> str:
    try:
        return Plan.from_wire(run["plan"]).about
    except ValueError:
        return ""


def _who(run: Message) -> list[Any] | None:
    try:
        return [(entry["name"], entry["key"], entry["version"]) for entry in run["roster"]]
    except (TypeError, KeyError):
        return None
