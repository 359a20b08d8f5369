"""What the demonstration runs: ten clients on a ring, and an attack by half of them."""

from dataclasses import dataclass

import numpy as np

from fedgauss import _checks, networks, step_sizes
from fedgauss._types import FloatArray
from fedgauss.networks import Network
from fedgauss.problems.attacked import MeanShift
from fedgauss.problems.attacks import mean_shift
from fedgauss.problems.regression import Regression, linear, random_effects
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


@dataclass(frozen=True)
class StagedAttack:
    """Which clients turn malicious, when and how, and how long the run is monitored."""

    honest: Regression
    attackers: tuple[int, ...]  # counted from 0
    shift: float = 2.0  # added to each of their coefficients
    begins: int = 251  # the first malicious step
    n_steps: int = 500
    wait: int = 100  # steps from the alarm until the monitor is asked for the malicious clients
    replicates: int = 200  # the first is told step by step, all of them are counted

    @property
    def noise_sd(self) -> FloatArray:
        """sigma_k, (K,)."""
        return np.sqrt(self.honest.noise_var)

    def problem(self, begins: int) -> MeanShift:
        """The clients with an attack from step `begins`; one after the last step leaves them honest."""
        return mean_shift(self.honest, self.attackers, self.shift, begins)


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


def demo_attack(setup: DemoSetup) -> StagedAttack:
    """Half of the clients of `setup` turn halfway through; noise of sd 1 to 5 in turn makes some hard to find."""
    count = setup.network.n_clients
    honest = linear(setup.problem.coefficients, np.resize([1.0, 2.0, 3.0, 4.0, 5.0], count) ** 2)
    return StagedAttack(honest, attackers=tuple(range(count // 2)))
