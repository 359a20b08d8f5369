"""`simulate`: many replicates of local SGD, folded over time; and several settings over the same random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import numpy as np

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._progress import ProgressBar
from fedgauss._random import Key, stage_key
from fedgauss._rounds import Optimiser, need_rounds, participants, round_numbers, working
from fedgauss._types import AnyArray, ArrayLike, BoolArray, FloatArray
from fedgauss.engine.chunks import Chunks
from fedgauss.engine.local_rules import LocalRules
from fedgauss.engine.loop import Algorithm, ResolvedStart, Start, resolve_start, stack
from fedgauss.engine.mixing import mixing_of
from fedgauss.engine.observers import Average, CusumPath, Disagreement, Last, Observer, Path, sup_partial_sum
from fedgauss.engine.participation import Presence
from fedgauss.engine.projections import Projection
from fedgauss.engine.runs import Runs
from fedgauss.engine.seats import seated
from fedgauss.networks import Network, as_network
from fedgauss.problems.base import Problem, checked_problem
from fedgauss.problems.linearize import exact_optimum, optimum
from fedgauss.step_sizes import PerClient, Steps, as_step_sizes, sync_mask, warn_if_unstable

_FEW_HESSIANS = 2**25  # numbers in those of all clients, 256 MB: beyond, a warning of large steps would cost too much


def simulate(
    problem: Problem,
    network: Network | ArrayLike | None,
    steps: Steps,
    n_steps: int,
    *,
    sync_every: int | BoolArray | None = 1,
    sync_phase: int = 0,
    replicates: int = 1,
    seed: int = 0,
    start: Start = "zeros",
    observe: Sequence[str | Observer] = (),
    keep: Literal["path"] | None = None,
    projection: Projection | None = None,
    participation: float | None = None,
    local_steps: ArrayLike | None = None,
    optimiser: Optimiser | None = None,
    after: int = 0,
    memory_budget: float = 2**30,
    progress: bool | None = None,
) -> Runs:
    """Run local SGD (Algorithm 1) `replicates` times: Theta_t = (Theta_{t-1} - eta_t G_t) C_t.

    Parameters
    ----------
    problem : Problem
        What the K clients minimise; see `fedgauss.problems`.
    network : Network, matrix, networkx graph or None
        Who averages with whom. None is allowed for a single client.
    steps : StepSizes or array of shape (n,) or (n, K)
        The step sizes eta_t, such as `step_sizes.polynomial(eta0, beta)`; one column per client if they differ.
    n_steps : int
        The number of steps n that every client takes.
    sync_every : int, array of n booleans or None
        tau: clients mix after step t when t % tau == sync_phase. A mask lists the steps itself; None means never.
    sync_phase : int
        The remainder of t at which clients mix.
    replicates : int
        The number R of independent runs.
    seed : int
        Fixes every random number.
    start : "zeros", "optimum", near_optimum(sd), or array of shape (d,), (K, d) or (R, K, d)
        Theta_0.
    observe : sequence of str or Observer
        What to record besides the average and the last iterate: "sup_partial_sum", "cusum", "disagreement", or objects
        from `fedgauss.observers`.
    keep : "path" or None
        "path" keeps every Y_t, as `runs.path` of shape (R, n, d).
    projection : Projection, optional
        A set Phi onto which clients are projected after each step.
    participation : float or int, optional
        The share of clients in (0, 1], or their number, that take part in a round, the steps up to the next mixing. As
        many are chosen at random for each round, all sets being equally likely. The others take no step and send
        nothing: their columns of G_t are zero, and C_t is `Network.among` those present. With a server
        (`networks.complete`) this is federated averaging: the mean over those present is where everybody begins the
        next round, and where at most half are present, absent clients cost nothing. On other networks, links to absent
        clients are down. None for everybody, always.
    local_steps : array of K whole numbers, optional
        How many steps each client takes in a round, the first ones; then it waits for the others, and its column of G_t
        is zero. Clients that take more steps count for more, unless their step sizes make up for it. None for all.
    optimiser : Optimiser, optional
        Momentum, FedProx, server momentum. None for plain steps.
    after : int
        Continue a shorter run: `start` is then Theta_after, steps `after` + 1, ..., n are made with the step sizes,
        mixing and data of these t, and averages and other observers cover these steps alone.
    memory_budget : float
        Bytes for the state of the replicates that run at once, on each device. Results never depend on it.
    progress : bool, optional
        Whether to show a progress bar. By default it is shown in a terminal or a notebook, when the run takes long.

    Returns
    -------
    Runs
        The averages Ybar_n, the last iterates Y_n and whatever was observed, replicates first.

    Raises
    ------
    DivergedError
        If a client leaves the finite numbers.

    Examples
    --------
    >>> import fedgauss as fg
    >>> problem = fg.problems.random_effects(n_clients=10, seed=1907)
    >>> steps = fg.step_sizes.polynomial(0.3, beta=0.75)
    >>> runs = fg.simulate(problem, fg.networks.ring(10), steps, n_steps=100, sync_every=20, replicates=50)
    >>> runs.average.shape
    (50, 2)
    """
    setting = Setting(
        problem,
        network,
        steps,
        sync_every,
        sync_phase,
        start,
        observe,
        projection,
        participation,
        local_steps,
        optimiser,
    )
    (runs,) = simulate_together(
        [setting.keeping(keep)],
        n_steps,
        replicates=replicates,
        seed=seed,
        after=after,
        memory_budget=memory_budget,
        progress=progress,
    )
    return runs


@dataclass(frozen=True)
class Setting:
    """What may differ between runs that share their random numbers; for `simulate_together`.

    Parameters
    ----------
    problem, network, steps, sync_every, sync_phase, start, observe, projection, participation, local_steps, optimiser
        As in `simulate`.

    Examples
    --------
    >>> import fedgauss as fg
    >>> problem = fg.problems.random_effects(n_clients=10, seed=1907)
    >>> often, rarely = (fg.Setting(problem, fg.networks.ring(10), [0.1] * 100, sync_every=tau) for tau in (1, 20))
    >>> rarely.sync_every
    20
    """

    problem: Problem
    network: Network | ArrayLike | None
    steps: Steps
    sync_every: int | BoolArray | None = 1
    sync_phase: int = 0
    start: Start = "zeros"
    observe: Sequence[str | Observer] = ()
    projection: Projection | None = None
    participation: float | None = None
    local_steps: ArrayLike | None = None
    optimiser: Optimiser | None = None

    def __post_init__(self) -> None:
        alone = isinstance(self.observe, str | Observer)  # a single one need not be in a list
        object.__setattr__(self, "observe", (self.observe,) if alone else tuple(self.observe))

    def keeping(self, keep: Literal["path"] | None) -> Setting:
        """This setting, with every Y_t kept if `keep` is "path"."""
        if keep is None:
            return self
        _checks.one_of("keep", keep, ["path"])
        return replace(self, observe=(*self.observe, Path(1)))


def simulate_together(
    settings: Sequence[Setting],
    n_steps: int,
    *,
    replicates: int = 1,
    seed: int = 0,
    after: int = 0,
    memory_budget: float = 2**30,
    progress: bool | None = None,
) -> list[Runs]:
    """`simulate` for each setting, to the same bits, in one pass: random numbers are drawn once for all.

    Drawing them is most of the work, so many settings cost little more than a few, and a comparison of two of them is
    free of most of the noise.

    Parameters
    ----------
    settings : sequence of Setting
        They must be of one kind and shape: the same family of problem, number of clients and dimensions, and the same
        observers; with `participation` also the same rounds (and equal numbers, or bits may differ from `simulate`).
    n_steps, replicates, seed, after, memory_budget, progress
        As in `simulate`, for all settings.

    Returns
    -------
    list of Runs
        One for each setting, in order.

    Examples
    --------
    >>> import fedgauss as fg
    >>> problem, ring = fg.problems.random_effects(n_clients=10, seed=1907), fg.networks.ring(10)
    >>> settings = [fg.Setting(problem, ring, [0.1] * 100, sync_every=tau) for tau in (1, 20)]
    >>> often, rarely = fg.simulate_together(settings, n_steps=100, replicates=50)
    >>> often.average.shape, rarely.average.shape
    ((50, 2), (50, 2))
    """
    if not settings:
        raise ValueError("settings must list at least one Setting; got none.")
    n_steps, replicates = _checks.step_number("n_steps", n_steps), _checks.whole("replicates", replicates)
    after = _checks.whole("after", after, at_least=0, at_most=n_steps - 1, fix="n_steps counts from step 1.")
    for setting in settings:
        _check_room(setting, n_steps, replicates)
    key = stage_key(seed, "data")
    if after and any(setting.optimiser is not None for setting in settings):
        raise ValueError(
            f"a run can only be continued with plain steps, since momentum and where rounds began are not kept; got "
            f"after={after} with an optimiser. Use after=0."
        )
    algorithms = [_algorithm(setting, n_steps, key) for setting in settings]
    starts = [resolve_start(s.start, s.problem, replicates) for s in settings]
    algorithm, theta_0 = _to_device(stack(seated(algorithms, starts))), _stacked_starts(starts)
    chunks = Chunks(algorithm, theta_0, stage_key(seed, "start"), n_steps, replicates, after)
    size = chunks.size(memory_budget)
    what = f"results of {replicates:,} replicates"
    check_memory(what, chunks.result_bytes() * replicates, "Use fewer replicates, or observe less.")
    values: dict[str, AnyArray] = {}
    with ProgressBar("simulating", replicates * (n_steps - after), progress) as bar:
        for first in range(0, replicates, size):
            for name, part in chunks.run(first, size, bar).items():
                shape = (len(settings), replicates, *part.shape[2:])
                every = values.setdefault(name, np.empty(shape, chunks.results[name].dtype))
                every[:, first : first + size] = part[:, : replicates - first]
                _check_finite(name, every[:, first : first + size])
    runs = []
    for s, setting in enumerate(settings):
        own = {name: every[s] for name, every in values.items()}
        runs.append(Runs(own.pop("average"), own.pop("last"), n_steps, setting.problem.n_clients, seed, own))
    return runs


def _check_room(setting: Setting, n_steps: int, replicates: int) -> None:
    """What is allocated before shapes are known to the engine: the average and the last iterate, and step sizes."""
    problem = checked_problem(setting.problem)
    what = f"results of {replicates:,} replicates in {problem.dim:,} dimensions"
    check_memory(what, 8 * replicates * problem.dim, "Use fewer replicates.")
    each = problem.n_clients if isinstance(setting.steps, PerClient) else 1
    check_memory(f"step sizes of {n_steps:,} steps", 40 * n_steps * each, "Use fewer steps, or `after` to go on.")


def _algorithm(setting: Setting, n_steps: int, key: Key) -> Algorithm:
    """Check a setting and assemble its arrays."""
    problem = checked_problem(setting.problem)
    need_rows(problem, n_steps)
    graph = as_network(setting.network, problem.n_clients)
    eta = _checked_eta(as_step_sizes(setting.steps).eta(n_steps), n_steps, problem.n_clients)
    mask = sync_mask(setting.sync_every, n_steps, setting.sync_phase)
    warned = problem.plain_steps and problem.n_clients * problem.dim**2 <= _FEW_HESSIANS
    try:
        known = exact_optimum(problem) if warned else None
    except ValueError:  # a problem without an optimum can be simulated all the same
        known = None
    if known is not None:
        warn_if_unstable(eta, known[1], problem.weights)
    region = setting.projection
    if region is not None:
        if not isinstance(region, Projection):
            raise ValueError(f"projection must be projections.ball(...) or projections.box(...); got {region!r}.")
        region.check(problem.dim)
    observers = (Average(), Last(), *(_observer(o, problem) for o in setting.observe))
    for observer in observers:
        observer.check(problem.dim, n_steps)
    presence = None
    if setting.participation is not None:
        need_rounds("participation", mask)
        presence = Presence(float(participants(setting.participation, problem.n_clients)), padded(round_numbers(mask)))
    works = None if setting.local_steps is None else padded(working(setting.local_steps, mask, problem.n_clients))
    mixing, rules = mixing_of(graph, problem.dim, presence), _rules(setting.optimiser, graph, mask)
    return Algorithm(problem, mixing, region, observers, padded(eta), padded(mask), key, presence, works, rules)


def need_rows(problem: Problem, n_steps: int, name: str = "n_steps") -> None:
    """Require that the data last for n steps; `name` is what the caller's user knows that number by."""
    longest = problem.max_steps()
    if longest is not None and n_steps > longest:
        raise ValueError(
            f"{name} must not exceed the steps that rows last for when each is read once; got {n_steps} > {longest}. "
            f"Use {name}={longest}, or from_arrays(..., order='replacement')."
        )


