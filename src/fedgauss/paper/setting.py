"""What fixes the law of a run behind a result: how the text is read, the clients, the network and the steps.

The paper leaves parts of its settings open, and its published programs differ from its text. Each way to read it is
data with a name, so that results under all of them stand side by side. Building a problem loads JAX; naming one
does not, so that a program which only lists or plans cells starts at once and hears Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from fedgauss.engine.loop import Start
    from fedgauss.engine.observers import Observer
    from fedgauss.engine.simulate import Setting
    from fedgauss.networks import Network
    from fedgauss.problems.regression import Regression
    from fedgauss.step_sizes import StepSizes

Clients = Literal["random effects", "Hessians follow offsets", "Hessians permuted", "logistic"]
Statistic = Literal["average over Sigma_n", "average over Sigma/K", "last over Sigma_n"]

ZERO, OPTIMUM, CODED = "text, start at zero", "text, start at optimum", "as coded"
READINGS = (ZERO, OPTIMUM, CODED)
SHORT = {ZERO: "from zero", OPTIMUM: "from the optimum", CODED: "as coded"}

CENTER = (2.0, -3.0)
_LOGISTIC_CENTER = (1.0, -1.0)
_HESSIAN_RANGE = 0.5
_LEGACY_SEED = 1907


@dataclass(frozen=True)
class Reading:
    """One way to read a setting.

    start        Theta_0: "zeros", "optimum", or "near optimum" (theta* plus N(0, .25^2) for each client)
    gamma_is     whether gamma is the variance of the client offsets, or their standard deviation
    noise_vars   the values that client noise variances are drawn from, equally likely
    phase        clients mix after step t when t % tau == phase
    legacy       offsets are the first normals of NumPy's old generator at seed 1907, as in the published programs
    fixed_vars   the client noise variances themselves, where the published ones are known
    """

    name: str
    start: Literal["zeros", "optimum", "near optimum"]
    gamma_is: Literal["variance", "sd"] = "variance"
    noise_vars: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0, 5.0)
    phase: int = 0
    legacy: bool = False
    fixed_vars: tuple[float, ...] = ()

    def random_effects(self, n_clients: int, gamma: float, draw: int) -> Regression:
        """The random-effects model of draw number `draw`: client coefficients and noise variances."""
        from fedgauss.problems.regression import linear

        rng = np.random.default_rng([draw, n_clients])
        source = np.random.RandomState(_LEGACY_SEED) if self.legacy else rng
        offsets = (gamma if self.gamma_is == "sd" else np.sqrt(gamma)) * source.standard_normal((n_clients, 2))
        return linear(np.array(CENTER) + offsets, self.fixed_vars or rng.choice(self.noise_vars, n_clients))

    def theta_0(self) -> Start:
        """The start, as `simulate` takes it."""
        from fedgauss.engine.loop import near_optimum

        return near_optimum(0.25) if self.start == "near optimum" else self.start


def squares(low: int, high: int) -> tuple[float, ...]:
    """Variances whose standard deviations are low, ..., high."""
    return tuple(float(sd * sd) for sd in range(low, high + 1))


FROM_ZERO = Reading(ZERO, "zeros")
FROM_OPTIMUM = Reading(OPTIMUM, "optimum")
# Found by trying, in the manner of the published programs: there is none for the tables over tau, rho and gamma.
LEGACY = Reading(CODED, "near optimum", "sd", squares(1, 5), phase=1, legacy=True)


@dataclass(frozen=True)
class Curve:
    """Everything that fixes the law of a run but its length and its random numbers.

    reading     where runs start, what the noise of clients is, and in which steps they mix
    gamma       the size of the client offsets, a variance or a standard deviation as the reading has it
    draw        the number of the draw of clients
    rho         clients mix by rho I + (1 - rho) J; None for the ring
    r           the exponent of K = n^r, where K follows n
    clients     "random effects": the paper's, x ~ N(0, I) for everyone
                "Hessians follow offsets": x ~ N(0, h_k I) with h_k = 1 + tanh(u_k) / 2, where u_k is the first
                coordinate of client k's offset in standard deviations
                "Hessians permuted": the same h_k dealt to the clients at random, and all else the same
                "logistic": P(y = 1 | x) = sigmoid(x' beta_k), x ~ N(0, I)
    statistic   what distances compare: sqrt(n) (Ybar_n - theta*) scaled by Sigma_n or by Sigma/K; or, as one
                published program does, sqrt(n) (Y_n - theta*) of the last iterate scaled by the Sigma_n of the average
    norm        of U_n for local SGD; its approximations use the Euclidean norm
    shift       its approximations step by eta_{t + shift}, as one published program does
    labelled_tau  tau as the figure has it, where the published program mixes at other steps
    """

    reading: Reading = FROM_ZERO
    n_clients: int = 10
    gamma: float = 1.0
    draw: int = 0
    sync_every: int = 10
    rho: float | None = None
    eta0: float = 0.3
    beta: float = 0.75
    r: float | None = None
    clients: Clients = "random effects"
    statistic: Statistic = "average over Sigma_n"
    norm: Literal["euclidean", "max"] = "euclidean"
    shift: int = 0
    labelled_tau: int | None = None

    @property
    def coordinates(self) -> dict[str, Any]:
        """Where rows of this curve belong in a figure, by the names of their columns."""
        tau = self.sync_every if self.labelled_tau is None else self.labelled_tau
        return {"tau": tau, "gamma": self.gamma, "beta": self.beta, "rho": self.rho, "r": self.r}

    def problem(self) -> Regression:
        """The clients."""
        from fedgauss.problems.regression import linear, logistic

        effects = self.reading.random_effects(self.n_clients, self.gamma, self.draw)
        if self.clients == "random effects":
            return effects
        offsets = np.asarray(effects.coefficients) - CENTER
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
        from fedgauss import networks

        return networks.ring(self.n_clients) if self.rho is None else networks.lazy(self.n_clients, self.rho)

    @property
    def steps(self) -> StepSizes:
        """eta_t = eta0 t^-beta."""
        from fedgauss import step_sizes

        return step_sizes.polynomial(self.eta0, self.beta)

    def setting(self, observe: Sequence[Observer]) -> Setting:
        """What `simulate_together` runs, and what it records."""
        from fedgauss.engine.simulate import Setting

        return Setting(
            problem=self.problem(),
            network=self.network,
            steps=self.steps,
            sync_every=self.sync_every,
            sync_phase=self.reading.phase,
            start=self.reading.theta_0(),
            observe=observe,
        )
