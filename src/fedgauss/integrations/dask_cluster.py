"""Runs the cells of a sweep on a Dask cluster that is there already; the rows are those of local workers.

    run_cells(cells, store, executor=on_dask("tcp://10.0.0.7:8786"))

Bit for bit, where processors are of one kind: JAX compiles for the one it finds. Dask sends pickles both ways, so a
cluster must be as trusted as this process.
"""

import asyncio
import math
import pickle
import time
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from fedgauss._checks import FedgaussWarning
from fedgauss._progress import CtrlC
from fedgauss.integrations.dask_worker import settings, versions
from fedgauss.integrations.extras import needed
from fedgauss.sweep.cell import Cell, Plan
from fedgauss.sweep.run import Executor
from fedgauss.sweep.workers import Finished, SweepError, in_words

_CONNECT = 5.0  # seconds until a scheduler counts as unreachable
_FIRST_WORKER = 10.0  # seconds until a cluster counts as empty
_LOOK = 2.0  # seconds between two looks at who works, and that asking the cluster may take
_TICK = 0.05  # seconds between two looks at what has come
_TIDY = 5.0  # seconds that saying goodbye may take
_TRIES = 3  # times that a process may die on a cell, before the cell is to blame


def on_dask(scheduler: str) -> Executor:
    """An executor for `run_cells` that runs cells on a Dask cluster.

    Parameters
    ----------
    scheduler : str
        Its address, such as "tcp://host:8786".

    Returns
    -------
    Executor

    Notes
    -----
    Each finished cell comes back at once; one whose worker is lost is run again by another. No more cells are out than
    the cluster has threads. However the sweep ends, cells that are out are cancelled and their processes end, unless
    the scheduler does not answer by then. Where all workers are lost the sweep warns and waits for others.
    """

    distributed = needed("distributed", extra="dask")

    def execute(plan: Plan, ctrl_c: CtrlC) -> Generator[Finished | None, None, None]:
        if plan:  # a sweep that is finished needs no cluster
            with _connected(distributed, scheduler, ctrl_c) as client:
                yield from _run(plan, client, ctrl_c)

    return execute


def _run(plan: Plan, client: Any, ctrl_c: CtrlC) -> Generator[Finished | None, None, None]:
    sweep, wanted, variables = uuid.uuid4().hex, versions(), settings()
    out: dict[Any, tuple[int, Cell]] = {}  # future: which turn it takes, and its cell
    run_cell, scheduler = _by_value("run_cell"), client.scheduler
    turns, workers, look_again, warn_at = 0, list[str](), 0.0, time.monotonic() + _FIRST_WORKER

    def submit(turn: int, cell: Cell) -> None:
        """Hand out a cell. Turns keep to a worker where they can: it has compiled their programs."""
        try:
            task = (run_cell, pickle.dumps(cell), sweep, wanted, variables)
        except Exception as error:  # whatever pickling raises
            raise SweepError.failed(cell, in_words(error)) from error
        key = f"{type(cell).__name__}-{uuid.uuid4().hex}"
        nearest = [workers[turn % len(workers)]] if workers else None
        future = client.submit(
            *task, key=key, pure=False, workers=nearest, allow_other_workers=nearest is not None, retries=_TRIES - 1
        )
        out[future] = turn, cell

    try:
        while plan or out:
            if time.monotonic() > look_again:  # workers come and go
                with ctrl_c.let_in():
                    found = _threads(client, scheduler)
                now = time.monotonic()
                look_again = now + _LOOK
                if found:
                    warn_at = now + _FIRST_WORKER
                elif now > warn_at:
                    _warn_of_waiting(scheduler.address)
                    warn_at = math.inf
                before, workers = workers, workers if found is None else found
                if workers and not set(workers) & set(before):
                    # For a moment there was none. Dask never wakes a task that preferred one which was lost then.
                    client.cancel(list(out), force=True)
                    again = list(out.values())
                    out.clear()
                    for turn, cell in again:
                        submit(turn, cell)
            turns = max(turns, len(workers), 1)  # never fewer: a group may be left to one that has begun it
            for turn in set(range(turns)) - {turn for turn, _ in out.values()}:
                if (next_cell := plan.take(turn)) is not None:
                    submit(turn, next_cell)
            with ctrl_c.let_in():
                time.sleep(_TICK)
            error: SweepError | None = None
            for future in [future for future in out if future.done()]:
                try:
                    with ctrl_c.let_in():
                        result = future.result(timeout=_LOOK)  # its status is no guide: that may change meanwhile
                except TimeoutError:
                    continue  # the worker that held it was lost: it is run again, and comes later
                except Exception as failure:  # whatever it is, it ends this cell
                    result = failure
                _, cell = out.pop(future)
                try:
                    yield _finished(cell, result, wanted)
                except SweepError as failure:
                    error = failure
            if error is not None:  # raised last, so that cells that finished at the same time are kept
                raise error
            yield None
    finally:
        with suppress(Exception):  # the scheduler may be what failed
            if client.status == "running":
                client.cancel(list(out), force=True)
                client.run(_by_value("end_children"), sweep, on_error="ignore", callback_timeout=_TIDY)


