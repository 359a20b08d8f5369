"""Curves: what fixes the law of a run behind a result, and the cells that run curves and measure their distance.

The paper leaves parts of its settings open, and its published programs differ from its text. Each way to read it is
data with a name, so that results under all of them stand side by side. Building a problem loads JAX; naming one
does not, so that a program which only lists or plans cells starts at once and hears Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedgauss import networks, step_sizes

if TYPE_CHECKING:
    from fedgauss._linearization import Linearization
    from fedgauss.engine.loop import Start
    from fedgauss.engine.observers import Observer
    from fedgauss.engine.runs import Runs
    from fedgauss.engine.simulate import Setting
    from fedgauss.paper.result import Scale
    from fedgauss.problems.regression import Regression

Clients = Literal["random effects", "Hessians follow offsets", "Hessians permuted", "logistic"]
Statistic = Literal["average over Sigma_n", "average over Sigma/K", "last over Sigma_n"]

ZERO, OPTIMUM, CODED = "text, start at zero", "text, start at optimum", "as coded"
READINGS = (ZERO, OPTIMUM, CODED)
SHORT = {ZERO: "from zero", OPTIMUM: "from the optimum", CODED: "as coded"}

STEPS = (100, 200, 300, 400, 500)  # after which programs with ten clients are looked at
TAUS = (10, 15, 20)

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
TEXT = (FROM_ZERO, FROM_OPTIMUM)
PROGRAM = Reading(CODED, "zeros", "sd", squares(1, 10))  # the published one, of Figure 1
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


# --- cells ---


@dataclass(frozen=True)
class DistanceRow:
    """The ball distance of one curve after n steps, with its error, interval and noise floor.

    curve         the coordinates that tell the curves of a figure apart, for people
    x             the abscissa of the figure, n or K
    half_spaces   the distance over half-spaces in eight directions
    """

    result: str
    reading: str
    draw: int
    seed: int
    curve: str
    x: int
    n: int
    K: int
    estimate: float
    error: float
    low: float
    high: float
    floor: float
    half_spaces: float
    replicates: int
    tau: int
    gamma: float
    beta: float
    rho: float | None = None
    r: float | None = None


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


@dataclass(frozen=True)
class DistanceCell(CurvesCell):
    """The ball distance of each curve after each of the listed steps.

    column   what the abscissa is: n, the listed steps, or K
    named    the coordinates that tell the curves apart
    watched  steps that the program looks at, if more than are listed: cells that watch as many share a program
    """

    column: Literal["n", "K"]
    named: tuple[str, ...]
    steps: tuple[int, ...]
    watched: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.result} with K = {self.n_clients}, n = {', '.join(map(str, self.steps))}"

    @property
    def cost(self) -> float:
        """In draws, to start long cells first."""
        return self.draws(max(self._seen))

    @property
    def group(self) -> str:
        """Cells of one group share a compiled program."""
        return f"distance {self.n_clients} {self.replicates} {len(self._seen)} {self.lanes}"

    @property
    def _seen(self) -> tuple[int, ...]:
        return self.watched or self.steps

    def run(self) -> list[DistanceRow]:
        """A row for each curve and listed step."""
        from fedgauss.engine.observers import Average, Last, at
        from fedgauss.problems.linearize import linearize

        watch = (at(self._seen, Average()), at(self._seen, Last()))
        settings = [curve.setting(watch) for curve in self.filled]
        rows: list[DistanceRow] = []
        for curve, setting, runs in zip(self.curves, settings, self.together(settings, max(self._seen)), strict=False):
            rows += self._rows(curve, linearize(setting.problem), runs)
        return rows

    def _rows(self, curve: Curve, lin: Linearization, runs: Runs) -> list[DistanceRow]:
        from fedgauss.theory.covariances import average_covariance, limit_covariance
        from fedgauss.theory.distances import ball_distance, half_space_distance

        iterates = runs.last_at if curve.statistic == "last over Sigma_n" else runs.average_at
        rows = []
        for n in self.steps:
            y = iterates[:, self._seen.index(n)]
            limit = curve.statistic == "average over Sigma/K"
            cov = limit_covariance(lin) if limit else average_covariance(lin, curve.steps, n)
            ball = ball_distance(y, lin.optimum, cov, n**0.5)
            rows.append(
                DistanceRow(
                    **self.place(curve, self.named, n),
                    x=n if self.column == "n" else self.n_clients,
                    estimate=ball.estimate,
                    error=ball.standard_error,
                    low=ball.interval[0],
                    high=ball.interval[1],
                    floor=ball.floor,
                    half_spaces=half_space_distance(y, lin.optimum, cov, n**0.5, directions=8).estimate,
                    beta=curve.beta,
                    rho=curve.rho,
                    r=curve.r,
                )
            )
        return rows


# --- cells of a result ---


def readings_of(lines: Iterable[Curve], *readings: Reading) -> Callable[[int], list[Curve]]:
    """Every line under each reading, by draw of the clients. Clients that are known are drawn once."""

    def curves(draw: int) -> list[Curve]:
        drawn = [reading for reading in readings if not (reading.fixed_vars and draw > 0)]
        return [replace(line, reading=reading, draw=draw) for reading in drawn for line in lines]

    return curves


def distance_cells(
    result: str,
    scale: Scale,
    curves: Callable[[int], list[Curve]],
    named: tuple[str, ...],
    column: Literal["n", "K"] = "n",
    steps: tuple[int, ...] = (300,),
    replicates: int = 1000,
) -> list[DistanceCell]:
    """A cell for each draw of the clients, with random numbers of its own. Those of ten clients share a program."""
    cells = []
    for draw in range(scale.draws):
        lines = tuple(curves(draw))
        watched, lanes = (STEPS, 15 if scale.thinned else 30) if lines[0].n_clients == 10 else (steps, 9)
        fixed = {"replicates": scale.replicates(replicates), "lanes": lanes, "seed": draw}
        cells.append(DistanceCell(result, lines, column, named, steps, watched, **fixed))
    return cells


def against_clients(result: str, scale: Scale, gamma: float, coded: Reading, grid: Sequence[int]) -> list[DistanceCell]:
    """Distances against K, a curve for each tau.

    The published program of Figure 1, right, looks at the last iterate, mixes every 5 steps in all three curves, and
    draws each curve's noise variances afresh. For Figure 4, right, none is published: the same is tried there, and
    was chosen because it comes close to the printed curves.
    """

    def at(n_clients: int) -> list[DistanceCell]:
        lines = [Curve(n_clients=n_clients, sync_every=tau, gamma=gamma) for tau in TAUS]

        def curves(draw: int) -> list[Curve]:
            last = [replace(line, reading=coded, statistic="last over Sigma_n") for line in lines]
            published = [
                replace(line, sync_every=5, labelled_tau=tau, draw=draw + i * scale.draws)
                for i, (line, tau) in enumerate(zip(last, TAUS, strict=True))
            ]
            return readings_of(lines, *TEXT)(draw) + published

        return distance_cells(result, scale, curves, ("tau",), "K")

    return [cell for n_clients in grid for cell in at(n_clients)]


def legacy_table(result: str, scale: Scale, lines: Sequence[Curve], named: str) -> list[DistanceCell]:
    """A table that does not state gamma: 1 in the text's setting, offsets of sd 5 in the programs."""

    coded = [replace(line, gamma=5.0) for line in lines]

    def curves(draw: int) -> list[Curve]:
        return readings_of(lines, *TEXT)(draw) + readings_of(coded, LEGACY)(draw)

    return distance_cells(result, scale, curves, (named,), steps=(100, 200, 300))
