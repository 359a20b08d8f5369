"""Worker processes: they run the cells of a plan and end with the process that started them, however it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, resource_tracker
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

from fedgauss._progress import CtrlC
from fedgauss.sweep.cell import Cell, Plan, Row, Summary

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Finished = tuple[Cell, Sequence[Row], float]  # a cell, its rows, and the seconds it took

_TICK = 0.2  # seconds between two looks at the clock while workers compute
_PULSE = 0.5  # seconds between two pulses of a worker
_PATIENCE = 60.0  # seconds without a pulse after which a worker counts as frozen
_STARTING = 600.0  # seconds that it has for its first: it imports the calling program
# One thread a worker. It is also part of the result: BLAS adds in another order when it has more threads.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "PJRT_NPROC": "1",  # JAX on the CPU
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # several workers can share an accelerator
}


class SweepError(RuntimeError):
    """A cell failed, or the worker that ran it died. What finished before is in the store.

    cell      the cell, or None where workers did not start
    summary   how far the sweep came
    """

    def __init__(self, message: str, cell: Cell | None = None) -> None:
        super().__init__(message)
        self.cell = cell
        self.summary: Summary | None = None

    @classmethod
    def failed(cls, cell: Cell | None, reason: str, trace: str = "") -> SweepError:
        """The error for a cell that cannot be run, with the traceback of the worker that tried."""
        stop = "" if reason.endswith((".", "?")) else "."
        error = cls(f"{cell} failed with {reason}{stop} Finished cells are kept: mend this and run again.", cell)
        if trace:
            error.add_note(f"In the worker:\n{trace}")
        return error


def in_words(error: Exception) -> str:
    """The kind of an error and its message, as one line of a traceback has them."""
    return f"{type(error).__name__}: {error}"


def run_in_workers(plan: Plan, count: int, ctrl_c: CtrlC) -> Generator[Finished | None, None, None]:
    """Run the cells of the plan in `count` processes; yields None now and then while they compute."""
    with _workers(min(count, len(plan))) as workers:
        while plan or any(worker.cell is not None for worker in workers):
            awaited = [worker.pipe for worker in workers if worker.cell is not None or (plan and not worker.ready)]
            with ctrl_c.let_in():
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
            for worker in workers:
                if error is None and worker.pipe in awaited and worker.pipe not in spoke:
                    error = worker.frozen()
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
    mask = None
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()  # its first start would undo the mask
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    before = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    os.environ.update(ENVIRONMENT)
    try:
        yield
    finally:
        for name in ENVIRONMENT:
            del os.environ[name]
        os.environ.update(before)
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
        self._pulses = context.RawValue("L", 0)
        self._felt, self._silent, self._looked = 0, 0.0, time.monotonic()
        self.process = context.Process(target=_serve, args=(theirs, self._pulses), daemon=True)
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
            raise SweepError.failed(cell, in_words(error)) from error

    def receive(self) -> Finished | None:
        """The cell it has finished; None when it has just started."""
        try:
            rows, seconds, failure = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error
        self.ready = True
        cell, self.cell = self.cell, None
        if failure is not None:
            raise SweepError.failed(cell, *failure)
        return None if cell is None else (cell, rows, seconds)

    def frozen(self) -> SweepError | None:
        """Why it is given up, where it has had no pulse for too long.

        Time in which this process itself stood still does not count: after Ctrl-Z all wake together.
        """
        before, self._looked = self._looked, time.monotonic()
        if self._pulses.value != self._felt:
            self._felt, self._silent = self._pulses.value, 0.0
        self._silent += min(self._looked - before, _TICK)
        patience = _PATIENCE if self._felt else _STARTING
        if self._silent < patience:
            return None
        which = "one that starts" if self.cell is None else f"the one that runs {self.cell}"
        return SweepError(
            f"workers must not stand still; {which} (process {self.process.pid}) has stood still for {patience:.0f} "
            "seconds, stopped by a signal or waiting for its disk. Finished cells are kept: run again.",
            self.cell,
        )

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


def _serve(pipe: Connection, pulses: Any) -> None:
    """What a worker does: it says that it is ready, then answers each cell, until its parent goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_pulse, args=(pulses,), daemon=True).start()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        pipe.send((None, 0.0, None))
        while True:
            pipe.send_bytes(answer(pipe.recv_bytes()))


def _pulse(pulses: Any) -> None:
    """Count up, whatever the cell does."""
    while True:
        pulses.value += 1
        time.sleep(_PULSE)


def answer(message: bytes) -> Any:
    """Run the cell in a message; (rows, seconds, failure) as a message."""
    try:
        cell = ForkingPickler.loads(message)
        began = time.perf_counter()
        rows = cell.run()
        return ForkingPickler.dumps((rows, time.perf_counter() - began, None))
    except Exception as error:
        return ForkingPickler.dumps((None, 0.0, (in_words(error), traceback.format_exc())))


def _end_with_parent() -> None:
    """A worker whose parent was killed ends too, in the middle of its cell."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
