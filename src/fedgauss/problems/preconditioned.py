"""Steps that suit the problem's shape: gradients times a matrix P, with a guard against steps that go too far."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from fedgauss._lanes import add_up, times
from fedgauss._random import Noise
from fedgauss._types import FloatArray, JaxArray
from fedgauss.problems.base import WrappedProblem, pytree

# How a step of relative size q is shortened: "damped" divides it by 1 + q, "capped" by q when q > 1.
Guard = Literal["damped", "capped"]


@pytree
class Preconditioned(WrappedProblem):
    """The clients of `problem`, stepping along P g in place of g: theta <- theta - eta_t K w_k P g / (guard).

    With P near the inverse Hessian all directions converge alike, whatever the scales and correlations of covariates;
    it is local SGD on covariates whitened by P^1/2, with the same optimum. The relative size of a step is

        q = eta_t K w_k (v' H v) / (g' v),    v = P g,  H the second derivative at the data of the step,

    which for a regression is eta_t K w_k h |x|_P^2, h the loss curvature: beyond 1 the step passes the minimum of
    its own observation.
    """

    plain_steps = False

    matrix: FloatArray  # P, (d, d), or (d, d, 1, R) where each replicate has its own
    eta: FloatArray  # eta_t, (N,)
    guard: Guard = field(metadata={"static": True})

    def sample(self, noise: Noise, t: JaxArray) -> tuple[JaxArray, Any]:
        """The step's eta_t beside its data."""
        return jnp.asarray(self.eta)[t - 1], self.problem.sample(noise, t)

    def shared(self, data: tuple[JaxArray, Any], n_replicates: int) -> tuple[JaxArray, Any]:
        """As the problem shares its own."""
        return data[0], self.problem.shared(data[1], n_replicates)

    def gradient(self, theta: JaxArray, data: tuple[JaxArray, Any]) -> JaxArray:
        """P g, shortened."""
        eta, xi = data
        g = self.problem.gradient(theta, xi)
        v = times(self.matrix, g)
        slope = add_up(g * v)
        share = (self.n_clients * jnp.asarray(self.weights))[:, None]
        steep = self.problem.steepness(theta, xi, v)
        q = eta * share * jnp.where(slope > 0.0, steep / jnp.where(slope > 0.0, slope, 1.0), 0.0)
        return v / (1.0 + q if self.guard == "damped" else jnp.maximum(q, 1.0))

    def replicates(self, first: int, count: int) -> Preconditioned:
        """With each replicate's own P; the last chunk may reach past the end, and repeats the last one there."""
        if self.matrix.ndim < 4 or self.matrix.shape[-1] == 1:
            return self
        index = np.minimum(np.arange(first, first + count), self.matrix.shape[-1] - 1)
        return replace(self, matrix=self.matrix[..., index])
