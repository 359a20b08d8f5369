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

    network        a Network, a mixing matrix or a networkx graph
    steps          eta_t: `step_sizes.polynomial(eta0, beta)`, or an array (n,) or (n, K)
    sync_every     tau, or a mask (n,); clients mix after step t when t % tau == sync_phase; None for never
    start          "zeros", "optimum", near_optimum(sd), or an array (d,), (K, d) or (R, K, d)
    observe        more folds: "sup_partial_sum", "cusum", "disagreement", or objects of `observers`
    keep           "path" keeps every Y_t: runs.path is (R, n, d)
    projection     a set Phi that clients are projected onto after each step
    after          begin with step after + 1, to go on from where a shorter run ended: `start` is Theta_after, averages
                   and other folds are over the steps made here, and step sizes, mixing and data are those of t > after
    memory_budget  bytes for the state of the replicates that run at once; results never depend on it
    progress       show a bar (None: in a terminal, when the run takes long)
    """
    setting = Setting(problem, network, steps, sync_every, sync_phase, start, observe, projection).keeping(keep)
    options = {"replicates": replicates, "seed": seed, "memory_budget": memory_budget, "progress": progress}
    (runs,) = simulate_together([setting], n_steps, after=after, **options)  # type: ignore[arg-type]
    return runs
