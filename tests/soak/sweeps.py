"""A sweep in worker processes, killed and resumed from its store."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedgauss.sweep.run import run_cells
from fedgauss.sweep.store import Store
from soak import invariants
from soak.invariants import demand
from soak.processes import Child, program
from soak.scenario import Fault, Scenario
from soak.sweep_program import N_CELLS, cells


class Sweeps(Scenario):
    """Finished cells are kept, no worker is left over, and the rows are those of an undisturbed sweep."""

    name = "sweeps"

    def begin(self) -> None:
        """The undisturbed sweep, in this process."""
        self._count = 0
        with Store(self.folder / "twin.sqlite") as store:
            run_cells(cells(), store, workers=0, progress=False)
            self._wanted = store.rows(dict)

    def faults(self) -> dict[str, Fault]:
        """What may happen while a sweep runs."""
        return {
            "kill -9": lambda rng: self._stopped(rng, lambda sweep: sweep.signal(signal.SIGKILL)),
            "SIGTERM": lambda rng: self._stopped(rng, lambda sweep: sweep.signal(signal.SIGTERM)),
            "Ctrl-C": self._ctrl_c,
            "worker killed": self._worker_killed,
            "journal cut short": self._journal_cut_short,
            "store cut short": self._store_cut_short,
            "full disk": self._full_disk,
            "two writers on one store": self._second_writer,
            "clock jump: frozen process": self._frozen,
        }

    def _new(self) -> None:
        self._count += 1
        self._path = self.folder / f"sweep-{self._count}.sqlite"

    def _started(self) -> Child:
        return self.start(program("sweep_program", self._path), "sweep")

    def _stopped(self, rng: random.Random, stop: Callable[[Child], None]) -> Child:
        self._new()
        sweep = self._started()
        time.sleep(rng.uniform(0.0, 2.0))
        stop(sweep)
        sweep.wait()
        invariants.no_orphans(self.mark, ())
        if self._path.exists():
            with Store(self._path) as store:
                demand(all(row in self._wanted for row in store.rows(dict)), "rows of a stopped sweep are others")
        return sweep

    def _ctrl_c(self, rng: random.Random) -> None:
        self._check_words(self._stopped(rng, self._press_ctrl_c))

    def _press_ctrl_c(self, sweep: Child) -> None:
        """Once its own lines run: while Python loads it, Ctrl-C is Python's."""
        sweep.wait_for("begun")
        sweep.signal(signal.SIGINT)
        code = sweep.wait()
        demand(code in (0, 130), f"after Ctrl-C a sweep ended with {code}: {sweep.said()[-1000:]}")

    def _worker_killed(self, rng: random.Random) -> None:
        self._check_words(self._stopped(rng, lambda sweep: self._kill_a_worker(sweep, rng)))

    def _kill_a_worker(self, sweep: Child, rng: random.Random) -> None:
        if workers := sweep.children():
            with suppress(ProcessLookupError):
                os.kill(rng.choice(workers), signal.SIGKILL)

    def _check_words(self, sweep: Child) -> None:
        """Who lives to say why it ended says it in a sentence.

        Where the sweep itself is killed nobody does, and a worker that Python was just starting shows a traceback of
        Python's own.
        """
        demand("Traceback" not in sweep.said(), f"a sweep that was stopped shows a traceback: {sweep.said()[-2000:]}")

    def _journal_cut_short(self, rng: random.Random) -> None:
        """What SQLite had not yet moved into the file itself ends in the middle of a page."""
        self._new()
        sweep = self._started()
        time.sleep(rng.uniform(0.5, 2.0))
        sweep.end()
        invariants.no_orphans(self.mark, ())
        self._cut(Path(f"{self._path}-wal"), rng)

    def _store_cut_short(self, rng: random.Random) -> None:
        """Refused, or empty; whoever deletes it has a sweep to run anew, and no wrong rows."""
        self._new()
        self._run()
        self._cut(self._path, rng)
        sweep = self._started()
        code = sweep.wait()
        if code != 0:
            invariants.plain_refusal(code, sweep.said(), "a store that was cut short")
            self._path.unlink()

    def _cut(self, path: Path, rng: random.Random) -> None:
        if path.exists():
            os.truncate(path, rng.randrange(path.stat().st_size + 1))

    def _full_disk(self, rng: random.Random) -> None:
        self._new()
        sweep = self._started()
        with suppress(TimeoutError):
            sweep.wait_for("begun")
        sweep.leave_room(rng.randrange(200_000))
        code = sweep.wait()
        if code != 0:  # there may have been room enough
            invariants.plain_refusal(code, sweep.said(), "a sweep on a full disk")

    def _second_writer(self, rng: random.Random) -> None:
        self._new()
        first = self._started()
        first.wait_for("begun")
        second = self._started()
        code = second.wait()
        if first.alive:
            invariants.plain_refusal(code, second.said(), "a second sweep on the same store")
        demand(first.wait() == 0, f"the first sweep failed beside a second one: {first.said()[-1000:]}")

    def _frozen(self, rng: random.Random) -> None:
        self._new()
        sweep = self._started()
        time.sleep(rng.uniform(0.0, 1.0))
        sweep.signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.5, 2.0))
        sweep.signal(signal.SIGCONT)
        demand(sweep.wait() == 0, f"a sweep that stood still failed: {sweep.said()[-1000:]}")

    def _run(self) -> Any:
        """To the end."""
        sweep = self._started()
        code = sweep.wait()
        demand(code == 0, f"a sweep that nothing disturbs any more ended with {code}: {sweep.said()[-2000:]}")
        with Store(self._path) as store:
            demand(len(store) == N_CELLS, f"{len(store)} of {N_CELLS} cells are in the store")
            return store.rows(dict)

    def check(self) -> None:
        """Resumed to its end, the sweep has the undisturbed rows."""
        invariants.same(self._run(), self._wanted, "rows")
        for path in self.folder.glob(f"{self._path.name}*"):
            path.unlink()
