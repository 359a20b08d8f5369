"""The bar that shows how far a sweep is."""

from __future__ import annotations

from fedgauss._progress import ProgressBar, clock
from fedgauss.sweep.outcome import Summary


class Bar(ProgressBar):
    """Cells done, their rate and the time left, on a terminal, once there is something to wait for.

    wanted   show it (None: where stderr is a terminal)
    cost     of all cells that are to run; `spent` is the part of it that has been paid
    """

    def __init__(self, wanted: bool | None, cost: float) -> None:
        super().__init__("cells", cost, wanted)
        self.spent = 0.0

    def __enter__(self) -> Bar:
        return self

    def show(self, summary: Summary) -> None:
        """Bring it up to date."""
        left = summary.seconds * (self._total / self.spent - 1.0) if self.spent else None
        done = summary.found + summary.run
        self.update(done, summary.total, left, f"{done}/{summary.total} {status(summary, left)}")


def status(summary: Summary, left: float | None) -> str:
    """The rate and the time left, in words; `left` is None while nothing is known of it."""
    if left is None:
        return "starting"
    rate = summary.run / max(summary.seconds, 1e-9)
    speed = f"{rate:.1f} a second" if rate >= 1.0 else f"{60 * rate:.1f} a minute"
    return f"{speed}, {clock(left)} left"
