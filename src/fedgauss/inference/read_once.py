"""Rows that are read once: what is added up over them, and the references that they were read at."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgauss._progress import ProgressBar
from fedgauss._types import FloatArray, IntArray
from fedgauss.inference.row_sums import RowRange


class ReadOnce(NamedTuple):
    """Sums over rows of each client, of R runs: every stretch of rows is read at a reference of its own.

    Gradients are carried along straight lines to the newest reference, so that sums of d x d numbers are added up, and
    memory does not grow with the number of references.
    """

    stretches: tuple[tuple[int, FloatArray], ...]  # rows of a client, and their reference (R, d)
    newest: FloatArray  # (R, d)
    carried: FloatArray  # sums of gradients, at the newest reference along straight lines, (R, K, d)
    gradients: FloatArray  # those at the references, (R, K, d)
    squares: FloatArray  # (R, K, d, d)
    hessians: FloatArray  # (R, K, d, d)
    largest: FloatArray  # (R, K, d)

    @classmethod
    def nothing(cls, runs: int, clients: int, dim: int) -> ReadOnce:
        """No rows yet."""
        vectors, squares = np.zeros((runs, clients, dim)), np.zeros((runs, clients, dim, dim))
        return cls((), np.zeros((runs, dim)), vectors, vectors, squares, squares, vectors)

    @property
    def n_rows(self) -> int:
        """How many rows of a client were read."""
        return sum(count for count, _ in self.stretches)

    def and_also(self, rows: RowRange, reference: FloatArray, bar: ProgressBar | None = None) -> ReadOnce:
        """Read these rows too, at a reference (R, d) that is rounded as their sums are."""
        place = reference.astype(np.float32).astype(float)
        sums = rows.sums_at(place, bar)
        return ReadOnce(
            (*self.stretches, (rows.count, place)),
            place,
            self.gradients_at(place) + sums.gradients,
            self.gradients + sums.gradients,
            self.squares + sums.squares,
            self.hessians + sums.hessians,
            np.maximum(self.largest, sums.largest),
        )

    def of_runs(self, index: IntArray) -> ReadOnce:
        """The part of some runs."""
        stretches = tuple((count, reference[index]) for count, reference in self.stretches)
        return ReadOnce(stretches, *(part[index] for part in self[1:]))

    def gradients_at(self, theta: FloatArray) -> FloatArray:
        """Sums of gradients at one parameter a run (R, d), along straight lines; (R, K, d)."""
        return self.carried + np.einsum("rkij,rj->rki", self.hessians, theta - self.newest)
