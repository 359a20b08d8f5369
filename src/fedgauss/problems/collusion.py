"""Attackers who know what the honest clients send, and agree on an answer: LIE and inner-product manipulation."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from fedgauss._lanes import add_up
from fedgauss._types import FloatArray, JaxArray
from fedgauss.problems.attacked import AttackedProblem, MeanLaw
from fedgauss.problems.base import Moments, pytree


@pytree
class Collusion(AttackedProblem):
    """Chosen clients all send a multiple of the honest clients' mean gradient less an offset.

    They know every honest gradient of the step, each taken at that client's own iterate.
    """

    factor: float
    offset: FloatArray  # (d,)

    def gradient(self, theta: JaxArray, data: tuple[JaxArray, Any, Any]) -> JaxArray:
        """(1 - s) g_k + s (factor mean_honest(g) - offset)."""
        strength, xi, _ = data
        honest = self.problem.gradient(theta, xi)
        trusted = 1.0 - jnp.asarray(self.chosen, honest.dtype)[:, None]
        mean = add_up(trusted * honest, axis=1)[:, None] / trusted.sum()
        forged = self.factor * mean - jnp.asarray(self.offset, honest.dtype)[:, None, None]
        return honest + strength * (forged - honest)

    def attacked_moments(self, theta: FloatArray) -> Moments | None:
        """Of each client by itself. Colluders are not independent of the others: see `attacked_mean`."""
        honest = self.problem.moments(theta)
        if honest is None:
            return None
        share = self._trusted / self._trusted.sum()
        forged = Moments(
            (self.factor * share @ honest.gradient - np.asarray(self.offset))[None],
            self.factor * np.einsum("k,kij->ij", share, honest.hessian)[None],
            self.factor**2 * np.einsum("k,kij->ij", share**2, honest.noise_cov)[None],
        )
        return self.pick(honest, forged)

    def attacked_mean(self, theta: FloatArray) -> MeanLaw | None:
        """An honest client counts w_k + factor w_A / H times, with w_A the colluders' weight and H honest clients."""
        honest = self.problem.moments(theta)
        if honest is None:
            return None
        trusted, weights = self._trusted, np.asarray(self.weights, dtype=float)
        bad = float(weights @ (1.0 - trusted))
        counts = trusted * (weights + float(self.factor) * bad / trusted.sum())
        gradient = counts @ honest.gradient - bad * np.asarray(self.offset, dtype=float)
        return MeanLaw(gradient, np.einsum("k,kij->ij", counts**2, honest.noise_cov))

    @property
    def _trusted(self) -> FloatArray:
        return 1.0 - np.asarray(self.chosen, dtype=float)
