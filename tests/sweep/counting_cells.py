"""Cells for tests: they note every run in a file, and can wait, fail or die. Workers import them from here."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fedgauss.sweep.cell import Row
from fedgauss.sweep.run import SweepInterrupted, run_cells
from fedgauss.sweep.store import Store


@dataclass(frozen=True)
class Number:
    number: int
    name: str
    estimate: float
    error: float | None = None


@dataclass(frozen=True)
class Value:
    value: str | None


@dataclass(frozen=True)
class Counted:
    """Notes "number pid" in `log` as it starts; its rows depend on the number alone."""

    number: int
    log: str = field(compare=False)
    seconds: float = field(default=0.0, compare=False)
    ending: str = field(default="rows", compare=False)
    seed: int = 7

    @property
    def experiment(self) -> str:
        return "even" if self.number % 2 == 0 else "odd"

    @property
    def group(self) -> int:
        return self.number % 3

    def __str__(self) -> str:
        return f"cell {self.number}"

    def run(self) -> list[Row]:
        with Path(self.log).open("a") as log:
            log.write(f"{self.number} {os.getpid()}\n")
        time.sleep(self.seconds)
        if self.ending == "error":
            raise ZeroDivisionError("no luck")
        if self.ending == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.ending == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        rng = random.Random(self.number)
        return [Number(self.number, "μ", rng.gauss(0, 1)) for _ in range(3)]


def counted(n_cells: int, log: Path, seconds: float = 0.0) -> list[Counted]:
    return [Counted(number, str(log), seconds) for number in range(n_cells)]


def runs(log: Path) -> list[int]:
    """The numbers of the cells that have started, in order."""
    return [int(line.split()[0]) for line in log.read_text().splitlines()] if log.exists() else []


def pids(log: Path) -> set[int]:
    return {int(line.split()[1]) for line in log.read_text().splitlines()}


class Announcing(Store):
    """Says that the sweep has begun as it looks for the first time."""

    def finished(self, keys: Iterable[str]) -> set[str]:
        print("begun", flush=True)
        return super().finished(keys)


def sweep(path: str, log: str, n_cells: int, seconds: float, workers: int) -> None:
    """A program that sweeps, for tests that kill it. Says when it begins, and where it stopped on Ctrl-C."""
    try:
        with Announcing(path) as store:
            run_cells(counted(n_cells, Path(log), seconds), store, workers)
    except SweepInterrupted as stopped:
        print(f"run {stopped.summary.run} left {stopped.summary.left}")
        sys.exit(130)


@dataclass(frozen=True)
class Costly:
    group: str
    cost: float

    def run(self) -> list[Row]:
        return []


@dataclass(frozen=True)
class Environment:
    """What a variable is where the cell runs."""

    name: str

    def run(self) -> list[Row]:
        return [Value(os.environ.get(self.name))]
