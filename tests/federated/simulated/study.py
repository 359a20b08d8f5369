"""Worlds one after another for so many seconds of one core, and what came of them."""

from __future__ import annotations

import gc
import hashlib
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from simulated.auditor import Failure
from simulated.defects import plant
from simulated.world import FIT, RUNS, World

_UNLIKELY = 6.0  # standard deviations, by which masks may go along with what they hide: a chance of 2e-9


@dataclass
class Study:
    """What a study has seen so far.

    Attributes
    ----------
    failures : list of (int, str)
        Seeds that replay them, and what happened.
    """

    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    worlds: int = 0
    seconds: float = 0.0
    failures: list[tuple[int, str]] = field(default_factory=list)
    correlation: np.ndarray = field(default_factory=lambda: np.zeros(2))

    @property
    def runs(self) -> int:
        """How many there were."""
        return self.ends["runs"]

    def world(self, seed: int, runs: int = RUNS, trouble: float = 1.0) -> str:
        """One world; the digest of all that was sent in it."""
        began = time.process_time()
        world = World(seed, self.faults, self.ends, trouble)
        try:
            world.run(runs)
        except Failure as failure:
            self.failures.append((seed, str(failure)))
        except Exception:
            self.failures.append(
                (seed, "an exception that nobody expected: " + " ".join(traceback.format_exc().split()[-40:]))
            )
        self.rounds, self.worlds = self.rounds + world.auditor.rounds, self.worlds + 1
        self.correlation += world.auditor.correlation
        self.seconds += time.process_time() - began
        return world.digest

    @property
    def leaning(self) -> float:
        """How far masked numbers go along with the signs of what they hide, in standard deviations."""
        count, total = self.correlation
        return float(total / np.sqrt(max(1.0, count) / 12.0))

    def __str__(self) -> str:
        """A table."""
        rate = self.rounds / max(self.seconds, 1e-9)
        runs = max(1, self.runs)
        lines = [
            f"{self.worlds:,} worlds, {self.runs:,} runs, {self.rounds:,} rounds in {self.seconds:,.0f} s of one core: "
            f"{1000 / max(rate, 1e-9):.2f} ms a round, {3600 * rate:,.0f} an hour",
            f"{self.ends[FIT]:,} runs ended in a fit that was checked ({self.ends[FIT] / runs:.0%}); masked numbers "
            f"go along with the signs of what they hide by {self.leaning:+.1f} standard deviations",
            "",
            "how runs ended",
            *(f"  {count:>9,}  {end}" for end, count in self.ends.most_common() if end != "runs"),
            "faults and plots",
            *(f"  {count:>9,}  {fault}" for fault, count in self.faults.most_common()),
            f"{len(self.failures)} failures",
            *(f"  --replay {seed}: {words}" for seed, words in self.failures),
        ]
        return "\n".join(lines)


def seeds(seed: int) -> Iterator[int]:
    """Those of the worlds of a study."""
    number = 0
    while True:
        yield int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:6], "big")
        number += 1


def simulate(
    seed: int,
    seconds: float,
    defect: int | None = None,
    until_found: bool = False,
    tick: Callable[[Study], None] = lambda s: None,
) -> Study:
    """Worlds from a seed until the time is over, with a planted defect or without; or until there is a failure."""
    study = Study()
    with ExitStack() as stack:
        if defect is not None:
            stack.enter_context(plant(defect))
        gc.disable()  # each world is let go at once when it ends
        stack.callback(gc.enable)
        for one in seeds(seed):
            study.world(one)
            gc.collect()
            tick(study)
            if study.seconds >= seconds or (until_found and study.failures):
                break
    if abs(study.leaning) > _UNLIKELY:
        study.failures.append((seed, "masked numbers go along with what they hide"))
    return study
