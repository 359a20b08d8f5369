"""Readings: the ways to read the paper where it leaves a setting open, or its published programs differ from its text.

Each is data with a name, so that results under all of them stand side by side. Building a problem loads JAX; naming one
does not, so that a program which only lists or plans cells starts at once and hears Ctrl-C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from fedgauss.engine.loop import Start
    from fedgauss.problems.regression import Regression

ZERO, OPTIMUM, CODED = "text, start at zero", "text, start at optimum", "as coded"
READINGS = (ZERO, OPTIMUM, CODED)
SHORT = {ZERO: "from zero", OPTIMUM: "from the optimum", CODED: "as coded"}

CENTER = (2.0, -3.0)
_LEGACY_SEED = 1907


@dataclass(frozen=True)
class Reading:
    """One way to read a setting.

    start        Theta_0: "zeros", "optimum", or "near optimum" (theta* plus N(0, .25^2) for each client)
    gamma_is     whether gamma is the variance of the client offsets, or their standard deviation
    noise_vars   the values that client noise variances are drawn from, equally likely
    phase        clients mix after step t when t % tau == phase
    legacy       offsets are the first normals of NumPy's old generator at seed 1907, as in the published programs
    fixed_vars   the client noise variances themselves, where the published ones are known
    """

    name: str
    start: Literal["zeros", "optimum", "near optimum"]
    gamma_is: Literal["variance", "sd"] = "variance"
    noise_vars: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0, 5.0)
    phase: int = 0
    legacy: bool = False
    fixed_vars: tuple[float, ...] = ()

    def random_effects(self, n_clients: int, gamma: float, draw: int) -> Regression:
        """The random-effects model of draw number `draw`: client coefficients and noise variances."""
        from fedgauss.problems.regression import linear

        rng = np.random.default_rng([draw, n_clients])
        source = np.random.RandomState(_LEGACY_SEED) if self.legacy else rng
        offsets = (gamma if self.gamma_is == "sd" else np.sqrt(gamma)) * source.standard_normal((n_clients, 2))
        return linear(np.array(CENTER) + offsets, self.fixed_vars or rng.choice(self.noise_vars, n_clients))

    def theta_0(self) -> Start:
        """The start, as `simulate` takes it."""
        from fedgauss.engine.loop import near_optimum

        return near_optimum(0.25) if self.start == "near optimum" else self.start


def squares(low: int, high: int) -> tuple[float, ...]:
    """Variances whose standard deviations are low, ..., high."""
    return tuple(float(sd * sd) for sd in range(low, high + 1))


FROM_ZERO = Reading(ZERO, "zeros")
FROM_OPTIMUM = Reading(OPTIMUM, "optimum")
TEXT = (FROM_ZERO, FROM_OPTIMUM)
PROGRAM = Reading(CODED, "zeros", "sd", squares(1, 10))  # the published one, of Figure 1
# Found by trying, in the manner of the published programs: there is none for the tables over tau, rho and gamma.
LEGACY = Reading(CODED, "near optimum", "sd", squares(1, 5), phase=1, legacy=True)
