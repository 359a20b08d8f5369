"""While work runs: progress bars, and Ctrl-C that waits for a good moment.

Bars go to standard error, where that is a terminal; rich loads with the first that shows. In a notebook a bar is an
output of its cell that is empty at the end. Ctrl-C acts between two parts of the work, and not in the middle of one.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from fedgauss._notebook_bar import NotebookBar, in_notebook

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Tick: TypeAlias = Callable[[str, int, int], None]  # called with what is being done, how much is done, and of how much

_PATIENCE = 1.0  # seconds before a bar is worth showing


class ProgressBar:
    """A bar that appears after a second, if more than a second is left.

    `show` is None for wherever standard error is a terminal, and for notebooks.
    """

    def __init__(self, label: str, total: float, show: bool | None = None) -> None:
        self._label, self._total, self._done = label, total, 0.0
        self._show = sys.stderr.isatty() or in_notebook() if show is None else show
        self._began = time.monotonic()
        self._bar: _TerminalBar | NotebookBar | None = None

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
            self._bar = NotebookBar(self._label) if in_notebook() else _TerminalBar(self._label)
        if self._bar is not None:
            self._bar.update(done, total, status)


class _TerminalBar:
    """A bar of rich's."""

    def __init__(self, label: str) -> None:
        self._bar = _rich_bar("{task.fields[status]}")
        self._task = self._bar.add_task(label, status="")
        self._bar.start()

    def update(self, done: float, total: float, status: str) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=done, total=total, status=status)

    def stop(self) -> None:
        """Take the bar away."""
        self._bar.stop()


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


class CtrlC:
    """Within this context Ctrl-C raises KeyboardInterrupt only inside `let_in()`, or else where the context ends.

    So it never falls between starting a process and listing it, between writing a row and counting it, or a second
    time while the first is being cleaned up after. Where Ctrl-C already does something else (a handler of the caller's,
    SIGINT ignored, another thread than the main one) it is left alone.
    """

    def __init__(self) -> None:
        self._pressed = self._welcome = self._ours = False

    def __enter__(self) -> CtrlC:
        self._ours = _has_default_handler()
        if self._ours:
            signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._pressed and error is None:
            raise KeyboardInterrupt

    @contextmanager
    def let_in(self) -> Iterator[None]:
        """A stretch of code that Ctrl-C may cut short."""
        self._welcome = True
        try:
            if self._pressed:
                raise KeyboardInterrupt
            yield
        finally:
            self._welcome = False

    def _press(self, *_: object) -> None:
        self._pressed = True
        if self._welcome:
            self._welcome = False  # what follows is clean-up
            raise KeyboardInterrupt


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], None]]:
    """Note the first Ctrl-C, and yield a function that raises KeyboardInterrupt once it has been pressed.

    JAX may lose a KeyboardInterrupt, or crash, when one is raised inside its callbacks, its import or its
    compiler. So work calls the function between its parts. A second Ctrl-C is obeyed at once. As with `CtrlC`, other
    handlers are left alone.
    """
    pressed = False

    def on_signal(*_: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    if not _has_default_handler():
        yield check
        return
    signal.signal(signal.SIGINT, on_signal)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _has_default_handler() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt here; only the main thread hears signals."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
