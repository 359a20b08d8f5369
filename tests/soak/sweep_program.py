"""A sweep as a process: `python -m soak.sweep_program STORE`."""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass

from fedgauss.sweep.cell import Row
from fedgauss.sweep.run import SweepError, SweepInterrupted, run_cells
from fedgauss.sweep.store import Store, StoreError

N_CELLS = 30


@dataclass(frozen=True)
class Drawn:
    """A row of a cell."""

    number: int
    draw: float


@dataclass(frozen=True)
class Cell:
    """Takes a moment, and returns rows that depend on its number alone."""

    number: int

    def run(self) -> list[Row]:
        """Three rows."""
        rng = random.Random(self.number)
        time.sleep(rng.uniform(0.0, 0.06))
        return [Drawn(self.number, rng.gauss(0, 1)) for _ in range(3)]


def cells() -> list[Cell]:
    """All of the sweep."""
    return [Cell(number) for number in range(N_CELLS)]


def main(path: str) -> int:
    """Exit code 0 when all cells are finished, else a sentence."""
    try:
        with Store(path) as store:
            print("begun", flush=True)
            print(run_cells(cells(), store, workers=2))
    except SweepInterrupted as stopped:
        print(f"Interrupted: {stopped.summary}")
        return 130
    except KeyboardInterrupt:  # before the sweep had begun
        return 130
    except (StoreError, SweepError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
