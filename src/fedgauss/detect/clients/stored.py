"""A client monitor taken apart into words and arrays, and put together again: as it was, or refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, astuple, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss.detect import storage
from fedgauss.detect.clients.compared import HOW, Exclusion
from fedgauss.detect.clients.directions import Directions
from fedgauss.detect.clients.features import OF_MANY, Feature
from fedgauss.detect.clients.population import Population
from fedgauss.detect.clients.quarantine import Held, from_words, words_of
from fedgauss.detect.clients.reasons import KINDS, Reason
from fedgauss.detect.clients.seen import SeenRounds
from fedgauss.detect.clients.sketch import Single, Sketch, width_for
from fedgauss.detect.clients.verdict import ClientVerdict, Name
from fedgauss.detect.clients.watch import ClientWatch

FORMAT = "fedgauss client monitor 2"
_OF_POPULATION = "population."  # how its arrays' names begin
_LONGEST_MOVE = 1.001  # of an average of unit vectors, in any coordinate


class ClientState:
    """The base of `ClientMonitor`: what it holds, taken apart and put together again."""

    alpha: float
    horizon: int | None
    rate: float
    features: tuple[Feature, ...]
    clip: float | None
    noise: float | None
    population: bool  # whether clients without pasts are judged together
    round: int
    alarm: ClientVerdict | None
    exclusions: tuple[Exclusion, ...]
    seen: SeenRounds
    _seed: int  # of the sketch
    _dim: int  # parameters, 0 before they are known
    _numbers: dict[Name, int]  # of clients by name
    _watch: ClientWatch
    _directions: Directions
    _held: dict[int, Held]  # clients in quarantine
    _population: Population | None  # once clients are too many to have a past of their own
    _strangers: tuple[float, ...]  # of the last rounds, the share of clients that were new

    @property
    def _measured(self) -> tuple[Feature, ...]:
        """What is measured of moves."""
        if self._population is None:
            return self.features
        return tuple(dict.fromkeys((*self.features, *(feature for feature in OF_MANY if feature.field))))

    def _new_population(self) -> Population:
        # Without pasts, clients that differ by less than twice what one of them may wander are nearly alike.
        tolerance = [2.0 * feature.tolerance for feature in OF_MANY]
        return Population(tolerance, self.alpha, self.horizon, self.rate, self._seed)

    def state(self) -> storage.Contents:
        """Words and arrays, all that `restore` needs but for what the monitor is made with."""
        alarm = None
        if self.alarm is not None:  # names may be numbers, which JSON does not have as keys
            alarm = asdict(replace(self.alarm, reasons={})) | {"surprises": [*self.alarm.surprises.items()]}
            del alarm["question"], alarm["population"]
            alarm["reasons"] = [[name, *astuple(reason)] for name, reason in self.alarm.reasons.items()]
        many, cohorts = (None, {}) if self._population is None else self._population.state()
        words = {
            "population": many,
            "strangers": list(self._strangers),
            "alpha": self.alpha,
            "horizon": self.horizon,
            "rate": self.rate,
            "seed": self._seed,
            "width": self._directions.sketch.width,
            "features": [feature.name for feature in self.features],
            "clip": self.clip,
            "noise": self.noise,
            "together": self.population,
            "round": self.round,
            "dim": self._dim,
            "clients": list(self._numbers),
            "alarm": alarm,
            "exclusions": self.exclusions,
            "held": words_of(self._held),
            "alarms": self.seen.words(),
        }
        arrays: dict[str, npt.NDArray[Any]] = {
            "directions": self._directions.table,
            "journey": self._directions.journey,
            "course": self._directions.course,
            **{f"{_OF_POPULATION}{name}": array for name, array in cohorts.items()},
            "seen.rounds": self.seen.rounds,
            "seen.tenths": self.seen.tenths(len(self._numbers)),
            **self._watch.state(),
        }
        return words, arrays

    def restore(self, words: dict[str, Any], arrays: storage.Arrays) -> None:
        """Make a fresh monitor the one that `state` took apart; a ValueError where parts do not fit together."""
        self.round = _checks.whole("round", words["round"], at_least=0, at_most=storage.LATEST)
        if (features := [feature.name for feature in self.features]) != words["features"]:
            raise ValueError(f"it was saved with the features {words['features']}, not {features}: hand those to load")
        self._dim = _checks.whole("dim", words["dim"], at_least=0, at_most=storage.LATEST)
        self._numbers = {name: k for k, name in enumerate(_names(words["clients"]))}
        count = len(self._numbers)
        self._watch = ClientWatch.from_state(arrays, count, self.round, self.features)
        self._held = from_words(words["held"], np.flatnonzero(self._watch.held[0]), len(features), self.round)
        width = _checks.whole("width", words["width"], at_least=1, at_most=width_for(0))
        self._strangers = tuple(_checks.real("strangers", share) for share in words["strangers"])
        if words["population"] is not None:
            begin = _OF_POPULATION
            cohorts = {name.removeprefix(begin): array for name, array in arrays.items() if name.startswith(begin)}
            self._population = self._new_population()
            self._population.fill(words["population"], cohorts)
        self._directions = Directions(Sketch(width, self._seed), self._measured)
        self._directions.journey, self._directions.course = self._checked_ways(arrays["journey"], arrays["course"])
        self._directions.table = self._checked_directions(arrays["directions"], count)
        self.exclusions = tuple(_exclusion(told, self.round) for told in words.get("exclusions", ()))
        if words["alarm"] is not None:
            self.alarm = _alarm(words["alarm"], self.round)
            if self._population is not None:
                self.alarm = replace(self.alarm, population=self._population.alarm)
        if "seen.rounds" in arrays:  # not in files before they were kept
            told = [(_whole("round", at, self.round), onset, _names(who)) for at, onset, who in words["alarms"]]
            alarms = [(at, _whole("onset", onset, at), who) for at, onset, who in told]
            self.seen = SeenRounds.from_state(alarms, arrays["seen.rounds"], arrays["seen.tenths"], n_clients=count)
            if len(self.seen.rounds) and self.seen.rounds[-1] > self.round:
                raise ValueError(f"rounds seen must not lie beyond round {self.round}")
        named = [out.clients for out in self.exclusions] + [seen.clients for seen in self.seen.alarms]
        if alarm := self.alarm:
            named += [alarm.suspects, tuple(alarm.surprises), tuple(alarm.reasons), alarm.returned]
        if self._population is None and not {name for names in named for name in names} <= self._numbers.keys():
            raise ValueError("clients that are named or left out must be among those seen")
        if surplus := arrays.keys() - self.state()[1].keys():
            raise ValueError(f"{min(surplus)[:60]!r} is not a part of a client monitor")

    def _checked_directions(self, given: npt.NDArray[Any], count: int) -> Single:
        """Clients' average directions. There are none before a round, or where another monitor compared the clients."""
        known = self._dim and count and self._watch.recent and self._population is None
        shape = (count, self._directions.sketch.length(self._dim)) if known else (0, 0)
        if given.shape != shape or given.dtype != np.float32:
            raise ValueError(f"directions must be float32 of shape {shape}")
        if not (np.abs(given) <= _LONGEST_MOVE).all():  # NaN is not
            raise ValueError("directions must be finite, and at most 1")
        return given

    def _checked_ways(self, journey: npt.NDArray[Any], course: npt.NDArray[Any]) -> tuple[Single, Single]:
        """Where the run went, as long as a sketch; nothing where clients have pasts of their own."""
        length = self._directions.sketch.length(self._dim) if journey.size and self._population else 0
        for way in (journey, course):
            if way.shape != (length,) or way.dtype != np.float32 or not np.isfinite(way).all():
                raise ValueError(f"ways of the run must be finite float32 of shape {(length,)}")
        return journey, course


