"""What the demonstration runs."""

from __future__ import annotations

from dataclasses import dataclass

from fedgauss import _checks, networks, step_sizes
from fedgauss.networks import Network
from fedgauss.problems.regression import Regression, random_effects
from fedgauss.step_sizes import Polynomial

PROBLEM_SEED = 1907  # fixes the clients; the seed of the set-up fixes the runs


@dataclass(frozen=True)
class Setup:
    """Every number of the run."""

    problem: Regression
    network: Network
    steps: Polynomial
    n_steps: int
    sync_every: int
    checkpoints: tuple[int, ...]  # ends with n_steps
    replicates: int
    seed: int


def demo_setup(replicates: int = 2000, seed: int = 0) -> Setup:
    """FRand-eff (Appendix F): ten clients on a ring, mixing every 20 of 500 steps, eta_t = 0.3 t^-0.75."""
    return Setup(
        problem=random_effects(n_clients=10, dim=2, heterogeneity=1.0, seed=PROBLEM_SEED),
        network=networks.ring(10),
        steps=step_sizes.polynomial(0.3, beta=0.75),
        n_steps=500,
        sync_every=20,
        checkpoints=(50, 100, 200, 300, 400, 500),
        replicates=_checks.whole(
            "replicates",
            replicates,
            at_least=200,
            at_most=1_000_000,
            fix="Use 2000: fewer than 200 leave rough Monte-Carlo errors, and a million take minutes.",
        ),
        seed=_checks.whole("seed", seed, at_least=0),
    )
