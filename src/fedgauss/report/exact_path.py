"""The exact law of every step of a run, where `exact_moments` gives that of the last."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedgauss._types import ArrayLike, FloatArray
from fedgauss.networks import Network
from fedgauss.step_sizes import StepSizes, sync_mask
from fedgauss.theory.exact import ExactMoments, LinearModel, exact_moments


@dataclass(frozen=True)
class ExactPath:
    """Moments of Y_t and of the clients for t = 1..n.

    mean                  E Y_t                       (n, d)
    sd                    of each coordinate of Y_t   (n, d)
    square_disagreement   E |Theta_t (I - J)|_F^2     (n,)
    """

    mean: FloatArray
    sd: FloatArray
    square_disagreement: FloatArray


def exact_path(
    model: LinearModel, network: Network, steps: StepSizes, n_steps: int, sync_every: int, start: ArrayLike
) -> ExactPath:
    """Theta_t given Theta_{t-1} is one step of Algorithm 1, so each step's moments start from those before it."""
    eta, mask = steps.eta(n_steps), sync_mask(sync_every, n_steps)
    mean, cov = np.asarray(start, dtype=np.float64), None
    laws = []
    for t in range(n_steps):
        law = exact_moments(model, network, eta[t : t + 1], 1, mask[t : t + 1], mean, cov)
        mean, cov = law.client_means, law.client_cov
        laws.append(law)
    return ExactPath(
        mean=np.stack([law.mean_last for law in laws]),
        sd=np.sqrt([np.diag(law.cov_last) for law in laws]),
        square_disagreement=np.array([_square_disagreement(law) for law in laws]),
    )


def _square_disagreement(law: ExactMoments) -> float:
    """sum_k E |theta^k - Y|^2 = sum_k |E theta^k - E Y|^2 + sum_k tr Cov(theta^k) - K tr Cov(Y)."""
    apart = ((law.client_means - law.mean_last) ** 2).sum()
    noise = np.einsum("kiki->", law.client_cov) - len(law.client_means) * np.trace(law.cov_last)
    return float(apart + noise)
