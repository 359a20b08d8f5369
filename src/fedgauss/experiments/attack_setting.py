"""The setting of the paper's attack table: half of the clients move by mu in each coordinate after half of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedgauss import networks, step_sizes
from fedgauss._types import FloatArray
from fedgauss.experiments.readings import CENTER

if TYPE_CHECKING:
    from fedgauss.problems.regression import Regression
    from fedgauss.step_sizes import StepSizes

_CLIENTS = 1907  # the seed of the client offsets
_NOISE_SD = (1.0, 2.0, 3.0, 4.0, 5.0)  # of the clients in turn, again and again
_START_SD = 0.25


@dataclass(frozen=True)
class ShiftAttack:
    """Random-effects clients on a ring, the first of which shift after step `onset`.

    K, tau, n, the onset and the number of attackers are those of the table. It states neither the noise of the clients
    nor the start: here client offsets have sd 1, noise has sd 1 to 5, and runs start at theta* plus N(0, .25^2).
    """

    n_clients: int = 10
    attackers: int = 5
    n_steps: int = 500
    onset: int = 250
    sync_every: int = 20
    eta0: float = 0.3
    beta: float = 0.75

    @property
    def schedule(self) -> StepSizes:
        """eta_t = eta0 t^-beta."""
        return step_sizes.polynomial(self.eta0, self.beta)

    def clients(self, shift: float = 0.0) -> Regression:
        """The clients, attackers moved by `shift` in each coordinate."""
        from fedgauss.problems.regression import linear

        offsets = np.random.default_rng(_CLIENTS).standard_normal((self.n_clients, 2))
        moved = shift * (np.arange(self.n_clients) < self.attackers)
        return linear(np.array(CENTER) + offsets + moved[:, None], np.resize(_NOISE_SD, self.n_clients) ** 2)

    def paths(self, shift: float, replicates: int, seed: int) -> FloatArray:
        """Y after every step of every run, (R, n, d). Runs of one seed share their data up to the onset, to the bit."""
        from fedgauss.engine.observers import path
        from fedgauss.engine.simulate import simulate
        from fedgauss.engine.starts import near_optimum
        from fedgauss.problems.combine import change_at

        runs = simulate(
            change_at(self.clients(), self.clients(shift), self.onset + 1),
            networks.ring(self.n_clients),
            self.schedule,
            self.n_steps,
            sync_every=self.sync_every,
            replicates=replicates,
            seed=seed,
            start=near_optimum(_START_SD),
            observe=[path(1)],
            progress=False,
        )
        return runs.path.astype(np.float64)