def _rules(optimiser: Optimiser | None, network: Network, mask: BoolArray) -> LocalRules | None:
    if optimiser is None:
        return None
    if not isinstance(optimiser, Optimiser):
        raise ValueError(f"optimiser must be an Optimiser; got {optimiser!r}. Use fg.Optimiser(momentum=0.9)?")
    optimiser.check(network, mask)
    return LocalRules(optimiser.momentum, optimiser.proximal, optimiser.server_momentum, optimiser.keep_momentum)


def _stacked_starts(starts: Sequence[ResolvedStart]) -> ResolvedStart:
    """Starts of several kinds as one: where one has noise, the others have noise of size zero."""
    if any(start.sd is not None for start in starts):
        starts = [start if start.sd is not None else replace(start, sd=0.0) for start in starts]
    shape = np.broadcast_shapes(*(start.fixed.shape for start in starts))
    return stack([replace(start, fixed=np.broadcast_to(start.fixed, shape)) for start in starts])


def _observer(choice: str | Observer, problem: Problem) -> Observer:
    if isinstance(choice, Observer):
        return choice
    name = _checks.one_of("observe", choice, ["sup_partial_sum", "cusum", "disagreement"])
    if name == "sup_partial_sum":
        return sup_partial_sum(optimum(problem))
    return CusumPath() if name == "cusum" else Disagreement()


