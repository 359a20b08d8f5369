"""A population of which few are seen a round: whether those present now are like those of earlier rounds.

Where clients come back too rarely to be compared with their own past, the round is compared with earlier rounds. The
cohorts of a round take part in a bet against their order: if nobody changed, each order of the rounds is as likely as
another, and no way of betting wins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._types import FloatArray
from fedgauss.detect.clients.sightings import Sightings, names_behind
from fedgauss.detect.clients.verdict import Name, PopulationVerdict
from fedgauss.detect.spending import spent

LEFT_OUT = 20  # first rounds: a model moves too fast in them, and spreads are of few rounds
LEAST = 20  # earlier cohorts, to bet on a feature at all
MOST = 100  # cohorts that are remembered: what was longer ago is another model
MOST_SINCE = 1_000  # the same after an alarm, by which names come
LEAST_CLIENTS = 4  # in a cohort
_SPREADS = 10  # rounds whose spreads scale a feature
_OF_DEVIATION = 0.6745  # the median of |x| of a standard normal
# A client is bad with chance .05, and its p-value then has density .3 p^-.7: small, and by how much nobody knows.
_BAD, _POWER = 0.05, 0.7
# Bets: that a share of the cohorts, stated second, is among the highest of a part of all, stated first. Bad cohorts
# fill the highest places as time goes on, so parts are small and large; shares are one bad cohort in four to most.
# Twelve such bets saw no more in development.
_PARTS, _SHARES = np.array([(0.05, 0.5), (0.1, 0.85), (0.1, 0.25), (0.2, 0.5)]).T
# Shapes drift: S reached 40, where it may reach 20, in 10 of 192 honest runs of development.
_DRIFT = 2.0
_CUTS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)  # quantiles of honest clients, beyond which bad ones are counted
_ARRAYS = ("spreads", "stakes", "logs", "onsets")
_SOON = 10  # rounds within which one would like to see something
_KNOWN_BY, _RUNNING, _STRANGERS = 10, 4, 0.5  # of `are_many`
_ROUNDING = 1e-9  # of scores
_LARGEST = 1e6  # of a scaled feature


class Cohort(NamedTuple):
    """The clients of a round."""

    round: int
    names: tuple[Name, ...]
    rows: npt.NDArray[np.float32]  # features less their median, over their usual spread; NaN where unknown  (P, F)


class Population:
    """Alarms when the clients of the last rounds are no longer like those before them, and says what share acts.

    A feature is scaled by its usual spread within a round: the mean of the last ten rounds' median absolute
    deviations. A client's p-value is its rank among all clients of the last hundred rounds, this one included, in one
    feature and one direction; the score of a cohort is sum log(.95 + .05 * .3 p^-.7) over its clients, and

        q_t = #{s <= t: score_s >= score_t} / n

    its rank among n cohorts. Each bet (a, b) multiplies its stake by b / a' where q_t <= a' and by (1 - b) / (1 - a')
    elsewhere, with a' the part of the n places that is bet on; new stakes w_t, which add up to 1, join in each round:

        S_t = (S_{t-1} + w_t) e_t,    chance_t = 2 / (mean of S_t over bets, features and directions).

    If the rounds can be exchanged, places of the last one are equally likely whatever came before it, ties only lower
    e_t, so E[e_t | past] <= 1, S_t less its stakes is a supermartingale, and by Doob's inequality the chance that S
    ever reaches 1 / alpha is at most alpha. However clients of one round depend on each other does not matter. What
    matters is that rounds change slowly: spreads may, since each round is scaled by those about it, shapes may not.
    Beyond a hundred rounds the oldest are forgotten, and independence is only nearly true. The 2 in the equation, which
    exchangeable rounds do not need, is for both; what it leaves is measured (benchmarks/watch_population.py).

    Parameters
    ----------
    tolerance : (F,) array_like
        Of each feature, the deviation below which it is not looked at in a round: clients are then nearly alike in it,
        and a small change is no reason to alarm.
    alpha : float
        The chance of a false alarm while it watches.
    horizon : int, optional
        The rounds over which stakes are spread evenly; without one they fall, for ever.
    rate : float
        The share of wrong names that is aimed at among those named, by Benjamini and Hochberg's rule.
    seed : int
        Of the hashes that stand for names.
    """

    def __init__(
        self,
        tolerance: Sequence[float],
        alpha: float = 0.05,
        horizon: int | None = None,
        rate: float = 0.05,
        seed: int = 0,
    ) -> None:
        self.tolerance = np.asarray(tolerance, dtype=np.float64)
        self.alpha, self.horizon, self.rate = alpha, horizon, rate
        count = len(self.tolerance)
        self.round = 0
        self.alarm: PopulationVerdict | None = None
        self.sightings = Sightings(count, seed)
        self._spreads = np.full((_SPREADS, count), np.nan)
        self._cohorts: list[Cohort] = []
        self._stakes = np.zeros((2, count, len(_PARTS)))  # upwards, downwards
        self._logs = np.zeros_like(self._stakes)  # of what a bet that began at its onset would have won
        self._onsets = np.ones(self._stakes.shape, dtype=np.int64)

    @property
    def waits_until(self) -> int:
        """The first round in which it can bet, if every round has clients enough."""
        return LEFT_OUT + LEAST + 1

    def copied(self) -> Population:
        """Another one with a past of its own."""
        other = Population(self.tolerance.tolist(), self.alpha, self.horizon, self.rate)
        vars(other).update(vars(self))
        other.sightings = self.sightings.copied()
        other._cohorts = list(self._cohorts)
        for name in ("_spreads", "_stakes", "_logs", "_onsets"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def update(
        self, names: Sequence[Name], rows: FloatArray, round: int | None = None, stake: float | None = None
    ) -> PopulationVerdict:
        """Judge the clients of a round.

        Parameters
        ----------
        names : sequence
            Of the P clients present.
        rows : (P, F) array
            Their features, in any units; NaN where one is not known.
        round : int, optional
            Its number; one more than the last by default.
        stake : float, optional
            The part of alpha that this round may take; by default that of the horizon.
        """
        self.round = self.round + 1 if round is None else round
        fresh = spent(1.0, self.horizon, self.round) if stake is None else stake
        if self.alarm is None:
            self._stakes += fresh  # before the round is looked at: a round that is not bet on keeps its stake
        if len(names) < LEAST_CLIENTS or np.shape(rows) != (len(names), len(self.tolerance)):
            return self._verdict(0)
        scaled = self._scaled(np.asarray(rows, dtype=np.float64))
        if self.round <= LEFT_OUT:
            return self._verdict(0)
        cohort = Cohort(self.round, tuple(names), scaled)
        self.sightings.add(cohort.names, scaled)
        self._cohorts = [*self._cohorts, cohort][-(MOST if self.alarm is None else MOST + MOST_SINCE) :]
        if self.alarm is not None:
            return self._since(len(names))
        judged = self._bet()
        if self._chance() > self.alpha:
            return self._verdict(judged)
        up_down, feature, bet = np.unravel_index(int(np.argmax(self._stakes)), self._stakes.shape)
        onset = min(int(self._onsets[up_down, feature, bet]), self.round)
        self.alarm = PopulationVerdict(
            True, self._chance(), self.round, judged, int(feature), 1 - 2 * int(up_down), onset
        )
        return self._since(judged)

    def _scaled(self, rows: FloatArray) -> npt.NDArray[np.float32]:
        """Rows less their median, over the usual spread; NaN in features in which clients are nearly alike."""
        known = np.isfinite(rows).sum(axis=0) >= LEAST_CLIENTS
        centred = rows - np.nanmedian(np.where(known, rows, 0.0), axis=0)
        spread = np.nanmedian(np.where(known, np.abs(centred), 0.0), axis=0)
        used = known & (spread > _OF_DEVIATION * self.tolerance)
        self._spreads = np.concatenate([self._spreads[1:], np.where(used, spread, np.nan)[None]])
        count = np.maximum(np.isfinite(self._spreads).sum(axis=0), 1)
        usual = np.hypot(np.nansum(self._spreads, axis=0) / count, _OF_DEVIATION * self.tolerance)
        usual = np.where(used, usual, np.nan)
        return np.asarray(np.clip(centred / usual, -_LARGEST, _LARGEST), dtype=np.float32)

    def _bet(self) -> int:
        """All bets on the newest cohort; whether there was one, as the number of its clients."""
        table = np.concatenate([c.rows for c in self._cohorts])
        sizes = np.array([len(c.names) for c in self._cohorts])
        judged = 0
        for feature in range(len(self.tolerance)):
            known = np.isfinite(table[:, feature])
            there = np.add.reduceat(known, np.cumsum([0, *sizes[:-1]])) > 0
            count = int(there.sum())
            if not there[-1] or count <= LEAST:
                continue
            judged = int(sizes[-1])
            values, cohort = table[known, feature], np.repeat(np.cumsum(there) - 1, sizes)[known]
            parts = np.maximum(1, (_PARTS * count).astype(np.int64))
            for direction, place in enumerate(_places(values, cohort)):
                won = np.where(place <= parts, _SHARES * count / parts, (1 - _SHARES) / (1 - parts / count))
                self._stakes[direction, feature] *= won
                log = self._logs[direction, feature] + np.log(won)
                self._onsets[direction, feature][log <= 0.0] = self.round + 1
                self._logs[direction, feature] = np.maximum(log, 0.0)
        return judged

    def _chance(self) -> float:
        return float(min(1.0, _DRIFT / max(float(self._stakes.mean()), 1e-300)))

    def _verdict(self, judged: int) -> PopulationVerdict:
        if self.alarm is not None:
            return self._since(judged)
        return PopulationVerdict(False, self._chance(), self.round, judged)

    def note(self, present: int) -> str:
        """What cannot be seen, and for how long, where so many of the clients are present in a round."""
        known = len(self.sightings)
        words = (
            f"{known:,} clients so far come back too rarely to be judged by their own past: they are judged together"
        )
        if self.round < self.waits_until:
            return f"{words}, from round {self.waits_until} on; by name, nobody before an alarm."
        few = 1.0 - 0.5 ** (1.0 / (_SOON * max(present, 1)))
        return (
            f"{words}, and by name only after an alarm. Bad clients that are {few:.2%} of all or fewer are absent from "
            f"{_SOON} rounds running as often as not, and cannot be seen then."
        )

    def _since(self, judged: int) -> PopulationVerdict:
        """The alarm, with what share acts and who, by all that was seen since its onset."""
        assert self.alarm is not None
        feature, direction = self.alarm.feature, self.alarm.direction
        each = [(c, direction * c.rows[:, feature].astype(np.float64)) for c in self._cohorts]
        before = np.concatenate([[], *(values for c, values in each if c.round < self.alarm.onset)])
        before = np.sort(before[np.isfinite(before)])
        seen = [(c.names, values) for c, values in each if c.round >= self.alarm.onset]
        after = np.concatenate([[], *(values for _, values in seen)])
        share = _share(before, after[np.isfinite(after)])
        who = names_behind(seen, before, self.sightings.likeness(feature), self.rate) if len(before) else ()
        self.alarm = self.alarm._replace(round=self.round, judged=judged, share=share, suspects=who)
        return self.alarm

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Everything that is not given at the start, as words and arrays; `fill` goes on from it to the bit."""
        rows = [c.rows for c in self._cohorts]
        alarm = None if self.alarm is None else self.alarm._asdict()
        words = {"round": self.round, "alarm": alarm, "cohorts": [[c.round, list(c.names)] for c in self._cohorts]}
        arrays = {
            "cohorts.rows": np.concatenate([np.empty((0, len(self.tolerance)), dtype=np.float32), *rows]),
            **{name: getattr(self, f"_{name}") for name in _ARRAYS},
            **self.sightings.state(),
        }
        return words, arrays

    def fill(self, words: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Become the one that `state` took apart; a ValueError where parts do not fit together."""
        self.round = _checks.whole("round", words["round"], at_least=0)
        cohorts, rows = words["cohorts"], arrays["cohorts.rows"]
        rounds = [_checks.whole("round", at, at_least=0, at_most=self.round) for at, _ in cohorts]
        sizes = [len(names) for _, names in cohorts]
        if (
            sorted(set(rounds)) != rounds
            or len(rounds) > MOST + MOST_SINCE
            or rows.shape != (sum(sizes), len(self.tolerance))
        ):
            raise ValueError("cohorts must be in order, each client with a row of features")
        if any(type(name) not in (str, int) for _, names in cohorts for name in names):
            raise ValueError("names of clients must be text or whole numbers")
        for name in _ARRAYS:
            own, given = getattr(self, f"_{name}"), arrays[name]
            if given.shape != own.shape or given.dtype != own.dtype or np.isinf(given).any():
                raise ValueError(f"{name} must be finite {own.dtype} of shape {own.shape}")
            setattr(self, f"_{name}", given)
        if rows.dtype != np.float32 or not (self._stakes >= 0.0).all() or not np.isfinite(self._logs).all():
            raise ValueError("rows must be float32, stakes not negative, and what bets won finite")
        parts = np.split(rows, np.cumsum(sizes)[:-1])
        self._cohorts = [
            Cohort(at, tuple(names), part) for at, (_, names), part in zip(rounds, cohorts, parts, strict=False)
        ]
        self.sightings.fill(arrays)
        if words["alarm"] is not None:
            self.alarm = PopulationVerdict.from_words(words["alarm"], len(self.tolerance))

    def forget(self, back_to: int) -> None:
        """Go on from an earlier round with stakes that begin anew, after some clients were left out."""
        self._cohorts = [c for c in self._cohorts if c.round <= back_to][-MOST:]
        self.alarm = None
        self._stakes, self._logs = np.zeros_like(self._stakes), np.zeros_like(self._logs)
        self._onsets = np.full_like(self._onsets, self.round + 1)


def strangers(names: Sequence[Name], known: Collection[Name]) -> float:
    """The share of a round's clients that were never seen before."""
    return sum(name not in known for name in names) / max(len(names), 1)


def are_many(round: int, shares: Sequence[float]) -> bool:
    """Whether clients come back too rarely to have a past of their own, by the strangers of the last rounds.

    In each of four rounds from the tenth on most clients were new: each takes part in one round of thirteen or fewer,
    and would not be judged by its own past for a hundred rounds.
    """
    return round >= _KNOWN_BY and len(shares) >= _RUNNING and min(shares[-_RUNNING:]) > _STRANGERS


def _places(values: npt.NDArray[np.float32], cohort: npt.NDArray[np.int64]) -> list[int]:
    """The place of the last cohort among all, upwards and downwards: 1 for the highest score, ties against it."""
    ordered = np.sort(values)
    n = len(values)
    p = np.arange(1, n + 1) / n
    scores = np.log(1.0 - _BAD + (1.0 - _POWER) * _BAD * p**-_POWER)
    above = n - np.searchsorted(ordered, values, side="left")
    below = np.searchsorted(ordered, values, side="right")
    places = []
    for rank in (above, below):
        score = scores[rank - 1]
        totals = np.bincount(cohort, weights=score - score.mean())  # cohorts may differ in size
        places.append(int((totals >= totals[-1] - _ROUNDING).sum()))
    return places


def _share(before: FloatArray, after: FloatArray) -> float:
    """Of the clients since the onset, how many are surely not like those before it.

    With F the share of values above a cut, F_after = F_before + pi (F_bad - F_before) with F_bad at most 1, so that

        pi >= (F_after - F_before) / (1 - F_before);

    the largest over some quantiles of `before`, each less a standard error of F_after.
    """
    if not len(before) or not len(after):
        return 0.0
    found = 0.0
    for cut in np.quantile(before, _CUTS):
        honest, now = float((before > cut).mean()), float((after > cut).mean())
        error = float(np.sqrt(now * (1.0 - now) / len(after)))
        found = max(found, (now - error - honest) / (1.0 - honest))
    return found
