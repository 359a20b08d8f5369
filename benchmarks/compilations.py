"""How often the engine compiles during a sweep at one (K, d, R)."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import common
from common import Figure, Say

TAUS, GAMMAS, RHOS, BETAS, SEEDS = (1, 5, 20, 1000), (0.1, 1.0, 4.0), (0.0, 0.5, 0.9), (0.6, 0.75, 0.9), (0, 1)
LENGTHS = (300, 400, 512)


def measure() -> dict[str, Any]:
    """Sweep over sync, heterogeneity, mixing, step sizes and seeds; then over lengths up to the same power of two."""
    import fedgauss as fg
    from fedgauss.engine.loop import advance

    def job(tau: int, gamma: float, rho: float, beta: float, seed: int, n_steps: int = 500) -> None:
        problem = fg.problems.random_effects(10, 2, heterogeneity=gamma, seed=1907)
        network, steps = fg.networks.lazy(10, rho), fg.step_sizes.polynomial(0.3, beta=beta)
        fg.simulate(problem, network, steps, n_steps, sync_every=tau, replicates=200, seed=seed, progress=False)

    def compiled() -> int:
        return advance._cache_size()  # type: ignore[attr-defined]

    grid = list(itertools.product(TAUS, GAMMAS, RHOS, BETAS, SEEDS))
    first = common.seconds(partial(job, *grid[0]))
    later = sum(common.seconds(partial(job, *point)) for point in grid[1:])
    swept = compiled()
    for n_steps in LENGTHS:
        job(*grid[0], n_steps=n_steps)
    return {
        "jobs": len(grid),
        "first": first,
        "later": later / (len(grid) - 1),
        "compilations": swept,
        "with_lengths": compiled(),
    }


def figures(say: Say) -> list[Figure]:
    """The figures of this benchmark."""
    say("sweep over tau, gamma, rho, beta and seeds")
    result = common.fresh("compilations", "measure", {})
    return [
        Figure("jobs in the sweep (tau, gamma, rho, beta, seed)", result["jobs"]),
        Figure("compilations of the loop", result["compilations"], "", "1"),
        Figure("compilations, also with n = 300, 400, 512", result["with_lengths"], "", "1"),
        Figure("first job (n = 500, K = 10, d = 2, R = 200)", result["first"], "s"),
        Figure("each later job", result["later"], "s"),
    ]
