"""How far an estimate may be off: its covariance by the plug-in, and bias that intervals do not include.

Both come from what clients added up in the window of one pass. Bias is a start not yet forgotten, client drift, or a
gradient that is not zero. Where clients added up every step, a Newton step removes all three (`newton_gap`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from fedgauss._types import BoolArray, FloatArray
from fedgauss.inference.estimate import Readout
from fedgauss.inference.passes import Pass
from fedgauss.inference.solution import Solution, freedom
from fedgauss.theory.covariances import echoes, step_factors

WARN = 0.5  # standard errors of bias
FALSE_WARNINGS = 0.05  # in so many runs, where clients do not drift
_REMEMBERED = 0.95  # share of the start still there on average: the run has not begun to forget it


def newton_gap(one_pass: Pass) -> FloatArray:
    """The Newton step from where the clients' mean gradient over the window vanishes to the average, (R, d).

        A^-1 sum_k w_k (g_k + H_k (Ybar - r_k)),    with g_k, H_k and r_k the client's means over the window

    It says how far off the average is, whatever the reason, but for noise that all rows of the window share.
    """
    pulls = one_pass.clients.gradients_at(np.asarray(one_pass.runs.average, dtype=float))
    return np.linalg.solve(one_pass.hessian, np.einsum("k,rki->ri", one_pass.weights, pulls)[..., None])[..., 0]


def sandwich(one_pass: Pass) -> FloatArray:
    """A^-1 V_K A^-1 / N, the covariance of where the gradient of the window's N steps vanishes; (R, d, d)."""
    bread = np.linalg.inv(one_pass.hessian)
    return bread @ one_pass.noise_cov @ bread / one_pass.schedule.window


class RowCovariance(NamedTuple):
    """The covariance of a `Solution`, and the degrees of freedom with which it is known, of R runs."""

    cov: FloatArray  # (R, d, d)
    dof: FloatArray  # (R,)


def row_covariance(solution: Solution, weights: FloatArray) -> RowCovariance:
    """A^-1 V_K A^-1 / n over all n steps, times N / (N - d), for N = n / sum_k w_k^2 rows that count alike.

    The factor is that of least squares: residuals about a fit of d parameters are too small by it. Degrees of freedom
    go by the kurtosis of gradients, which matters for joint sets where these are heavy-tailed, as of counts. They are
    at most N - d, and (1 - 1 / n) N, since each client's mean is taken off: with two rows a client that is half of N.
    """
    clients = solution.clients
    rows, dim = clients.count / float(weights @ weights), clients.gradients.shape[-1]
    bread = np.linalg.inv(solution.hessian)
    cov = bread @ solution.noise_cov @ bread / clients.count
    most = min(rows - dim, rows * (clients.count - 1) / clients.count)
    dof = np.clip(freedom(solution.kurtosis, clients.count, weights), 2.0 * dim, most)
    return RowCovariance(cov * rows / (rows - dim), dof)


def average_covariance(one_pass: Pass) -> FloatArray:
    """The covariance of the window's average, Sigma_n / N, for R runs; (R, d, d).

    In the turned coordinates, with U the noise covariance there,

        Sigma_n[i, j] = U_ij N^-1 sum_s c_i(s) c_j(s),
        c_i(s) = eta_s sum_{t >= max(s, m + 1)} prod_{s < j <= t} (1 - eta_j l_i),

    which Theorem 2.1 has for m = 0 and P = I: noise of the burn-in still echoes in the window.
    """
    return _from_noise(one_pass, lambda values: _window_factors(one_pass, values), one_pass.schedule.window)


def last_covariance(one_pass: Pass) -> FloatArray:
    """The covariance of Y_n: sum_s c_i(s) c_j(s) U_ij with c_i(s) = eta_s prod_{s < j <= n} (1 - eta_j l_i); (R, d, d).

    Theorem 2.2 has it times n^beta.
    """
    return _from_noise(one_pass, lambda values: _each(one_pass, values, echoes))


def gap_covariance(one_pass: Pass) -> FloatArray:
    """The covariance of the window's average about the optimum of the window's own data; (R, d, d).

    That optimum moves by A^-1 / N for one unit of noise in the window, the average by c(s) / N: it is that of the
    average with c_i(s) - [s > m] / l_i in place of c_i(s).
    """
    plan = one_pass.schedule
    counted = (np.arange(len(plan.eta)) >= plan.burn_in)[:, None]

    def factors(values: FloatArray) -> FloatArray:
        return _window_factors(one_pass, values) - counted / values

    return _from_noise(one_pass, factors, plan.window)


