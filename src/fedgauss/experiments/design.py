"""A setting of the results beyond the paper: clients, network and steps as plain values.

Building the problem loads JAX; naming it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedgauss import networks, step_sizes
from fedgauss.experiments.readings import CENTER, Reading

if TYPE_CHECKING:
    from fedgauss.networks import Network
    from fedgauss.problems.regression import Regression
    from fedgauss.step_sizes import StepSizes

Clients = Literal["random effects", "Hessians follow offsets", "Hessians permuted", "logistic"]

_HESSIAN_RANGE = 0.5
_LOGISTIC_CENTER = (1.0, -1.0)


@dataclass(frozen=True)
class Design:
    """Everything that fixes the law of a run but its length and its random numbers.

    reading   where runs start, what the noise of clients is, and in which steps they mix
    gamma     the size of the client offsets, a variance or a standard deviation as the reading has it
    draw      the number of the draw of clients
    rho       clients mix by rho I + (1 - rho) J; None for the ring
    clients   "random effects": the paper's, x ~ N(0, I) for everyone
              "Hessians follow offsets": x ~ N(0, h_k I) with h_k = 1 + tanh(u_k) / 2, where u_k is the first
              coordinate of client k's offset in standard deviations
              "Hessians permuted": the same h_k dealt to the clients at random, and all else the same
              "logistic": P(y = 1 | x) = sigmoid(x' beta_k), x ~ N(0, I)
    """

    reading: Reading
    n_clients: int
    gamma: float = 1.0
    draw: int = 0
    sync_every: int = 10
    rho: float | None = None
    eta0: float = 0.3
    beta: float = 0.75
    clients: Clients = "random effects"

    def problem(self) -> Regression:
        """The clients."""
        from fedgauss.problems.regression import linear, logistic

        effects = self.reading.problem(self.n_clients, self.gamma, self.draw)
        offsets = np.asarray(effects.coefficients) - CENTER
        if self.clients == "random effects":
            return effects
        if self.clients == "logistic":
            return logistic(np.array(_LOGISTIC_CENTER) + offsets)
        spread = self.gamma if self.reading.gamma_is == "sd" else self.gamma**0.5
        hessians = 1.0 + _HESSIAN_RANGE * np.tanh(offsets[:, 0] / spread)
        if self.clients == "Hessians permuted":
            # A generator of its own: everything else is as for the clients it is compared with.
            hessians = np.random.default_rng([self.draw, self.n_clients, 1]).permutation(hessians)
        return linear(effects.coefficients, effects.noise_var, hessians[:, None, None] * np.eye(2))

    @property
    def network(self) -> Network:
        """Who averages with whom."""
        return networks.ring(self.n_clients) if self.rho is None else networks.lazy(self.n_clients, self.rho)

    @property
    def schedule(self) -> StepSizes:
        """eta_t = eta0 t^-beta."""
        return step_sizes.polynomial(self.eta0, self.beta)
