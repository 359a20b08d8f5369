"""Rules that are told when a shift begins: what the best of them can do, from optimal stopping.

A rule is told t_0 and knows everything but the direction of the shift, over all of which figures are averaged, and the
mean before it, on which it must not depend. Values of rounds are x_j = m + f_j theta + Gaussian noise of precision p_j,
where f_j is the share of round j after t_0. What they tell about theta, whatever m is, is a walk W_t with independent
increments and information

    n_t = sum p f^2 - (sum p f)^2 / sum p,    W_t ~ N(n_t theta, n_t I),

so with |theta| = delta the likelihood ratio L_t = I_0(delta |W_t|) exp(-delta^2 n_t / 2) is one of the radius, which is
a Markov chain. For prices lambda_t of an alarm of an honest run in round t every rule T has

    E_delta[cost of T] >= Phi(lambda) - sum_t lambda_t P_0(T = t),    Phi = min_T E_delta[cost of T] + E_0[lambda_T],

and Phi comes from U_t = min(cost_t L_t + lambda_t, E_0[U_{t+1} | W_t]), backwards over a grid of |W_t| / sqrt(n_t).
Several sizes of shift with one t_0 are one problem: cost_t L_t is then a sum over them.

Rules for several t_0 share their alarms a_t in honest runs, and nothing else is asked of them here. So for prices with
sum_k lambda_kt <= 1 over the t_0, and weights w of figures that are to be reached,

    sum_t a_t >= sum_k (Phi_k(w_k, lambda_k) - w_k . figures wanted at t_0 number k).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.special import i0e

Array = np.ndarray[Any, Any]

DEAR = (10.0, 0.1)  # in level, for a share missed and for a step of delay


class Found(NamedTuple):
    """An optimal rule for given prices."""

    value: float  # Phi
    alarms: Array  # (J,) a_t: the chance of an alarm of an honest run in each round
    costs: Array  # (M, 2): the chance that a shift is missed and its delay in steps, for each size
    bounds: Array  # (after,) alarm where |W_t| / sqrt(n_t) exceeds it


@dataclass(frozen=True, eq=False)
class Told:
    """Stopping problems of rules that are told t_0.

    Attributes
    ----------
    ends : (J,) array
        The last step of each round.
    precision : (J,) array
        Of a round's value, in a coordinate.
    after : int
        t_0.
    sizes : sequence of float
        |theta| for each size of shift.
    last : int
        The step at which runs without an alarm have one for free; the delay counts up to there.
    grid : float
        The distance of points of |W_t| / sqrt(n_t).
    """

    ends: Array
    precision: Array
    after: int
    sizes: Sequence[float]
    last: int
    grid: float = 0.02

    @cached_property
    def first(self) -> int:
        """The number of rounds that end before the change."""
        return int((self.ends <= self.after).sum())

    @cached_property
    def shares(self) -> Array:
        """f_j, of all rounds, which are equally long."""
        return np.clip((self.ends - self.after) / (self.ends[1] - self.ends[0]), 0.0, 1.0)

    @cached_property
    def information(self) -> Array:
        """n_t for each round after the change."""
        p, f = self.precision, self.shares
        return (np.cumsum(p * f**2) - np.cumsum(p * f) ** 2 / np.cumsum(p))[self.first :]

    def evidence(self, values: Array) -> Array:
        """|W_t| / sqrt(n_t) of runs, from their values (R, J, 2); (R, rounds after the change)."""
        p, f = self.precision, self.shares
        shared = np.cumsum(p * f) / np.cumsum(p)
        weighted = p[:, None] * values
        walk = np.cumsum(f[:, None] * weighted, axis=1) - shared[:, None] * np.cumsum(weighted, axis=1)
        return np.linalg.norm(walk[:, self.first :], axis=2) / np.sqrt(self.information)

    @cached_property
    def points(self) -> Array:
        """|W_t| / sqrt(n_t), up to eight standard deviations beyond its mean under the largest shift."""
        return np.arange(0.0, max(self.sizes) * np.sqrt(self.information[-1]) + 8.0, self.grid)

    @cached_property
    def moves(self) -> list[Array]:
        """Transition matrices of honest runs into each round, by the trapezoidal rule; into the first one from 0."""
        found, before, r = [], 0.0, np.zeros(1)
        for n in self.information:
            s, v = np.sqrt(n) * self.points, n - before
            density = s / v * np.exp(-((r[:, None] - s) ** 2) / (2 * v)) * i0e(r[:, None] * s / v)
            found.append(density * np.sqrt(n) * self.grid)
            before, r = n, s
        return found

    @cached_property
    def ratios(self) -> Array:
        """L_t, (rounds after the change, sizes, points)."""
        n, size = self.information[:, None, None], np.asarray(self.sizes)[None, :, None]
        s = size * np.sqrt(n) * self.points
        return i0e(s) * np.exp(s - size**2 * n / 2)

    @cached_property
    def price_of_stopping(self) -> Array:
        """What an alarm in each round costs under a shift, and none at all: missed or not, and delay; (J + 1, 2)."""
        end = float(self.last - self.after)
        late = np.stack([np.zeros(len(self.ends)), self.ends - float(self.after)], axis=1)
        return np.vstack([np.where((self.ends <= self.after)[:, None], [1.0, end], late), [1.0, end]])

    def simple(self) -> list[Found]:
        """Rules to begin with: an alarm in a given round before the change, the first after it, and none at all."""
        size, nothing = len(self.sizes), np.zeros(len(self.ends))
        found = []
        for j in [*range(self.first + 1), len(self.ends)]:
            alarms = np.where(np.arange(len(self.ends)) == j, 1.0, nothing)
            found.append(Found(0.0, alarms, np.tile(self.price_of_stopping[j], (size, 1)), np.array([])))
        return found

    def best(self, weights: Array, prices: Array) -> Found:
        """The rule that minimises sum(weights * costs) + prices . alarms, weights (M, 2) and prices (J,)."""
        each = weights @ self.price_of_stopping.T  # (M, J + 1)
        total, steps = each.sum(axis=0), len(self.information)
        future, stops = each[:, -1] @ self.ratios[-1], np.zeros((steps, len(self.points)), bool)
        for k in reversed(range(steps)):
            now = each[:, self.first + k] @ self.ratios[k] + prices[self.first + k]
            stops[k] = now <= future
            future = self.moves[k] @ np.minimum(now, future)
        early = total[: self.first] + prices[: self.first]
        value, alarms = float(future[0]), np.zeros(len(self.ends))
        if self.first and early.min() < value:
            at = int(early.argmin())
            alarms[at] = 1.0
            return Found(float(early[at]), alarms, np.tile(self.price_of_stopping[at], (len(each), 1)), np.array([]))
        return self._played(value, stops)

    def _played(self, value: float, stops: Array) -> Found:
        """What the rule that alarms there comes to."""
        alarms, density = np.zeros(len(self.ends)), np.ones(1)
        costs = np.tile(self.price_of_stopping[-1], (len(self.sizes), 1))
        for k, (move, stop) in enumerate(zip(self.moves, stops, strict=True)):
            density = density @ move
            alarms[self.first + k] = density[stop].sum()
            gained = self.price_of_stopping[self.first + k] - self.price_of_stopping[-1]
            costs += (self.ratios[k][:, stop] @ density[stop])[:, None] * gained
            density = np.where(stop, 0.0, density)
        # A point stands for what is within half a grid of it.
        bounds = np.array([self.points[stop].min() - self.grid / 2 if stop.any() else np.inf for stop in stops])
        return Found(value, alarms, costs, bounds)


def least_delay(told: Told, early: float) -> tuple[float, Found]:
    """The largest bound on the delay of a rule that alarms in a share `early` of honest runs, and its rule.

    Phi(lambda) - lambda early is concave in lambda, which is searched on ever finer grids of its logarithm.
    """
    low, high, best = 0.0, 20.0, (-np.inf, 0.0)
    while high - low > 1e-4:
        found = [(_at(told, k).value - np.exp(k) * early, k) for k in np.linspace(low, high, 11)]
        best, width = max(best, *found), (high - low) / 10
        low, high = best[1] - width, best[1] + width
    return best[0], _at(told, best[1])


def _at(told: Told, log_price: float) -> Found:
    return told.best(np.tile([0.0, 1.0], (len(told.sizes), 1)), np.full(len(told.ends), np.exp(log_price)))


def least_level(told: Sequence[Told], wanted: Sequence[Array], gap: float = 1e-4) -> tuple[float, float]:
    """The least chance of a false alarm of rules told t_0 that reach figures: a bound from below, and what was reached.

    Rules of every t_0 are mixtures of rules found so far, with the same alarms of honest runs; a linear programme mixes
    them, and its prices ask for the next. `wanted` are (M, 2): the largest share missed and delay, inf for any.
    """
    rules = [t.simple() for t in told]
    lower = 0.0
    for _ in range(400):
        level, weights, prices = _mixed(told, wanted, rules)
        found = [t.best(w, p) for t, w, p in zip(told, weights, prices, strict=True)]
        asked = [float((w[w > 0] * x[w > 0]).sum()) for w, x in zip(weights, wanted, strict=True)]
        lower = max(lower, sum(f.value for f in found) - sum(asked))
        if level - lower < gap:
            break
        for known, f in zip(rules, found, strict=True):
            known.append(f)
    return lower, level


def _mixed(
    told: Sequence[Told], wanted: Sequence[Array], rules: list[list[Found]]
) -> tuple[float, list[Array], list[Array]]:
    """The least level of mixtures of rules, and the prices of figures and of alarms that it has.

    Alarms before t_0 are those of honest runs; of those after it a rule may use less than there are. Figures that are
    missed cost `DEAR` in the level, so that there always is a mixture.
    """
    rounds, demands = len(told[0].ends), [np.isfinite(w) for w in wanted]
    sizes, figures = [len(r) for r in rules], [int(d.sum()) for d in demands]
    n, starts = rounds + sum(sizes) + sum(figures), rounds + np.append(0, np.cumsum(sizes))
    cost, equal, below = np.zeros(n), [], []
    cost[:rounds] = 1.0
    slack = int(starts[-1])
    for t, w, demand, known, at in zip(told, wanted, demands, rules, starts, strict=False):
        columns = slice(int(at), int(at) + len(known))
        one = np.zeros(n)
        one[columns] = 1.0
        equal.append((one, 1.0))
        for j in range(rounds):
            row = np.zeros(n)
            row[columns], row[j] = [rule.alarms[j] for rule in known], -1.0
            (equal if j < t.first else below).append((row, 0.0))
        for m, figure in np.argwhere(demand):
            row = np.zeros(n)
            row[columns], row[slack] = [rule.costs[m, figure] for rule in known], -1.0
            cost[slack], slack = DEAR[figure], slack + 1
            below.append((row, float(w[m, figure])))
    solved = linprog(
        cost,
        A_ub=np.stack([row for row, _ in below]),
        b_ub=[limit for _, limit in below],
        A_eq=np.stack([row for row, _ in equal]),
        b_eq=[limit for _, limit in equal],
    )
    asked, given = iter(solved.eqlin.marginals), iter(solved.ineqlin.marginals)
    weights, prices = [], []
    for t, demand in zip(told, demands, strict=True):
        next(asked)  # that mixtures add up to one
        prices.append(np.array([-next(asked if j < t.first else given) for j in range(rounds)]))
        weights.append(np.zeros(demand.shape))
        weights[-1][demand] = [-next(given) for _ in range(int(demand.sum()))]
    return float(solved.fun), weights, prices
