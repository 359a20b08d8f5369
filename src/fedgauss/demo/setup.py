"""What the second chapter simulates: ten clients on a ring."""

from dataclasses import dataclass

from fedgauss import _checks, networks, step_sizes
from fedgauss.networks import Network
from fedgauss.problems.regression import Regression, random_effects
from fedgauss.step_sizes import Polynomial

PROBLEM_SEED = 1907  # fixes the clients; the seed of the set-up fixes the runs


@dataclass(frozen=True)
class DemoSetup:
    """Every number of the run."""

    problem: Regression
    network: Network
    steps: Polynomial
    replicates: int
    seed: int
    n_steps: int = 500
    sync_every: int = 20
    checkpoints: tuple[int, ...] = (50, 100, 200, 300, 400, 500)  # ends with n_steps


def demo_setup(replicates: int = 2000, seed: int = 0) -> DemoSetup:
    """FRand-eff (Appendix F): ten clients on a ring, mixing every 20 of 500 steps, eta_t = 0.3 t^-0.75.

    Parameters
    ----------
    replicates : int
        Simulated runs from each start.
    seed : int
        Fixes every random number of the runs.
    """
    fix = "Use 2000: fewer than 200 leave rough Monte Carlo errors, and a million take minutes."
    return DemoSetup(
        problem=random_effects(n_clients=10, dim=2, heterogeneity=1.0, seed=PROBLEM_SEED),
        network=networks.ring(10),
        steps=step_sizes.polynomial(0.3, beta=0.75),
        replicates=_checks.whole("replicates", replicates, at_least=200, at_most=1_000_000, fix=fix),
        seed=_checks.seed(seed),
    )