def _window_factors(one_pass: Pass, values: FloatArray) -> FloatArray:
    """c_i(s) of the window's average, (n, d)."""
    return _each(one_pass, values, lambda eta, value: step_factors(eta, value, one_pass.schedule.burn_in))


def _each(one_pass: Pass, values: FloatArray, factors: Callable[[FloatArray, FloatArray], FloatArray]) -> FloatArray:
    """`factors` of each eigenvalue with its own step sizes, (n, d)."""
    return np.concatenate([factors(_stable(one_pass, value), np.array([value])) for value in values], axis=1)


def _stable(one_pass: Pass, value: float) -> FloatArray:
    """eta_t with |1 - eta_t l| <= 1.

    A Hessian P^-1 from few rows may miss a direction, and l be in the hundreds. Whitened steps are then cut short by
    the run itself, at eta_t l = 1; others are taken to be stable.
    """
    most = 1.0 if one_pass.preconditioned else 2.0
    return np.minimum(one_pass.schedule.eta, most / max(value, np.finfo(float).tiny))


def _from_noise(one_pass: Pass, factors: Callable[[FloatArray], FloatArray], n: int = 1) -> FloatArray:
    """n^-2 sum_s c_i(s) c_j(s) U_ij, taken back from the turned coordinates; (R, d, d).

    In these coordinates steps along P g are plain steps and A is diagonal: `factors` has c (n, d) for its eigenvalues
    l_i, which are those of P^1/2 A P^1/2. U is P^1/2 V P^1/2 in its eigenvectors.
    """
    eigenvalues, root, axes = _similar(one_pass.second, one_pass.hessian)
    u = np.swapaxes(axes, 1, 2) @ (root @ one_pass.noise_cov @ root) @ axes
    squares = np.stack([c.T @ c for c in map(factors, eigenvalues)]) / n**2
    back = root @ axes
    return back @ (u * squares) @ np.swapaxes(back, 1, 2)


class Noisy(NamedTuple):
    """An estimate of a bias with the covariance of that estimate, of R runs."""

    value: FloatArray  # (R, d)
    cov: FloatArray  # (R, d, d)

    @property
    def errors(self) -> FloatArray:
        """Standard errors of `value`, (R, d)."""
        return np.sqrt(np.maximum(np.einsum("rii->ri", self.cov), 0.0))

    @property
    def clear(self) -> FloatArray:
        """`value` less what its own noise makes of it: b (1 - s^2 / b^2), and zero where that is negative; (R, d).

        Breiman's garrote. Squares of the noise would otherwise pass for bias where there is none.
        """
        share = self.errors / np.where(self.value == 0.0, np.inf, np.abs(self.value))
        return self.value * np.maximum(0.0, 1.0 - share**2)

    @property
    def sure(self) -> BoolArray:
        """Where it is larger than noise makes any of the d coordinates in 95 % of runs, (R, d)."""
        d = self.value.shape[1]
        return np.abs(self.value) > ndtri(1.0 - FALSE_WARNINGS / (2 * d)) * self.errors

    def shown(self, readout: Readout) -> Noisy:
        """In the coordinates that are reported."""
        return Noisy(self.value @ readout.matrix.T, readout.cov(self.cov))


class Bias(NamedTuple):
    """Estimated parts of the error that do not shrink with more runs, of R runs."""

    start: FloatArray  # D_1, (R, d)
    drift: Noisy  # D_3
    rest: Noisy  # how far the gradient at the estimate says it is off, beyond these two

    @property
    def total(self) -> FloatArray:
        """D_1, and of the others what is clear."""
        return self.start + self.drift.clear + self.rest.clear

    def shown(self, readout: Readout) -> Bias:
        """In the coordinates that are reported."""
        return Bias(self.start @ readout.matrix.T, self.drift.shown(readout), self.rest.shown(readout))


