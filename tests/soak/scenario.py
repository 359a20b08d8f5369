"""What all scenarios have in common."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from soak import invariants
from soak.processes import Child, end_marked

Fault = Callable[[random.Random], None]


class Scenario(ABC):
    """A piece of production in a folder of its own. `mark` is on every process that it starts.

    A fault is injected, and whatever an operator or a supervisor would do about it is done, by a method of `faults`.
    """

    name: ClassVar[str]

    def __init__(self, folder: Path, seed: int, mark: str) -> None:
        self.folder, self.seed, self.mark = folder, seed, f"{mark}/{self.name}"
        folder.mkdir(parents=True, exist_ok=True)
        self._children: list[Child] = []

    @abstractmethod
    def faults(self) -> dict[str, Fault]:
        """What can be done to it, by kind."""

    @abstractmethod
    def begin(self) -> None:
        """Start what lives long, and find out what undisturbed results are."""

    @abstractmethod
    def check(self) -> None:
        """The scenario's own invariants, after a fault."""

    def end(self) -> None:
        """End what lives long."""
        for child in self.living():
            child.end()

    def living(self) -> Sequence[Child]:
        """Processes that are meant to live on after a fault."""
        return ()

    def check_all(self) -> None:
        """After every fault."""
        self.check()
        invariants.no_orphans(self.mark, [child.pid for child in self.living()])
        for child in self.living():
            invariants.flat(child)

    def start(self, words: Sequence[str], name: str) -> Child:
        """A process whose output is kept in the scenario's folder."""
        for child in self._children:
            if not child.alive:
                child.wait()
        child = Child(words, self.folder / f"{name}.log", self.mark)
        self._children = [*(child for child in self._children if child.alive), child]
        return child

    def close(self) -> None:
        """End everything at once, whatever state it is in."""
        for child in self._children:
            child.end()
        end_marked(self.mark)
