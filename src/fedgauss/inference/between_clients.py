"""What a pass says about the clients among themselves: whether their optima differ, and how clients like these vary."""

from dataclasses import replace

import numpy as np
from scipy import stats

from fedgauss._types import FloatArray, IntArray
from fedgauss.inference.client_sums import ClientStatistics
from fedgauss.inference.estimate import Estimate, Readout
from fedgauss.inference.reference_laws import ChiSquared
from fedgauss.inference.symmetric import scaled_alike

_SINGULAR = 1e-6  # of the largest eigenvalue of correlations summed up in single precision


def heterogeneity(clients: ClientStatistics, busy: IntArray) -> ChiSquared | None:
    """Test whether the clients' optima differ: at no one place do all their mean gradients vanish, but for noise.

    The sum of p_k' Var(p_k)^-1 p_k of the mean gradients p_k at the best place, chi-squared with (K - 1) d. A variance
    estimated from m gradients makes a term too large by (m - 1) / (m - d - 2) on average, which is divided out.

    Parameters
    ----------
    clients : ClientStatistics
        Of one run.
    busy : (K,) ndarray
        In how many of the steps that were summed up each client had data.

    Returns
    -------
    ChiSquared or None
        None where a client cannot tell, because a covariate is constant there or because it has hardly more rows than
        parameters.
    """
    n_clients, dim = clients.places.shape[1:]
    noise, hessians = np.linalg.eigvalsh(scaled_alike(clients.noise_cov[0])[0]), clients.hessians[0]
    if n_clients == 1 or busy.min() < dim + 3 or np.any(noise[:, 0] <= _SINGULAR * noise[:, -1]):
        return None
    certain = np.linalg.inv(clients.noise_cov[0]) * (clients.count * (busy - dim - 2) / (busy - 1))[:, None, None]
    lever = hessians @ certain  # a product at a time: einsum of all three would take K d^4 steps, minutes for d = 200
    best = np.linalg.solve(
        (lever @ hessians).sum(axis=0), -np.einsum("kij,kj->i", lever, clients.gradients_at(np.zeros((1, dim)))[0])
    )
    pulls = clients.gradients_at(best[None])[0]
    statistic = float(np.sum(pulls * np.einsum("kij,kj->ki", certain, pulls)))
    dof = (n_clients - 1) * dim
    return ChiSquared(statistic, dof, float(stats.chi2.sf(statistic, dof)))


def population(
    estimate: Estimate, clients: ClientStatistics, weights: FloatArray, place: FloatArray, readout: Readout
) -> Estimate:
    """Treat clients as a sample: the variance between their pulls takes the place of the noise within them.

    The estimate, `place` (d,) before it is read out, is off by A^-1 sum_k w_k p_k, with p_k client k's mean gradient
    there: as with clustered data, the noise of each client is part of its p_k. For clients that are alike in law,
    r_k = p_k - sum_l w_l p_l has covariance (1 - 2 w_k + S) Var(p), S = sum_l w_l^2, so that

        A^-1 sum_k v_k r_k r_k' A^-1,    v_k = w_k^2 / (1 - 2 w_k + S)

    is unbiased. Student's t has the degrees of freedom of Satterthwaite, (tr Q)^2 / tr Q^2 with Q = C' diag(v) C and
    C = I - 1 w': K - 1 with equal weights, and fewer with others.
    """
    w = weights
    n_clients = len(w)
    if n_clients < 3:
        raise ValueError(f"target='population' needs at least 3 clients to see how they vary; got {n_clients}.")
    pulls = clients.gradients_at(np.asarray(place, dtype=float)[None])[0]
    v = w**2 / (1.0 - 2.0 * w + w @ w)
    r = pulls - w @ pulls
    inverse = np.linalg.inv(clients.hessian(w)[0])
    centring = np.eye(n_clients) - w
    q = centring.T @ (v[:, None] * centring)
    dof = float(np.trace(q) ** 2 / np.sum(q * q))
    note = f"The population of clients is the target: intervals hold for other clients like these {n_clients}."
    if dof < n_clients - 1.5:
        note += f" By their weights they count like {dof + 1:.1f} equal ones."
    cov = readout.cov(inverse @ np.einsum("k,ki,kj->ij", v, r, r) @ inverse)
    return replace(estimate.with_notes(note), cov=cov, dof=dof)
