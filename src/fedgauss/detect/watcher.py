"""What pages, logs, sinks and frameworks know of whatever judges rounds, however it does."""

from __future__ import annotations

from typing import Protocol

from fedgauss.detect.storage import Place
from fedgauss.detect.verdict import Verdict


class Watcher(Protocol):
    """`Monitor`, `ClientMonitor`, and a warm-up that becomes a monitor.

    How it is fed is its own (`update`): what comes in differs. What comes out does not: a `Verdict`, with what there is
    to say of the round in `parts`.
    """

    @property
    def alpha(self) -> float:
        """The chance of any false alarm."""

    @property
    def horizon(self) -> int | None:
        """How long that holds, in steps or rounds; None without an end."""

    @property
    def round(self) -> int:
        """Rounds judged so far."""

    @property
    def alarm(self) -> Verdict | None:
        """The first verdict of the alarm that is on."""

    @property
    def blind(self) -> str:
        """Why an attack in the next round would not be seen though there were rounds enough; empty where it would."""

    def save(self, path: Place) -> None:
        """Write everything to one file, or to bytes."""
