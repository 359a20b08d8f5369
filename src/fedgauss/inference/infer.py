"""`infer`: an estimate, its covariance and its intervals, from one pass of local SGD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from scipy import stats

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.engine.folds import Observer
from fedgauss.inference.bias import FALSE_WARNINGS, WARN, estimated_bias, predicted_coverage
from fedgauss.inference.bootstrap import bootstrap_deviations
from fedgauss.inference.estimate import ChiSquared, Estimate, checked_names
from fedgauss.inference.passes import Pass
from fedgauss.inference.path_methods import BatchMeans, RandomScaling
from fedgauss.inference.plain import run_plain
from fedgauss.inference.plugin import average_covariance, last_covariance
from fedgauss.inference.readout import Readout, as_it_is
from fedgauss.inference.row_batches import RowBatches
from fedgauss.inference.summaries import THINNED
from fedgauss.inference.whitened import run_whitened
from fedgauss.networks import Network, as_network
from fedgauss.problems.base import Problem
from fedgauss.step_sizes import StepSizes

Method = Literal["plugin", "bootstrap", "random_scaling", "batch_means"]
_SINGULAR = 1e-6  # of the largest eigenvalue of a covariance summed up in single precision
_METHODS = ("plugin", "bootstrap", "random_scaling", "batch_means")


def infer(
    problem: Problem,
    network: Network | ArrayLike | None,
    steps: StepSizes | ArrayLike | None = None,
    n_steps: int = 5000,
    sync_every: int = 20,
    method: Method = "plugin",
    level: float = 0.95,
    seed: int = 0,
    *,
    iterate: Literal["average", "last"] = "average",
    target: Literal["optimum", "population"] = "optimum",
    burn_in: float | None = None,
    correct_drift: bool = False,
    bootstraps: int = 200,
    start: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    readout: Readout | None = None,
    every: int = THINNED,
    progress: bool | None = None,
) -> Estimate:
    """Estimate theta*_K by one pass of local SGD, with its covariance.

    steps          None for whitened steps, which suit any scale (`inference.whitened`); or your own eta_t
    method         "plugin": client Hessians and gradient covariances, d x d numbers a client, shared once;
                   "bootstrap": chains with random multipliers beside the run, nothing but parameters is shared;
                   "random_scaling", "batch_means": from the path of the mean, which must be known after every step
    iterate        "average" over the window (Theorem 2.1), or "last" (Theorem 2.2), wider, where nobody keeps averages
    target         "optimum": theta*_K of these clients; "population": the mean over all clients like these
    burn_in        share of the run before the window; a fifth with whitened steps, else none
    correct_drift  subtract the estimated bias of clients that drift apart between mixings
    readout        report this of theta, on another scale say, in place of theta itself
    every          clients sum up every so many steps
    """
    _checks.one_of("method", method, _METHODS)
    _checks.one_of("iterate", iterate, ["average", "last"])
    _checks.one_of("target", target, ["optimum", "population"])
    level = _checks.probability("level", level, fix="Use 0.95?")
    n_steps, tau = _checks.step_number("n_steps", n_steps), _checks.whole("sync_every", sync_every)
    if iterate == "last" and method in ("random_scaling", "batch_means"):
        raise ValueError(f"iterate='last' needs method='plugin' or 'bootstrap'; got {method!r}, which is of averages.")
    graph = as_network(network, problem.n_clients)
    labels = checked_names(names, problem.dim)
    shown = as_it_is(problem.dim) if readout is None else readout
    place = None if start is None else _checks.real_array("start", start, shape=(problem.dim,))
    path_methods: dict[str, Observer] = {"random_scaling": RandomScaling(), "batch_means": BatchMeans()}
    watch = [path_methods[method]] if method in path_methods else []
    if steps is None:
        if burn_in is not None:
            raise ValueError(
                "burn_in belongs to steps of your own; whitened steps have a fifth of the run. Leave it out."
            )
        whole = run_whitened(
            problem, graph, n_steps, tau, seed=seed, start=place, observe=watch, every=every, progress=progress
        )
    else:
        before = 0 if burn_in is None else int(_share(burn_in) * n_steps)
        whole = run_plain(
            problem, graph, steps, n_steps, tau, burn_in=before, seed=seed, start=place, observe=watch, every=every,
            progress=progress,
        )  # fmt: skip
    check_hessian(whole)
    draws = None
    if method == "bootstrap":
        chains = _checks.whole("bootstraps", bootstraps, at_least=20, fix="Fewer chains show no tail.")
        draws = bootstrap_deviations(
            problem, graph, whole, tau, chains, seed, last=iterate == "last", progress=progress
        )  # fmt: skip
    found = _estimate(whole, method, level, iterate, labels, draws, shown)
    if iterate == "average":
        found = _with_bias(found, whole, correct_drift, shown)
    found = replace(
        found, heterogeneity=heterogeneity(whole, problem), facts=_facts(found, whole, graph, tau, steps is None)
    )
    return population(found, whole, shown) if target == "population" else found


def _estimate(
    whole: Pass,
    method: str,
    level: float,
    iterate: str,
    names: tuple[str, ...],
    draws: FloatArray | None,
    shown: Readout,
) -> Estimate:
    params = np.asarray(whole.runs.last[0] if iterate == "last" else whole.runs.average[0], dtype=float)
    window = whole.schedule.window
    if method == "random_scaling":
        cov = np.asarray(whole.runs.random_scaling[0], dtype=float) / window
    elif method == "batch_means":
        cov = np.asarray(whole.runs.batch_means[0], dtype=float) / window
    elif draws is not None:
        cov = draws.T @ draws / len(draws)
    else:
        cov = (last_covariance(whole) if iterate == "last" else average_covariance(whole))[0]
    deviations = None if draws is None else draws @ shown.matrix.T
    return Estimate(shown.of(params), shown.cov(cov), level, method, names, deviations=deviations)


def _with_bias(found: Estimate, whole: Pass, correct_drift: bool, shown: Readout) -> Estimate:
    """The diagnostic, and drift subtracted on request."""
    bias = estimated_bias(whole).shown(shown)
    total, drift = bias.total[0], bias.clear_drift[0]
    if correct_drift:
        found = replace(found, params=found.params - drift)
        total = bias.start[0]
    # In errors by the plug-in, whatever the method: random scaling has none of its own, only a random scale.
    cov = found.cov if found.method == "plugin" else shown.cov(average_covariance(whole)[0])
    ratio = total / np.sqrt(np.diag(cov))
    covered = predicted_coverage(ratio, found.level)
    # What is seen of drift is noisy: it is worth a word where it is larger than noise alone would make it anywhere.
    sure = stats.norm.ppf(1.0 - FALSE_WARNINGS / (2 * len(total))) * bias.drift_errors[0]
    from_start = np.abs(bias.start[0]) >= np.abs(drift)
    worth = np.where(from_start | (np.abs(bias.drift[0]) > sure), np.abs(ratio), 0.0)
    worst = int(worth.argmax())
    notes = found.notes
    if worth[worst] > WARN:
        advice = (
            "the start is not forgotten: use more steps, or a start nearer to the optimum"
            if from_start[worst]
            else "clients drift apart: synchronise more often, or mix several times (network.repeated(4)); "
            "correct_drift=True subtracts what is estimated"
        )
        notes = (
            *notes,
            f"Bias of {ratio[worst]:.2f} standard errors is estimated for {found.names[worst]}, whose interval then "
            f"covers about {covered[worst]:.2f} and not {found.level:g}; {advice}.",
        )
    return replace(found, bias=ratio, predicted_coverage=covered, notes=notes)


def _pulls(whole: Pass, place: FloatArray) -> FloatArray:
    """The mean gradients of the clients' losses at one place, (K, d), from those where each client was."""
    known = whole.summaries
    return known.gradients[0] + np.einsum("kij,kj->ki", known.hessians[0], place - known.places[0])


