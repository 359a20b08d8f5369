"""The Gaussian surrogate: local SGD's linear, Gaussian shadow, run by the same engine."""

import numpy as np

from fedgauss._lanes import times
from fedgauss._linearization import Linearization
from fedgauss._random import Noise, stream_number
from fedgauss._types import FloatArray, JaxArray
from fedgauss.problems.base import Moments, Problem, pytree


@pytree
class GaussianSurrogate(Problem):
    """Gradients A theta_k / (K w_k) - Z^k, Z^k ~ N(0, Var(W^k)): K w_k times them drives Client-GA.

    The engine's recursion Theta_t = (Theta_{t-1} - eta_t G_t) C_t is then (3.6) of the paper,
    Theta_t = ((I - eta_t A) Theta_{t-1} + eta_t K (w_1 Z^1, ..., w_K Z^K)) C_t, centred at zero.
    """

    hessian: FloatArray  # A            (d, d)
    noise_root: FloatArray  # Var(W^k)^{1/2} (K, d, d)
    weights: FloatArray  # w_k          (K,)
    stream: np.uint32  # which random numbers it sees

    @property
    def dim(self) -> int:
        """d."""
        return int(np.shape(self.hessian)[0])

    def sample(self, noise: Noise, t: JaxArray) -> JaxArray:
        """Z^k, (d, K, R)."""
        return times(self.noise_root, noise.numbered(self.stream).normal(self.dim))

    def gradient(self, theta: JaxArray, data: JaxArray) -> JaxArray:
        """A theta_k / (K w_k) - Z^k."""
        return self.mean_gradient(theta) - data

    def mean_gradient(self, theta: JaxArray) -> JaxArray:
        """A theta_k / (K w_k)."""
        scale = self.weights * self.n_clients
        return times(self.hessian, theta) / scale[:, None]

    def moments(self, theta: FloatArray) -> Moments:
        """Exact: the gradient is linear in theta and its noise does not depend on theta."""
        hessians = np.asarray(self.hessian) / (np.asarray(self.weights) * self.n_clients)[:, None, None]
        noise = np.einsum("kij,klj->kil", self.noise_root, self.noise_root)
        return Moments(hessians @ theta, hessians, noise)


def gaussian_surrogate(lin: Linearization, stream: str = "surrogate") -> GaussianSurrogate:
    """The Gaussian surrogate of a linearised problem; its optimum is zero.

    Parameters
    ----------
    lin : Linearization
    stream : str
        Name of its noise. At one seed, surrogates with different names are independent.

    Returns
    -------
    GaussianSurrogate
    """
    values, vectors = np.linalg.eigh(lin.client_noise_cov)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    return GaussianSurrogate(lin.hessian, root, lin.weights, stream_number(stream))
