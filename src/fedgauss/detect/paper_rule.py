"""The paper's alarm (Algorithm 2): R_t against quantiles of its Gaussian bootstrap, as printed and repaired."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.cusum import Cusum, cusum_paths
from fedgauss.networks import Network, RandomNetwork, as_network
from fedgauss.step_sizes import StepSizes, as_step_sizes

Scaling = Literal["right", "printed"]


class Rate(NamedTuple):
    """A share of runs, and its binomial standard error."""

    share: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.share:.3f} ({self.standard_error:.3f})"


@dataclass(frozen=True)
class Bootstrap:
    """Which Gaussian paths to draw: the law of Y under the null, and what of it is watched.

    Parameters
    ----------
    lin, steps, n_steps
        A, V_K and eta_1, ..., eta_n.
    network, sync_every
        If given, the paths are Client-GA on that network (Theorem 3.2), otherwise Aggr-GA (Theorem 3.1). The mean over
        clients has the same law in both.
    every : int
        Watch Y after every so many steps: 1 for all, tau for a server that sees only synchronisations.
    burn_in : int
        Steps left out before R_t begins to add up.
    replicates, seed : int
        B, the number of paths, and the seed that they are drawn with.
    """

    lin: Linearization
    steps: StepSizes | ArrayLike
    n_steps: int
    network: Network | ArrayLike | None = None
    sync_every: int = 1
    every: int = 1
    burn_in: int = 0
    replicates: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        _checks.step_number("n_steps", self.n_steps)
        _checks.whole("every", self.every, at_most=self.n_steps)
        _checks.whole("burn_in", self.burn_in, at_least=0, at_most=self.n_steps - self.every)
        _checks.whole("replicates", self.replicates, at_least=100, fix="A .95 quantile of fewer means nothing.")
        _checks.covariance("hessian A", self.lin.hessian, definite=True)
        _checks.covariance("noise_cov V_K", self.lin.noise_cov)

    @property
    def skipped(self) -> int:
        """Rounds left out by the burn-in."""
        return -(-self.burn_in // self.every)

    def cusum(self, stream: int = 0) -> FloatArray:
        """R_t^G of every bootstrap path and round, (B, rounds); zero during the burn-in. Another stream, other paths.

        Computed once for each law and kept in memory (the last four): thresholds do not depend on the data.
        """
        return _cusum_table(_Cached(self, stream, self._key(stream)))

    def watched(self, paths: FloatArray) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        """R_t and its argmax, in rounds, for paths (R, rounds, d) that hold the watched rounds."""
        statistic, onset = np.zeros(paths.shape[:2]), np.zeros(paths.shape[:2], np.int64)
        statistic[:, self.skipped :], onset[:, self.skipped :] = cusum_paths(paths[:, self.skipped :])
        return statistic, onset + self.skipped

    def paths(self, stream: int = 0) -> FloatArray:
        """The Gaussian paths at the watched rounds, (B, rounds, d). Needs JAX, and loads it."""
        from fedgauss import approx
        from fedgauss.engine.observers import path

        seed = self.seed + 7919 * stream  # seeds of one user lie close together; streams of one seed must not meet them
        common: dict[str, Any] = {"replicates": self.replicates, "seed": seed, "observe": [path(self.every)]}
        if self.network is None:
            runs = approx.aggregated(self.lin, self.steps, self.n_steps, **common)
        else:
            runs = approx.client(self.lin, self.network, self.steps, self.n_steps, sync_every=self.sync_every, **common)
        return runs.path.astype(np.float64)

    def _key(self, stream: int) -> tuple[Any, ...]:
        law: list[Any] = [self.lin.hessian.tobytes(), self.lin.noise_cov.tobytes()]
        if self.network is not None:
            graph = as_network(self.network, self.lin.n_clients)
            drawn = graph.law if isinstance(graph, RandomNetwork) else None  # its matrix is only the mean
            law += [self.lin.client_noise_cov.tobytes(), self.lin.weights.tobytes(), graph.matrix.tobytes(), drawn]
            law += [self.sync_every]
        eta = as_step_sizes(self.steps).eta(self.n_steps).tobytes()
        return (*law, eta, self.n_steps, self.every, self.skipped, self.replicates, self.seed, stream)


@dataclass(frozen=True)
class CusumBoundary:
    """Alarm in a round when R_t > values[round - 1]; and how often that happens on honest Gaussian runs.

    Attributes
    ----------
    values : (rounds,) array
        One for each watched round; infinite where the rule does not look.
    alpha : float
        The nominal level.
    family_wise : Rate
        Share of null Gaussian paths, none of them used for `values`, with an alarm in any round.
    """

    name: str
    values: FloatArray
    alpha: float
    every: int
    skipped: int
    family_wise: Rate
    c: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.name}: nominal {self.alpha:g}, alarms somewhere in {len(self.values)} rounds "
            f"in a share {self.family_wise} of honest Gaussian runs"
        )


@dataclass(frozen=True)
class CusumVerdict:
    """One round, judged by R_t. `onset` is the estimated last step before the change, in steps of SGD."""

    alarm: bool
    statistic: float
    threshold: float
    round: int
    step: int
    onset: int
    alpha: float

    def __str__(self) -> str:
        relation = f"R_t = {self.statistic:.4g}, threshold {self.threshold:.4g}"
        if self.alarm:
            return f"step {self.step}: alarm, change after step {self.onset} ({relation})"
        return f"step {self.step}: no alarm ({relation})"


class Alarms(NamedTuple):
    """The first alarm of each run (R,): its step and the onset it names; 0 and 0 where there was none."""

    step: npt.NDArray[np.int64]
    onset: npt.NDArray[np.int64]


def paper_boundary(
    bootstrap: Bootstrap,
    alpha: float = 0.05,
    c: float | Literal["cross-validated"] = 0.0,
    scaling: Scaling = "right",
    folds: int = 5,
) -> CusumBoundary:
    """Algorithm 2: q_{1-alpha}(R_t^G) + c sqrt(n), the quantile taken for each t by itself.

    Parameters
    ----------
    bootstrap : Bootstrap
        The Gaussian paths.
    alpha : float
        The nominal level. It holds at a single t chosen beforehand and not over the run: see `family_wise`.
    c : float or "cross-validated"
        Tuned as the end of the paper's appendix suggests, with quantiles from all folds of the bootstrap but one: c is
        the 1 - alpha quantile of the held-out excess max_t (R_t - q_t) / sqrt(n) over all folds. The level then holds
        for this law of Y, and only for it. n counts watched rounds.
    scaling : {"right", "printed"}
        "printed" draws noise as Algorithm 2 prints it, N(0, V_K) times K^-1/2, which is too small by sqrt(K); "right"
        is Theorem 3.1.
    folds : int
        Of the cross-validation.

    Returns
    -------
    CusumBoundary
    """
    level = _checks.probability("alpha", alpha)
    right = _checks.one_of("scaling", scaling, ["right", "printed"]) == "right"
    # R_t is homogeneous in Y, and Y in its noise: the extra K^-1/2 of Algorithm 2 shrinks all of R_t^G by it.
    shrink = 1.0 if right else float(bootstrap.lin.n_clients) ** -0.5
    table = bootstrap.cusum()
    if isinstance(c, str):
        _checks.one_of("c", c, ["cross-validated"])
        constant = cross_validated_c(table, level, shrink, folds)
    else:
        constant = _checks.real("c", c)
    values = shrink * np.quantile(table, 1.0 - level, axis=0) + constant * np.sqrt(table.shape[1])
    values[: bootstrap.skipped] = np.inf
    words = "" if right else ", scaled as printed"
    tuned = " by cross-validation" if isinstance(c, str) else ""
    return _measured(f"paper's rule, c = {constant:.3g}{tuned}{words}", values, level, bootstrap, constant)


def studentised_boundary(bootstrap: Bootstrap, alpha: float = 0.05, first: int = 40) -> CusumBoundary:
    """h q_t with q_t = q_{1-alpha}(R_t^G) and h the 1 - alpha quantile of max_t R_t^G / q_t over steps t >= first.

    The level holds over the whole run, and there is no c to choose. Use burn_in=20: at first R_t of a run that starts
    away from its optimum is mostly the way there, which is no part of the bootstrap, as that starts at zero.

    Parameters
    ----------
    bootstrap : Bootstrap
        The Gaussian paths.
    alpha : float
        The chance of any false alarm over the run.
    first : int
        The first step at which to look.

    Returns
    -------
    CusumBoundary
    """
    level = _checks.probability("alpha", alpha)
    table = bootstrap.cusum()
    n_rounds = table.shape[1]
    earliest = max(_checks.whole("first", first), (bootstrap.skipped + 2) * bootstrap.every)  # R = 0 with one round
    looks = np.arange(1, n_rounds + 1) * bootstrap.every >= earliest
    if not looks.any():
        raise ValueError(
            f"first must leave a round to look at; got {first} of {bootstrap.n_steps} steps. Start earlier?"
        )
    quantiles = np.quantile(table[:, looks], 1.0 - level, axis=0)
    height = float(np.quantile((table[:, looks] / quantiles).max(axis=1), 1.0 - level))
    values = np.full(n_rounds, np.inf)
    values[looks] = height * quantiles
    return _measured(f"studentised R_t, h = {height:.3g}", values, level, bootstrap, 0.0)


def cross_validated_c(table: FloatArray, alpha: float, shrink: float = 1.0, folds: int = 5) -> float:
    """c such that a share alpha of held-out null runs exceeds shrink q_{1-alpha}(R_t) + c sqrt(n) at some t.

    `table` (B, n) holds R_t of null runs, Gaussian or real; each fold is judged by the quantiles of the others.
    """
    count = _checks.whole("folds", folds, at_least=2, at_most=len(table))
    fold = np.arange(len(table)) % count
    excess = np.zeros(len(table))
    for held in range(count):
        quantiles = shrink * np.quantile(table[fold != held], 1.0 - alpha, axis=0)
        excess[fold == held] = (table[fold == held] - quantiles).max(axis=1)
    return float(np.quantile(excess, 1.0 - alpha)) / float(np.sqrt(table.shape[1]))


def family_wise_rate(values: ArrayLike, null: ArrayLike) -> Rate:
    """The share of null runs that exceed a boundary at any t.

    Parameters
    ----------
    values : (n,) array_like
        The boundary.
    null : (R, n) array_like
        R_t of null runs.

    Returns
    -------
    Rate
        The share and its standard error.
    """
    table = _checks.real_array("null", null, shape=(None, None))
    share = float((table > np.asarray(values, float)).any(axis=1).mean())
    return Rate(share, float(np.sqrt(share * (1.0 - share) / len(table))))


class CusumRule:
    """A boundary fed round by round. It goes on after an alarm; Algorithm 2 itself stops at `first_alarm`.

    Parameters
    ----------
    boundary : CusumBoundary
        From `paper_boundary` or `studentised_boundary`.
    dim : int
        d.
    """

    def __init__(self, boundary: CusumBoundary, dim: int) -> None:
        self.boundary = boundary
        self.first_alarm: CusumVerdict | None = None
        self._round = 0
        self._cusum = Cusum(dim)

    def update(self, y: ArrayLike) -> CusumVerdict:
        """Judge Y (d,) of the next watched round.

        Raises
        ------
        ValueError
            After more rounds than the boundary was made for.
        """
        limit = self.boundary
        if self._round >= len(limit.values):
            raise ValueError(
                f"this boundary is for {len(limit.values)} rounds, and all were seen. Use a Bootstrap of more n_steps."
            )
        row = _checks.real_array("y", y, shape=(self._cusum.dim,))
        self._round += 1
        statistic, onset, step = 0.0, self._round, self._round * limit.every
        if self._round > limit.skipped:
            statistic, s = self._cusum.update(row)
            onset = s + limit.skipped
        threshold, onset = float(limit.values[self._round - 1]), onset * limit.every
        alarm = not statistic <= threshold  # what is not a number is no silence
        verdict = CusumVerdict(alarm, statistic, threshold, self._round, step, onset, limit.alpha)
        if verdict.alarm and self.first_alarm is None:
            self.first_alarm = verdict
        return verdict


def first_alarms(boundary: CusumBoundary, statistic: ArrayLike, onset: ArrayLike) -> Alarms:
    """The first alarm of every run.

    Parameters
    ----------
    boundary : CusumBoundary
    statistic, onset : (R, rounds) array_like
        R_t and its argmax in rounds, as `Bootstrap.watched` returns them.

    Returns
    -------
    Alarms
    """
    table = _checks.real_array("statistic", statistic, shape=(None, len(boundary.values)))
    over = table > boundary.values
    first, any_alarm = over.argmax(axis=1), over.any(axis=1)
    named = np.asarray(onset, np.int64)[np.arange(len(table)), first]
    every = boundary.every
    return Alarms(np.where(any_alarm, (first + 1) * every, 0), np.where(any_alarm, named * every, 0))


@dataclass(frozen=True)
class _Cached:
    """A table to look up by what it depends on; the bootstrap itself is carried along to make it."""

    bootstrap: Bootstrap = field(compare=False)
    stream: int = field(compare=False)
    key: tuple[Any, ...]


@lru_cache(maxsize=4)
def _cusum_table(wanted: _Cached) -> FloatArray:
    table, _ = wanted.bootstrap.watched(wanted.bootstrap.paths(wanted.stream))
    table.setflags(write=False)
    return table


def _measured(name: str, values: FloatArray, alpha: float, bootstrap: Bootstrap, c: float) -> CusumBoundary:
    """The boundary with its family-wise rate, from paths that had no part in it."""
    values.setflags(write=False)
    rate = family_wise_rate(values, bootstrap.cusum(stream=1))
    return CusumBoundary(name, values, alpha, bootstrap.every, bootstrap.skipped, rate, c)