def _whole(name: str, value: Any, most: int) -> int:
    return _checks.whole(name, value, at_least=0, at_most=most)


def _names(given: Any) -> tuple[Name, ...]:
    if not isinstance(given, list) or not all(type(name) in (str, int) for name in given):
        raise ValueError("names of clients must be text or whole numbers")
    if len(set(given)) != len(given):
        raise ValueError("a client is named twice")
    return tuple(given)


def _exclusion(told: Any, last: int) -> Exclusion:
    out, at, back_to, how = told
    one = _checks.one_of("how", how, HOW)
    return Exclusion(_names(out), _whole("round", at, last), _whole("back_to", back_to, last), one)


def _alarm(words: dict[str, Any], last: int) -> ClientVerdict:
    """The current alarm, from the fields of its verdict."""
    at = _whole("round", words["round"], last)
    onset, earliest, latest = (_whole("onset", n, at) for n in (words["onset"], *words["onset_interval"]))
    names, values = _pairs(words.get("surprises", ()))  # not in files before they were kept
    return ClientVerdict(
        True,
        _checks.real("statistic", words["statistic"]),
        _checks.real("threshold", words["threshold"]),
        _checks.one_of("channel", words["channel"], ["clients", "population"]),
        at,
        at,
        onset,
        _whole("rollback", words["rollback"], at),
        _checks.probability("alpha", words["alpha"]),
        note=storage.text("note", words["note"]),
        onset_interval=(earliest, latest),
        suspects=_names(words["suspects"]),
        watched=_whole("watched", words["watched"], storage.LATEST),
        returned=_names(words["returned"]),
        reasons=dict(_reason(*each) for each in words["reasons"]),
        surprises=dict(zip(names, values, strict=True)),
    )


def _reason(name: Any, kind: Any, sure: Any, benign: Any, changed: Any, rounds: Any) -> tuple[Name, Reason]:
    """Why a client was named."""
    (client,) = _names([name])
    if type(benign) is not bool or not isinstance(changed, list):
        raise ValueError("a reason must say whether it is benign, and what changed")
    return client, Reason(
        _checks.one_of("kind", kind, [*KINDS, "weight", "unknown"]),
        _checks.real("sure", sure),
        benign,
        tuple(storage.text("changed", each) for each in changed),
        _whole("rounds", rounds, storage.LATEST),
    )


def _pairs(told: Iterable[Any]) -> tuple[tuple[Name, ...], list[float]]:
    pairs = [(name, _checks.real("surprise", value)) for name, value in told]
    return _names([name for name, _ in pairs]), [value for _, value in pairs]
