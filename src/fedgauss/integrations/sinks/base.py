"""What a sink is, what sinks write of a verdict, and several sinks as one, of which none can stop a run."""

import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Any, TypeAlias

from fedgauss._checks import FedgaussWarning
from fedgauss._files import append_private
from fedgauss.detect.verdict import Verdict, plain

Sink: TypeAlias = Callable[[int, Verdict], None]


def readings(verdict: Verdict) -> dict[str, float]:
    """The numbers that a tracker draws; `ratio` is statistic over threshold, above 1 in an alarm.

    There is also a ratio for each channel, such as `ratio_mean`, and every number in `Verdict.parts`. Infinite
    numbers, which trackers draw badly or refuse, are left out: the statistic of an invalid update, and the threshold of
    a channel that cannot alarm yet.
    """
    numbers = {"alarm": float(verdict.alarm), "step": float(verdict.step)}
    if math.isfinite(verdict.threshold):
        numbers["threshold"] = verdict.threshold
    if math.isfinite(verdict.statistic):
        numbers |= {"statistic": verdict.statistic, "ratio": verdict.statistic / verdict.threshold}
    if verdict.onset is not None:
        numbers["onset"] = float(verdict.onset)
    for name, statistic, threshold in verdict.readings:
        numbers[_named("ratio", name)] = statistic / threshold
    parts = {name: part for name, part in verdict.parts().items() if name != "channels"}
    return numbers | dict(_leaves("", parts))


def _named(*words: str) -> str:
    """One word that every tracker takes for a name."""
    return "_".join(re.sub(r"[^a-zA-Z0-9]+", "_", word) for word in words if word)


def _leaves(name: str, part: Any) -> Iterator[tuple[str, float]]:
    """The numbers of a part of a verdict, under the names that lead to each."""
    if isinstance(part, dict):
        for key, value in part.items():
            yield from _leaves(_named(name, key), value)
    elif isinstance(part, int | float):
        yield name, float(part)


def as_json(round: int, verdict: Verdict) -> str:
    """Everything as one line of JSON, with the verdict in words; null for a number that is not finite."""
    channels = {name: {"statistic": top, "threshold": limit} for name, top, limit in verdict.readings}
    said = {field.name: getattr(verdict, field.name) for field in fields(verdict) if field.repr}
    return json.dumps(plain(said | {"round": round, "words": str(verdict), "readings": channels}), allow_nan=False)


class JsonLines:
    """A sink that appends a line of JSON a round, flushed before the next round begins.

    Parameters
    ----------
    path : str or path-like
        The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = append_private(path)  # held open for the run

    def __call__(self, round: int, verdict: Verdict) -> None:
        """Write one line."""
        self._file.write(as_json(round, verdict) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Sinks:
    """Several sinks as one. A sink that fails is warned of once, and tried again in the next round.

    Parameters
    ----------
    sinks : iterable of callable
        Each is called as `sink(round, verdict)`; those that have a `close` are closed with it.
    """

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self._sinks = tuple(sinks)
        for sink in self._sinks:
            if not callable(sink):
                raise ValueError(f"a sink must be callable as sink(round, verdict); got {sink!r}.")
        self._warned: set[int] = set()

    def __call__(self, round: int, verdict: Verdict) -> None:
        """Tell every sink of a round."""
        for i, sink in enumerate(self._sinks):
            self._try(i, lambda sink=sink: sink(round, verdict))  # type: ignore[misc]

    def close(self) -> None:
        """Close those that can be closed; what is still on its way is sent, or after a while given up and warned of."""
        for i, sink in enumerate(self._sinks):
            if (close := getattr(sink, "close", None)) is not None:
                self._warned.discard(i)  # what it has lost in all is news, whatever was said before
                self._try(i, close)
                self._warned.discard(i)  # and so is a call that comes too late

    def _try(self, i: int, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # whatever it is, the run matters more
            if i in self._warned:
                return
            self._warned.add(i)
            name = getattr(self._sinks[i], "__name__", type(self._sinks[i]).__name__)
            _warn(f"the sink {name} failed and the run goes on; {type(error).__name__}: {error}")


def _warn(message: str) -> None:
    """A warning even where warnings are errors: no setting may turn a lost metric into a lost run."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", FedgaussWarning)
        warnings.warn(message, FedgaussWarning, stacklevel=5)
