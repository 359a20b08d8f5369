"""`infer`: an estimate, its covariance and its intervals, from one pass of local SGD."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike
from fedgauss.engine.folds import Observer
from fedgauss.inference.bootstrap import bootstrap_deviations
from fedgauss.inference.conclude import Question, check_hessian, conclude
from fedgauss.inference.estimate import Estimate, checked_names
from fedgauss.inference.path_methods import BatchMeans, RandomScaling
from fedgauss.inference.plain import run_plain
from fedgauss.inference.readout import Readout, as_it_is
from fedgauss.inference.row_batches import RowBatches
from fedgauss.inference.summaries import THINNED
from fedgauss.inference.whitened import run_whitened
from fedgauss.networks import Network, as_network
from fedgauss.problems.base import Problem, checked_problem
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
    every          clients sum up every so many steps, or the next number that has no factor in common with sync_every:
                   every place in a round must be seen, since clients are furthest apart at its end
    """
    checked_problem(problem)
    _checks.one_of("method", method, _METHODS)
    _checks.one_of("iterate", iterate, ["average", "last"])
    _checks.one_of("target", target, ["optimum", "population"])
    level = _checks.probability("level", level, fix="Use 0.95?")
    n_steps, tau = _checks.step_number("n_steps", n_steps), _checks.whole("sync_every", sync_every)
    if iterate == "last" and method in ("random_scaling", "batch_means"):
        raise ValueError(f"iterate='last' needs method='plugin' or 'bootstrap'; got {method!r}, which is of averages.")
    if target == "population" and (method != "plugin" or iterate == "last"):
        raise ValueError(
            "target='population' has a covariance of its own, that between clients, about the average; leave out "
            f"method={method!r} and iterate={iterate!r}."
        )
    every = _checks.whole("every", every)
    _check_length(n_steps, every, problem.dim, problem.n_clients, own_steps=steps is not None)
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
        _check_length(n_steps - before, every, problem.dim, problem.n_clients, own_steps=True)
        whole = run_plain(
            problem, graph, steps, n_steps, tau, burn_in=before, seed=seed, start=place, observe=watch, every=every,
            progress=progress,
        )  # fmt: skip
    check_hessian(whole)  # before chains take long
    draws = None
    if method == "bootstrap":
        chains = _checks.whole("bootstraps", bootstraps, at_least=20, fix="Fewer chains show no tail.")
        draws = bootstrap_deviations(
            problem, graph, whole, tau, chains, seed, last=iterate == "last", progress=progress
        )  # fmt: skip
    asked = Question(method, level, labels, shown, iterate, target, correct_drift)
    count = whole.summaries.count
    busy = problem.busy(count) if isinstance(problem, RowBatches) else np.full(problem.n_clients, count)
    return conclude(whole, asked, graph, tau, busy, draws)


def _share(burn_in: float) -> float:
    share = _checks.real("burn_in", burn_in)
    if not 0.0 <= share < 1.0:
        raise ValueError(f"burn_in must be a share of the run in [0, 1); got {share:g}. Use 0.2?")
    return share


def _check_length(n_steps: int, every: int, dim: int, n_clients: int, own_steps: bool) -> None:
    """Enough steps that are summed up: two rows a parameter in a burn-in of a fifth, or in a window."""
    needed = max(2, math.ceil(2 * dim / n_clients)) * every * (1 if own_steps else 5)
    if n_steps < needed:
        raise ValueError(
            f"n_steps must be at least {needed} to infer {dim} parameters with {n_clients} clients and every={every}; "
            f"got {n_steps}. Use more steps, or sum up more often (every=1)."
        )
