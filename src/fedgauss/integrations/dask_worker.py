"""What a worker of a Dask cluster does with a cell of a sweep: it has a child process of its own run it.

A cluster was started before anybody thought of the sweep: its workers have threads, variables and other people's tasks.
BLAS adds in another order when it has more threads, and reads their number as it loads, as JAX reads its own. So cells
run in children whose environment is that of local workers. A child keeps what it has compiled for the next cell.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from importlib import metadata
from typing import Any

from fedgauss import __version__
from fedgauss.sweep.cell import SPEC_VERSION
from fedgauss.sweep.workers import ENVIRONMENT, answer

Answer = tuple[Any, float, tuple[str, str] | None]  # rows, seconds, and why there are none, with a traceback

_IDLE = 60.0  # seconds until a child without a cell ends: whoever sent it cells may have been killed
_READ_BY_JAX = ("JAX_", "XLA_")

_lock = threading.Lock()
_children: dict[str, list[_Child]] = {}  # by sweep


def versions() -> dict[str, str]:
    """What must be the same where cells run and where their rows are kept."""
    others = {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy", "scipy")}
    return {"fedgauss": __version__, "cells": str(SPEC_VERSION), **others}


def settings() -> dict[str, str]:
    """The variables that local workers would compute with."""
    return {name: text for name, text in os.environ.items() if name.startswith(_READ_BY_JAX)} | ENVIRONMENT


def run_cell(message: bytes, sweep: str, wanted: dict[str, str], variables: dict[str, str]) -> Answer | dict[str, str]:
    """The task of the cluster: the answer to a pickled cell, or the versions here where they are others."""
    if (here := versions()) != wanted:
        return here
    child = _take(sweep, variables)
    try:
        return child.answer(message)
    finally:
        child.rest()


def end_children(sweep: str) -> None:
    """End the children of a sweep, in the middle of their cells."""
    with _lock:
        ending = _children.pop(sweep, [])
    for child in ending:
        child.process.kill()


def _take(sweep: str, variables: dict[str, str]) -> _Child:
    """A child of this sweep that has nothing to do, or a new one."""
    with _lock:
        ours = _children.setdefault(sweep, [])
        ours[:] = [child for child in ours if child.process.poll() is None]
        for child in ours:
            if child.free.is_set():
                child.work()
                return child
        child = _Child(variables)
        ours.append(child)
        return child


class _Child:
    """A process that runs the cells it is sent, one at a time, and ends with this one.

    It is not one of multiprocessing's: workers of a cluster are daemons, which may not have such children.
    """

    def __init__(self, variables: dict[str, str]) -> None:
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(_READ_BY_JAX)}
        path = {"PYTHONPATH": os.pathsep.join(folder for folder in sys.path if folder)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fedgauss.integrations.dask_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=inherited | path | variables,
            start_new_session=True,  # out of reach of a Ctrl-C that was meant for another process
        )
        self.free = threading.Event()
        self._ending: threading.Timer | None = None

    def work(self) -> None:
        """It is no longer free. The lock is held."""
        self.free.clear()
        if self._ending is not None:
            self._ending.cancel()

    def rest(self) -> None:
        """It is free, and ends if it stays so for long."""
        self._ending = threading.Timer(_IDLE, self.process.kill)
        self._ending.daemon = True
        self._ending.start()
        self.free.set()

    def answer(self, message: bytes) -> Answer:
        """What comes of a cell. A child that dies is an error of the task, which the cluster then tries elsewhere."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            pickle.dump(message, self.process.stdin)
            self.process.stdin.flush()
            answer: Answer = pickle.load(self.process.stdout)  # noqa: S301 - of a child that we started
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise ChildProcessError(f"the process that ran it ended with code {self.process.wait()}") from error
        return answer


def _serve() -> None:
    """What a child does: it answers each cell, until its parent goes."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a cell prints must not get among the answers
    messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(messages,), daemon=True).start()
    while True:
        answers.write(answer(messages.get()))
        answers.flush()


def _listen(messages: queue.SimpleQueue[bytes]) -> None:
    """Pass messages on; when the parent has gone end at once, in the middle of a cell too."""
    try:
        while True:
            messages.put(pickle.load(sys.stdin.buffer))  # noqa: S301 - of the parent that started us
    except EOFError:
        os._exit(1)


if __name__ == "__main__":
    _serve()
