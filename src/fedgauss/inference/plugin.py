"""The plug-in: covariances of average and last iterate from what clients added up in the window of one pass."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.inference.passes import Pass
from fedgauss.theory.covariances import echoes, step_factors


class _Turned(NamedTuple):
    """A and V in the coordinates in which steps along P g are plain steps, and A diagonal."""

    values: FloatArray  # eigenvalues l_i of P^1/2 A P^1/2                 (R, d)
    noise: FloatArray  # P^1/2 V P^1/2 in its eigenvectors                (R, d, d)
    back: FloatArray  # from there to the coordinates of theta            (R, d, d)


def average_covariance(one_pass: Pass) -> FloatArray:
    """The covariance of the window's average, Sigma_n / N, for R runs; (R, d, d).

    In the turned coordinates, with U the noise covariance there,

        Sigma_n[i, j] = U_ij N^-1 sum_s c_i(s) c_j(s),
        c_i(s) = eta_s sum_{t >= max(s, m + 1)} prod_{s < j <= t} (1 - eta_j l_i),

    which Theorem 2.1 has for m = 0 and P = I: noise of the burn-in still echoes in the window.
    """
    turned, plan = _turned(one_pass), one_pass.schedule
    factors = (step_factors(plan.eta, values, plan.burn_in) for values in turned.values)
    return _back(turned, np.stack([c.T @ c for c in factors]) / plan.window**2)


def last_covariance(one_pass: Pass) -> FloatArray:
    """The covariance of Y_n: sum_s c_i(s) c_j(s) U_ij with c_i(s) = eta_s prod_{s < j <= n} (1 - eta_j l_i); (R, d, d).

    Theorem 2.2 has it times n^beta.
    """
    turned, eta = _turned(one_pass), one_pass.schedule.eta
    factors = (echoes(eta, values) for values in turned.values)
    return _back(turned, np.stack([c.T @ c for c in factors]))


def gap_covariance(one_pass: Pass) -> FloatArray:
    """The covariance of the window's average about the optimum of the window's own data; (R, d, d).

    That optimum moves by A^-1 / N for one unit of noise in the window, the average by c(s) / N: it is that of the
    average with c_i(s) - [s > m] / l_i in place of c_i(s).
    """
    turned, plan = _turned(one_pass), one_pass.schedule
    counted = (np.arange(len(plan.eta)) >= plan.burn_in)[:, None]
    factors = (step_factors(plan.eta, values, plan.burn_in) - counted / values for values in turned.values)
    return _back(turned, np.stack([c.T @ c for c in factors]) / plan.window**2)


def _turned(one_pass: Pass) -> _Turned:
    values, vectors = np.linalg.eigh(one_pass.second)
    root = np.einsum("rip,rp,rjp->rij", vectors, np.sqrt(values), vectors)
    eigenvalues, axes = np.linalg.eigh(root @ one_pass.hessian @ root)
    noise = np.swapaxes(axes, 1, 2) @ (root @ one_pass.noise_cov @ root) @ axes
    return _Turned(eigenvalues, noise, root @ axes)


def _back(turned: _Turned, factor: FloatArray) -> FloatArray:
    return turned.back @ (turned.noise * factor) @ np.swapaxes(turned.back, 1, 2)
