"""`infer`: one pass of local SGD, and from it an estimate, its covariance, its bias, and whether clients are alike."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from scipy import stats

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray, IntArray
from fedgauss.inference.accuracy import BIAS, COVARIANCE, WARN, newton_gap, predicted_coverage, sandwich
from fedgauss.inference.client_steps import RowBatches
from fedgauss.inference.client_sums import THINNED
from fedgauss.inference.estimate import Estimate, Readout, checked_names
from fedgauss.inference.methods import PATH_METHODS, bootstrap_deviations
from fedgauss.inference.passes import Pass, run_given_steps, run_whitened
from fedgauss.inference.reference_laws import ChiSquared
from fedgauss.networks import Network, as_network
from fedgauss.problems.base import Problem, checked_problem
from fedgauss.step_sizes import Steps

Method = Literal["plugin", "bootstrap", "random_scaling", "batch_means"]
METHODS: tuple[str, ...] = get_args(Method)
# What to do about the start, drift, and the rest.
_ADVICE = (
    "the start is not forgotten: use more steps, or a start nearer to the optimum",
    "clients drift apart: synchronise more often, or mix several times (network.repeated(4)); correct_drift=True "
    "subtracts what is estimated",
    "the gradient does not vanish there: use more steps, or smaller ones (largest_step)",
)
_FAR = 2.5  # standard errors: a Newton step from further away may be off by half a standard error, or by more
_WIDE = 10.0  # times the sandwich's: no run that has begun to settle has such errors
_SINGULAR = 1e-6  # of the largest eigenvalue of a covariance summed up in single precision
_FEW = 30  # gradients a parameter: with 28 a 95 % ellipsoid of 20 parameters covers .91, with 8 it covers .5
_VANISHED = 1e-3  # of the Hessian at the start: a logistic optimum keeps a tenth of it, or a hundredth


def infer(
    problem: Problem,
    network: Network | ArrayLike | None,
    steps: Steps | None = None,
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
    largest_step: float | None = None,
    progress: bool | None = None,
) -> Estimate:
    """Estimate theta*_K by one pass of local SGD, with its covariance.

    Parameters
    ----------
    problem : Problem
        What clients minimise; see `fedgauss.problems`.
    network : Network or (K, K) array_like or None
        Who averages with whom.
    steps : StepSizes or array_like, optional
        None for whitened steps, which suit any scale (`inference.passes`); or your own eta_t.
    n_steps, sync_every : int
        Steps of each client, and between two synchronisations.
    method : {"plugin", "bootstrap", "random_scaling", "batch_means"}
        "plugin" uses client Hessians and gradient covariances, d x d numbers for each client, shared once.
        "bootstrap" runs chains with random multipliers beside the run; only parameters are shared.
        "random_scaling" and "batch_means" use the path of the mean, which must be known after every step.
    level : float
        Level of the intervals.
    seed : int
        Fixes every random number.
    iterate : {"average", "last"}
        The average over the window (Theorem 2.1), or the last iterate (Theorem 2.2): wider, for clients that keep no
        averages.
    target : {"optimum", "population"}
        theta*_K of these clients, or the mean over all clients like these.
    burn_in : float, optional
        Share of the run before the window, with steps of your own; whitened steps always use a fifth.
    correct_drift : bool
        Subtract the estimated bias of clients that drift apart between mixings.
    bootstraps : int
        Number of chains of the bootstrap.
    start : (d,) array_like, optional
        Where clients start; zero by default.
    names : sequence of str, optional
        Names of the parameters.
    readout : Readout, optional
        Report this affine map of theta in place of theta itself.
    every : int
        Clients add to their sums at every so many steps, or at the next number that has no factor in common with
        `sync_every`: every place in a round must be seen, since clients are furthest apart at its end.
    largest_step : float, optional
        No whitened step has a larger eta_t; 1 / (d + 2) by default. Smaller ones suit rare outcomes.
    progress : bool, optional
        Whether to show a progress bar; by default in a terminal and for long runs.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> problem = fg.problems.random_effects(n_clients=10, seed=1907)
    >>> estimate = fg.infer(problem, fg.networks.ring(10), n_steps=5000, sync_every=20)
    >>> estimate.conf_int()
    """
    checked_problem(problem)
    _checks.one_of("method", method, METHODS)
    _checks.one_of("iterate", iterate, ["average", "last"])
    _checks.one_of("target", target, ["optimum", "population"])
    level = _checks.level(level)
    n_steps, tau = _checks.step_number("n_steps", n_steps), _checks.whole("sync_every", sync_every)
    if iterate == "last" and method in PATH_METHODS:
        raise ValueError(f"iterate='last' needs method='plugin' or 'bootstrap'; got {method!r}, which is of averages.")
    if target == "population" and (method != "plugin" or iterate == "last"):
        raise ValueError(
            "target='population' has a covariance of its own, that between clients, about the average; leave out "
            f"method={method!r} and iterate={iterate!r}."
        )
    every = _checks.whole("every", every)
    _check_length(n_steps, every, problem.dim, problem.n_clients, whitened=steps is None)
    graph = as_network(network, problem.n_clients)
    labels = checked_names(names, problem.dim)
    theta = None if start is None else _checks.real_array("start", start, shape=(problem.dim,))
    watch = [PATH_METHODS[method]] if method in PATH_METHODS else []
    if steps is None:
        if burn_in is not None:
            raise ValueError(
                "burn_in belongs to steps of your own; whitened steps have a fifth of the run. Leave it out."
            )
        one_pass = run_whitened(
            problem, graph, n_steps, tau, seed=seed, start=theta, observe=watch, every=every,
            largest=largest_step, progress=progress,
        )  # fmt: skip
    else:
        share = 0.0 if burn_in is None else _checks.real("burn_in", burn_in)
        if not 0.0 <= share < 1.0:
            raise ValueError(f"burn_in must be a share of the run in [0, 1); got {share:g}. Use 0.2?")
        before = int(share * n_steps)
        _check_length(n_steps - before, every, problem.dim, problem.n_clients, whitened=False)
        one_pass = run_given_steps(
            problem, graph, steps, n_steps, tau, burn_in=before, seed=seed, start=theta, observe=watch, every=every,
            progress=progress,
        )  # fmt: skip
    check_hessian(one_pass)  # before chains take long
    draws = None
    if method == "bootstrap":
        chains = _checks.whole("bootstraps", bootstraps, at_least=20, fix="Fewer chains show no tail.")
        draws = bootstrap_deviations(
            problem, graph, one_pass, tau, chains, seed, last=iterate == "last", progress=progress
        )
    shown = Readout(np.eye(problem.dim), np.zeros(problem.dim)) if readout is None else readout
    request = Request(method, level, labels, shown, iterate, target, correct_drift)
    count = one_pass.clients.count
    busy = problem.busy(count) if isinstance(problem, RowBatches) else np.full(problem.n_clients, count)
    return estimate_from_pass(one_pass, request, graph, tau, busy, draws)


def _check_length(n_steps: int, every: int, dim: int, n_clients: int, whitened: bool) -> None:
    """Require two rows for each parameter among the steps summed up, in a burn-in of a fifth or in a window."""
    needed = max(2, math.ceil(2 * dim / n_clients)) * every * (5 if whitened else 1)
    if n_steps < needed:
        raise ValueError(
            f"n_steps must be at least {needed} to infer {dim} parameters with {n_clients} clients and every={every}; "
            f"got {n_steps}. Use more steps, or sum up more often (every=1)."
        )


@dataclass(frozen=True)
class Request:
    """What is asked of a pass; fields are as `infer` has them."""

    method: str
    level: float
    names: tuple[str, ...]
    readout: Readout
    iterate: str = "average"
    target: str = "optimum"
    correct_drift: bool = False


def estimate_from_pass(
    one_pass: Pass, request: Request, network: Network, tau: int, busy: IntArray, draws: FloatArray | None = None
) -> Estimate:
    """The estimate with its covariance, the diagnostic of bias, and the test of equal optima.

    `busy` (K,) says in how many of the steps that were summed up each client had data; `draws` (B, d) are errors by the
    bootstrap. A Hessian that cannot be inverted must have been refused (`check_hessian`).
    """
    if request.method == "plugin" and request.iterate == "average" and one_pass.summed_all:
        estimate = _after_newton(one_pass, request)
    else:
        estimate = _with_bias(_with_covariance(one_pass, request, draws), one_pass, request)
    estimate = _with_length(estimate, one_pass)
    n_steps, window = len(one_pass.schedule.eta), f"{one_pass.schedule.window:,} steps"
    sizes = "whitened, t^-0.75" if one_pass.preconditioned else "as given"
    facts = run_facts(estimate.method, network, f"{n_steps:,}", tau, window, sizes)
    estimate = replace(estimate, heterogeneity=heterogeneity(one_pass, busy), facts=facts)
    return population(estimate, one_pass, request.readout) if request.target == "population" else estimate


def run_facts(method: str, network: Network, steps: str, tau: int, window: str, sizes: str) -> dict[str, str]:
    """What was run, in words."""
    return {
        "Method": method,
        "Clients": f"{network.n_clients} ({network.name})",
        "Steps per client": steps,
        "Synchronised every": f"{tau} steps",
        "Averaged over": window,
        "Step sizes": sizes,
    }


def _after_newton(one_pass: Pass, request: Request) -> Estimate:
    """Where the clients' mean gradient over the window vanishes, by one Newton step from the average.

    Neither the start, nor drift, nor curvature biases it but in second order; its covariance is the sandwich of the
    window. A note says where it comes from so far that second order counts.
    """
    readout = request.readout
    gap = newton_gap(one_pass)[0]
    params = np.asarray(one_pass.runs.average[0], dtype=float) - gap
    cov = readout.cov(sandwich(one_pass)[0])
    estimate = Estimate(readout.of(params), cov, request.level, request.method, request.names)
    step = readout.matrix @ gap / estimate.std_errors
    worst = int(np.abs(step).argmax())
    if abs(step[worst]) <= _FAR:
        return estimate
    return estimate.with_notes(
        f"The average of the iterates is {abs(step[worst]):.1f} standard errors of {estimate.names[worst]} from where "
        f"the gradient vanishes. The estimate is one Newton step from there, which beyond {_FAR:g} standard errors is "
        "not exact: its intervals may be short. Use more rows, or synchronise more often."
    )


def _with_covariance(one_pass: Pass, request: Request, draws: FloatArray | None) -> Estimate:
    runs, readout = one_pass.runs, request.readout
    params = np.asarray(runs.last[0] if request.iterate == "last" else runs.average[0], dtype=float)
    if request.method in PATH_METHODS:
        cov = np.asarray(runs.observed[request.method][0], dtype=float) / one_pass.schedule.window
    elif draws is not None:
        cov = draws.T @ draws / len(draws)
    else:
        cov = _checked_covariance(one_pass, request.iterate)
    deviations = None if draws is None else draws @ readout.matrix.T
    return Estimate(
        readout.of(params), readout.cov(cov), request.level, request.method, request.names, deviations=deviations
    )


def _with_bias(estimate: Estimate, one_pass: Pass, request: Request) -> Estimate:
    """The diagnostic of bias, with drift subtracted on request."""
    readout = request.readout
    bias = BIAS[request.iterate](one_pass).shown(readout)
    if request.correct_drift:
        estimate = replace(estimate, params=estimate.params - bias.drift.clear[0])
        bias = bias._replace(drift=bias.drift._replace(value=bias.drift.value - bias.drift.clear))
    # In errors by the plug-in, whatever the method: random scaling has none of its own, only a random scale.
    plugin = estimate.method == "plugin"
    cov = estimate.cov if plugin else readout.cov(_checked_covariance(one_pass, request.iterate))
    ratio = bias.total[0] / np.sqrt(np.diag(cov))
    covered = predicted_coverage(ratio, estimate.level)
    parts = np.abs([bias.start[0], bias.drift.clear[0], bias.rest.clear[0]])
    cause = parts.argmax(axis=0)
    sure = np.choose(cause, [np.ones(len(cause), dtype=bool), bias.drift.sure[0], bias.rest.sure[0]])
    worst = int(np.where(sure, np.abs(ratio), 0.0).argmax())
    estimate = replace(estimate, bias=ratio, predicted_coverage=covered)
    if not sure[worst] or abs(ratio[worst]) <= WARN:
        return estimate
    return estimate.with_notes(
        f"Bias of {ratio[worst]:.2f} standard errors is estimated for {estimate.names[worst]}, whose interval then "
        f"covers about {covered[worst]:.2f} and not {estimate.level:g}; {_ADVICE[cause[worst]]}."
    )


def _checked_covariance(one_pass: Pass, iterate: str) -> FloatArray:
    """The covariance by the plug-in, (d, d); refused where it is none, or far beyond that of a run that has settled."""
    cov = COVARIANCE[iterate](one_pass)[0]
    settled = np.diag(sandwich(one_pass)[0])
    if iterate == "last":  # Theorem 2.2: wider by about eta_n N / 2
        settled = settled * max(1.0, one_pass.schedule.window * float(one_pass.schedule.eta[-1]))
    ratio = np.sqrt(np.diag(cov) / settled)
    if not np.all(ratio <= _WIDE):  # also where it is not a number
        raise ValueError(
            f"standard errors must be numbers, and at most {_WIDE:g} times those of the sandwich; here one is "
            f"{float(np.max(ratio)):.3g} times as large: the steps do not suit the problem. Use more, or smaller ones."
        )
    return cov


def _with_length(estimate: Estimate, one_pass: Pass) -> Estimate:
    """A note where the covariance is of too few gradients: joint sets suffer first."""
    clients = one_pass.clients
    seen, dim = clients.count * clients.places.shape[1], clients.places.shape[2]
    if seen >= _FEW * dim:
        return estimate
    return estimate.with_notes(
        f"The covariance of {dim} parameters comes from {seen} gradients: intervals are somewhat short, and joint sets "
        f"much too small. Use more steps, or sum up more often (every=1), until there are {_FEW * dim}."
    )


def heterogeneity(one_pass: Pass, busy: IntArray) -> ChiSquared | None:
    """Test whether the clients' optima differ: at no one place do all their mean gradients vanish, but for noise.

    The sum of p_k' Var(p_k)^-1 p_k of the mean gradients p_k at the best place, chi-squared with (K - 1) d. A variance
    estimated from m gradients makes a term too large by (m - 1) / (m - d - 2) on average, which is divided out.

    Parameters
    ----------
    one_pass : Pass
    busy : (K,) ndarray
        In how many of the steps that were summed up each client had data.

    Returns
    -------
    ChiSquared or None
        None where a client cannot tell, because a covariate is constant there or because it has hardly more rows than
        parameters.
    """
    clients = one_pass.clients
    n_clients, dim = clients.places.shape[1:]
    noise, hessians = np.linalg.eigvalsh(clients.noise_cov[0]), clients.hessians[0]
    if n_clients == 1 or busy.min() < dim + 3 or np.any(noise[:, 0] <= _SINGULAR * noise[:, -1]):
        return None
    certain = np.linalg.inv(clients.noise_cov[0]) * (clients.count * (busy - dim - 2) / (busy - 1))[:, None, None]
    best = np.linalg.solve(
        np.einsum("kij,kjl,klm->im", hessians, certain, hessians),
        -np.einsum("kij,kjl,kl->i", hessians, certain, clients.gradients_at(np.zeros((1, dim)))[0]),
    )
    pulls = clients.gradients_at(best[None])[0]
    statistic, dof = float(np.einsum("ki,kij,kj->", pulls, certain, pulls)), (n_clients - 1) * dim
    return ChiSquared(statistic, dof, float(stats.chi2.sf(statistic, dof)))


def population(estimate: Estimate, one_pass: Pass, readout: Readout) -> Estimate:
    """Treat clients as a sample: the variance between their pulls takes the place of the noise within them.

    The estimate is off by A^-1 sum_k w_k p_k, with p_k client k's mean gradient there: as with clustered data, the
    noise of each client is part of its p_k. For clients that are alike in law, r_k = p_k - sum_l w_l p_l has covariance
    (1 - 2 w_k + S) Var(p), S = sum_l w_l^2, so that

        A^-1 sum_k v_k r_k r_k' A^-1,    v_k = w_k^2 / (1 - 2 w_k + S)

    is unbiased. Student's t has the degrees of freedom of Satterthwaite, (tr Q)^2 / tr Q^2 with Q = C' diag(v) C and
    C = I - 1 w': K - 1 with equal weights, and fewer with others.
    """
    w = one_pass.weights
    n_clients = len(w)
    if n_clients < 3:
        raise ValueError(f"target='population' needs at least 3 clients to see how they vary; got {n_clients}.")
    pulls = one_pass.clients.gradients_at(np.asarray(one_pass.runs.average[:1], dtype=float))[0]
    v = w**2 / (1.0 - 2.0 * w + w @ w)
    r = pulls - w @ pulls
    inverse = np.linalg.inv(one_pass.hessian[0])
    centring = np.eye(n_clients) - w
    q = centring.T @ (v[:, None] * centring)
    dof = float(np.trace(q) ** 2 / np.sum(q * q))
    note = f"The population of clients is the target: intervals hold for other clients like these {n_clients}."
    if dof < n_clients - 1.5:
        note += f" By their weights they count like {dof + 1:.1f} equal ones."
    cov = readout.cov(inverse @ np.einsum("k,ki,kj->ij", v, r, r) @ inverse)
    return replace(estimate.with_notes(note), cov=cov, dof=dof)


def check_hessian(one_pass: Pass) -> None:
    """Refuse a Hessian that cannot be inverted, or that has all but vanished during the run."""
    values = np.linalg.eigvalsh(one_pass.hessian[0])
    if values[0] <= 1e-8 * values[-1]:
        raise ValueError(
            f"the Hessian A must be positive definite to infer; its eigenvalues go from {values[0]:.3g} to "
            f"{values[-1]:.3g}. Are columns nearly collinear, or of very different scales, or is there an outlier?"
        )
    if one_pass.preconditioned:
        left = float(np.linalg.eigvals(one_pass.first[0] @ one_pass.hessian[0]).real.min())
        if left < _VANISHED:
            raise ValueError(
                f"the Hessian must not vanish during the run; along one direction {left:.1g} of it is left, so the run "
                "has reached parameters about which rows say nothing. Are there too few rows for so many columns, or "
                "are classes nearly separable? Use more rows or fewer columns."
            )
