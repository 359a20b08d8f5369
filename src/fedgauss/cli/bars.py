"""Bars that show how far a verb is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from fedgauss.demo.run import Tick


@contextmanager
def progress() -> Iterator[Tick]:
    """A bar whose ticks are where Ctrl-C acts, for work with JAX."""
    from fedgauss.report.interrupt import deferred_interrupts

    with deferred_interrupts() as check_interrupt, bar() as show:

        def tick(what: str, done: int, total: int) -> None:
            check_interrupt()
            show(what, done, total)

        yield tick


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """In a terminal, a bar that moves and the time, for work that does not say how far it is."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        bar.add_task(what, total=None)
        yield


@contextmanager
def bar() -> Iterator[Tick]:
    """A bar for each kind of work, in a terminal; elsewhere nothing."""
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:

        def tick(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield tick