def _checked_eta(eta: ArrayLike, n_steps: int, n_clients: int) -> FloatArray:
    """Step sizes (n,) or (n, K), finite and positive, wherever they come from."""
    array = _checks.real_array("step sizes", eta)
    if array.ndim == 2 and array.shape[1] != n_clients:
        raise ValueError(f"per-client steps must have {n_clients} columns, one per client; got {array.shape[1]}.")
    if array.ndim not in (1, 2) or len(array) != n_steps:
        raise ValueError(f"step sizes must have shape ({n_steps},) or ({n_steps}, {n_clients}); got {array.shape}.")
    if np.any(array <= 0):
        t = int(np.argmax((array <= 0).reshape(n_steps, -1).any(axis=1))) + 1
        raise ValueError(f"step sizes must be positive; at step {t} one is {np.min(array[t - 1]):g}.")
    return array


def _check_finite(name: str, values: AnyArray) -> None:
    if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
        raise ArithmeticError(
            f"{name} must be finite, but it left the range of float32 although every client stayed inside it. "
            "Rescale the problem so that iterates stay below 1e18."
        )


def padded(array: AnyArray) -> AnyArray:
    """Time padded to a power of two, so that runs of similar length share a compilation; short runs share one."""
    length = 1 << max(12 if array.ndim == 1 else 8, (len(array) - 1).bit_length())
    return np.concatenate([array, np.zeros((length - len(array), *array.shape[1:]), array.dtype)])


def _to_device(algorithm: Algorithm) -> Algorithm:
    """Move every array once, floating ones as float32; plain numbers become arrays, never compiled-in constants."""

    def narrow(leaf: Any) -> Any:
        array = np.asarray(leaf)
        return array.astype(np.float32) if array.dtype == np.float64 else array

    return jax.device_put(jax.tree.map(narrow, algorithm))
