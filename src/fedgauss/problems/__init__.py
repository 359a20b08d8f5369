"""What clients minimise: simulated regressions, data sets, any loss, and problems made of problems."""

from fedgauss.problems.arrays import from_arrays
from fedgauss.problems.base import Moments, Problem
from fedgauss.problems.combine import change_at, coupled
from fedgauss.problems.loss import from_loss
from fedgauss.problems.regression import (
    Regression,
    huber,
    linear,
    logistic,
    one_versus_rest,
    poisson,
    random_effects,
)
from fedgauss.problems.surrogate import GaussianSurrogate, gaussian_surrogate

__all__ = [
    "GaussianSurrogate",
    "Moments",
    "Problem",
    "Regression",
    "change_at",
    "coupled",
    "from_arrays",
    "from_loss",
    "gaussian_surrogate",
    "huber",
    "linear",
    "logistic",
    "one_versus_rest",
    "poisson",
    "random_effects",
]
