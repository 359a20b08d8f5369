"""What a monitor remembers of single clients: enough to say, after an alarm, which of them moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray
from fedgauss.detect.attribution import Attribution, attribute_segments
from fedgauss.detect.candidates import Candidates
from fedgauss.detect.client_rounds import ClientInnovations, Segment, empty, first_seen, noise_inverses
from fedgauss.detect.saved import Arrays, part, prefixed
from fedgauss.step_sizes import StepSizes

_FIRST = 2  # rounds of a baseline, at least


class ClientRecord:
    """Sums over rounds of every client's innovations, kept at O(log t) rounds as the mean channel keeps its own.

    Rounds are counted like those of the mean channel, so that an onset it finds has its sums here. An alarm freezes
    the baseline, the rounds before the onset, and marks where the rounds after the alarm begin.
    """

    def __init__(self, lin: Linearization, steps: StepSizes) -> None:
        self._lin = lin
        self._parts = ClientInnovations(lin, steps)
        self._inverses = noise_inverses(lin)
        self.reset()

    def reset(self, position: int = 0) -> None:
        """Forget all rounds, and begin with `position` rounds counted elsewhere."""
        n_clients, dim = self._lin.n_clients, self._lin.dim
        self.rounds = position
        self._reference = np.full((n_clients, dim), np.nan)
        self._sums = empty(n_clients, dim)
        self._kept = Candidates(n_clients * (dim + 2), 1, max(_FIRST, position + 1))
        self._baseline: Segment | None = None
        self._at_alarm = self._sums
        self._frozen = np.zeros(2, dtype=np.int64)  # rounds of the baseline, and rounds at the alarm

    def reweight(self, weights: FloatArray | None) -> None:
        """Clients step with these weights from now on."""
        self._parts = ClientInnovations(self._lin, self._parts.steps, weights)

    def update(self, position: int, began: FloatArray, sent: FloatArray, after: int, last: int) -> None:
        """Take in a round: `position` rounds were counted before it, NaN stands for clients that took no part."""
        if position:
            self._kept.keep(position, 0, 0.0, _packed(self._sums))
        rows = self._parts.of_round(began, sent, after, last)
        self._reference = first_seen(self._reference, rows)
        self._sums = self._sums.plus(rows, np.nan_to_num(self._reference), self._inverses)
        self.rounds = position + 1

    def freeze(self, onset: int) -> None:
        """An alarm rang whose onset lies after `onset` counted rounds; the nearest kept round before it will do."""
        earlier = self._kept.positions[self._kept.positions <= onset]
        if not earlier.size:
            return
        slot = int(np.flatnonzero(self._kept.positions == earlier.max())[0])
        self._baseline = _unpacked(self._kept.sums[slot, :, 0].copy(), *self._sums.total.shape)  # the slot is reused
        self._at_alarm = self._sums
        self._frozen = np.array([earlier.max(), self.rounds])

    def attribution(self, rate: float) -> Attribution:
        """Who moved between the baseline and the rounds after the alarm."""
        at_alarm = int(self._frozen[1])
        if self._baseline is None:
            raise ValueError("suspects needs rounds with clients before the onset, 2 at least; there were fewer.")
        if self.rounds == at_alarm:
            raise ValueError("suspects needs rounds with clients after the alarm; there is none yet. Wait for more.")
        after = self._sums - self._at_alarm
        return attribute_segments(self._baseline, after, self._lin, rate, int(self._frozen[0]), self.rounds - at_alarm)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything as arrays, to be stored."""
        held = {
            "rounds": np.array(self.rounds),
            "reference": self._reference,
            "sums": _packed(self._sums),
            "at_alarm": _packed(self._at_alarm),
            "frozen": self._frozen,
            "first": np.array(self._kept.first),
        }
        if self._baseline is not None:
            held["baseline"] = _packed(self._baseline)
        return held | prefixed("kept.", self._kept.state())

    def restore(self, arrays: Arrays) -> None:
        """Take up the state that `state` returned."""
        shape = self._sums.total.shape
        self.rounds = int(arrays["rounds"])
        self._reference, self._frozen = arrays["reference"], arrays["frozen"]
        self._sums, self._at_alarm = (_unpacked(arrays[name][:, 0], *shape) for name in ("sums", "at_alarm"))
        self._baseline = _unpacked(arrays["baseline"][:, 0], *shape) if "baseline" in arrays else None
        self._kept.first = int(arrays["first"])
        self._kept.restore(part(arrays, "kept."))


def _packed(segment: Segment) -> FloatArray:
    """As one column, (K (d + 2), 1)."""
    return np.concatenate([part.ravel() for part in segment])[:, None]


def _unpacked(column: FloatArray, n_clients: int, dim: int) -> Segment:
    count, total, square = np.split(column, [n_clients, n_clients * (dim + 1)])
    return Segment(count, total.reshape(n_clients, dim), square)
