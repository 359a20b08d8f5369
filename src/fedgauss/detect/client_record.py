"""What a monitor remembers of its clients for `suspects`: sums of their innovations, at O(log t) rounds."""

from __future__ import annotations

import numpy as np

from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray
from fedgauss.detect.attribution import Attribution, attribute_segments
from fedgauss.detect.candidates import Candidates
from fedgauss.detect.client_rounds import Segment, first_seen, noise_inverses, usable
from fedgauss.detect.saved import Arrays, Saved

_FIRST = 2  # rounds of a baseline, at least


class ClientRecord(Saved):
    """Sums over rounds of every client's innovations, kept at O(log t) rounds as the mean channel keeps its own.

    Rounds are counted like those of the mean channel, so that an onset it finds has its sums here. An alarm freezes
    the baseline, the rounds before the onset, and marks where the rounds after the alarm begin.
    """

    saved = ("rounds", "first", "reference", "sums", "at_alarm", "baseline", "frozen", "kept")
    unfilled = ("reference",)

    def __init__(self, lin: Linearization, position: int = 0) -> None:
        self._lin = lin
        self._inverses = noise_inverses(lin)
        self.reset(position)

    def reset(self, position: int = 0) -> None:
        """Forget all rounds, and begin with `position` rounds counted elsewhere."""
        n_clients, dim = self._lin.n_clients, self._lin.dim
        self.rounds, self.first = position, max(_FIRST, position + 1)
        self.reference = np.full((n_clients, dim), np.nan)
        # Columns: a segment, then the rounds counted and the sum of where the clients' mean began them.
        self.sums = self.at_alarm = self.baseline = np.zeros((n_clients * (dim + 2) + 1 + dim, 1))
        self.frozen = np.zeros(2, dtype=np.int64)  # rounds of the baseline, 0 without one, and rounds at the alarm
        self.kept = Candidates(len(self.sums), 1, self.first)

    def update(self, position: int, began: FloatArray, rows: FloatArray) -> None:
        """Take in the innovations of a round (K, d), NaN for clients that took no part, and where clients began it.

        `position` rounds were counted before it.
        """
        if position:
            self.kept.keep(position, 0, 0.0, self.sums)
        self.reference = first_seen(self.reference, rows)
        sums = self._segment(self.sums).plus(rows, np.nan_to_num(self.reference), self._inverses)
        here = np.isfinite(began).all(axis=1)
        place = np.append(1.0, began[here].mean(axis=0)) if here.any() else np.zeros(1 + self._lin.dim)
        column = np.concatenate([part.ravel() for part in sums])
        self.sums = np.append(column, self.sums[len(column) :, 0] + place)[:, None]
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
        latest = self.sums - self.at_alarm
        before, after = self._segment(self.baseline), self._segment(latest)
        places = [self._place(column) for column in (self.baseline, latest)]
        way = None if places[0] is None or places[1] is None else places[1] - places[0]
        return attribute_segments(before, after, self._lin, rate, baseline_rounds, self.rounds - at_alarm, way)

    def restore(self, arrays: Arrays) -> None:
        """Take up the state that `state` returned."""
        added = 1 + self._lin.dim
        rows = len(self.sums) - added  # of a file from before places were kept
        full = dict(arrays)
        for name in ("sums", "at_alarm", "baseline", "kept.sums"):
            array = full.get(name, np.zeros(0))
            if array.ndim >= 2 and array.shape[-2] == rows:
                full[name] = np.pad(array, [(0, 0)] * (array.ndim - 2) + [(0, added), (0, 0)])
        super().restore(full)
        self.kept.first = self.first

    def check(self, rounds: int) -> None:
        """Refuse a restored state that cannot be that after so many watched rounds."""
        if self.rounds != rounds or not _FIRST <= self.first <= max(_FIRST, rounds):
            raise ValueError("clients must have been seen in all rounds that were watched")
        self.kept.check(rounds, 0, 0.0)
        if not usable(np.nan_to_num(self.reference)).all():
            raise ValueError("the first innovations of clients must be ones that a round may have shown")
        baseline_rounds, at_alarm = self.frozen.tolist()
        if not 0 <= baseline_rounds <= at_alarm <= rounds:
            raise ValueError("the rounds of a baseline must lie before the alarm, and the alarm before now")
        seen = np.stack([self._segment(column).seen for column in (self.baseline, self.at_alarm, self.sums)])
        if (seen != np.floor(seen)).any() or seen.min() < 0 or seen.max() > rounds or (np.diff(seen, axis=0) < 0).any():
            raise ValueError("clients must be counted in rounds, and later at least as often as before")

    def _segment(self, column: FloatArray) -> Segment:
        """Its first K (d + 2) rows."""
        n_clients, dim = self._lin.n_clients, self._lin.dim
        seen, total, square, _ = np.split(column[:, 0], [n_clients, n_clients * (dim + 1), n_clients * (dim + 2)])
        return Segment(seen, total.reshape(n_clients, dim), square)

    def _place(self, column: FloatArray) -> FloatArray | None:
        """The mean of where rounds began, from the last 1 + d rows; None where none was kept."""
        count, *total = column[-1 - self._lin.dim :, 0]
        return np.array(total) / count if count >= 1.0 else None
