"""Worlds one after another for so many seconds of one core, and what came of them."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simulated.auditor import Failure
from simulated.defects import plant
from simulated.world import FIT, RUNS, World

_UNLIKELY = 6.0  # standard deviations, by which masks may go along with what they hide: a chance of 2e-9
Tell = Callable[[str], None]


class Found(NamedTuple):
    """A failure, with what replays it."""

    world: int
    run: int
    words: str

    def __str__(self) -> str:
        return f"--replay {self.world} --run {self.run}: {self.words}"


@dataclass
class Study:
    """What a study has seen so far.

    Attributes
    ----------
    seconds : float
        Of the processor.
    wall : float
        Seconds by the clock.
    correlation : list of float
        How many masked numbers were looked at, and how far they go along with the signs of what they hide.
    """

    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    worlds: int = 0
    seconds: float = 0.0
    wall: float = 0.0
    failures: list[Found] = field(default_factory=list)
    correlation: list[float] = field(default_factory=lambda: [0.0, 0.0])

    @property
    def runs(self) -> int:
        """How many there were."""
        return self.ends["runs"]

    def world(self, seed: int, runs: int = RUNS, trouble: float = 1.0, tell: Tell | None = None) -> str:
        """One world; the digest of all that was sent in it."""
        began, clock = time.process_time(), time.perf_counter()
        world = World(seed, self.faults, self.ends, trouble, tell)
        try:
            world.run(runs)
        except Failure as failure:
            self.failures.append(Found(seed, world.number, str(failure)))
        except Exception:
            words = " ".join(traceback.format_exc().split()[-40:])
            self.failures.append(Found(seed, world.number, f"an exception that nobody expected: {words}"))
        self.rounds, self.worlds = self.rounds + world.auditor.rounds, self.worlds + 1
        self.correlation = [float(a + b) for a, b in zip(self.correlation, world.auditor.correlation, strict=True)]
        self.seconds += time.process_time() - began
        self.wall += time.perf_counter() - clock
        return world.digest

    def keep(self, path: Path, seed: int) -> None:
        """Write down how far the study is."""
        draft = path.with_name(path.name + ".new")
        draft.write_text(json.dumps({"seed": seed, **vars(self)}, indent=1) + "\n")
        os.replace(draft, path)

    @classmethod
    def kept(cls, path: Path, seed: int) -> Study:
        """Where a study of this seed was, or a new one."""
        if not path.exists():
            return cls()
        held = json.loads(path.read_text())
        if held.pop("seed") != seed:
            raise ValueError(f"{path} must be of a study with the seed {seed}; it is of another. Use another file.")
        study = cls(**held)
        study.faults, study.ends = Counter(study.faults), Counter(study.ends)
        study.failures = [Found(*one) for one in study.failures]
        return study

    @property
    def leaning(self) -> float:
        """How far masked numbers go along with the signs of what they hide, in standard deviations."""
        count, total = self.correlation
        return float(total / np.sqrt(max(1.0, count) / 12.0))

    def __str__(self) -> str:
        """A short record."""
        rate = self.rounds / max(self.seconds, 1e-9)
        runs = max(1, self.runs)
        lines = [
            f"{self.worlds:,} worlds, {self.runs:,} runs, {self.rounds:,} rounds in {self.seconds:,.0f} s of one core, "
            f"{self.wall:,.0f} s by the clock: {1000 / max(rate, 1e-9):.2f} ms a round, {3600 * rate:,.0f} an hour",
            f"{self.ends[FIT]:,} runs ended in a fit that was checked ({self.ends[FIT] / runs:.0%}); masked numbers "
            f"go along with the signs of what they hide by {self.leaning:+.1f} standard deviations",
            "",
            "how runs ended",
            *(f"  {count:>9,}  {end}" for end, count in self.ends.most_common() if end != "runs"),
            "faults and plots",
            *(f"  {count:>9,}  {fault}" for fault, count in self.faults.most_common()),
            f"{len(self.failures)} failures",
            *(f"  {one}" for one in self.failures),
        ]
        return "\n".join(lines)


def seeds(seed: int) -> Iterator[int]:
    """Those of the worlds of a study."""
    number = 0
    while True:
        yield int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:6], "big")
        number += 1


def simulate(
    seed: int, seconds: float = np.inf, rounds: float = np.inf, defect: int | None = None, until_found: bool = False,
    tick: Callable[[Study], None] = lambda s: None, keep: Path | None = None,
) -> Study:  # fmt: skip
    """Worlds from a seed until there were so many seconds of the processor or rounds, or, if asked, a failure.

    With `keep` a study that was stopped goes on where it was, after the last world that was whole.
    """
    study = Study() if keep is None else Study.kept(keep, seed)
    with ExitStack() as stack:
        if defect is not None:
            stack.enter_context(plant(defect))
        gc.disable()  # each world is let go at once when it ends, and what is there before is not looked at
        gc.freeze()
        stack.callback(gc.unfreeze)
        stack.callback(gc.enable)
        for one in islice(seeds(seed), study.worlds, None):
            if study.seconds >= seconds or study.rounds >= rounds or (until_found and study.failures):
                break
            study.world(one)
            gc.collect()
            if keep is not None:
                study.keep(keep, seed)
            tick(study)
    if abs(study.leaning) > _UNLIKELY:
        study.failures.append(Found(seed, 0, "masked numbers go along with what they hide"))
    return study
