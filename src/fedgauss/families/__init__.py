"""Regression families: each is one class in one file, registered once and found everywhere by its name.

A family of your own is a subclass of `Family` with a `name`; `register` makes it known to this process::

    @register
    @dataclass(frozen=True)
    class Exponential(Family):
        name = "exponential"
        ...

    fg.fit(frame, "hours", "hospital", "exponential")
"""

from fedgauss._namespaces import numpy_for, special_for
from fedgauss.families.base import AdditiveNoise, Family, as_family, chosen, family, names, register
from fedgauss.families.cox import Cox
from fedgauss.families.gamma import Gamma
from fedgauss.families.huber import Huber
from fedgauss.families.linear import Linear
from fedgauss.families.logistic import Logistic
from fedgauss.families.multinomial import Multinomial
from fedgauss.families.negative_binomial import NegativeBinomial
from fedgauss.families.one_versus_rest import OneVersusRest
from fedgauss.families.poisson import Poisson
from fedgauss.families.quadrature import ResidualMoments

__all__ = [
    "AdditiveNoise",
    "Cox",
    "Family",
    "Gamma",
    "Huber",
    "Linear",
    "Logistic",
    "Multinomial",
    "NegativeBinomial",
    "OneVersusRest",
    "Poisson",
    "ResidualMoments",
    "as_family",
    "chosen",
    "family",
    "names",
    "numpy_for",
    "register",
    "special_for",
]
