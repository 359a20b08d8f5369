"""A progress bar that appears only when there is something to wait for."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE = 1.0  # seconds before a bar is worth showing


class ProgressBar:
    """Counts work done. In a terminal, a bar appears after a second if much is left; elsewhere nothing is printed."""

    def __init__(self, label: str, total: int, show: bool | None = None) -> None:
        self._label, self._total, self._done = label, total, 0
        self._show = sys.stderr.isatty() if show is None else show
        self._began = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, amount: int) -> None:
        """Count more work as done."""
        self._done += amount
        if not self._show:
            return
        elapsed = time.monotonic() - self._began
        left = elapsed * (self._total / max(self._done, 1e-9) - 1.0)
        if self._bar is None and elapsed > _PATIENCE and elapsed + left > 2.0 * _PATIENCE:
            self._start()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done)

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._label, total=self._total, completed=self._done)
        self._bar.start()
