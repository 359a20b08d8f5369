"""One client's part in a pass between clients in places of their own, who meet where parameters mix.

The pass is that of `passes.run_whitened` with sums of every step, taken from one synchronisation to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from fedgauss._random import stage_key
from fedgauss._types import FloatArray
from fedgauss.engine.runs import Runs
from fedgauss.engine.simulate import padded, simulate
from fedgauss.families import Family
from fedgauss.inference.client_steps import Preconditioned, in_batches, steps_of_a_pass
from fedgauss.inference.client_sums import ClientStatistics, ClientSums, HessianSums, client_statistics, warm_hessians
from fedgauss.inference.passes import StepPlan, schedule, warm_rows
from fedgauss.inference.preparation import Units, largest_step, row_information
from fedgauss.problems.arrays import from_arrays


@dataclass(frozen=True)
class Course:
    """What all clients of a pass know before its first step."""

    units: Units
    family: Family  # in these units
    start: FloatArray  # (d,)
    n_rows: int  # of all clients
    n_clients: int
    sync_every: int

    @property
    def n_steps(self) -> int:
        """n."""
        return steps_of_a_pass(self.n_rows, self.n_clients)

    @property
    def warm(self) -> int:
        """Steps whose rows make the first matrix."""
        return min(self.n_steps, warm_rows(len(self.start), self.n_clients))

    @property
    def information(self) -> float:
        """How much a row tells at the start."""
        return row_information(self.family, self.start, self.units.intercept)

    @cached_property
    def plan(self) -> StepPlan:
        """Step sizes and the end of the burn-in."""
        dim = len(self.start)
        return schedule(self.n_steps, dim, largest=largest_step(self.information, dim))

    @property
    def stops(self) -> list[int]:
        """The start, all synchronisations but one after the last step, which nobody would hear of, and the end."""
        return [*range(0, self.n_steps, self.sync_every), self.n_steps]


class Stretch(NamedTuple):
    """Steps between two stops, from a parameter; sums of the window are taken at the reference."""

    since: int
    until: int
    theta: FloatArray  # (d,)
    reference: FloatArray  # (d,)


class ClientPass:
    """One client of a pass.

    Stretches are kept and taken again where sums over them are due, so that a client that was away needs no more than
    what it has heard to go on.

    Parameters
    ----------
    course : Course
    x, y : (n, p) and (n,) ndarray
        The client's rows in the units of the course, in the order in which they are read.
    share : float
        K w_k.
    """

    def __init__(self, course: Course, x: FloatArray, y: FloatArray, share: float) -> None:
        rows = from_arrays(x, y, np.zeros(len(y)), course.family)
        self._course, self._problem = course, in_batches(rows, np.arange(len(y)), course.n_steps)
        self._burn_in = course.plan.burn_in
        self._eta = course.plan.eta * share  # the problem has one client, which counts for all
        self.matrices: Sequence[FloatArray] = ()  # of the burn-in, and of the window
        self.stretches: list[Stretch] = []  # that it has taken, in order

    def warm_up(self) -> FloatArray:
        """The mean Hessian at the start over the first steps, (d, d)."""
        start, count = jnp.float32(self._course.start), self._course.warm
        sums = warm_hessians(self._problem, stage_key(0, "data"), start, 1, np.int32(count))
        return np.asarray(sums, dtype=float)[:, :, 0, 0] / count

    def end(self) -> FloatArray:
        """The parameter after the last stretch, (d,)."""
        *_, (_, runs) = self._take(self.stretches[-1:])
        return np.asarray(runs.last[0], dtype=float)

    def burn_in(self, stretches: Sequence[Stretch]) -> FloatArray:
        """The mean Hessian along the path over the stretches of the burn-in, (d, d)."""
        sums = [np.asarray(runs.hessian_sum[0, 0], dtype=float) for _, runs in self._take(stretches)]
        return np.asarray(sum(sums) / self._burn_in)

    def window(self) -> tuple[ClientStatistics, FloatArray]:
        """What the client has added up over the window, and the mean of its parameters, (d,)."""
        sums: dict[str, FloatArray] = {}
        path = np.zeros(len(self._course.start))
        for steps, runs in self._take(self.stretches):
            if "gradient_sum" in runs.observed:
                sums = {name: sums.get(name, 0.0) + np.asarray(own, float) for name, own in runs.observed.items()}
                path += steps * np.asarray(runs.average[0], dtype=float)
        return client_statistics(sums), path / self._course.plan.window

    def _take(self, stretches: Sequence[Stretch]) -> Iterator[tuple[int, Runs]]:
        """Take the steps of stretches, those of the burn-in and of the window apart: how many, and their run."""
        for since, until, theta, reference in stretches:
            place = theta
            for first, last in pairwise(sorted({since, min(max(since, self._burn_in), until), until})):
                burning = last <= self._burn_in
                shaped = Preconditioned(
                    self._problem, self.matrices[not burning], padded(self._eta), "damped" if burning else "capped"
                )
                runs = simulate(
                    shaped, None, self._eta[:last], last, sync_every=None, after=first, start=place, progress=False,
                    observe=[HessianSums(1) if burning else ClientSums(1, reference=reference)],
                )  # fmt: skip
                place = runs.last[0]
                yield last - first, runs
