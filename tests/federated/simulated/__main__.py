"""`python -m simulated --seconds 60 --seed 7 [--defect 3] [--replay SEED]`."""

from __future__ import annotations

import argparse
import sys

from simulated.defects import DEFECTS, plant
from simulated.study import Study, simulate

_WIDTH = 30


def main() -> int:
    """Simulate; 1 where something was found that must not be."""
    parser = argparse.ArgumentParser(prog="simulated", description="A federation in one process, from one seed.")
    parser.add_argument("--seconds", type=float, default=60.0, help="of one core")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--defect", type=int, choices=sorted(DEFECTS), help="of DEFECTS.md; ends with the first failure"
    )
    parser.add_argument("--replay", type=int, metavar="SEED", help="one world, as a failure names it")
    asked = parser.parse_args()
    if asked.replay is not None:
        study = Study()
        if asked.defect is None:
            sent = study.world(asked.replay)
        else:
            with plant(asked.defect):
                sent = study.world(asked.replay)
        print(f"{study}\ndigest of all that was sent: {sent}")
    else:
        bar = Bar(asked.seconds)
        study = simulate(asked.seed, asked.seconds, asked.defect, asked.defect is not None, bar)
        print(f"\n{study}")
    return 1 if study.failures else 0


class Bar:
    """A line on standard error that grows, and a line for each failure."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._shown = seconds, 0

    def __call__(self, study: Study) -> None:
        for seed, words in study.failures[self._shown :]:
            print(f"\r--replay {seed}: {words}", file=sys.stderr)
        self._shown = len(study.failures)
        done = min(1.0, study.seconds / self._seconds)
        bar = "#" * round(_WIDTH * done)
        print(f"\r[{bar:<{_WIDTH}}] {study.runs:,} runs, {study.rounds:,} rounds", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
