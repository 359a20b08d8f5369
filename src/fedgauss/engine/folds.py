"""The contract of an observer, a fold over the path: what it is told of a step, and what it must answer.

An observer has three parts: `init` makes its state from Theta_0, `update` takes one step into account, and
`value` reads named results off the state. Replicates are the last axis of everything.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import jax.numpy as jnp

from fedgauss._types import JaxArray
from fedgauss.problems.base import Problem


class Step(NamedTuple):
    """What happened at step t: Theta_{t-1}, the data drawn, the clients' own steps, Theta_t and Y_t, its mean.

        moved = Theta_{t-1} - eta_t G_t,    theta = Theta_t = Phi(moved C_t),    mean = Y_t = K^-1 Theta_t 1

    What no observer reads is not computed on its account: the compiler drops it.
    """

    t: JaxArray
    problem: Problem
    before: JaxArray  # (d, K, R)
    data: Any
    moved: JaxArray  # (d, K, R), before mixing and projection
    theta: JaxArray  # (d, K, R)
    mean: JaxArray  # (d, R)


class Observer(abc.ABC):
    """The contract of a fold.

    `keeps_time` says whether the state has a place for each step. Where it has none, runs of other lengths share the
    program that makes it, and `init` is told that n_steps is 0.
    """

    keeps_time: bool = True

    @abc.abstractmethod
    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """The state before the first step."""

    @abc.abstractmethod
    def update(self, state: Any, step: Step) -> Any:
        """The state after one more step."""

    @abc.abstractmethod
    def value(self, state: Any) -> dict[str, JaxArray]:
        """Results by name, replicates last."""

    def check(self, dim: int, n_steps: int) -> None:  # noqa: B027 - most observers suit every run
        """Raise if this observer does not fit a run of n_steps in dim dimensions."""


class Sum(NamedTuple):
    """A running sum with Neumaier's compensation, so that a million float32 terms lose nothing that matters."""

    total: JaxArray
    lost: JaxArray

    @classmethod
    def zero(cls, like: JaxArray) -> Sum:
        """The empty sum."""
        return cls(jnp.zeros_like(like), jnp.zeros_like(like))

    def add(self, term: JaxArray) -> Sum:
        """The sum with one more term."""
        total = self.total + term
        larger = jnp.abs(self.total) >= jnp.abs(term)
        lost = jnp.where(larger, (self.total - total) + term, (term - total) + self.total)
        return Sum(total, self.lost + lost)

    @property
    def result(self) -> JaxArray:
        """The compensated sum."""
        return self.total + self.lost
