"""What a monitor remembers of single clients: enough to say, after an alarm, which of them moved."""

import numpy as np

from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray
from fedgauss.detect.attribution import Attribution, attribute_segments
from fedgauss.detect.candidates import Candidates
from fedgauss.detect.client_rounds import ClientInnovations, Segment, first_seen, noise_inverses
from fedgauss.detect.saved import Arrays, Saved
from fedgauss.step_sizes import StepSizes

_FIRST = 2  # rounds of a baseline, at least


class ClientRecord(Saved):
    """Sums over rounds of every client's innovations, kept at O(log t) rounds as the mean channel keeps its own.

    Rounds are counted like those of the mean channel, so that an onset it finds has its sums here. An alarm freezes
    the baseline, the rounds before the onset, and marks where the rounds after the alarm begin.
    """

    saved = ("rounds", "first", "reference", "sums", "at_alarm", "baseline", "frozen", "kept")

    def __init__(
        self, lin: Linearization, steps: StepSizes, weights: FloatArray | None = None, position: int = 0
    ) -> None:
        self._lin = lin
        self._parts = ClientInnovations(lin, steps, weights)
        self._inverses = noise_inverses(lin)
        self.reset(position)

    def reset(self, position: int = 0) -> None:
        """Forget all rounds, and begin with `position` rounds counted elsewhere."""
        n_clients, dim = self._lin.n_clients, self._lin.dim
        self.rounds, self.first = position, max(_FIRST, position + 1)
        self.reference = np.full((n_clients, dim), np.nan)
        self.sums = self.at_alarm = self.baseline = np.zeros((n_clients * (dim + 2), 1))  # segments as columns
        self.frozen = np.zeros(2, dtype=np.int64)  # rounds of the baseline, 0 without one, and rounds at the alarm
        self.kept = Candidates(len(self.sums), 1, self.first)

    def reweight(self, weights: FloatArray | None) -> None:
        """Clients step with these weights from now on."""
        self._parts = ClientInnovations(self._lin, self._parts.steps, weights)

    def update(self, position: int, began: FloatArray, sent: FloatArray, after: int, last: int) -> None:
        """Take in a round: `position` rounds were counted before it, NaN stands for clients that took no part."""
        if position:
            self.kept.keep(position, 0, 0.0, self.sums)
        rows = self._parts.of_round(began, sent, after, last)
        self.reference = first_seen(self.reference, rows)
        sums = self._segment(self.sums).plus(rows, np.nan_to_num(self.reference), self._inverses)
        self.sums = np.concatenate([part.ravel() for part in sums])[:, None]
        self.rounds = position + 1

    def freeze(self, onset: int) -> None:
        """An alarm rang whose onset lies after `onset` counted rounds; the nearest kept round before it will do."""
        positions = self.kept.positions
        if not np.any(positions <= onset):
            return
        slot = int(np.argmax(np.where(positions <= onset, positions, -1)))
        self.baseline, self.at_alarm = self.kept.sums[slot].copy(), self.sums  # the slot is reused
        self.frozen = np.array([positions[slot], self.rounds])

    def attribution(self, rate: float) -> Attribution:
        """Who moved between the baseline and the rounds after the alarm."""
        baseline_rounds, at_alarm = self.frozen.tolist()
        if not baseline_rounds:
            raise ValueError("suspects needs rounds with clients before the onset, 2 at least; there were fewer.")
        if self.rounds == at_alarm:
            raise ValueError("suspects needs rounds with clients after the alarm; there is none yet. Wait for more.")
        before, after = self._segment(self.baseline), self._segment(self.sums - self.at_alarm)
        return attribute_segments(before, after, self._lin, rate, baseline_rounds, self.rounds - at_alarm)

    def restore(self, arrays: Arrays) -> None:
        """Take up the state that `state` returned."""
        super().restore(arrays)
        for column in (self.sums, self.at_alarm, self.baseline):
            self._segment(column)  # raises where one has a wrong length
        self.kept.first = self.first

    def _segment(self, column: FloatArray) -> Segment:
        """From (K (d + 2), 1)."""
        n_clients, dim = self._lin.n_clients, self._lin.dim
        seen, total, square = np.split(column[:, 0], [n_clients, n_clients * (dim + 1)])
        return Segment(seen, total.reshape(n_clients, dim), square)
