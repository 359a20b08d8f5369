"""Curves: what fixes the law of a run behind a result, and the cells that run several of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedgauss import networks, step_sizes
from fedgauss.paper.readings import CENTER, FROM_ZERO, Reading

if TYPE_CHECKING:
    from fedgauss.engine.observers import Observer
    from fedgauss.engine.runs import Runs
    from fedgauss.engine.simulate import Setting
    from fedgauss.problems.regression import Regression

Clients = Literal["random effects", "Hessians follow offsets", "Hessians permuted", "logistic"]
Statistic = Literal["average over Sigma_n", "average over Sigma/K", "last over Sigma_n"]

_LOGISTIC_CENTER = (1.0, -1.0)
_HESSIAN_RANGE = 0.5


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
    def network(self) -> networks.Network:
        """Who averages with whom."""
        return networks.ring(self.n_clients) if self.rho is None else networks.lazy(self.n_clients, self.rho)

    @property
    def steps(self) -> step_sizes.StepSizes:
        """eta_t = eta0 t^-beta."""
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


def readings_of(lines: Iterable[Curve], *readings: Reading) -> Callable[[int], list[Curve]]:
    """Every line under each reading, by draw of the clients. Clients that are known are drawn once."""

    def curves(draw: int) -> list[Curve]:
        drawn = [reading for reading in readings if not (reading.fixed_vars and draw > 0)]
        return [replace(line, reading=reading, draw=draw) for reading in drawn for line in lines]

    return curves


@dataclass(frozen=True)
class CurvesCell:
    """Runs of some curves with K clients. They see the same random numbers, which are drawn once.

    lanes   settings that one program runs; spare ones repeat the last curve and are dropped
    """

    result: str
    curves: tuple[Curve, ...]
    _: KW_ONLY
    replicates: int
    lanes: int
    seed: int = 0

    @property
    def experiment(self) -> str:
        """The result that the rows belong to."""
        return self.result

    @property
    def n_clients(self) -> int:
        """K, the same for every curve."""
        return self.curves[0].n_clients

    @property
    def filled(self) -> list[Curve]:
        """The curves, and the last again for every lane that is left."""
        return [*self.curves, *(self.curves[-1] for _ in range(self.lanes - len(self.curves)))]

    def draws(self, n_steps: int) -> float:
        """The cost of so many steps in draws: an update of a client costs about a tenth of its draws."""
        return n_steps * self.n_clients * self.replicates * (1.0 + 0.1 * self.lanes)

    def together(self, settings: Sequence[Setting], n_steps: int) -> list[Runs]:
        """So many steps under each setting."""
        from fedgauss.engine.simulate import simulate_together

        return simulate_together(settings, n_steps, replicates=self.replicates, seed=self.seed, progress=False)

    def place(self, curve: Curve, named: Sequence[str], n: int) -> dict[str, Any]:
        """The columns that say where a row belongs; `named` are the coordinates that tell the curves apart."""
        coordinates = curve.coordinates | {"K": self.n_clients}
        return {
            "result": self.result,
            "reading": curve.reading.name,
            "draw": curve.draw,
            "seed": self.seed,
            "curve": " ".join(f"{name}={coordinates[name]:g}" for name in named),
            "n": n,
            "K": self.n_clients,
            "replicates": self.replicates,
            "tau": coordinates["tau"],
            "gamma": curve.gamma,
        }
