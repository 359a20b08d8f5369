"""Runs the cells of a sweep in worker processes, and writes each to the store as it finishes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

from fedgauss import _checks
from fedgauss.experiments.cell import Cell, Row, cell_key
from fedgauss.experiments.store import Store

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from rich.progress import Progress

Finished = tuple[Cell, list[Row], float]  # a cell, its rows, and the seconds it took

_TICK = 0.2  # seconds between two looks at the clock while workers compute
_PATIENCE = 1.0  # seconds before a bar is worth showing
# One thread a worker. It is also part of the result: BLAS adds in another order when it has more threads.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "PJRT_NPROC": "1",  # JAX on the CPU
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # several workers can share an accelerator
}


@dataclass(frozen=True)
class Summary:
    """How far a sweep is: cells asked for, found in the store, and run; and the seconds that went by."""

    total: int
    found: int
    run: int
    seconds: float

    @property
    def left(self) -> int:
        """Cells that are neither found nor run."""
        return self.total - self.found - self.run

    def __str__(self) -> str:
        return (
            f"{self.found + self.run} of {self.total} cells finished, {self.run} of them in these {self.seconds:.1f} s"
        )


class SweepError(RuntimeError):
    """A cell failed, or the worker that ran it died. What finished before is in the store.

    cell      the cell, or None where workers did not start
    summary   how far the sweep came
    """

    def __init__(self, message: str, cell: Cell | None = None) -> None:
        super().__init__(message)
        self.cell = cell
        self.summary: Summary | None = None


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C. `summary` says how far the sweep came; the same call goes on from there."""

    def __init__(self, summary: Summary) -> None:
        super().__init__(str(summary))
        self.summary = summary


def run_cells(
    cells: Iterable[Cell],
    store: Store,
    workers: int = 2,
    progress: bool | None = None,
    on_tick: Callable[[Summary], None] | None = None,
) -> Summary:
    """Run every cell that is not in the store yet. The rows do not depend on the number of workers.

    workers    processes with one thread each; 0 runs the cells in this process, which suits a debugger or a GPU, but
               BLAS may use more threads here and change last digits
    progress   show a bar (None: in a terminal, when the sweep takes long)
    on_tick    called with the summary so far after every cell, and a few times a second while workers compute; what
               it raises ends the sweep

    However it ends (an error, Ctrl-C, kill -9), finished cells are kept and workers end; the same call resumes.
    A program that calls this needs `if __name__ == "__main__":` around its top level, because workers import it.
    """
    workers = _checks.whole("workers", workers, at_least=0)
    asked = {cell_key(cell): cell for cell in cells}
    found = store.finished(asked)
    plan = Plan(cell for key, cell in asked.items() if key not in found)
    began, run = time.monotonic(), 0

    def summary() -> Summary:
        return Summary(len(asked), len(found), run, time.monotonic() - began)

    try:
        stream = _here(plan) if workers == 0 else _in_workers(plan, workers)
        with closing(stream), _Bar(progress, plan.cost) as bar:
            for finished in stream:
                if finished is not None:
                    store.add(*finished)
                    run += 1
                    bar.spent += _cost(finished[0])
                bar.show(summary())
                if on_tick is not None:
                    on_tick(summary())
    except KeyboardInterrupt:
        raise SweepInterrupted(summary()) from None
    except SweepError as error:
        error.summary = summary()
        raise
    return summary()


class Plan:
    """Which cell a free worker takes next: long ones first, and groups kept together while there are enough of them.

    A worker stays with the groups it has begun, then begins the longest that nobody has, then helps with the longest.
    """

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._groups: dict[Hashable, list[Cell]] = {}
        for cell in cells:
            self._groups.setdefault(getattr(cell, "group", None), []).append(cell)
        self._left = {group: sum(map(_cost, members)) for group, members in self._groups.items()}
        self._begun: dict[Hashable, set[int]] = {group: set() for group in self._groups}
        for members in self._groups.values():
            members.sort(key=_cost)  # the longest is taken off the end

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    @property
    def cost(self) -> float:
        """Of all cells that are not taken."""
        return sum(self._left.values())

    def take(self, worker: int) -> Cell | None:
        """The next cell for this worker; None when all are taken."""
        if not self._groups:
            return None

        def preference(group: Hashable) -> tuple[bool, bool, float]:
            return worker in self._begun[group], not self._begun[group], self._left[group]

        group = max(self._groups, key=preference)
        cell = self._groups[group].pop()
        self._begun[group].add(worker)
        self._left[group] -= _cost(cell)
        if not self._groups[group]:
            del self._groups[group]
        return cell


def _cost(cell: Cell) -> float:
    return float(getattr(cell, "cost", 1.0))


def _here(plan: Plan) -> Generator[Finished | None, None, None]:
    """Run the cells in this process."""
    while (cell := plan.take(0)) is not None:
        began = time.perf_counter()
        try:
            rows = cell.run()
        except Exception as error:
            raise _failed(cell, _words(error)) from error
        yield cell, rows, time.perf_counter() - began


