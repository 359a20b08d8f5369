"""The client channel: sees what clients change in themselves while their mean stays, from their uploads."""

import math

import numpy as np
from scipy.special import binom, fdtrc

from fedgauss._types import FloatArray
from fedgauss.detect.candidates import DROP
from fedgauss.detect.channel import Channel, Conditions, OnsetSpan, Peak, RoundSeen, check_peak, no_peak
from fedgauss.detect.client_rounds import noise_inverses
from fedgauss.detect.spending import spent
from fedgauss.detect.spread_channel import capped_mean

_GROUP = 20  # steps, at least, that are looked at together: fewer are not Gaussian enough
_WINDOWS = (1, 2, 4, 8, 16)  # groups that are compared with all before them
_WAYS = 3 * len(_WINDOWS)  # of standing out: a mean that moved, a size that grew, a size that shrank
_LEAST_PAST = 4  # groups before a window
_PRIOR = 20.0  # groups of exactly the expected size, put before the first
_KURTOSIS = 6.0  # of one gradient, beyond the Gaussian's: that of a product of two normals
_CAP = 0.9999  # sizes count up to this quantile of chi^2_d
_FIRST = 0.5  # of a round's share, for one client alone; the rest is for several at once


class ClientChannel(Channel):
    """Clients changed: each one's pull and the size of its noise, in its last rounds against all before them.

    Rounds are taken in groups of ceil(20 / tau). With E^k the innovation of client k (`ClientInnovations`) in a group
    of w steps, e = w^1/2 Var(W^k)^-1/2 E^k is about N(m_k, I), independent of other groups and clients. For a client's
    last r groups and the n before them, q the capped size of e less the mean before it (as in `SpreadChannel`),

        T^2 = r n / (r + n) |mean of e after - before|^2 / q_before,    Q = mean of q after / q_before,

    and T^2 / d and Q have the law F, nearly. The smallest p-value of a client over r = 1, 2, 4, 8, 16, times the number
    of ways, is its own. The j smallest of K clients are below x with a chance of at most binom(K, j) x^j, of which the
    power (j + 1) / 2 is used. The statistic is -log of that chance over the group's share of alpha, so the threshold
    is -log alpha, whatever the dimension: nothing is simulated.

    Gradients have heavier tails than the Gaussian: F has the degrees of freedom that a kurtosis of 6 leaves to a sum
    of r w of them.
    """

    name, share, alarm_words = "clients", 0.25, "clients' own gradients changed"
    saved = (
        "rounds", "filled", "weight", "began", "pulls", "groups", "recent", "sizes", "starts", "count", "sum", "size",
        "statistic", "step", "rounds_before", "first", "rounds_first", "last",
    )  # fmt: skip
    unfilled = ("pulls", "recent", "sizes")

    def begin(self, conditions: Conditions) -> None:
        """No rounds yet."""
        lin, runs, tau = conditions.lin, conditions.replicates, conditions.sync_every
        clients, dim = (0, conditions.dim) if lin is None else (lin.n_clients, lin.dim)
        self.in_group = math.ceil(_GROUP / tau)
        horizon = conditions.horizon
        self.horizon = None if horizon is None else max(horizon // (tau * self.in_group), 1)
        self.rounds = self.filled = self.groups = self.began = 0
        self.weight = 0.0
        self.pulls = np.zeros((clients, dim, runs))  # in the group that is filling; NaN for clients that were absent
        self.recent = np.full((_WINDOWS[-1], clients, dim, runs), np.nan)  # e, the newest last
        self.sizes = np.full((_WINDOWS[-1], clients, runs), np.nan)  # q
        self.starts = np.zeros((_WINDOWS[-1], 2), dtype=np.int64)  # steps and rounds before them
        self.count, self.size = np.zeros((2, clients, runs))
        self.sum = np.zeros((clients, dim, runs))
        self.statistic, self.step, self.rounds_before = no_peak(runs)
        self.first, self.rounds_first, self.last = self.step, self.rounds_before, self.step
        self._cap, self._expected = capped_mean(dim, _CAP)
        if lin is not None:
            values, vectors = np.linalg.eigh(noise_inverses(lin))
            self._whitener = np.sqrt(np.maximum(values, 0.0))[:, :, None] * np.swapaxes(vectors, 1, 2)

    def threshold(self, p: float) -> float:
        """-log p: the statistic is a p-value already."""
        return -math.log(p)

    def update(self, seen: RoundSeen) -> Peak:
        """Take in what every client pulled; a round without uploads says nothing."""
        if seen.pulls is not None:
            if not self.filled:
                self.began, self.starts = seen.before, np.append(self.starts[1:], [[seen.before, self.rounds]], axis=0)
            self.filled += 1
            self.weight += seen.weight
            self.pulls += seen.weight * seen.pulls
            if self.filled == self.in_group:
                self._add(self.pulls / self.weight)
                self.filled, self.weight = 0, 0.0
                self.pulls = np.zeros_like(self.pulls)
        self.rounds += 1
        return Peak(self.statistic, self.step, self.rounds_before)

    def _add(self, pulls: FloatArray) -> None:
        """A group that is full."""
        e = math.sqrt(self.weight) * np.einsum("kij,kjr->kir", self._whitener, pulls)
        here = np.isfinite(e).all(axis=1)  # (K, R)
        e = np.where(here[:, None], e, 0.0)
        gap = e - self.sum / np.maximum(self.count, 1.0)[:, None]
        q = np.minimum((gap**2).sum(axis=1) * self.count / (self.count + 1.0), self._cap) / self._expected
        q = np.where(self.count > 0, q, 1.0)
        self.recent = np.where(here[:, None], np.concatenate([self.recent[1:], e[None]]), self.recent)
        self.sizes = np.where(here, np.concatenate([self.sizes[1:], q[None]]), self.sizes)
        self.count, self.sum, self.size = self.count + here, self.sum + e, self.size + np.where(here, q, 0.0)
        self.groups += 1
        p = np.stack([self._p_of(window) for window in _WINDOWS])  # (windows, K, R)
        best = np.where(here, p.min(axis=0), 1.0)
        # As with thresholds, what holds at the horizon goes on beyond it.
        allowed = spent(1.0, self.horizon, self.groups if self.horizon is None else 1)
        chance = _together(np.minimum(_WAYS * best, 1.0)) / allowed
        self.statistic = np.maximum(-np.log(np.maximum(chance, 1e-300)), 0.0)
        runs = np.arange(best.shape[1])
        evidence = -2.0 * np.log(np.maximum(p[:, best.argmin(axis=0), runs], 1e-300))  # (windows, R)
        back, likely = np.array(_WINDOWS), evidence >= evidence.max(axis=0) - DROP
        longest = back[len(back) - 1 - likely[::-1].argmax(axis=0)]
        self.step, self.rounds_before = self.starts[-back[evidence.argmax(axis=0)]].T
        # The change may lie between two windows.
        self.first, self.rounds_first = self.starts[-np.minimum(np.maximum(2 * longest - 1, 2), _WINDOWS[-1])].T
        self.last = self.starts[-back[likely.argmax(axis=0)], 0]

    def check(self, rounds: int, step: int) -> None:
        """Groups have no more rounds than were seen; counts and sizes belong to them; changes lie in the past."""
        groups = self.groups * self.in_group + self.filled <= rounds and self.groups >= 0
        filling = 0 <= self.filled < self.in_group and (self.weight > 0.0) == (self.filled > 0) and self.weight >= 0.0
        if self.rounds != rounds or not groups or not filling or not 0 <= self.began <= step:
            raise ValueError("groups of the client channel must be of rounds that it has seen")
        counted = (self.count >= 0) & (self.count <= self.groups) & (self.count == np.floor(self.count))
        sizes = np.nan_to_num(self.sizes)
        usual = _PRIOR + self.size - np.cumsum(sizes[::-1], axis=0)  # of what lies before a window
        if not counted.all() or (sizes < 0.0).any() or (usual <= 0.0).any() or (self.statistic < 0.0).any():
            raise ValueError("counts and sizes of the client channel must be those of its groups")
        check_peak(Peak(self.statistic, self.step, self.rounds_before), rounds, step)
        check_peak(Peak(self.statistic, self.first, self.rounds_first), rounds, step)
        check_peak(Peak(self.statistic, self.last, self.rounds_first), rounds, step)
        check_peak(Peak(self.statistic, *self.starts.T), rounds, step)

    def onset_span(self, peak: Peak) -> OnsetSpan:
        """From the windows whose p-value is near the smallest."""
        return OnsetSpan(self.first, self.rounds_first, self.last)

    def _p_of(self, window: int) -> FloatArray:
        """The smallest of three p-values of each client, (K, R); 1 where its past is too short."""
        last, sizes = np.nan_to_num(self.recent[-window:]), np.nan_to_num(self.sizes[-window:])
        n, dim = np.maximum(self.count - window, 1.0), last.shape[2]
        before = (self.sum - last.sum(axis=0)) / n[:, None]
        usual = (_PRIOR + self.size - sizes.sum(axis=0)) / (_PRIOR + n)
        moved = ((last.mean(axis=0) - before) ** 2).sum(axis=1) * (window * n / (window + n)) / usual
        grown = np.maximum(sizes.mean(axis=0) / usual, 1e-12)
        worth = 1.0 / (1.0 + 0.5 * _KURTOSIS / self.weight)
        dof = (n + _PRIOR) * dim
        # t with v degrees of freedom has a kurtosis of 6 / (v - 4), a sum of m gradients one of 6 / m.
        tails = 1.0 / (1.0 / dof + 1.0 / (4.0 + 6.0 * self.weight * window / _KURTOSIS))
        smallest = fdtrc(dim, tails, moved / dim)
        smallest = np.minimum(smallest, fdtrc(worth * window * dim, worth * dof, grown))
        smallest = np.minimum(smallest, fdtrc(worth * dof, worth * window * dim, 1.0 / grown))
        return np.where(self.count - window >= _LEAST_PAST, smallest, 1.0)


def _together(p: FloatArray) -> FloatArray:
    """The chance that one or several of K honest clients have p-values (K, R) like these, (R,)."""
    ordered, count = np.sort(p, axis=0), len(p)
    smallest = count * ordered[0] / _FIRST
    sizes = range(2, count // 2 + 1)
    for j in sizes:
        several = binom(count, j) * ordered[j - 1] ** ((j + 1) / 2) * len(sizes) / (1.0 - _FIRST)
        smallest = np.minimum(smallest, several)
    return np.minimum(smallest, 1.0)