def heterogeneity(whole: Pass, problem: Problem) -> ChiSquared | None:
    """Whether the clients' optima differ: at no one place do all their mean gradients vanish, but for noise.

    The sum of p_k' Var(p_k)^-1 p_k of the mean gradients p_k at the best place, chi-squared with (K - 1) d. A variance
    estimated from m gradients makes a term too large by (m - 1) / (m - d - 2) on average, which is taken off. None
    where a client cannot tell, because some covariate is constant there or because it has hardly more rows than
    parameters.
    """
    known = whole.summaries
    n_clients, dim = known.places.shape[1:]
    noise, hessians = np.linalg.eigvalsh(known.noise_cov[0]), known.hessians[0]
    many = problem.busy(known.count) if isinstance(problem, RowBatches) else np.full(n_clients, known.count)
    if n_clients == 1 or many.min() < dim + 3 or np.any(noise[:, 0] <= _SINGULAR * noise[:, -1]):
        return None
    certain = np.linalg.inv(known.noise_cov[0]) * (known.count * (many - dim - 2) / (many - 1))[:, None, None]
    at_zero = _pulls(whole, np.zeros(dim))
    best = np.linalg.solve(
        np.einsum("kij,kjl,klm->im", hessians, certain, hessians),
        -np.einsum("kij,kjl,kl->i", hessians, certain, at_zero),
    )
    pulls = _pulls(whole, best)
    statistic = float(np.einsum("ki,kij,kj->", pulls, certain, pulls))
    freedom = (n_clients - 1) * dim
    return ChiSquared(statistic, freedom, float(stats.chi2.sf(statistic, freedom)))