def _in_workers(plan: Plan, count: int) -> Generator[Finished | None, None, None]:
    """Run the cells in worker processes; yields None now and then while they compute."""
    with _workers(min(count, len(plan))) as workers:
        while plan or any(worker.cell is not None for worker in workers):
            awaited = [worker.pipe for worker in workers if worker.cell is not None or (plan and not worker.ready)]
            spoke = connection.wait(awaited, timeout=_TICK)
            error: SweepError | None = None
            for number, worker in enumerate(workers):
                if worker.pipe not in spoke:
                    continue
                try:
                    finished = worker.receive()
                    if finished is not None:
                        yield finished
                    if error is None and (cell := plan.take(number)) is not None:
                        worker.send(cell)
                except SweepError as failure:
                    error = failure
            if error is not None:  # raised last, so that cells that finished at the same time are kept
                raise error
            yield None


@contextmanager
def _workers(count: int) -> Iterator[list[_Worker]]:
    started: list[_Worker] = []
    try:
        with _inherited():
            for _ in range(count):
                started.append(_Worker())
        yield started
    finally:
        for worker in started:
            worker.process.kill()  # it has nothing to lose
        for worker in started:
            worker.process.join()
            worker.pipe.close()


@contextmanager
def _inherited() -> Iterator[None]:
    """What workers take over from this process as they start: one thread, and no ears for Ctrl-C.

    Ctrl-C in a terminal reaches every process, but only this one acts on it.
    """
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    mask = None
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()  # its first start would undo the mask
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _Worker:
    """A process that runs the cells it is sent, one at a time, and keeps what it has compiled.

    It is spawned, never forked, because JAX has threads. Each has a pipe of its own, so that a dead one is noticed
    at once and its cell can be named.
    """

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.ready = False
        self.cell: Cell | None = None

    def send(self, cell: Cell) -> None:
        """Give it a cell to run."""
        self.cell = cell
        try:
            self.pipe.send(cell)
        except OSError as error:
            raise self._died() from error
        except Exception as error:  # whatever pickling raises
            raise _failed(cell, _words(error)) from error

    def receive(self) -> Finished | None:
        """The cell it has finished; None when it has just started."""
        try:
            rows, seconds, failure = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error
        self.ready = True
        cell, self.cell = self.cell, None
        if failure is not None:
            reason, trace = failure
            failed = _failed(cell, reason)
            failed.add_note(f"In the worker:\n{trace}")
            raise failed
        return None if cell is None else (cell, rows, seconds)

    def _died(self) -> SweepError:
        self.process.join(timeout=1.0)
        code = self.process.exitcode
        how = f"exit code {code}" if code is None or code >= 0 else f"signal {-code} ({signal.strsignal(-code)})"
        if not self.ready:
            return SweepError(
                f"workers must be able to start and to import the calling program; one ended with {how}. "
                'Put the program\'s top level under `if __name__ == "__main__":`, or use workers=0.'
            )
        return SweepError(
            f"a worker must outlive its cell; the one that ran {self.cell} ended with {how}. Finished cells are kept: "
            "if memory ran out, run again with fewer workers.",
            self.cell,
        )


def _failed(cell: Cell | None, reason: str) -> SweepError:
    stop = "" if reason.endswith((".", "?")) else "."
    return SweepError(f"{cell} failed with {reason}{stop} Finished cells are kept: mend this and run again.", cell)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _serve(pipe: Connection) -> None:
    """What a worker does: it says that it is ready, then answers each cell, until its parent goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        pipe.send((None, 0.0, None))
        while True:
            pipe.send_bytes(_answer(pipe.recv_bytes()))


def _answer(message: bytes) -> Any:
    """Run the cell in a message; (rows, seconds, failure) as a message."""
    try:
        cell = ForkingPickler.loads(message)
        began = time.perf_counter()
        rows = cell.run()
        return ForkingPickler.dumps((rows, time.perf_counter() - began, None))
    except Exception as error:
        return ForkingPickler.dumps((None, 0.0, (_words(error), traceback.format_exc())))


def _end_with_parent() -> None:
    """A worker whose parent was killed ends too, in the middle of its cell."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Bar:
    """Cells done, their rate and the time left, on a terminal, once there is something to wait for."""

    def __init__(self, wanted: bool | None, cost: float) -> None:
        self._wanted = sys.stderr.isatty() if wanted is None else wanted
        self._cost, self.spent = cost, 0.0
        self._shown: Progress | None = None

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *ending: object) -> None:
        if self._shown is not None:
            self._shown.stop()

    def show(self, summary: Summary) -> None:
        """Bring it up to date."""
        left = summary.seconds * (self._cost / self.spent - 1.0) if self.spent else None
        if self._wanted and self._shown is None and summary.seconds > _PATIENCE and (left is None or left > _PATIENCE):
            self._start()
        if self._shown is not None:
            done = summary.found + summary.run
            self._shown.update(
                self._shown.task_ids[0], completed=done, total=summary.total, status=_status(summary, left)
            )

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[status]}"))
        self._shown = Progress(*columns, console=Console(stderr=True), transient=True)
        self._shown.add_task("cells", status="")
        self._shown.start()


def _status(summary: Summary, left: float | None) -> str:
    """The rate and the time left, in words."""
    if left is None:
        return "starting"
    rate = summary.run / max(summary.seconds, 1e-9)
    speed = f"{rate:.1f} a second" if rate >= 1.0 else f"{60 * rate:.1f} a minute"
    minutes, seconds = divmod(round(left), 60)
    return f"{speed}, {minutes}:{seconds:02d} left"
