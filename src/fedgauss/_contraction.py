"""The product that every linear recursion here comes down to, in the eigenvectors of its Hessian."""

import numpy as np

from fedgauss._types import FloatArray


def pulls_and_product(eta: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """W_t = eta_t prod_{u > t} (1 - eta_u a) of each step, (n, ..., d), and P = prod_t (1 - eta_t a), (..., d).

    eta is (n,) or (n, K), values hold the eigenvalues a: (d,) or (K, d).
    """
    rates = eta[..., None]
    contraction = 1.0 - rates * values
    later = np.ones_like(contraction)
    later[:-1] = np.cumprod(contraction[:0:-1], axis=0)[::-1]
    return rates * later, later[0] * contraction[0]
