"""`infer_run`: intervals from one run of local SGD, for its average or its last iterate."""

import math
from collections.abc import Sequence
from typing import Literal, get_args

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._types import ArrayLike
from fedgauss.inference.client_steps import steps_with_rows
from fedgauss.inference.client_sums import THINNED
from fedgauss.inference.estimate import Estimate, Readout, checked_names, checked_readout
from fedgauss.inference.methods import CHAINS, PATH_METHODS, bootstrap_deviations
from fedgauss.inference.pass_estimate import Request, check_hessian, estimate_from_pass
from fedgauss.inference.passes import run_given_steps, run_whitened
from fedgauss.networks import Network, as_network
from fedgauss.networks.random_network import need_unchanging
from fedgauss.problems.base import Problem, checked_problem
from fedgauss.step_sizes import Steps

Method = Literal["plugin", "bootstrap", "random_scaling", "batch_means"]
METHODS: tuple[str, ...] = get_args(Method)
_BURN_IN = 0.2  # of a run with whitened steps, which are chosen in it


def infer_run(
    problem: Problem,
    network: Network | ArrayLike,
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
    """Run local SGD once and give intervals for theta*_K from it.

    The estimate is the average of the run (Theorem 2.1) or its last iterate (Theorem 2.2). Who wants the best estimate
    from rows that are read once, and not what a run of SGD is worth, takes `infer`.

    Parameters
    ----------
    problem : Problem
        What clients minimise; see `fedgauss.problems`.
    network : Network or (K, K) array_like
        Who averages with whom. Links may fail and pairs be drawn (`networks.failing`, `networks.gossip_pairs`): each
        mixing keeps the mean, so intervals of averages hold as they do on any network, if clients do not drift too far
        apart.
    steps : StepSizes or array_like, optional
        None for whitened steps, which suit any scale (`inference.passes`); or your own eta_t.
    n_steps, sync_every : int
        Rows of each client, one a step; and steps between two synchronisations.
    method : {"plugin", "bootstrap", "random_scaling", "batch_means"}
        "plugin" uses sums of gradients, their squares and Hessians, d x d numbers for each client. "bootstrap" runs
        chains whose gradient noise is multiplied at random; only parameters are shared. "random_scaling" and
        "batch_means" use the path of the mean, which must be known after every step.
    level : float
        Level of the intervals.
    seed : int
        Fixes every random number.
    iterate : {"average", "last"}
        The last iterate is wider, for clients that keep no averages.
    target : {"optimum", "population"}
        theta*_K of these clients, or the mean over all clients like these.
    burn_in : float, optional
        Share of the run that averages leave out, with steps of your own; whitened steps always use a fifth.
    correct_drift : bool
        Subtract from an average the estimated bias of clients that drift apart between mixings. It changes neither the
        plug-in with every=1, which has no such bias, nor the last iterate.
    bootstraps : int
        Number of chains of the bootstrap.
    start : (d,) array_like, optional
        Where clients start; zero by default.
    names : sequence of str, optional
        Names of the parameters.
    readout : Readout, optional
        Report this affine map of theta in place of theta itself.
    every : int
        Clients add to their sums at every so many steps of the window, or at the next number that has no factor in
        common with `sync_every`: every place in a round must be seen, since clients are furthest apart at its end. With
        every=1 the plug-in is where the gradient of the window vanishes, one Newton step from the average.
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
    >>> estimate = fg.infer_run(problem, fg.networks.ring(10), n_steps=2000, sync_every=20)
    >>> estimate.method, len(estimate.params)
    ('plugin', 2)
    """
    checked_problem(problem)
    _checks.one_of("method", method, METHODS)
    _checks.one_of("iterate", iterate, ["average", "last"])
    _checks.one_of("target", target, ["optimum", "population"])
    level = _checks.level(level)
    n_steps, tau = _checks.step_number("n_steps", n_steps), _checks.whole("sync_every", sync_every)
    every = _checks.whole("every", every)
    if iterate == "last" and method in PATH_METHODS:
        raise ValueError(f"iterate='last' needs method='plugin' or 'bootstrap'; got {method!r}, which is of averages.")
    if target == "population" and (method != "plugin" or iterate == "last"):
        raise ValueError(
            "target='population' has a covariance of its own, that between clients, about the average; leave out "
            f"method={method!r} and iterate={iterate!r}."
        )
    before = _checked_burn_in(burn_in, largest_step, n_steps, whitened=steps is None)
    summed = before if steps is None else n_steps - before  # whitened steps are chosen from sums over the burn-in
    _check_length(n_steps, summed, every, problem)
    graph = as_network(network, problem.n_clients)
    chains = _checked_chains(bootstraps, problem, graph) if method == "bootstrap" else 0
    theta = None if start is None else _checks.real_array("start", start, shape=(problem.dim,))
    request = Request(
        method, level, checked_names(names, problem.dim), checked_readout(readout, problem.dim), iterate, target,
        correct_drift,
    )  # fmt: skip
    watch = [PATH_METHODS[method]] if method in PATH_METHODS else []
    if steps is None:
        one_pass = run_whitened(
            problem, graph, n_steps, tau, seed=seed, start=theta, observe=watch, every=every, largest=largest_step,
            progress=progress,
        )  # fmt: skip
    else:
        one_pass = run_given_steps(
            problem, graph, steps, n_steps, tau, burn_in=before, seed=seed, start=theta, observe=watch, every=every,
            progress=progress,
        )  # fmt: skip
    check_hessian(one_pass)  # before chains take long
    draws = None
    if chains:
        draws = bootstrap_deviations(
            problem, graph, one_pass, tau, chains, seed, last=iterate == "last", progress=progress
        )
    return estimate_from_pass(one_pass, request, graph, tau, steps_with_rows(problem, one_pass.clients.count), draws)


def _checked_burn_in(share: float | None, largest_step: float | None, n_steps: int, whitened: bool) -> int:
    """Steps before the window."""
    if whitened:
        if share is not None:
            raise ValueError("burn_in belongs to steps of your own; whitened steps have a fifth. Leave it out.")
        if largest_step is not None:
            _checks.real("largest_step", largest_step, above=0.0, fix="Leave it out for 1 / (d + 2).")
        return int(_BURN_IN * n_steps)
    if largest_step is not None:
        raise ValueError(f"largest_step={largest_step:g} belongs to whitened steps, not to your own. Leave out one.")
    share = 0.0 if share is None else _checks.real("burn_in", share)
    if not 0.0 <= share < 1.0:
        raise ValueError(f"burn_in must be a share of the run in [0, 1); got {share:g}. Use 0.2?")
    return int(share * n_steps)


def _checked_chains(bootstraps: int, problem: Problem, graph: Network) -> int:
    """Chains of the bootstrap, which must fit into memory and have a network that stays as it is."""
    chains = _checks.whole("bootstraps", bootstraps, at_least=20, fix="Fewer chains show no tail.")
    check_memory(f"{chains:,} bootstrap chains", 16 * chains * problem.dim, "Use fewer bootstraps.")
    need_unchanging(CHAINS, graph)
    return chains


def _check_length(n_steps: int, summed: int, every: int, problem: Problem) -> None:
    """Require two rows for each parameter among the steps that are summed up, in the burn-in or in the window."""
    needed = max(2, math.ceil(2 * problem.dim / problem.n_clients)) * every
    if summed < needed:
        least = math.ceil(needed * n_steps / max(summed, 1))
        raise ValueError(
            f"n_steps must be at least {least} to infer {problem.dim} parameters "
            f"with {problem.n_clients} clients and every={every}; got {n_steps}. Use more steps"
            f"{', or sum up more often (every=1)' if every > 1 else ''}."
        )
