"""Multinomial regression: classes, each compared with the first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from fedgauss._namespaces import numpy_for
from fedgauss._types import FloatArray, JaxArray
from fedgauss.families.base import register
from fedgauss.families.by_class import ByClass
from fedgauss.families.same_bits import on_grid


@register
@dataclass(frozen=True)
class Multinomial(ByClass):
    """log(P(y = c) / P(y = 0)) = eta_c for c = 1, ..., C: an output for each class but the first, the base.

    The loss is log(1 + sum_c exp(eta_c)) - eta_y, with eta_0 = 0. Outputs of a row share its information, which is
    diag(p) - p p' for the probabilities p of the classes.
    """

    n_outputs: int = 2

    name = "multinomial"
    aliases = ("mnlogit",)
    exact_only = "the outputs of a row share their information, which SGD's errors take apart"

    def mean(self, predictor: JaxArray) -> JaxArray:
        """P(y = c) for each class but the first."""
        np_or_jax = numpy_for(predictor)
        top = predictor.max(axis=0).clip(0.0)
        raised = np_or_jax.exp(predictor - top)
        return raised / (np_or_jax.exp(-top) + raised.sum(axis=0))

    def residual(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """P(y = c) - 1{y = c}."""
        return self.mean(predictor) - (response == self._numbers(predictor))

    def loss(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """log(1 + sum_c exp(eta_c)) - eta_y."""
        with_base = np.concatenate([np.zeros((1, predictor.shape[1])), predictor])
        own = with_base[response.astype(int), np.arange(len(response))]
        return np.asarray(logsumexp(with_base, axis=0) - own)

    def weight(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """diag(p) - p p', (C, C, n)."""
        p = self.mean(predictor)
        return np.eye(len(p))[:, :, None] * p - p[:, None] * p

    @property
    def n_classes(self) -> int:
        """One more than there are outputs."""
        return self.n_outputs + 1

    def with_classes(self, n_classes: int) -> Multinomial:
        """An output for each but the first."""
        return replace(self, n_outputs=n_classes - 1)

    def classes_of_outputs(self, classes: Sequence[Any]) -> Sequence[Any]:
        """All but the first."""
        return classes[1:]

    def start_terms(self, response: FloatArray) -> FloatArray:
        """An indicator of each class but the first."""
        return (response[:, None] == np.arange(1, self.n_classes)).astype(float)

    def start(self, totals: FloatArray, n_rows: int) -> FloatArray:
        """The logarithm of each class's share over that of the first."""
        return on_grid(np.log(totals / (n_rows - math.fsum(totals))))

    def _numbers(self, predictor: JaxArray) -> JaxArray:
        """Those of the classes with an output, along the first axis."""
        numbers = numpy_for(predictor).arange(1, self.n_classes, dtype=predictor.dtype)
        return numbers.reshape(-1, *[1] * (predictor.ndim - 1))
