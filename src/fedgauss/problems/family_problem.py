"""A regression as a problem: data are rows with responses, and a family has the loss."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fedgauss._lanes import add_up
from fedgauss._types import JaxArray
from fedgauss.families import Family
from fedgauss.problems.base import Problem


class FamilyProblem(Problem):
    """The contract of a regression: data are rows x (p, K, R) with responses y (K, R), and a family has the loss.

    With C outputs the parameter stacks C vectors of length p, and d = C p.
    """

    family: Family

    def gradient(self, theta: JaxArray, data: tuple[JaxArray, JaxArray]) -> JaxArray:
        """X times residual(x'theta, y), for each output."""
        x, response = data
        residual = self.family.residual(predictors(theta, x, self.family.n_outputs), response)
        return (residual[:, None] * x).reshape(theta.shape)

    def hessian_factors(self, theta: JaxArray, data: tuple[JaxArray, JaxArray]) -> tuple[JaxArray, JaxArray] | None:
        """x and h x, h the derivative of the residual in x'theta, where there is one output."""
        if self.family.n_outputs != 1:
            return None
        x, response = data
        along = predictors(theta, x, 1)
        h = jax.jvp(lambda eta: self.family.residual(eta, response), (along,), (jnp.ones_like(along),))[1]
        x = jnp.broadcast_to(x, theta.shape)[None]
        return x, h[:, None] * x

    def steepness(self, theta: JaxArray, data: tuple[JaxArray, JaxArray], direction: JaxArray) -> JaxArray:
        """sum_c h_c (x'v_c)^2 for a direction v, with the family's h, (K, R)."""
        x, response = data
        h = self.family.steepness(predictors(theta, x, self.family.n_outputs), response)
        return add_up(h * predictors(direction, x, self.family.n_outputs) ** 2)


def predictors(theta: JaxArray, x: JaxArray, n_outputs: int) -> JaxArray:
    """x'theta_c for each output c: (C p, K, R) and (p, K, R) give (C, K, R)."""
    n_features = x.shape[0]
    blocks = theta.reshape(n_outputs, n_features, *theta.shape[1:])
    return add_up(blocks * x, axis=1)
