"""`infer`: an estimate from all rows or from one pass of local SGD, its covariance, and whether clients are alike."""

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._types import ArrayLike, IntArray
from fedgauss.engine.simulate import need_rows
from fedgauss.inference.client_steps import RowBatches
from fedgauss.inference.client_sums import THINNED
from fedgauss.inference.estimate import Estimate, Readout, checked_names, checked_readout
from fedgauss.inference.methods import CHAINS, PATH_METHODS, bootstrap_deviations
from fedgauss.inference.pass_estimate import Request, check_hessian, estimate_from_pass
from fedgauss.inference.passes import run_given_steps, run_whitened
from fedgauss.inference.row_estimate import estimate_from_rows
from fedgauss.inference.solution import all_rows
from fedgauss.networks import Network, as_network
from fedgauss.networks.random_network import need_unchanging
from fedgauss.problems.base import Problem, checked_problem
from fedgauss.step_sizes import Steps, as_step_sizes

Method = Literal["plugin", "bootstrap", "random_scaling", "batch_means"]
METHODS: tuple[str, ...] = get_args(Method)


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
    correct_bias: bool = False,
    bootstraps: int = 200,
    start: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    readout: Readout | None = None,
    every: int | None = None,
    largest_step: float | None = None,
    progress: bool | None = None,
) -> Estimate:
    """Estimate theta*_K with its covariance, reading every row once but for a few that are kept.

    By default the estimate is where the mean gradient of all rows vanishes, by Newton steps from sums that clients keep
    (`inference.solution`). It takes no steps of SGD, so that network, step sizes and drift cannot bias it. Clients keep
    their first rows, more where these tell little, and all where one row outweighs the others. With another `method`, a
    number for `every`, or ``iterate="last"``, it is an average or an iterate of one pass of local SGD.

    Parameters
    ----------
    problem : Problem
        What clients minimise; see `fedgauss.problems`.
    network : Network or (K, K) array_like or None
        Who averages with whom. Links may fail and pairs be drawn (`networks.failing`, `networks.gossip_pairs`): each
        mixing keeps the mean, so intervals of averages hold as they do on any network, if clients do not drift too far
        apart.
    steps : StepSizes or array_like, optional
        For averages and iterates: None for whitened steps, which suit any scale (`inference.passes`); or your own
        eta_t. The default needs none.
    n_steps, sync_every : int
        Rows of each client, one a step; and steps between two synchronisations, which the default does not need.
    method : {"plugin", "bootstrap", "random_scaling", "batch_means"}
        "plugin" uses sums of gradients, their squares and Hessians, d x d numbers for each client. By default these
        are of all rows: intervals have the width of the pooled fit's, and are Student's with `dof` degrees of freedom.
        "bootstrap" runs chains whose gradient noise is multiplied at random; only parameters are shared.
        "random_scaling" and "batch_means" use the path of the mean, which must be known after every step.
    level : float
        Level of the intervals.
    seed : int
        Fixes every random number.
    iterate : {"average", "last"}
        The last iterate (Theorem 2.2) is wider, for clients that keep no averages. "average" is the estimate from all
        rows by default, and with another method or a number for `every` the average over the window (Theorem 2.1).
    target : {"optimum", "population"}
        theta*_K of these clients, or the mean over all clients like these.
    burn_in : float, optional
        Share of the run that averages leave out, with steps of your own; whitened steps always use a fifth. The
        estimate from all rows leaves none out.
    correct_drift : bool
        Subtract from an average the estimated bias of clients that drift apart between mixings. It changes neither the
        default nor the plug-in with every=1, which have no such bias, nor the last iterate.
    correct_bias : bool
        Subtract from the estimate from all rows its bias of order 1 / n, which the pooled fit has, too. It matters
        where there are few rows for so many parameters, and a note says so.
    bootstraps : int
        Number of chains of the bootstrap.
    start : (d,) array_like, optional
        Where clients start, and Newton steps; zero by default.
    names : sequence of str, optional
        Names of the parameters.
    readout : Readout, optional
        Report this affine map of theta in place of theta itself.
    every : int, optional
        None is for the estimate from all rows described above; other methods and the last iterate then have sums of
        every seventh step. With a number, clients add to their sums in the window alone, at every so many steps or at
        the next number that has no factor in common with `sync_every` (every place in a round must be seen, since
        clients are furthest apart at its end): the plug-in is then about the average of the window, or, with every=1,
        where the gradient of the window vanishes.
    largest_step : float, optional
        No whitened step has a larger eta_t; 1 / (d + 2) by default. Smaller ones suit rare outcomes.
    progress : bool, optional
        Whether to show a progress bar; by default in a terminal and for long runs.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> import fedgauss as fg
    >>> problem = fg.problems.random_effects(n_clients=10, seed=1907)
    >>> estimate = fg.infer(problem, fg.networks.ring(10), n_steps=2000, sync_every=20)
    >>> estimate.conf_int().round(2)
    array([[ 1.7 ,  1.77],
           [-2.4 , -2.33]])
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
    whole = every is None and method == "plugin" and iterate == "average"
    step = THINNED if every is None else _checks.whole("every", every)
    chains = 0
    if method == "bootstrap":
        chains = _checks.whole("bootstraps", bootstraps, at_least=20, fix="Fewer chains show no tail.")
        check_memory(f"{chains:,} bootstrap chains", 16 * chains * problem.dim, "Use fewer bootstraps.")
    _check_length(n_steps, 1 if whole else step, problem.dim, problem.n_clients, whitened=steps is None and not whole)
    if whole:
        need_rows(problem, n_steps)
        _check_rows(n_steps, problem)
    graph = as_network(network, problem.n_clients)
    if method == "bootstrap":
        need_unchanging(CHAINS, graph)
    if largest_step is not None:
        largest_step = _checks.real("largest_step", largest_step, above=0.0, fix="Leave it out for 1 / (d + 2).")
    labels = checked_names(names, problem.dim)
    theta = None if start is None else _checks.real_array("start", start, shape=(problem.dim,))
    request = Request(
        method, level, labels, checked_readout(readout, problem.dim), iterate, target, correct_drift, correct_bias
    )
    share = 0.0 if burn_in is None else _checks.real("burn_in", burn_in)
    if not 0.0 <= share < 1.0:
        raise ValueError(f"burn_in must be a share of the run in [0, 1); got {share:g}. Use 0.2?")
    if steps is not None and largest_step is not None:
        raise ValueError(f"largest_step={largest_step:g} belongs to whitened steps, not to your own. Leave out one.")
    if steps is None and burn_in is not None:
        instead = "the estimate from all rows leaves none out" if whole else "whitened steps have a fifth of the run"
        raise ValueError(f"burn_in belongs to averages with steps of your own; {instead}. Leave it out.")
    if correct_bias and not whole:
        raise ValueError("correct_bias is for the estimate from all rows; averages have correct_drift. Leave it out.")
    if whole:
        if steps is not None:
            as_step_sizes(steps)  # not needed, but refused where they are none
        begin = np.zeros(problem.dim) if theta is None else theta
        solution = all_rows(problem, n_steps, 1, seed, begin, progress, correct_bias)
        return estimate_from_rows(solution, request, np.asarray(problem.weights), graph, _busy(problem, n_steps))
    watch = [PATH_METHODS[method]] if method in PATH_METHODS else []
    if steps is None:
        one_pass = run_whitened(
            problem, graph, n_steps, tau, seed=seed, start=theta, observe=watch, every=step, largest=largest_step,
            progress=progress,
        )  # fmt: skip
    else:
        before = int(share * n_steps)
        _check_length(n_steps - before, step, problem.dim, problem.n_clients, whitened=False)
        one_pass = run_given_steps(
            problem, graph, steps, n_steps, tau, burn_in=before, seed=seed, start=theta, observe=watch, every=step,
            progress=progress,
        )  # fmt: skip
    check_hessian(one_pass)  # before chains take long
    draws = None
    if method == "bootstrap":
        draws = bootstrap_deviations(
            problem, graph, one_pass, tau, chains, seed, last=iterate == "last", progress=progress
        )
    busy = _busy(problem, one_pass.clients.count)
    return estimate_from_pass(one_pass, request, graph, tau, busy, draws)


def _busy(problem: Problem, count: int) -> IntArray:
    """In how many of `count` steps each client has data, (K,)."""
    return problem.busy(count) if isinstance(problem, RowBatches) else np.full(problem.n_clients, count)


def _check_length(n_steps: int, every: int, dim: int, n_clients: int, whitened: bool) -> None:
    """Require two rows for each parameter among the steps summed up, in a burn-in of a fifth or in a window."""
    needed = max(2, math.ceil(2 * dim / n_clients)) * every * (5 if whitened else 1)
    if n_steps < needed:
        raise ValueError(
            f"n_steps must be at least {needed} to infer {dim} parameters with {n_clients} clients and every={every}; "
            f"got {n_steps}. Use more steps{', or sum up more often (every=1)' if every > 1 else ''}."
        )


def _check_rows(n_steps: int, problem: Problem) -> None:
    """Require two rows that count alike for each parameter: n / sum_k w_k^2, fewer than n K if weights differ."""
    share = float(np.sum(np.asarray(problem.weights, dtype=float) ** 2))
    needed = math.ceil(2 * problem.dim * share)
    if n_steps < needed:
        raise ValueError(
            f"n_steps must be at least {needed} to infer {problem.dim} parameters with these weights, which make "
            f"{problem.n_clients} clients worth {1 / share:.1f}; got {n_steps}. Use more steps."
        )