def estimated_bias(one_pass: Pass) -> Bias:
    """Bias of the window's average, from sums that clients keep anyway.

    Start: with M = [N^-1 sum_{t > m} prod_{m < j <= t} (I - eta_j P_2 A)] prod_{j <= m} (I - eta_j P_1 A_1),
    E Ybar - theta* = M (theta_0 - theta*), so D_1 = M (I - M)^-1 (theta_0 - Ybar). Where M has an eigenvalue of .95 or
    more the run has not begun to forget its start, and D_1 uses that value.
    Drift: clients average their Hessians at places theta_k of their own, u_k = theta_k - Ybar away from the mean:
    D_3 = -A^-1 sum_k w_k H_k u_k. Each H_k is a mean over m steps; for normal covariates m Var(H_k u_k) is about
    H_k u_k u_k' H_k + (u_k' H_k u_k) H_k, which gives the noise of D_3.
    Rest: where clients summed up every step of the window, `newton_gap` less D_1 and D_3. Where they did not, the bend
    of the gradient over the scatter of the iterates, D_2 = -A^-1 sum_k w_k b_k, b_k the client's mean bend
    (`ClientSums`): each bend is a difference at the same row, so that hardly any noise is left.
    """
    average = np.asarray(one_pass.runs.average, dtype=float)
    start = _left_of_the_start(one_pass, average, last=False)
    clients, w = one_pass.clients, one_pass.weights
    apart = clients.places - average[:, None]
    pulls = np.einsum("rkij,rkj->rki", clients.hessians, apart)
    noise = np.einsum("k,rki,rkj->rij", w**2, pulls, pulls)
    noise += np.einsum("k,rkl,rkl,rkij->rij", w**2, apart, pulls, clients.hessians)
    bread = np.linalg.inv(one_pass.hessian)
    drift = Noisy(-np.einsum("rij,k,rkj->ri", bread, w, pulls), bread @ noise @ bread / clients.count)
    if not one_pass.summed_all:
        bend = -np.einsum("rij,k,rkj->ri", bread, w, clients.bends)
        return Bias(start, drift, Noisy(bend, np.zeros_like(bread)))
    return Bias(start, drift, Noisy(newton_gap(one_pass) - start - drift.value, gap_covariance(one_pass)))


def estimated_bias_of_last(one_pass: Pass) -> Bias:
    """Bias of the last iterate: D_1 alone. The effect of drift on it is not estimated.

    M = prod_{m < j <= n} (I - eta_j P_2 A) prod_{j <= m} (I - eta_j P_1 A_1).
    """
    start = _left_of_the_start(one_pass, np.asarray(one_pass.runs.last, dtype=float), last=True)
    return Bias(start, _nothing(start), _nothing(start))


# By what is estimated: the average over the window or the last iterate.
COVARIANCE = {"average": average_covariance, "last": last_covariance}
BIAS = {"average": estimated_bias, "last": estimated_bias_of_last}


def predicted_coverage(bias_over_error: FloatArray, level: float) -> FloatArray:
    """Of an interval whose centre is off by b standard errors: Phi(z - b) - Phi(-z - b)."""
    z = ndtri(0.5 + level / 2)
    return ndtr(z - bias_over_error) - ndtr(-z - bias_over_error)


def _left_of_the_start(one_pass: Pass, estimate: FloatArray, last: bool) -> FloatArray:
    """M (I - M)^-1 (theta_0 - estimate), (R, d)."""
    eta, m = one_pass.schedule.eta, one_pass.schedule.burn_in
    values, *burn_vectors = _similar(one_pass.first, one_pass.first_hessian)
    most = 1.0 if one_pass.preconditioned else 2.0
    forgotten = np.stack([np.prod(1.0 - np.minimum(eta[:m, None] * row, most), axis=0) for row in values])
    values, *window_vectors = _similar(one_pass.second, one_pass.hessian)
    paths = (np.cumprod(1.0 - np.minimum(eta[m:, None] * row, most), axis=0) for row in values)
    share = np.clip(np.stack([path[-1] if last else path.mean(axis=0) for path in paths]), -_REMEMBERED, _REMEMBERED)
    left = _from_eigen(share, *window_vectors) @ _from_eigen(forgotten, *burn_vectors)
    rest = np.linalg.inv(np.eye(left.shape[1]) - left)
    return np.einsum("rij,rj->ri", left @ rest, one_pass.start - estimate)


def _nothing(like: FloatArray) -> Noisy:
    return Noisy(np.zeros_like(like), np.zeros((*like.shape, like.shape[1])))


def _from_eigen(values: FloatArray, root: FloatArray, axes: FloatArray) -> FloatArray:
    vectors = root @ axes
    return (vectors * values[:, None, :]) @ np.linalg.inv(vectors)


def _similar(p: FloatArray, a: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Eigenvalues of P A, which are real: it is similar to P^1/2 A P^1/2. Also P^1/2, and the eigenvectors of that."""
    values, vectors = np.linalg.eigh(p)
    root = np.einsum("rip,rp,rjp->rij", vectors, np.sqrt(values), vectors)
    eigenvalues, axes = np.linalg.eigh(root @ a @ root)
    return eigenvalues, root, axes
