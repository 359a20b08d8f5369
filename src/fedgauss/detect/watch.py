"""Both channels together, over R runs at once: the one piece of code behind monitor, calibration and experiments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauss._types import FloatArray
from fedgauss.detect.mean_channel import TEMPERING, MeanChannel, Peak, no_peak
from fedgauss.detect.spread_channel import SpreadChannel
from fedgauss.detect.travelling import Travel

_SETTLE = 20  # steps left out at the beginning, and again before the earliest onset
_GROUP = 10  # steps, at least, behind each residual of the spread channel


def rounds_to_drop(sync_every: int) -> int:
    """b0 = ceil(20 / tau): the first rounds, whose innovations are neither Gaussian enough nor of the stated weight."""
    return math.ceil(_SETTLE / sync_every)


class Watch:
    """The statistics after each round, for R runs that share their weights and steps.

    A monitor has R = 1, a calibration tens of thousands of Gaussian paths: they run the same lines, so that what
    is seen online is what was calibrated.
    """

    def __init__(self, dim: int, sync_every: int, replicates: int = 1, tempering: float = TEMPERING) -> None:
        drop = rounds_to_drop(sync_every)
        self.to_drop = drop
        self.replicates = replicates
        self.mean = MeanChannel(dim, replicates, first=drop, tempering=tempering)
        self.spread = SpreadChannel(dim, replicates, group=math.ceil(_GROUP / sync_every))
        self.travel = Travel(dim, replicates, first=drop)

    def update(self, x: FloatArray, weight: float, before: int, place: FloatArray | None = None) -> tuple[Peak, Peak]:
        """Take in the whitened innovations (d, R) of a round that began after step `before`.

        `place` is V^-1/2 A Y at its beginning, for `travel`; a calibration has none.
        """
        if self.to_drop:
            self.skip()
            return no_peak(self.replicates), no_peak(self.replicates)
        if place is not None:
            self.travel.update(self.mean.position, place, weight)
        return self.mean.update(x, weight, before), self.spread.update(x, weight, before)

    def skip(self) -> None:
        """Count a round without an innovation (the first, when Y_0 is not known) as one of those left out."""
        self.to_drop = max(self.to_drop - 1, 0)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What has to be stored to go on later."""
        parts = {"mean": self.mean.arrays(), "spread": self.spread.arrays(), "travel": self.travel.arrays()}
        named = {f"{part}.{name}": array for part, arrays in parts.items() for name, array in arrays.items()}
        return {"to_drop": np.array(self.to_drop)} | named

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from what `arrays` returned."""
        self.to_drop = int(arrays["to_drop"])
        for part, restore in (
            ("mean.", self.mean.restore),
            ("spread.", self.spread.restore),
            ("travel.", self.travel.restore),
        ):
            restore({k.removeprefix(part): v for k, v in arrays.items() if k.startswith(part)})
