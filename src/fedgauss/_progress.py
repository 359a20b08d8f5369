"""Progress bars on standard error, where that is a terminal. rich loads with the first bar that shows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from fedgauss._interrupts import deferred_interrupts

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Tick: TypeAlias = Callable[[str, int, int], None]  # called with what is being done, how much is done, and of how much

_PATIENCE = 1.0  # seconds before a bar is worth showing


class ProgressBar:
    """A bar that appears after a second, if more than a second is left.

    `show` is None for wherever standard error is a terminal.
    """

    def __init__(self, label: str, total: float, show: bool | None = None) -> None:
        self._label, self._total, self._done = label, total, 0.0
        self._show = sys.stderr.isatty() if show is None else show
        self._began = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *ending: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, amount: float) -> None:
        """Count more work as done."""
        self._done += amount
        left = (time.monotonic() - self._began) * (self._total / max(self._done, 1e-9) - 1.0)
        self.update(self._done, self._total, left, f"{self._done / self._total:4.0%}, {clock(left)} left")

    def update(self, done: float, total: float, left: float | None, status: str) -> None:
        """Show how much is done, with `status` behind the bar; `left` is in seconds, None while it is not known."""
        patient = time.monotonic() - self._began > _PATIENCE and (left is None or left > _PATIENCE)
        if self._bar is None and self._show and patient:
            self._bar = _rich_bar("{task.fields[status]}")
            self._bar.add_task(self._label, status=status)
            self._bar.start()
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total, status=status)


def clock(seconds: float) -> str:
    """Minutes and seconds, as 2:05."""
    return "{}:{:02d}".format(*divmod(round(seconds), 60))


@contextmanager
def bar() -> Iterator[Tick]:
    """One bar for each kind of work that the ticks name."""
    tasks: dict[str, TaskID] = {}
    with _rich_bar("{task.percentage:>3.0f}%") as shown:

        def tick(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = shown.add_task(what, total=total)
            shown.update(tasks[what], completed=done)

        yield tick


@contextmanager
def progress() -> Iterator[Tick]:
    """`bar`, whose ticks are also where Ctrl-C acts, for work with JAX."""
    with deferred_interrupts() as check_interrupt, bar() as show:

        def tick(what: str, done: int, total: int) -> None:
            check_interrupt()
            show(what, done, total)

        yield tick


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """A moving bar and the time, for work that does not say how far it is."""
    with _rich_bar() as shown:
        shown.add_task(what, total=None)
        yield


def _rich_bar(*texts: str) -> Progress:
    """A label, a bar, these texts and the time so far. It disappears at its end, and shows in a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    behind = (TextColumn(text) for text in texts)
    columns = (TextColumn("{task.description}"), BarColumn(), *behind, TimeElapsedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
