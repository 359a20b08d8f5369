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
from fedgauss.inference.bias import WARN, Bias, estimated_bias, predicted_coverage
from fedgauss.inference.bootstrap import bootstrap_deviations
from fedgauss.inference.estimate import ChiSquared, Estimate, checked_names
from fedgauss.inference.passes import Pass
from fedgauss.inference.path_methods import BatchMeans, RandomScaling
from fedgauss.inference.plain import run_plain
from fedgauss.inference.plugin import average_covariance, last_covariance
from fedgauss.inference.whitened import run_whitened
from fedgauss.networks import Network, as_network
from fedgauss.problems.base import Problem
from fedgauss.step_sizes import StepSizes

Method = Literal["plugin", "bootstrap", "random_scaling", "batch_means"]
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
    place = None if start is None else _checks.real_array("start", start, shape=(problem.dim,))
    path_methods: dict[str, Observer] = {"random_scaling": RandomScaling(), "batch_means": BatchMeans()}
    watch = [path_methods[method]] if method in path_methods else []
    if steps is None:
        if burn_in is not None:
            raise ValueError(
                "burn_in belongs to steps of your own; whitened steps have a fifth of the run. Leave it out."
            )
        whole = run_whitened(problem, graph, n_steps, tau, seed=seed, start=place, observe=watch, progress=progress)
    else:
        before = 0 if burn_in is None else int(_share(burn_in) * n_steps)
        whole = run_plain(
            problem, graph, steps, n_steps, tau, burn_in=before, seed=seed, start=place, observe=watch,
            progress=progress,
        )  # fmt: skip
    _check_hessian(whole)
    draws = None
    if method == "bootstrap":
        chains = _checks.whole("bootstraps", bootstraps, at_least=20, fix="Fewer chains show no tail.")
        draws = bootstrap_deviations(
            problem, graph, whole, tau, chains, seed, last=iterate == "last", progress=progress
        )  # fmt: skip
    found = _estimate(whole, method, level, iterate, labels, draws)
    if iterate == "average":
        found = _with_bias(found, whole, correct_drift)
    found = replace(found, heterogeneity=_heterogeneity(whole), facts=_facts(found, whole, graph, tau, steps is None))
    return _population(found, whole) if target == "population" else found


def _estimate(
    whole: Pass, method: str, level: float, iterate: str, names: tuple[str, ...], draws: FloatArray | None
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
    return Estimate(params, cov, level, method, names, deviations=draws)


def _with_bias(found: Estimate, whole: Pass, correct_drift: bool) -> Estimate:
    """The diagnostic, and drift subtracted on request."""
    bias = Bias(*(part[0] for part in estimated_bias(whole)))
    if correct_drift:
        found = replace(found, params=found.params - bias.drift)
        bias = bias._replace(drift=np.zeros_like(bias.drift))
    # In errors by the plug-in, whatever the method: random scaling has none of its own, only a random scale.
    ratio = bias.total / np.sqrt(np.diag(average_covariance(whole)[0]))
    covered = predicted_coverage(ratio, found.level)
    notes = found.notes
    worst = int(np.abs(ratio).argmax())
    if abs(ratio[worst]) > WARN:
        from_start = abs(bias.start[worst]) >= abs(bias.drift[worst])
        advice = (
            "the start is not forgotten: use more steps, or a start nearer to the optimum"
            if from_start
            else "clients drift apart: synchronise more often, or mix several times; correct_drift=True subtracts it"
        )
        notes = (
            *notes,
            f"Bias of {ratio[worst]:.2f} standard errors is estimated for {found.names[worst]}, whose interval then "
            f"covers about {covered[worst]:.2f} and not {found.level:g}; {advice}.",
        )
    return replace(found, bias=ratio, predicted_coverage=covered, notes=notes)


def _client_optima(whole: Pass) -> tuple[FloatArray, FloatArray]:
    """Each client's own optimum by a Newton step from its mean place, (K, d), and the covariance of that, (K, d, d)."""
    known = whole.summaries
    hessians, gradients = known.hessians[0], known.gradients[0]
    optima = known.places[0] - np.linalg.solve(hessians, gradients[..., None])[..., 0]
    inverse = np.linalg.inv(hessians)
    return optima, inverse @ known.noise_cov[0] @ inverse / known.count


def _heterogeneity(whole: Pass) -> ChiSquared | None:
    """Whether the clients' optima differ: the weighted sum of squares about their mean, chi-squared with (K - 1) d."""
    n_clients, dim = whole.summaries.places.shape[1:]
    if n_clients == 1 or np.linalg.eigvalsh(whole.summaries.hessians[0]).min() <= 0.0:
        return None
    optima, covs = _client_optima(whole)
    precision = np.linalg.inv(covs)
    mean = np.linalg.solve(precision.sum(axis=0), np.einsum("kij,kj->i", precision, optima))
    statistic = float(np.einsum("ki,kij,kj->", optima - mean, precision, optima - mean))
    freedom = (n_clients - 1) * dim
    return ChiSquared(statistic, freedom, float(stats.chi2.sf(statistic, freedom)))


def _population(found: Estimate, whole: Pass) -> Estimate:
    """Clients are a sample: the variance between their pulls, over K, takes the place of the noise within them.

    A^-1 sum_k w_k^2 p_k p_k' A^-1 K / (K - 1) with p_k = H_k (beta_k - theta), as of clustered data, and Student's t
    with K - 1 degrees of freedom. The noise of each client is part of p_k.
    """
    n_clients = len(whole.weights)
    if n_clients < 3:
        raise ValueError(f"target='population' needs at least 3 clients to see how they vary; got {n_clients}.")
    optima, _ = _client_optima(whole)
    pulls = np.einsum("kij,kj->ki", whole.summaries.hessians[0], optima - found.params)
    pulls = pulls - whole.weights @ pulls
    inverse = np.linalg.inv(whole.hessian[0])
    middle = np.einsum("k,ki,kj->ij", whole.weights**2, pulls, pulls) * n_clients / (n_clients - 1)
    note = f"The population of clients is the target: intervals hold over other clients like these {n_clients}."
    cov = inverse @ middle @ inverse
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


def _check_hessian(whole: Pass) -> None:
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