def _finished(cell: Cell, result: Any, wanted: dict[str, str]) -> Finished:
    """The rows that a task has brought, or the error that it stands for."""
    if isinstance(result, Exception):
        raise SweepError(
            f"a Dask worker must have fedgauss and outlive its cell; {cell} ended with {in_words(result)}. Finished "
            "cells are kept: mend the cluster and run again.",
            cell,
        )
    if isinstance(result, dict):
        others = ", ".join(
            f"{name} {result[name]} for {wanted[name]}" for name in wanted if result[name] != wanted[name]
        )
        raise SweepError(
            f"Dask workers must have the versions of this process, for rows of two never mix; one has {others}. "
            "Finished cells are kept: install the same there and run again.",
            cell,
        )
    rows, seconds, failure = result
    if failure is not None:
        raise SweepError.failed(cell, *failure)
    return cell, rows, seconds


def _by_value(name: str) -> Callable[..., Any]:
    """A function of `dask_worker` that is looked up where it is called.

    Dask would send the function itself as the name of its module: a worker that cannot import that ends itself, and
    says nothing. This one comes as code, and what it raises is told.
    """

    def call(*given: Any) -> Any:
        from importlib import import_module

        return getattr(import_module("fedgauss.integrations.dask_worker"), name)(*given)

    return call


def _threads(client: Any, scheduler: Any) -> list[str] | None:
    """The address of each worker, once for each of its threads; None where the scheduler does not answer."""
    try:
        workers = client.sync(scheduler.identity, n_workers=-1, callback_timeout=_LOOK)["workers"]
    except OSError:  # and TimeoutError, which is one
        return None
    return [address for address in sorted(workers) for _ in range(workers[address]["nthreads"])]


def _warn_of_waiting(scheduler: str) -> None:
    warnings.warn(
        f"a cluster must have a worker; {scheduler} has shown none for {_FIRST_WORKER:g} s, and the sweep waits. Start "
        f"one with `dask worker {scheduler}`, or press Ctrl-C and run again later: finished cells are kept.",
        FedgaussWarning,
        stacklevel=2,
    )


@contextmanager
def _connected(distributed: Any, scheduler: str, ctrl_c: CtrlC) -> Iterator[Any]:
    """A client of the cluster, once it has a worker."""
    with ctrl_c.let_in():
        _refuse_strangers(distributed, scheduler)
        client = distributed.Client(scheduler, timeout=_CONNECT, set_as_default=False)
    try:
        with ctrl_c.let_in():
            try:
                client.wait_for_workers(1, timeout=_FIRST_WORKER)
            except TimeoutError as error:
                raise ValueError(
                    f"a cluster must have a worker; {scheduler} had none for {_FIRST_WORKER:g} s. Start one with "
                    f"`dask worker {scheduler}`?"
                ) from error
        yield client
    finally:
        with suppress(Exception):
            client.close(timeout=_TIDY)


def _refuse_strangers(distributed: Any, scheduler: str) -> None:
    """Ask who is there. A client would wait long for something that listens and is no scheduler."""
    try:
        with ThreadPoolExecutor(1) as elsewhere:  # in a notebook this thread has a loop already
            who = elsewhere.submit(asyncio.run, _type(distributed, scheduler)).result()
        reason = f"it is a {who}" if who != "Scheduler" else None
    except TimeoutError:
        reason = f"no answer in {_CONNECT:g} s"
    except Exception as error:  # whatever an odd address or an odd answer raises
        reason = str(error)
    if reason is not None:
        raise ValueError(
            f"scheduler must be the address of a Dask scheduler that runs, as tcp://host:port; got {scheduler!r}: "
            f"{reason}. Start one with `dask scheduler`?"
        )


async def _type(distributed: Any, address: str) -> Any:
    async with asyncio.timeout(_CONNECT):
        security = distributed.Security().get_connection_args("client")
        async with distributed.rpc(address, connection_args=security) as there:
            return (await there.identity())["type"]
