"""Linear regression: squared loss."""

from dataclasses import dataclass

import numpy as np

from fedgauss._linearization import Moments
from fedgauss._namespaces import numpy_for
from fedgauss._types import FloatArray, JaxArray
from fedgauss.families.base import AdditiveNoise, register
from fedgauss.families.glm import GeneralisedLinear


@register
@dataclass(frozen=True)
class Linear(GeneralisedLinear, AdditiveNoise):
    """Squared loss (eta - y)^2 / 2; y = eta + noise, Gaussian or Student-t with `df` of the same variance."""

    df: float | None = None
    link: str = "identity"

    name = "linear"
    aliases = ("gaussian",)
    canonical = "identity"
    links = ("identity", "log")
    has_dispersion = True

    @property
    def additive(self) -> bool:  # type: ignore[override]
        """With the identity link alone."""
        return self.link == "identity"

    @property
    def quadratic(self) -> bool:  # type: ignore[override]
        """With the identity link alone."""
        return self.link == "identity"

    def variance(self, mean: JaxArray) -> JaxArray:
        """One."""
        return numpy_for(mean).ones_like(mean)

    def variance_slope(self, mean: FloatArray) -> FloatArray:
        """Zero."""
        return np.zeros_like(mean)

    def loss(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """Half the squared residual."""
        return (response - self.mean(predictor[0])) ** 2 / 2.0

    def log_likelihood(self, predictor: FloatArray, response: FloatArray, dispersion: FloatArray | float) -> FloatArray:
        """That of N(mu, phi)."""
        return -self.loss(predictor, response) / dispersion - np.log(2.0 * np.pi * dispersion) / 2.0

    def likelihood_dispersion(self, pearson: float, n_rows: int, dim: int) -> float:
        """The most likely one, where that is a mean of squares."""
        return pearson / n_rows if self.additive else super().likelihood_dispersion(pearson, n_rows, dim)

    def start(self, totals: FloatArray, n_rows: int) -> FloatArray:
        """Zero, for a response that has been centred; with a log link the logarithm of the mean."""
        return np.zeros(len(totals)) if self.additive else super().start(totals, n_rows)

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
