"""A federated fit whose sites and coordinator are processes, stopped at any moment and started again."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from soak import invariants
from soak.invariants import demand
from soak.processes import Child, command
from soak.scenario import Fault, Scenario

_SITES = ("a", "b", "c")
_MODEL = {
    "target": "visits", "family": "poisson", "formula": "visits ~ scale(age) + dose + ward", "exposure": "years",
}  # fmt: skip
_KEPT = ("params", "cov", "statistics", "notes", "names")  # of what is written; the rest says what was asked when
_PATIENCE = 300.0  # seconds that a fit may take on a busy machine


class Fits(Scenario):
    """`fedgauss federate`, plain and masked: a fit that was stopped and resumed is the undisturbed one."""

    name = "fits"

    def begin(self) -> None:
        """The undisturbed fits."""
        self._count = 0
        self._wanted: dict[bool, Any] = {}
        for masked in (False, True):
            self._new(masked)
            self._wanted[masked] = self._run()

    def faults(self) -> dict[str, Fault]:
        """What may happen while a fit runs."""
        return {
            "site killed": lambda rng: self._stopped(rng, self._kill_a_site),
            "coordinator killed": lambda rng: self._stopped(rng, lambda fit, _: fit.signal(signal.SIGKILL)),
            "SIGTERM": lambda rng: self._stopped(rng, lambda fit, _: fit.signal(signal.SIGTERM)),
            "journal cut short": self._journal_cut_short,
            "full disk": self._full_disk,
            "clock jump: frozen process": self._frozen,
        }

    def _new(self, masked: bool) -> None:
        """Tables of their own, since a table answers no more than its budget."""
        from site_rows import ROWS, own  # not before: pandas takes a while

        self._count += 1
        self._masked, self._tables = masked, self.folder / f"fit-{self._count}"
        self._tables.mkdir()
        for name in _SITES:
            own(ROWS, name).to_csv(self._tables / f"{name}.csv", index=False)
        self._out = self._tables / "out"
        self._journal = self._out / "rounds.jsonl"

    def _started(self) -> Child:
        options = [word for name, value in _MODEL.items() for word in (f"--{name}", value)]
        for name in _SITES:
            options += ["--site", f"{name}={shlex.join(command('site', self._tables / f'{name}.csv'))}"]
        masked = ["--masked"] if self._masked else []
        return self.start(command("federate", *options, *masked, "--out", self._out), "federate")

    def _run(self) -> Any:
        """To the end; what is kept of the fit."""
        fit = self._started()
        code = fit.wait(_PATIENCE)
        demand(code == 0, f"a fit that nothing disturbs any more ended with {code}: {fit.said()[-2000:]}")
        demand(not self._journal.exists(), "the rounds of a fit that is done are still there")
        found = json.loads((self._out / "fit.json").read_text())
        return {name: found[name] for name in _KEPT if name in found}

    def _after_some_rounds(self, fit: Child, rng: random.Random) -> None:
        """Wait for a random moment between the start and the last rounds."""
        wanted, pause = rng.randint(0, 14), rng.uniform(0.0, 0.02)
        if wanted == 0:
            pause = rng.uniform(0.0, 2.0)
        while fit.alive and _lines(self._journal) < wanted:
            time.sleep(0.001)
        time.sleep(pause)

    def _stopped(self, rng: random.Random, stop: Callable[[Child, random.Random], None]) -> None:
        self._new(rng.random() < 0.5)
        for _ in range(rng.randint(1, 2)):  # it may be stopped again while it is resumed
            fit = self._started()
            self._after_some_rounds(fit, rng)
            stop(fit, rng)
            fit.wait(_PATIENCE)
            demand("Traceback" not in fit.said(), f"a fit that was stopped shows a traceback: {fit.said()[-2000:]}")
            invariants.no_orphans(self.mark, ())

    def _kill_a_site(self, fit: Child, rng: random.Random) -> None:
        if sites := fit.children():
            with suppress(ProcessLookupError):
                os.kill(rng.choice(sites), signal.SIGKILL)

    def _journal_cut_short(self, rng: random.Random) -> None:
        self._stopped(rng, lambda fit, _: fit.signal(signal.SIGKILL))
        if self._journal.exists():
            os.truncate(self._journal, rng.randrange(self._journal.stat().st_size + 1))

    def _full_disk(self, rng: random.Random) -> None:
        """No file grows beyond some bytes: neither the rounds nor, perhaps, the results can be written."""
        self._new(rng.random() < 0.5)
        fit = self._started()
        fit.leave_room(rng.choice([0, rng.randrange(20_000)]))
        code = fit.wait(_PATIENCE)
        if code != 0:  # there may have been room enough
            invariants.plain_refusal(code, fit.said(), "a fit on a full disk")

    def _frozen(self, rng: random.Random) -> None:
        """A site, or the coordinator, stands still for a while; the fit goes on by itself."""
        self._new(rng.random() < 0.5)
        fit = self._started()
        self._after_some_rounds(fit, rng)
        pid = rng.choice([fit.pid, *fit.children()])
        for kind, seconds in ((signal.SIGSTOP, rng.uniform(0.5, 2.0)), (signal.SIGCONT, 0.0)):
            with suppress(ProcessLookupError):
                os.kill(pid, kind)
            time.sleep(seconds)
        demand(fit.wait(_PATIENCE) == 0, f"a fit of which a process stood still failed: {fit.said()[-2000:]}")

    def check(self) -> None:
        """Resumed to its end, the fit is the undisturbed one, to the bit."""
        invariants.same(self._run(), self._wanted[self._masked], "fits")
        shutil.rmtree(self._tables)


def _lines(path: Path) -> int:
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0
