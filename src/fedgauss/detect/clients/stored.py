"""A client monitor taken apart into words and arrays, and put together again: as it was, or refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss.detect import storage
from fedgauss.detect.clients.compared import Exclusion
from fedgauss.detect.clients.directions import Directions
from fedgauss.detect.clients.seen import SeenRounds
from fedgauss.detect.clients.sketch import Single, Sketch, width_for
from fedgauss.detect.clients.verdict import ClientVerdict, Name
from fedgauss.detect.clients.watch import ClientWatch

if TYPE_CHECKING:
    from fedgauss.detect.clients.monitor import ClientMonitor

FORMAT = "fedgauss client monitor 2"
_LONGEST_MOVE = 1.001  # of an average of unit vectors, in any coordinate


def contents_of(monitor: ClientMonitor) -> storage.Contents:
    """All that `fill` needs, but for what the monitor is made with."""
    alarm = None
    if monitor.alarm is not None:  # names may be numbers, which JSON does not have as keys
        alarm = asdict(monitor.alarm) | {"surprises": [*monitor.alarm.surprises.items()], "population": None}
    many, held = (None, {}) if monitor._population is None else monitor._population.state()
    words = {
        "population": many,
        "strangers": list(monitor._strangers),
        "alpha": monitor.alpha,
        "horizon": monitor.horizon,
        "rate": monitor.rate,
        "seed": monitor._seed,
        "width": monitor._directions.sketch.width,
        "features": [feature.name for feature in monitor.features],
        "round": monitor.round,
        "dim": monitor._dim,
        "clients": list(monitor._numbers),
        "alarm": alarm,
        "exclusions": monitor.exclusions,
        "alarms": monitor.seen.words(),
    }
    arrays: dict[str, npt.NDArray[Any]] = {
        "directions": monitor._directions.table,
        "journey": monitor._directions.journey,
        "course": monitor._directions.course,
        **{f"population.{name}": array for name, array in held.items()},
        "seen.rounds": monitor.seen.rounds,
        "seen.tenths": monitor.seen.tenths(len(monitor._numbers)),
        **monitor._watch.state(),
    }
    return words, arrays


def fill(monitor: ClientMonitor, words: dict[str, Any], arrays: storage.Arrays) -> None:
    """Make a fresh monitor the one that `contents_of` took apart; a ValueError where parts do not fit together."""
    monitor.round = _checks.whole("round", words["round"], at_least=0, at_most=storage.LATEST)
    if (features := [feature.name for feature in monitor.features]) != words["features"]:
        raise ValueError(f"it was saved with the features {words['features']}, not {features}: hand those to load")
    monitor._dim = _checks.whole("dim", words["dim"], at_least=0, at_most=storage.LATEST)
    monitor._numbers = {name: k for k, name in enumerate(_names(words["clients"]))}
    count = len(monitor._numbers)
    monitor._watch = ClientWatch.from_state(arrays, count, monitor.round, monitor.features)
    width = _checks.whole("width", words["width"], at_least=1, at_most=width_for(0))
    monitor._directions = Directions(Sketch(width, monitor._seed), monitor.features)
    monitor._directions.table = _directions(arrays["directions"], count, monitor)
    monitor._strangers = tuple(_checks.real("strangers", share) for share in words["strangers"])
    if words["population"] is not None:
        monitor._population = monitor._new_population()
        begin = "population."
        held = {name.removeprefix(begin): array for name, array in arrays.items() if name.startswith(begin)}
        monitor._population.fill(words["population"], held)
        monitor._directions = Directions(Sketch(width, monitor._seed), monitor._measured)
    monitor._directions.journey, monitor._directions.course = _ways(arrays["journey"], arrays["course"], monitor)
    monitor.exclusions = tuple(_exclusion(told, monitor.round) for told in words.get("exclusions", ()))
    if words["alarm"] is not None:
        monitor.alarm = _alarm(words["alarm"], monitor.round)
        if monitor._population is not None:
            monitor.alarm = replace(monitor.alarm, population=monitor._population.alarm)
    if "seen.rounds" in arrays:  # not in files before they were kept
        told = [(_whole("round", at, monitor.round), onset, _names(who)) for at, onset, who in words["alarms"]]
        alarms = [(at, _whole("onset", onset, at), who) for at, onset, who in told]
        monitor.seen = SeenRounds.from_state(alarms, arrays["seen.rounds"], arrays["seen.tenths"], n_clients=count)
        if len(monitor.seen.rounds) and monitor.seen.rounds[-1] > monitor.round:
            raise ValueError(f"rounds seen must not lie beyond round {monitor.round}")
    named = [out.clients for out in monitor.exclusions]
    if monitor._population is None:
        named += [alarm.clients for alarm in monitor.seen.alarms]
        named += [monitor.alarm.suspects, tuple(monitor.alarm.surprises)] if monitor.alarm else []
    if not {name for names in named for name in names} <= monitor._numbers.keys():
        raise ValueError("clients that are named or left out must be among those seen")
    if surplus := arrays.keys() - contents_of(monitor)[1].keys():
        raise ValueError(f"{min(surplus)[:60]!r} is not a part of a client monitor")


def _whole(name: str, value: Any, most: int) -> int:
    return _checks.whole(name, value, at_least=0, at_most=most)


def _names(given: Any) -> tuple[Name, ...]:
    if not isinstance(given, list) or not all(type(name) in (str, int) for name in given):
        raise ValueError("names of clients must be text or whole numbers")
    if len(set(given)) != len(given):
        raise ValueError("a client is named twice")
    return tuple(given)


def _directions(given: npt.NDArray[Any], count: int, monitor: ClientMonitor) -> Single:
    """Clients' average directions. There are none before a round, or where another monitor compared the clients."""
    known = monitor._dim and count and monitor._watch.recent and monitor._population is None
    shape = (count, monitor._directions.sketch.length(monitor._dim)) if known else (0, 0)
    if given.shape != shape or given.dtype != np.float32:
        raise ValueError(f"directions must be float32 of shape {shape}")
    if not (np.abs(given) <= _LONGEST_MOVE).all():  # NaN is not
        raise ValueError("directions must be finite, and at most 1")
    return given


def _ways(journey: npt.NDArray[Any], course: npt.NDArray[Any], monitor: ClientMonitor) -> tuple[Single, Single]:
    """Where the run went, as long as a sketch; nothing where clients have pasts of their own."""
    length = monitor._directions.sketch.length(monitor._dim) if journey.size and monitor._population else 0
    for way in (journey, course):
        if way.shape != (length,) or way.dtype != np.float32 or not np.isfinite(way).all():
            raise ValueError(f"ways of the run must be finite float32 of shape {(length,)}")
    return journey, course


def _exclusion(told: Any, last: int) -> Exclusion:
    out, at, back_to = told
    return Exclusion(_names(out), _whole("round", at, last), _whole("back_to", back_to, last))


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
        surprises=dict(zip(names, values, strict=True)),
    )


def _pairs(told: Iterable[Any]) -> tuple[tuple[Name, ...], list[float]]:
    pairs = [(name, _checks.real("surprise", value)) for name, value in told]
    return _names([name for name, _ in pairs]), [value for _, value in pairs]
