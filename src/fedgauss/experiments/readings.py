"""How a result of the paper can be read: where runs start, what gamma and sigma mean, when clients mix.

The paper leaves some of this open, and its published programs differ from its text. Each way to read it is data
with a name, so that results under all of them stand side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedgauss._types import FloatArray

if TYPE_CHECKING:  # JAX comes with these: only what runs a cell waits for it
    from fedgauss.engine.starts import Start
    from fedgauss.problems.regression import Regression

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

    def problem(self, n_clients: int, gamma: float, draw: int) -> Regression:
        """The random-effects model of draw number `draw`: client coefficients and noise variances."""
        from fedgauss.problems.regression import linear

        rng = np.random.default_rng([draw, n_clients])
        normals = self._normals(rng, n_clients)
        scale = gamma if self.gamma_is == "sd" else np.sqrt(gamma)
        variances = self.fixed_vars or rng.choice(self.noise_vars, n_clients)
        return linear(np.array(CENTER) + scale * normals, variances)

    def theta_0(self) -> Start:
        """The start, as `simulate` takes it."""
        from fedgauss.engine.starts import near_optimum

        return near_optimum(0.25) if self.start == "near optimum" else self.start

    def _normals(self, rng: np.random.Generator, n_clients: int) -> FloatArray:
        if self.legacy:
            return np.random.RandomState(_LEGACY_SEED).standard_normal((n_clients, 2))
        return rng.standard_normal((n_clients, 2))


FROM_ZERO = Reading("text, start at zero", "zeros")
FROM_OPTIMUM = Reading("text, start at optimum", "optimum")
TEXT = (FROM_ZERO, FROM_OPTIMUM)


def squares(low: int, high: int) -> tuple[float, ...]:
    """Variances whose standard deviations are low, ..., high."""
    return tuple(float(sd * sd) for sd in range(low, high + 1))
