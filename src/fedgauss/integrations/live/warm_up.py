"""Where nothing is known of the clients: a monitor from the first honest rounds of the run itself."""

from dataclasses import dataclass, field

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.detect.innovations import dof_needed, server_only
from fedgauss.detect.monitor import Monitor
from fedgauss.step_sizes import StepSizes


@dataclass
class WarmUp:
    """Collects Y after each of the first rounds; then V follows from them, and watching begins (`server_only`).

    hessian  A, (d, d), or one number c for c times the identity
    rounds   how many V is estimated from; more are used where the dimension asks for it
    """

    hessian: FloatArray
    steps: StepSizes
    sync_every: int
    rounds: int
    alpha: float
    horizon: int | None
    alarm = None
    blind = ""
    _means: list[FloatArray] = field(default_factory=list)
    _step: int = 0

    def wanted(self, dim: int) -> int:
        """Rounds that the warm-up takes in `dim` dimensions, beside the first, which says where it begins."""
        return max(self.rounds, dof_needed(dim) + 1)

    def check(self, y: FloatArray) -> None:
        """A ValueError where the round cannot be part of a warm-up."""
        dim = len(self._means[0]) if self._means else self._dim(y)
        if y.shape != (dim,):
            raise ValueError(f"parameters must be {dim} numbers, as in the first round; got {len(y)}.")
        if not np.all(np.abs(y) < 1e100):
            raise ValueError("parameters must be finite, and below 1e100, in a warm-up; they are not.")

    def _dim(self, y: FloatArray) -> int:
        return len(y) if self.hessian.ndim == 0 else len(self.hessian)

    def add(self, y: FloatArray, step: int) -> tuple[str, bool]:
        """Take in a checked round; says in words how far the warm-up is, and whether a gap made it begin anew."""
        gap, words = step - self._step, ""
        anew = bool(self._means) and gap != self.sync_every
        if anew:
            words = f" It began anew, since rounds must be {self.sync_every} steps apart and these are {gap}"
            words += f". Log every round, or use --sync-every {gap} if all are."
            self.begin_anew()
        self._means.append(y)
        self._step = step
        return f"warming up: round {self.done} of {self.wanted(len(y))}, taken to be honest.{words}", anew

    def rows(self) -> list[tuple[FloatArray, int]]:
        """The rounds so far, with their steps."""
        first = self._step - self.done * self.sync_every
        return [(y, first + j * self.sync_every) for j, y in enumerate(self._means)]

    def begin_anew(self) -> None:
        """Forget the rounds so far."""
        self._means = []

    @property
    def round(self) -> int:
        """Rounds judged so far: none."""
        return 0

    @property
    def done(self) -> int:
        """Rounds so far, without the first."""
        return max(len(self._means) - 1, 0)

    def monitor(self) -> Monitor | None:
        """The monitor that goes on from here, once there are enough rounds."""
        dim = len(self._means[0])
        if self.done < self.wanted(dim):
            return None
        hessian = self.hessian * np.eye(dim) if self.hessian.ndim == 0 else self.hessian
        before = self._step - self.done * self.sync_every
        lin = server_only(hessian, np.stack(self._means), self.steps, self.sync_every, after=before)
        monitor = Monitor(lin, self.steps, self.sync_every, self.alpha, self.horizon)
        monitor.reset(step=self._step, y=self._means[-1], round=len(self._means))
        return monitor
