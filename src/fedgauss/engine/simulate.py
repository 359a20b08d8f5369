"""`simulate`: many replicates of local SGD, folded over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fedgauss._types import ArrayLike, BoolArray
from fedgauss.engine.observers import Observer
from fedgauss.engine.projections import Projection
from fedgauss.engine.runs import Runs
from fedgauss.engine.starts import Start
from fedgauss.engine.together import Setting, simulate_together
from fedgauss.networks import Network
from fedgauss.problems.base import Problem
from fedgauss.step_sizes import StepSizes


def simulate(
    problem: Problem,
    network: Network | ArrayLike | None,
    steps: StepSizes | ArrayLike,
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
    after : int
        Continue a shorter run: `start` is then Theta_after, steps `after` + 1, ..., n are made with the step sizes,
        mixing and data of these t, and averages and other observers cover these steps alone.
    memory_budget : float
        Bytes for the state of the replicates that run at once. Results never depend on it.
    progress : bool, optional
        Whether to show a progress bar. By default it is shown in a terminal, when the run takes long.

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
    setting = Setting(problem, network, steps, sync_every, sync_phase, start, observe, projection).keeping(keep)
    (runs,) = simulate_together(
        [setting], n_steps, replicates=replicates, seed=seed, after=after, memory_budget=memory_budget,
        progress=progress,
    )  # fmt: skip
    return runs
