"""Where nothing is known of the clients: a monitor from the first honest rounds of the run itself."""

from dataclasses import dataclass, field

import numpy as np

from fedgauss import _checks
from fedgauss._types import FloatArray
from fedgauss.detect import storage
from fedgauss.detect.innovations import dof_needed, server_only
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.stored_monitor import checked_settings
from fedgauss.step_sizes import StepSizes

FORMAT = "fedgauss warm-up 1"


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

    def save(self, path: storage.Place) -> None:
        """Write everything to one file, as a monitor does; `load` goes on from it."""
        steps, arrays = storage.steps_to_words(self.steps)
        words = {name: getattr(self, name) for name in ("sync_every", "rounds", "alpha", "horizon")}
        means = np.array(self._means)
        arrays |= {"hessian": self.hessian, "means": means}
        storage.write(path, words | {"steps": steps, "step": self._step}, arrays, FORMAT)

    @classmethod
    def load(cls, path: storage.Place) -> "WarmUp":
        """The warm-up that `save` wrote; a ValueError says that the file is none, or is damaged."""
        words, arrays = storage.read(path, FORMAT, "a watch")
        try:
            settings = checked_settings(words["sync_every"], words["alpha"], words["horizon"])
            steps, rounds = storage.steps_from_words(words["steps"], arrays), _checks.whole("rounds", words["rounds"])
            warm = cls(arrays["hessian"], steps, settings[0], rounds, *settings[1:])
            warm._step = _checks.whole("step", words["step"], at_least=0, at_most=storage.LATEST)
            for mean in arrays["means"]:
                warm.check(mean)
                warm._means.append(mean)
        except Exception as error:  # a damaged file may break anything
            raise ValueError(f"{storage.called(path)} is not a whole warm-up: {error}.") from error
        return warm

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
