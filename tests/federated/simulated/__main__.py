"""`python -m simulated --seconds 60 --seed 7 [--keep FILE] [--defect 3] [--replay WORLD [--run 12]]`."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from simulated.defects import DEFECTS, plant
from simulated.study import Study, simulate

_WIDTH = 30


def main() -> int:
    """Simulate; 1 where something was found that must not be."""
    parser = argparse.ArgumentParser(prog="simulated", description="A federation in one process, from one seed.")
    parser.add_argument("--seconds", type=float, default=60.0, help="of one core, by the processor's own count")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="where to go on from once stopped, and to go on in")
    parser.add_argument(
        "--defect", type=int, choices=sorted(DEFECTS), help="of DEFECTS.md; ends with the first failure"
    )
    parser.add_argument("--replay", type=int, metavar="WORLD", help="one world, as a failure names it")
    parser.add_argument("--run", type=int, help="of that world, whose course is printed; the last one by default")
    asked = parser.parse_args()
    if asked.replay is not None:
        study = replay(asked.replay, asked.run, asked.defect)
    else:
        bar = Bar(asked.seconds)
        found = asked.defect is not None
        study = simulate(
            asked.seed, asked.seconds, defect=asked.defect, until_found=found, tick=bar, keep=asked.keep
        )  # fmt: skip
        print(f"\n{study}")
    return 1 if study.failures else 0


def replay(world: int, run: int | None, defect: int | None) -> Study:
    """Print the course of one run of a world, from what its mailbox asks first to how it ends."""
    study, lines = Study(), list[str]()
    with ExitStack() as stack:
        if defect is not None:
            stack.enter_context(plant(defect))
        sent = study.world(world, tell=lines.append)
    starts = [i for i, line in enumerate(lines) if line.startswith("run ")]
    first = next((i for i in starts if run is not None and lines[i].startswith(f"run {run}:")), starts[-1])
    last = next((i for i in starts if i > first), len(lines))
    print("\n".join(lines[first:last]))
    print(f"\n{study}\ndigest of all that was sent: {sent}")
    return study


class Bar:
    """A line on standard error that grows, and a line for each failure."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._shown = seconds, 0

    def __call__(self, study: Study) -> None:
        for one in study.failures[self._shown :]:
            print(f"\r{one}", file=sys.stderr)
        self._shown = len(study.failures)
        done = min(1.0, study.seconds / self._seconds)
        bar = "#" * round(_WIDTH * done)
        print(f"\r[{bar:<{_WIDTH}}] {study.runs:,} runs, {study.rounds:,} rounds", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
