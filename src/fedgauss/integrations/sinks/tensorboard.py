"""Scalars for TensorBoard, written by tensorboardX."""

from __future__ import annotations

import os

from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.extras import needed
from fedgauss.integrations.sinks.readings import readings


class TensorBoard:
    """Writes `fedgauss/statistic` and the others at every round; an alarm is also there in words."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._writer = needed("tensorboardX", extra="tensorboard").SummaryWriter(os.fspath(folder))

    def __call__(self, round: int, verdict: Verdict) -> None:
        """Write one round."""
        for name, number in readings(verdict).items():
            self._writer.add_scalar(f"fedgauss/{name}", number, round)
        if verdict.alarm:
            self._writer.add_text("fedgauss/words", str(verdict), round)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


tensorboard = TensorBoard
