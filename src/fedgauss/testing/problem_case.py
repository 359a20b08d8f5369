"""A problem under examination: where it is looked at, and what is drawn there."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.problems.base import Moments, Problem
from fedgauss.testing.battery import not_applicable
from fedgauss.testing.evaluation import SEED, evaluate, everywhere

ROUNDING = 1e-4  # relative, between programs in float32
_MANY = 8192  # draws of checks by sampling; fewer where K d is large
_DIRECTIONS = 6  # along which matrices are compared; all of them up to so many dimensions


class ProblemCase:
    """A problem, and what several checks look at."""

    def __init__(self, problem: Problem, at: ArrayLike | None) -> None:
        self.problem, self._at = problem, at

    @cached_property
    def shape(self) -> tuple[int, int]:
        """(d, K)."""
        return self.problem.dim, self.problem.n_clients

    @cached_property
    def at(self) -> FloatArray:
        """Where gradients are compared."""
        if self._at is not None:
            return _checks.real_array("at", self._at, shape=(self.problem.dim,))
        offset = np.random.default_rng(SEED).standard_normal(self.problem.dim)
        return np.asarray(self.problem.guess(), float) + 0.25 * offset

    @cached_property
    def count(self) -> int:
        """How many draws fit into a few dozen megabytes."""
        return max(512, min(_MANY, 2**22 // (self.problem.dim * self.problem.n_clients) // 32 * 32))

    @cached_property
    def theta(self) -> FloatArray:
        """Other parameters for each client and replicate, (d, K, R)."""
        offsets = np.random.default_rng(SEED + 1).standard_normal((*self.shape, self.count))
        return self.at[:, None, None] + 0.25 * offsets

    @cached_property
    def drawn(self) -> tuple[Any, JaxArray]:
        """Data of the first step, and the gradients there."""
        return evaluate(self.problem, self.theta)

    @cached_property
    def gradient(self) -> FloatArray:
        """The gradients of the first step, (d, K, R)."""
        return np.asarray(self.drawn[1], float)

    def gradients(self, t: int = 1, seed: int = SEED) -> FloatArray:
        """Gradients of everybody at one point, (d, K, R)."""
        theta = everywhere(self.at, self.problem.n_clients, self.count)
        return np.asarray(evaluate(self.problem, theta, t, seed=seed)[1], float)

    @cached_property
    def directions(self) -> FloatArray:
        """Orthonormal rows: every coordinate where there are few."""
        dim = self.problem.dim
        if dim <= _DIRECTIONS:
            return np.eye(dim)
        return np.linalg.qr(np.random.default_rng(SEED).standard_normal((dim, _DIRECTIONS)))[0].T

    def moments(self, at: FloatArray | None = None) -> Moments:
        """The closed forms."""
        found = self.problem.moments(self.at if at is None else at)
        if found is None:
            not_applicable("it has no closed-form moments")
        return found


def float32(array: FloatArray) -> JaxArray:
    """As the engine has it."""
    return jnp.asarray(array, jnp.float32)
