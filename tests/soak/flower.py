"""A Flower run whose clients are watched: clients fail, and the server is killed and goes on from what it kept."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import fedgauss as fg
from fedgauss.integrations.live.run import Run
from soak import invariants
from soak.invariants import demand
from soak.processes import Child, program
from soak.scenario import Fault, Scenario
from soak.workers import Orders

ROUNDS, CLIENTS = 30, 8
_SETTLED = 4  # runs


class Flower(Scenario):
    """`Monitored(FedAvg, Clients)` in process, run after run."""

    name = "flower"

    def begin(self) -> None:
        """A process, and the undisturbed run."""
        self._count = 0
        self._start()
        self._wanted = self._run()
        demand(any(verdict[0] for verdict in self._wanted["verdicts"].values()), "the undisturbed run has no alarm")

    def _start(self) -> None:
        self._server = self.start(program("flower_program"), "flower")
        self._orders, self._here = Orders(self._server), 0

    def faults(self) -> dict[str, Fault]:
        """Of clients, and of the server."""
        return {
            "kill -9": lambda rng: self._ended(signal.SIGKILL, rng),
            "SIGTERM": lambda rng: self._ended(signal.SIGTERM, rng),
            "NaN": lambda rng: self._refused("nan", rng),
            "line cut in half": lambda rng: self._refused("shape", rng),
            "site killed": self._lost,
            "clock jump: frozen process": self._frozen,
        }

    def living(self) -> Sequence[Child]:
        """The process."""
        return (self._server,)

    def _new(self) -> Path:
        self._count += 1
        folder = self.folder / f"run-{self._count}"
        folder.mkdir()
        return folder

    def _run(self, **order: Any) -> Any:
        folder = self._new()
        self._here += 1
        found = self._orders.asked(folder=str(folder), **order)
        self._check_log(folder, found["verdicts"])
        shutil.rmtree(folder)
        return found

    def _check_log(self, folder: Path, verdicts: dict[str, Any]) -> None:
        """Whoever follows the log judges every round as the run did, to the bit. Rounds may be there twice."""
        twin = Run(fg.ClientMonitor())
        followed: dict[int, list[Any]] = {}
        for line in (folder / "run.jsonl").read_bytes().splitlines():
            with suppress(ValueError):
                twin.take_json(line)
            if (seen := twin.verdict) is not None:
                followed[seen.round] = [seen.alarm, seen.statistic, seen.threshold, [*seen.suspects], seen.onset]
        judged = [verdicts[name] for name in sorted(verdicts, key=int) if verdicts[name][1] is not None]
        invariants.same([*followed.values()], judged, "verdicts from the log")

    def _place(self, rng: random.Random) -> list[int]:
        return [rng.randrange(CLIENTS), rng.randint(2, ROUNDS - 1)]

    def _refused(self, kind: str, rng: random.Random) -> None:
        """A round with an upload that cannot be used is one that never was; and it is an alarm."""
        client, number = self._place(rng)
        found, twin = (self._run(tamper=[which, client, number]) for which in (kind, "nobody"))
        verdict = found["verdicts"].pop(str(number))
        demand(verdict[0], f"a round with {kind} in an upload is no alarm: {verdict}")
        twin["verdicts"].pop(str(number), None)
        invariants.same(found, twin, "rounds beside a refused one")

    def _lost(self, rng: random.Random) -> None:
        """A reply that never comes; the run is as any other run without it."""
        client, number = self._place(rng)
        once, again = (self._run(tamper=["lost", client, number], pause=pause) for pause in (0.0, 0.01))
        invariants.same(again, once, "runs with a lost reply")

    def _ended(self, kind: signal.Signals, rng: random.Random) -> None:
        folder = self._new()
        self._orders.give(folder=str(folder), pause=0.02)
        time.sleep(rng.uniform(0.0, 1.5))
        self._server.signal(kind)
        self._server.wait()
        self._start()
        self._here += 1
        found = self._orders.asked(folder=str(folder))
        invariants.same(found, self._wanted, "resumed Flower runs")
        self._check_log(folder, found["verdicts"])
        shutil.rmtree(folder)

    def _frozen(self, rng: random.Random) -> None:
        folder = self._new()
        self._here += 1
        self._orders.give(folder=str(folder), pause=0.02)
        time.sleep(rng.uniform(0.0, 1.0))
        self._server.signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.5, 2.0))
        self._server.signal(signal.SIGCONT)
        invariants.same(self._orders.answer(), self._wanted, "Flower runs that stood still")

    def check(self) -> None:
        """The next run is the undisturbed one, to the bit."""
        invariants.same(self._run(), self._wanted, "Flower runs")
        if self._here >= _SETTLED:
            self._server.settle()
