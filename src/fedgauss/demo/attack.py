"""The attack that the demonstration watches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.demo.setup import Setup
from fedgauss.problems.attacked import MeanShift
from fedgauss.problems.attacks import mean_shift
from fedgauss.problems.regression import Regression, linear


@dataclass(frozen=True)
class Attack:
    """Who turns malicious, when and how, and how long the run is watched."""

    honest: Regression
    attackers: tuple[int, ...]  # counted from 0
    shift: float  # added to each of their coefficients
    begins: int  # the first malicious step
    n_steps: int
    wait: int  # steps from the alarm to the question who it was
    replicates: int  # the first is told step by step, all of them are counted

    @property
    def noise_sd(self) -> FloatArray:
        """sigma_k, (K,)."""
        return np.sqrt(self.honest.noise_var)

    def problem(self) -> MeanShift:
        """The clients, with the attack."""
        return mean_shift(self.honest, self.attackers, self.shift, self.begins)

    def without(self) -> MeanShift:
        """The clients without it: it would begin after the last step, so that both share a compilation."""
        return mean_shift(self.honest, self.attackers, self.shift, self.n_steps + 1)


def demo_attack(setup: Setup) -> Attack:
    """Half of the clients of `setup` turn halfway through; noise of sd 1 to 5 in turn makes some hard to find."""
    count = setup.network.n_clients
    return Attack(
        honest=linear(setup.problem.coefficients, np.resize([1.0, 2.0, 3.0, 4.0, 5.0], count) ** 2),
        attackers=tuple(range(count // 2)),
        shift=2.0,
        begins=251,
        n_steps=500,
        wait=100,
        replicates=200,
    )
