"""What intervals cannot see: the start that is not forgotten, and clients that drift apart between mixings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from fedgauss._types import FloatArray
from fedgauss.inference.passes import Pass
from fedgauss.inference.readout import Readout

WARN = 0.5  # standard errors of bias
FALSE_WARNINGS = 0.05  # in so many runs, where clients do not drift
_HARDLY = 0.95  # of the start still there on average: the run has not begun to forget it


class Bias(NamedTuple):
    """Estimated parts of the error of the window's average that do not shrink with more runs, of R runs."""

    start: FloatArray  # D_1                                            (R, d)
    drift: FloatArray  # D_3                                            (R, d)
    drift_cov: FloatArray  # the covariance of that estimate            (R, d, d)

    @property
    def drift_errors(self) -> FloatArray:
        """Standard errors of `drift`, (R, d)."""
        return np.sqrt(np.einsum("rii->ri", self.drift_cov))

    @property
    def clear_drift(self) -> FloatArray:
        """`drift` less what its own noise makes of it: D (1 - s^2 / D^2), and zero where that is negative; (R, d).

        Breiman's garrote. Squares of the noise would otherwise pass for bias where there is none.
        """
        share = self.drift_errors / np.where(self.drift == 0.0, np.inf, np.abs(self.drift))
        return self.drift * np.maximum(0.0, 1.0 - share**2)

    @property
    def total(self) -> FloatArray:
        """D_1 and the clear part of D_3."""
        return self.start + self.clear_drift

    def shown(self, readout: Readout) -> Bias:
        """In the coordinates that are reported."""
        m = readout.matrix
        return Bias(self.start @ m.T, self.drift @ m.T, m @ self.drift_cov @ m.T)


def estimated_bias(whole: Pass) -> Bias:
    """D_1 and D_3 from what was summed up anyway.

    Start: with M = [N^-1 sum_{t > m} prod_{m < j <= t} (I - eta_j P_2 A)] prod_{j <= m} (I - eta_j P_1 A_1),
    E Ybar - theta* = M (theta_0 - theta*), so D_1 = M (I - M)^-1 (theta_0 - Ybar). Where M has an eigenvalue of .95 or
    more the run has not begun to forget its start, and D_1 is what that value gives.
    Drift: clients average their Hessians at places theta_k of their own, u_k = theta_k - Ybar away from the mean:
    D_3 = -A^-1 sum_k w_k H_k u_k. Each H_k is a mean over m steps; for normal covariates m Var(H_k u_k) is about
    H_k u_k u_k' H_k + (u_k' H_k u_k) H_k, which gives the noise of D_3.
    """
    average = np.asarray(whole.runs.average, dtype=float)
    left = _start_share(whole)
    gap = whole.start - average
    identity = np.eye(gap.shape[1])
    start = np.einsum("rij,rj->ri", left @ np.linalg.inv(identity - left), gap)
    known, w = whole.summaries, whole.weights
    apart = known.places - average[:, None]
    pulls = np.einsum("rkij,rkj->rki", known.hessians, apart)
    noise = np.einsum("k,rki,rkj->rij", w**2, pulls, pulls)
    noise += np.einsum("k,rkl,rkl,rkij->rij", w**2, apart, pulls, known.hessians)
    bread = np.linalg.inv(whole.hessian)
    drift = -np.einsum("rij,k,rkj->ri", bread, w, pulls)
    return Bias(start, drift, bread @ noise @ bread / known.count)


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
