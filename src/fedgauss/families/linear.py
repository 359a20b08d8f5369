"""Linear regression: squared loss."""

from dataclasses import dataclass

import numpy as np

from fedgauss._linearization import Moments
from fedgauss._namespaces import numpy_for
from fedgauss._types import FloatArray, JaxArray
from fedgauss.families.base import AdditiveNoise, register


@register
@dataclass(frozen=True)
class Linear(AdditiveNoise):
    """Squared loss (eta - y)^2 / 2; y = eta + noise, Gaussian or Student-t with `df` of the same variance."""

    df: float | None = None

    name = "linear"
    aliases = ("gaussian",)

    def slopes(self, theta_var: JaxArray, beta_var: JaxArray, gap_var: JaxArray, noise_sd: JaxArray) -> tuple:
        """Grad F_k = H (theta - beta)."""
        ones = numpy_for(theta_var).ones_like(theta_var)
        return ones, ones

    def moments(
        self, theta: FloatArray, coefficients: FloatArray, noise_var: FloatArray, design_cov: FloatArray
    ) -> Moments:
        """With delta = theta - beta_k: H delta, H, and (sigma^2 + delta'H delta) H + H delta delta' H."""
        gradient = np.einsum("kij,kj->ki", design_cov, theta - coefficients)
        scale = noise_var + np.einsum("ki,ki->k", theta - coefficients, gradient)
        square = scale[:, None, None] * design_cov + np.einsum("ki,kj->kij", gradient, gradient)
        return Moments(gradient, design_cov, square)
