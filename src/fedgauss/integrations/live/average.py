"""The average of the iterates that were logged, with confidence intervals for where it is bound."""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from fedgauss._contraction import pulls_and_product
from fedgauss._linearization import Linearization
from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.innovations import Contractions, step_sizes_between, step_sizes_of_rounds
from fedgauss.detect.updates import LONGEST_GAP, participant_weights
from fedgauss.step_sizes import StepSizes

_LEVEL = 0.95


class Intervals(NamedTuple):
    """Of every parameter: the average, and the ends of its interval, (d,) each."""

    average: FloatArray
    low: FloatArray
    high: FloatArray
    level: float
    rounds: int


class RunningAverage:
    """Ybar = (Y_1 + ... + Y_J) / J over logged rounds, and its covariance, in O(d^2) numbers.

    With D_j = Y_j - theta* the linearised mean obeys D_j = P_j D_{j-1} + xi_j, P_j = prod_t (I - eta_t A), and
    S_j = S_{j-1} + D_j. So, with N_j = Var(xi_j),

        Var(D_j)     = P_j Var(D_{j-1}) P_j' + N_j
        Cov(S_j,D_j) = Cov(S_{j-1}, D_{j-1}) P_j' + Var(D_j)
        Var(S_j)     = Var(S_{j-1}) + Cov(S_{j-1}, D_j) + Cov(S_{j-1}, D_j)' + Var(D_j)

    from D_0 = 0, a start near the optimum. With a round at every step Var(S_n) / n^2 is Sigma_n / n of Theorem 2.1.
    Where V was estimated the quantile is Student's, with as many degrees of freedom. What lies more than a million
    steps before a round is not followed step by step: there D has the variance at which it hovers.
    """

    def __init__(self, lin: Linearization, steps: StepSizes) -> None:
        self._lin, self._steps = lin, steps
        self._values, self._vectors = np.linalg.eigh(lin.hessian)
        dim = lin.dim
        self._step, self._rounds, self._sum = 0, 0, np.zeros(dim)
        self._last, self._cross, self._total = (np.zeros((dim, dim)) for _ in range(3))

    def add(self, y: FloatArray, step: int, present: BoolArray | None) -> None:
        """One more round: its mean, its step, and who took part."""
        shared = self._move(step, present)
        self._sum = self._sum + y
        self._rounds += 1
        self._total = self._total + shared + shared.T + self._last
        self._cross = shared + self._last

    def add_many(self, means: FloatArray, length: int, known: Contractions | None = None) -> None:
        """Rounds of `length` steps each, (n, d), that follow the last one, in which everybody took part.

        What their steps come to may be `known` from the monitor that judged them.
        """
        squares, products = self._contractions(len(means), length) if known is None else known
        noise = squares * self._noise(None)
        last = _recursion(self._last, products[:, :, None] * products[:, None, :], noise)
        cross = _recursion(self._cross, np.broadcast_to(products[:, None, :], last.shape), last)
        shared = np.concatenate([self._cross[None], cross[:-1]]) * products[:, None, :]
        self._total = self._total + (shared + shared.transpose(0, 2, 1) + last).sum(axis=0)
        self._last, self._cross = last[-1].copy(), cross[-1].copy()
        self._sum = self._sum + means.sum(axis=0)
        self._rounds += len(means)
        self._step += length * len(means)

    def _contractions(self, count: int, length: int) -> Contractions:
        """Of rounds that follow the last one."""
        eta = step_sizes_of_rounds(self._steps, self._step + length * np.arange(count), length)
        pulls, product = pulls_and_product(eta.T, np.broadcast_to(self._values, (count, len(self._values))))
        return Contractions(np.einsum("tni,tnj->nij", pulls, pulls), product)

    def _noise(self, present: BoolArray | None) -> FloatArray:
        """V of those who took part, in the eigenvectors of A."""
        weights = self._lin.weights if present is None else participant_weights(present, self._lin.weights)
        return self._vectors.T @ np.einsum("k,kij->ij", weights**2, self._lin.client_noise_cov) @ self._vectors

    def _move(self, step: int, present: BoolArray | None) -> FloatArray:
        """Var(D) after this step, in the eigenvectors of A; returns Cov(S, D) there."""
        noise = self._noise(present)
        if step - self._step > LONGEST_GAP:
            self._step = step - LONGEST_GAP
            self._last = self._hovering(noise)
        eta = step_sizes_between(self._steps, self._step, step)
        pulls, product = pulls_and_product(eta, self._values)
        self._last = np.outer(product, product) * self._last
        self._last = self._last + (pulls.T @ pulls) * noise
        self._step = step
        self._cross = self._cross * product
        return self._cross

    def _hovering(self, noise: FloatArray) -> FloatArray:
        """Var(D) that a step leaves as it is: (1 - eta a_i)(1 - eta a_j) Var_ij + eta^2 V_ij = Var_ij."""
        eta = step_sizes_between(self._steps, self._step - 1, self._step)[0]
        pulls = self._values[:, None] + self._values - eta * np.outer(self._values, self._values)
        return np.asarray(eta * noise / pulls)

    def intervals(self) -> Intervals | None:
        """Intervals for each parameter alone; None before the first round."""
        if not self._rounds:
            return None
        total = self._vectors @ self._total @ self._vectors.T
        tail, dof = 0.5 + _LEVEL / 2, self._lin.dof
        quantile = float(ndtri(tail) if dof is None else stdtrit(dof, tail))
        half = quantile * np.sqrt(np.diag(total)) / self._rounds
        average = self._sum / self._rounds
        return Intervals(average, average - half, average + half, _LEVEL, self._rounds)


def _recursion(start: FloatArray, factors: FloatArray, terms: FloatArray) -> FloatArray:
    """x_j = factors_j x_{j-1} + terms_j for j = 1, ..., n from x_0, element by element, in log2 n passes."""
    factor, x, apart = factors.copy(), terms.copy(), 1
    while apart < len(x):
        x[apart:] += factor[apart:] * x[:-apart].copy()
        factor[apart:] = factor[apart:] * factor[:-apart]
        apart *= 2
    return np.asarray(x + factor * start)