def population(found: Estimate, whole: Pass, shown: Readout) -> Estimate:
    """Clients are a sample: the variance between their pulls, over K, takes the place of the noise within them.

    A^-1 sum_k w_k^2 p_k p_k' A^-1 K / (K - 1) with p_k client k's mean gradient at theta, as of clustered data, and
    Student's t with K - 1 degrees of freedom. The noise of each client is part of p_k.
    """
    n_clients = len(whole.weights)
    if n_clients < 3:
        raise ValueError(f"target='population' needs at least 3 clients to see how they vary; got {n_clients}.")
    pulls = _pulls(whole, np.asarray(whole.runs.average[0], dtype=float))
    pulls = pulls - whole.weights @ pulls
    inverse = np.linalg.inv(whole.hessian[0])
    middle = np.einsum("k,ki,kj->ij", whole.weights**2, pulls, pulls) * n_clients / (n_clients - 1)
    note = f"The population of clients is the target: intervals hold over other clients like these {n_clients}."
    cov = shown.cov(inverse @ middle @ inverse)
    return replace(found, cov=cov, freedom=n_clients - 1.0, deviations=None, notes=(*found.notes, note))


def _facts(found: Estimate, whole: Pass, network: Network, tau: int, whitened: bool) -> dict[str, str]:
    n = len(whole.schedule.eta)
    return {
        "Method": found.method,
        "Clients": f"{network.n_clients} ({network.name})",
        "Steps a client": f"{n:,}",
        "Synchronised every": f"{tau} steps",
        "Averaged over": f"{whole.schedule.window:,} steps",
        "Step sizes": "whitened, t^-0.75" if whitened else "as given",
    }


def check_hessian(whole: Pass) -> None:
    """Refuse a Hessian that cannot be inverted."""
    values = np.linalg.eigvalsh(whole.hessian[0])
    if values[0] <= 1e-8 * values[-1]:
        raise ValueError(
            f"the Hessian A must be positive definite to infer; its smallest eigenvalue is {values[0]:.3g}. Are "
            "columns collinear or constant, or classes separable?"
        )


def _share(burn_in: float) -> float:
    share = _checks.real("burn_in", burn_in)
    if not 0.0 <= share < 1.0:
        raise ValueError(f"burn_in must be a share of the run in [0, 1); got {share:g}. Use 0.2?")
    return share
