"""The setting of the paper's MNIST table: three of five clients swap labels after a quarter of the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedgauss import networks, step_sizes
from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray

if TYPE_CHECKING:
    from fedgauss.problems.arrays import ArrayProblem
    from fedgauss.step_sizes import StepSizes

_LONGEST, _EVERY = 500, 100  # steps of the warm start that is simulated, and between the ends that can be asked for
_STREAMS = 1 << 20  # seeds of one cell; those of warm starts, runs and reports must not meet


@dataclass(frozen=True)
class FlipAttack:
    """Clients with a share of the MNIST training set each, on a ring; the first of them flip after step `onset`.

    K, tau, n, the onset, the flips, step sizes and the number of attackers are those of the table. It says that A and V
    come from a warm start, and not how long that is. Here a warm start of m steps begins at zero, and every run has one
    of its own: it goes on from where that ended, all clients at its mean Y_m, with step sizes eta_1, eta_2, ... again.
    """

    n_clients: int = 5
    attackers: int = 3
    n_steps: int = 200
    onset: int = 50
    sync_every: int = 5
    eta0: float = 0.3
    beta: float = 0.75

    @property
    def schedule(self) -> StepSizes:
        """eta_t = eta0 t^-beta, of the warm start and then of the run."""
        return step_sizes.polynomial(self.eta0, self.beta)

    def clients(self) -> ArrayProblem:
        """The clients as they are while honest."""
        from fedgauss.problems.mnist import mnist

        return mnist(self.n_clients)

    def starts(self, clients: ArrayProblem, warm_up: int | None, replicates: int, seed: int) -> FloatArray:
        """Where each run starts (R, d): the end of its warm start of so many steps, or for None the optimum.

        Shorter warm starts are the beginnings of longer ones: 100, 200, ..., 500 steps of one simulation.
        """
        from fedgauss.engine.observers import path
        from fedgauss.engine.simulate import simulate
        from fedgauss.problems.linearize import linearize

        if warm_up is None:
            return np.tile(linearize(clients).optimum, (replicates, 1))
        if warm_up not in range(_EVERY, _LONGEST + 1, _EVERY):
            raise ValueError(f"warm_up must be a multiple of {_EVERY} up to {_LONGEST}; got {warm_up}.")
        runs = simulate(
            clients,
            networks.ring(self.n_clients),
            self.schedule,
            _LONGEST,
            sync_every=self.sync_every,
            replicates=replicates,
            seed=_STREAMS * seed,
            start="zeros",
            observe=[path(_EVERY)],
            progress=False,
        )
        return runs.path[:, warm_up // _EVERY - 1].astype(np.float64)

    def paths(self, clients: ArrayProblem, starts: FloatArray, flipping: int, seed: int, every: int = 1) -> FloatArray:
        """Y after every so many steps of every run, (R, n / every, d), when the first `flipping` clients attack.

        Runs of one seed and start share their data up to the onset, to the bit. In honest runs the attack would begin
        after the end, so that they share their program too.
        """
        from fedgauss.engine.observers import path
        from fedgauss.engine.simulate import simulate
        from fedgauss.problems.attacks import label_flip
        from fedgauss.problems.mnist import MNIST_FLIP

        begins = (self.onset if flipping else self.n_steps) + 1
        runs = simulate(
            label_flip(clients, range(flipping or self.attackers), begins, MNIST_FLIP),
            networks.ring(self.n_clients),
            self.schedule,
            self.n_steps,
            sync_every=self.sync_every,
            replicates=len(starts),
            seed=_STREAMS * seed + 1,
            start=np.repeat(starts[:, None], self.n_clients, axis=1),
            observe=[path(every)],
            progress=False,
        )
        return runs.path.astype(np.float64)

    def known(self, clients: ArrayProblem, at: FloatArray) -> Linearization:
        """A and V of the clients at a point (d,), from all of their rows."""
        moments = clients.moments(at)
        return Linearization(at, moments.hessian, moments.noise_cov, np.asarray(clients.weights, dtype=float))

    def reported(self, clients: ArrayProblem, warm_up: int, start: FloatArray, seed: int, run: int) -> Linearization:
        """A and V as the clients of one run report them after their warm start, from as many draws of their own."""
        from fedgauss.problems.warm_up import warm_up as from_draws

        return from_draws(clients, warm_up, start, seed=_STREAMS * seed + 2 + run)
