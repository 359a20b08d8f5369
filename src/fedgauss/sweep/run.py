"""Runs the cells of a sweep, in worker processes or elsewhere, and writes each to the store as it finishes."""

import os
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing

from fedgauss import _checks
from fedgauss._progress import CtrlC, ProgressBar, clock
from fedgauss.sweep.cell import Cell, Plan, Summary, cell_key, cost
from fedgauss.sweep.store import Store
from fedgauss.sweep.workers import Finished, SweepError, in_words, run_in_workers

# Runs the cells of a plan and yields each as it finishes; yields None now and then, when it is time to look up.
Executor = Callable[[Plan, CtrlC], Generator[Finished | None, None, None]]

_MOST_WORKERS = 8  # unless more are asked for: each holds a JAX of its own in memory


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C. `summary` says how far the sweep came; the same call goes on from there."""

    def __init__(self, summary: Summary) -> None:
        super().__init__(str(summary))
        self.summary = summary


def run_cells(
    cells: Iterable[Cell],
    store: Store,
    workers: int | None = None,
    progress: bool | None = None,
    on_tick: Callable[[Summary], None] | None = None,
    executor: Executor | None = None,
) -> Summary:
    """Run every cell that is not in the store yet. The rows do not depend on the number of workers.

    workers    processes with one thread each (None: one for each CPU that may be used, at most 8); 0 runs the cells
               in this process, which suits a debugger or a GPU, but BLAS may use more threads here and change last
               digits
    progress   show a bar (None: in a terminal, when the sweep takes long)
    on_tick    called with the summary so far after every cell, and a few times a second while workers compute; what
               it raises ends the sweep
    executor   runs the cells elsewhere, in place of workers: `fedgauss.integrations.dask_cluster.on_dask(address)`

    However it ends (an error, Ctrl-C, kill -9), finished cells are kept and workers end; the same call resumes. A
    worker that is frozen for a minute is an error.
    A program that calls this needs `if __name__ == "__main__":` around its top level, because workers import it.
    """
    count = _usable_cpus() if workers is None else _checks.whole("workers", workers, at_least=0)
    asked = {cell_key(cell): cell for cell in cells}
    found: set[str] = set()
    began, run = time.monotonic(), 0

    def summary() -> Summary:
        return Summary(len(asked), len(found), run, time.monotonic() - began)

    try:
        with CtrlC() as ctrl_c:
            found = store.finished(asked)
            plan = Plan(cell for key, cell in asked.items() if key not in found)
            total, spent = plan.cost, 0.0
            if executor is not None:
                stream = executor(plan, ctrl_c)
            else:
                stream = _run_here(plan, ctrl_c) if count == 0 else run_in_workers(plan, count, ctrl_c)
            with closing(stream), ProgressBar("cells", total, progress) as bar:
                for finished in stream:
                    if finished is not None:
                        store.add(*finished)
                        run += 1
                        spent += cost(finished[0])
                    now = summary()
                    left = now.seconds * (total / spent - 1.0) if spent else None
                    bar.update(now.done, now.total, left, f"{now.done}/{now.total} {status(now, left)}")
                    if on_tick is not None:
                        with ctrl_c.let_in():
                            on_tick(summary())
    except KeyboardInterrupt:
        raise SweepInterrupted(summary()) from None
    except SweepError as error:
        error.summary = summary()
        raise
    return summary()


def status(summary: Summary, left: float | None) -> str:
    """The rate and the time left, in words; `left` is None while nothing is known of it."""
    if left is None:
        return "starting"
    rate = summary.run / max(summary.seconds, 1e-9)
    speed = f"{rate:.1f} a second" if rate >= 1.0 else f"{60 * rate:.1f} a minute"
    return f"{speed}, {clock(left)} left"


def _usable_cpus() -> int:
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(here, _MOST_WORKERS)


def _run_here(plan: Plan, ctrl_c: CtrlC) -> Generator[Finished | None, None, None]:
    """Run the cells of the plan in this process."""
    while (cell := plan.take(0)) is not None:
        began = time.perf_counter()
        try:
            with ctrl_c.let_in():
                rows = cell.run()
        except Exception as error:
            raise SweepError.failed(cell, in_words(error)) from error
        yield cell, rows, time.perf_counter() - began
