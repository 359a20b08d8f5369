"""Sinks of a long run: a file of JSON lines on a disk that fills up, and a webhook whose receiver comes and goes."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Sequence
from typing import Any

from soak import invariants
from soak.processes import Child, program
from soak.receiver import Mood, Receiver, whole_lines
from soak.scenario import Fault, Scenario

_SETTLED = 100  # rounds


class SinksAlone(Scenario):
    """Whatever happens to a sink, the run goes on and every alarm is delivered at least once."""

    name = "sinks"

    def begin(self) -> None:
        """A run and a receiver for the whole soak."""
        self._receiver = Receiver()
        self._lines = self.folder / "verdicts.jsonl"
        self._run = self.start(program("sink_program", self._lines, self._receiver.url), "sinks")
        self._run.wait_for("ready")
        self._round, self._alarms = 0, set[int]()

    def faults(self) -> dict[str, Fault]:
        """Of the receiver, of the disk, of the clock."""
        return {
            "receiver down": self._down,
            "receiver answers 500": lambda rng: self._in_a_mood("500", rng),
            "receiver slow": lambda rng: self._in_a_mood("slow", rng),
            "receiver hangs up": lambda rng: self._in_a_mood("hangs up", rng),
            "receiver redirects": lambda rng: self._in_a_mood("redirects", rng),
            "full disk": self._full_disk,
            "clock jump: frozen process": self._frozen,
        }

    def living(self) -> Sequence[Child]:
        """The run."""
        return (self._run,)

    def _tell(self, rng: random.Random) -> None:
        """Some rounds, with an alarm among them."""
        count = rng.randint(3, 10)
        at = rng.randrange(count)
        for j in range(count):
            self._round += 1
            if j == at:
                self._alarms.add(self._round)
            self._run.tell(json.dumps([self._round, j == at]))
        self._run.wait_for(f"told {self._round}.")

    def _down(self, rng: random.Random) -> None:
        self._receiver.down()
        try:
            self._tell(rng)
            time.sleep(rng.uniform(0.0, 2.0))
        finally:
            self._receiver.up()

    def _in_a_mood(self, mood: Mood, rng: random.Random) -> None:
        self._receiver.mood = mood
        try:
            self._tell(rng)
            time.sleep(rng.uniform(0.0, 2.0))
        finally:
            self._receiver.mood = "well"

    def _full_disk(self, rng: random.Random) -> None:
        size = self._lines.stat().st_size
        self._run.leave_room(size + rng.randrange(1500))
        try:
            self._tell(rng)
        finally:
            self._run.leave_room(None)

    def _frozen(self, rng: random.Random) -> None:
        self._run.signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.5, 3.0))
        self._run.signal(signal.SIGCONT)
        self._tell(rng)

    def check(self) -> None:
        """Once nothing is in the way any more, every alarm arrives, after another round at the latest."""
        self._round += 1
        self._run.tell(json.dumps([self._round, False]))
        self._run.wait_for(f"told {self._round}.")
        invariants.all_delivered(self._alarms, self._at_the_receiver, "the receiver of the webhook")
        invariants.all_delivered(self._alarms, self._in_the_file, "the file of JSON lines")
        if self._round >= _SETTLED:
            self._run.settle()

    def _at_the_receiver(self) -> set[int]:
        return _alarms(self._receiver.heard)

    def _in_the_file(self) -> set[int]:
        return _alarms(whole_lines(self._lines))

    def end(self) -> None:
        """The receiver, too."""
        super().end()
        self._receiver.down()


def _alarms(told: Sequence[dict[str, Any]]) -> set[int]:
    return {said["round"] for said in told if said["alarm"]}
