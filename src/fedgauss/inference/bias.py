"""What intervals cannot see: the start that is not forgotten, and clients that drift apart between mixings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from fedgauss._types import FloatArray
from fedgauss.inference.passes import Pass

WARN = 0.5  # standard errors of bias
_HARDLY = 0.95  # of the start still there on average: the run has not begun to forget it


class Bias(NamedTuple):
    """Estimated parts of the error of the window's average that do not shrink with more runs; (R, d) each."""

    start: FloatArray  # D_1
    drift: FloatArray  # D_3

    @property
    def total(self) -> FloatArray:
        """D_1 + D_3."""
        return self.start + self.drift


def estimated_bias(whole: Pass) -> Bias:
    """D_1 and D_3 from what was summed up anyway.

    Start: with M = [N^-1 sum_{t > m} prod_{m < j <= t} (I - eta_j P_2 A)] prod_{j <= m} (I - eta_j P_1 A_1),
    E Ybar - theta* = M (theta_0 - theta*), so D_1 = M (I - M)^-1 (theta_0 - Ybar). Where M has an eigenvalue of .95 or
    more the run has not begun to forget its start, and D_1 is what that value gives.
    Drift: clients average their Hessians at places theta_k of their own: D_3 = -A^-1 sum_k w_k H_k (theta_k - Ybar).
    """
    average = np.asarray(whole.runs.average, dtype=float)
    left = _start_share(whole)
    gap = whole.start - average
    identity = np.eye(gap.shape[1])
    start = np.einsum("rij,rj->ri", left @ np.linalg.inv(identity - left), gap)
    known = whole.summaries
    apart = np.einsum("k,rkij,rkj->ri", whole.weights, known.hessians, known.places - average[:, None])
    return Bias(start, -np.linalg.solve(whole.hessian, apart[..., None])[..., 0])


def predicted_coverage(bias_over_error: FloatArray, level: float) -> FloatArray:
    """Of an interval whose centre is off by b standard errors: Phi(z - b) - Phi(-z - b)."""
    z = ndtri(0.5 + level / 2)
    return ndtr(z - bias_over_error) - ndtr(-z - bias_over_error)


def _start_share(whole: Pass) -> FloatArray:
    """M, (R, d, d)."""
    eta, m = whole.schedule.eta, whole.schedule.burn_in
    values, burn_vectors = _similar(whole.first, whole.first_hessian)
    forgotten = np.stack([np.prod(1.0 - eta[:m, None] * own, axis=0) for own in values])
    values, window_vectors = _similar(whole.second, whole.hessian)
    left = np.stack([np.cumprod(1.0 - eta[m:, None] * own, axis=0).mean(axis=0) for own in values])
    mean = np.clip(left, -_HARDLY, _HARDLY)
    return _from_eigen(mean, window_vectors) @ _from_eigen(forgotten, burn_vectors)


def _from_eigen(values: FloatArray, vectors: FloatArray) -> FloatArray:
    return (vectors * values[:, None, :]) @ np.linalg.inv(vectors)


def _similar(p: FloatArray, a: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and eigenvectors of P A, which are real: it is similar to P^1/2 A P^1/2."""
    values, vectors = np.linalg.eigh(p)
    root = np.einsum("rip,rp,rjp->rij", vectors, np.sqrt(values), vectors)
    eigenvalues, axes = np.linalg.eigh(root @ a @ root)
    return eigenvalues, root @ axes
