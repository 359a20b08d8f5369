"""The bar that shows how far a sweep is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fedgauss.sweep.outcome import Summary

if TYPE_CHECKING:
    from rich.progress import Progress

_PATIENCE = 1.0  # seconds before a bar is worth showing


class Bar:
    """Cells done, their rate and the time left, on a terminal, once there is something to wait for.

    wanted   show it (None: where stderr is a terminal)
    cost     of all cells that are to run; `spent` is the part of it that has been paid
    """

    def __init__(self, wanted: bool | None, cost: float) -> None:
        self._wanted = sys.stderr.isatty() if wanted is None else wanted
        self._cost, self.spent = cost, 0.0
        self._shown: Progress | None = None

    def __enter__(self) -> Bar:
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
                self._shown.task_ids[0], completed=done, total=summary.total, status=status(summary, left)
            )

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[status]}"))
        self._shown = Progress(*columns, console=Console(stderr=True), transient=True)
        self._shown.add_task("cells", status="")
        self._shown.start()


def status(summary: Summary, left: float | None) -> str:
    """The rate and the time left, in words; `left` is None while nothing is known of it."""
    if left is None:
        return "starting"
    rate = summary.run / max(summary.seconds, 1e-9)
    speed = f"{rate:.1f} a second" if rate >= 1.0 else f"{60 * rate:.1f} a minute"
    minutes, seconds = divmod(round(left), 60)
    return f"{speed}, {minutes}:{seconds:02d} left"
