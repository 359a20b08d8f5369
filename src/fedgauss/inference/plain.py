"""One pass with step sizes of the user's own, and no preconditioner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedgauss._types import ArrayLike, FloatArray
from fedgauss.engine.folds import Observer
from fedgauss.engine.simulate import simulate
from fedgauss.inference.passes import LastClients, Pass, Schedule
from fedgauss.inference.summaries import THINNED, ClientSums, summaries, unaligned
from fedgauss.networks import Network
from fedgauss.problems.base import Problem
from fedgauss.step_sizes import StepSizes, as_step_sizes


def run_plain(
    problem: Problem,
    network: Network | ArrayLike | None,
    steps: StepSizes | ArrayLike,
    n_steps: int,
    sync_every: int,
    *,
    burn_in: int = 0,
    seed: int = 0,
    start: FloatArray | None = None,
    observe: Sequence[Observer] = (),
    every: int = THINNED,
    progress: bool | None = None,
) -> Pass:
    """Local SGD as `simulate` runs it; the window begins after `burn_in` steps, and `observe` watches it."""
    eta = np.asarray(as_step_sizes(steps).eta(n_steps), dtype=float)
    if eta.ndim > 1:
        raise ValueError("steps must be the same for all clients to infer from their average; got one for each.")
    place, weights = np.zeros(problem.dim) if start is None else start, np.asarray(problem.weights, dtype=float)
    options = {"sync_every": sync_every, "seed": seed, "progress": progress}
    begun = np.asarray(place)
    if burn_in:
        first = simulate(problem, network, eta[:burn_in], burn_in, start=place, observe=[LastClients()], **options)  # type: ignore[arg-type]
        begun = first.last_clients
    watch = [ClientSums(unaligned(every, sync_every)), *observe]
    runs = simulate(problem, network, eta, n_steps, after=burn_in, start=begun, observe=watch, **options)  # type: ignore[arg-type]
    known = summaries(runs.observed)
    identity = np.eye(problem.dim)[None]
    plan = Schedule(eta, burn_in)
    return Pass(runs, known, identity, identity, known.hessian(weights), plan, weights, place, preconditioned=False)
