"""One-versus-rest classification: a logistic loss for each class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logit

from fedgauss._namespaces import numpy_for, special_for
from fedgauss._types import FloatArray, JaxArray
from fedgauss.families.base import register
from fedgauss.families.by_class import ByClass
from fedgauss.families.same_bits import on_grid

if TYPE_CHECKING:
    from fedgauss._random import Noise


@register
@dataclass(frozen=True)
class OneVersusRest(ByClass):
    """`n_outputs` logistic losses side by side, each class against all others; y is a class number."""

    n_outputs: int = 2

    name = "one_versus_rest"

    def mean(self, predictor: JaxArray) -> JaxArray:
        """Sigmoid(eta_c), for the indicator of class c."""
        return special_for(predictor).expit(predictor)

    def residual(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """Sigmoid(eta_c) - 1{y = c}."""
        jnp = numpy_for(predictor)
        classes = jnp.arange(self.n_outputs, dtype=predictor.dtype).reshape(-1, *[1] * (predictor.ndim - 1))
        return self.mean(predictor) - (response == classes)

    def loss(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """The sum over classes of log(1 + exp(eta_c)) - 1{y = c} eta_c."""
        own = predictor[response.astype(int), np.arange(len(response))]
        return np.logaddexp(0.0, predictor).sum(axis=0) - own

    def weight(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """p (1 - p) for each class: outputs do not meet."""
        p = self.mean(predictor)
        return p * (1.0 - p)

    def with_classes(self, n_classes: int) -> OneVersusRest:
        """One output for each."""
        return replace(self, n_outputs=n_classes)

    def start_terms(self, response: FloatArray) -> FloatArray:
        """An indicator of each class."""
        return (response[:, None] == np.arange(self.n_outputs)).astype(float)

    def start(self, totals: FloatArray, n_rows: int) -> FloatArray:
        """The logit of each class's share."""
        return on_grid(logit(totals / n_rows))

    def respond(self, predictor: JaxArray, noise: Noise, noise_sd: JaxArray) -> JaxArray:
        """Y is class c with probability softmax(eta)_c."""
        import jax

        jnp = jax.numpy
        cumulative = jnp.cumsum(jax.nn.softmax(predictor, axis=0), axis=0)
        drawn = (noise.uniform(1)[0] > cumulative).sum(axis=0)
        return jnp.minimum(drawn, self.n_outputs - 1).astype(predictor.dtype)
