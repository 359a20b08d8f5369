"""What clients minimise: simulated regressions, data sets, any loss, and problems made of problems."""

from fedgauss import families
from fedgauss.problems.arrays import MNIST_FLIP, from_arrays, mnist
from fedgauss.problems.attacked import AttackedProblem, Schedule, from_step, on_off, slow_drift
from fedgauss.problems.attacks import (
    gradient_noise,
    gradient_scaling,
    inner_product_manipulation,
    label_flip,
    little_is_enough,
    mean_shift,
    sign_flip,
)
from fedgauss.problems.base import Moments, Problem, pytree
from fedgauss.problems.combine import GaussianSurrogate, change_at, coupled, gaussian_surrogate
from fedgauss.problems.loss import from_loss
from fedgauss.problems.regression import (
    Regression,
    from_family,
    huber,
    linear,
    logistic,
    one_versus_rest,
    poisson,
    random_effects,
)

__all__ = [
    "MNIST_FLIP",
    "AttackedProblem",
    "GaussianSurrogate",
    "Moments",
    "Problem",
    "Regression",
    "Schedule",
    "change_at",
    "coupled",
    "families",
    "from_arrays",
    "from_family",
    "from_loss",
    "from_step",
    "gaussian_surrogate",
    "gradient_noise",
    "gradient_scaling",
    "huber",
    "inner_product_manipulation",
    "label_flip",
    "linear",
    "little_is_enough",
    "logistic",
    "mean_shift",
    "mnist",
    "on_off",
    "one_versus_rest",
    "poisson",
    "pytree",
    "random_effects",
    "sign_flip",
    "slow_drift",
]
