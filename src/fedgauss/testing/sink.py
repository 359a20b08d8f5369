"""What every sink must keep to."""

from __future__ import annotations

import math
import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any
from unittest import mock

from fedgauss.detect.verdict import ChannelReading, Verdict
from fedgauss.integrations.sinks.base import Sink, Sinks
from fedgauss.testing.battery import Check, Report, checks, expect, not_applicable, run

_SECONDS = 1.0  # what a run may wait for a sink after a round
_AWKWARD = 'a "quoted" <b>note</b>\nwith a new line, a tab\t, a backslash \\ and θ → ∞'

VERDICTS: Mapping[str, Verdict] = {
    "no alarm": Verdict(False, 1.5, 4.0, "mean", 1, 20, None, None, 0.05),
    "an alarm of the mean channel": Verdict(True, 6.0, 4.0, "mean", 2, 40, 21, 1, 0.05),
    "an alarm of the spread channel": Verdict(True, 9.5, 8.0, "spread", 3, 60, 1, 0, 0.01),
    "an invalid update": Verdict(True, math.inf, 4.0, "invalid update", 4, 80, 61, 3, 0.05, note="y is not finite."),
    "a statistic that is not a number": Verdict(False, math.nan, 4.0, "mean", 5, 100, None, None, 0.05),
    "a run that is still travelling": Verdict(False, 5.0, 4.0, "mean", 6, 120, None, None, 0.05, travelling=True),
    "an awkward note": Verdict(False, 0.0, 4.0, "mean", 7, 140, None, None, 0.05, note=_AWKWARD),
    "a channel of a user's own": Verdict(
        True, 3.0, 2.0, "my channel-2", 8, 160, 150, 7, 0.05, reason="newest round stands out",
        readings=(ChannelReading("mean", 1.5, 4.0), ChannelReading("my channel-2", 3.0, 2.0)),
    ),
    "a channel that cannot alarm yet": Verdict(
        False, 0.0, math.inf, "mean", 9, 180, None, None, 0.05, readings=(ChannelReading("mean", 0.0, math.inf),)
    ),
}  # fmt: skip


def check_sink(make: Callable[[], Sink], read: Callable[[], Sequence[Mapping[str, Any]]] | None = None) -> Report:
    """Check a sink of your own: it takes every kind of verdict, and never holds up a run.

    Parameters
    ----------
    make : callable
        Makes a new sink each time it is called without arguments, so that every check has one of its own:
        `lambda: MySink(path)`, or `lambda: my_function`.
    read : callable, optional
        Returns what has arrived since it was called last, as dictionaries by round, for sinks that pass on whole
        verdicts: with it numbers and words are compared with those of the verdict.

    Returns
    -------
    Report
        The outcome of every check; printed, it lists them.

    Raises
    ------
    ConformanceError
        If any rule is broken. It lists all broken rules, with what was found and how to mend it.

    Examples
    --------
    >>> from fedgauss.testing import check_sink
    >>> print(check_sink(lambda: print))  # doctest: +SKIP
    """
    return run("sink", checks_for_sink(make, read))


def checks_for_sink(
    make: Callable[[], Sink], read: Callable[[], Sequence[Mapping[str, Any]]] | None = None
) -> list[Check]:
    """The checks of `check_sink` one by one, for `pytest.mark.parametrize("check", ..., ids=str)`.

    Parameters
    ----------
    make, read
        As in `check_sink`.

    Returns
    -------
    list of Check
        Each is called without arguments and raises an AssertionError if its rule is broken.
    """
    if not callable(make):
        raise ValueError(f"make must be a function that makes a sink; got {make!r}. Use lambda: my_sink?")
    return checks(_RULES, _Case(make, read))


class _Case:
    """How a sink is made, and how what it passed on is read."""

    def __init__(self, make: Callable[[], Sink], read: Callable[[], Sequence[Mapping[str, Any]]] | None) -> None:
        self.make, self.read = make, read

    @contextmanager
    def sink(self) -> Iterator[Sink]:
        """A new sink, closed afterwards as well as it can be."""
        sink = self.make()
        try:
            yield sink
        finally:
            with suppress(Exception):
                getattr(sink, "close", lambda: None)()

    def arrived(self) -> list[Mapping[str, Any]]:
        """What arrives of one sink that is told every verdict, by round."""
        if self.read is None:
            not_applicable("no `read` was given to look at what arrives")
        self.read()  # what other checks have left
        with self.sink() as sink:
            _tell(sink)
            with suppress(Exception):
                getattr(sink, "close", lambda: None)()
            return sorted(self.read(), key=lambda row: row["round"])


def _tell(sink: Sink) -> None:
    """Tell a sink of every verdict; `_every_verdict` alone minds what it refuses."""
    for verdict in VERDICTS.values():
        with suppress(Exception):
            sink(verdict.round, verdict)


def _callable(case: _Case) -> None:
    """A sink is called as sink(round, verdict)."""
    with case.sink() as sink:
        got = f"{type(sink).__name__}, which is not callable"
        expect(callable(sink), got, "define __call__(self, round, verdict); does `make` return the sink?")


def _every_verdict(case: _Case) -> None:
    """A sink takes every kind of verdict without an error: an infinite statistic, none at all, no onset, any note."""
    with case.sink() as sink:
        for kind, verdict in VERDICTS.items():
            try:
                sink(verdict.round, verdict)
            except Exception as error:
                got = f"{type(error).__name__} for {kind}: {error}"
                fix = "leave out or write null for numbers that are not finite and for an onset that is None."
                expect(False, got, fix)


def _repeated_rounds(case: _Case) -> None:
    """A sink takes the same round twice, for a round with an invalid update is sent again."""
    with case.sink() as sink:
        for verdict in VERDICTS.values():
            try:
                sink(verdict.round, verdict)
            except Exception:  # noqa: S112 - whatever it is, "every verdict" reports it; here only the second time counts
                continue
            sink(verdict.round, verdict)


def _leaves_the_verdict(case: _Case) -> None:
    """A sink changes nothing in a verdict: others are told of it too."""
    verdict = VERDICTS["an alarm of the mean channel"]
    before = asdict(verdict)
    with case.sink() as sink:
        sink(verdict.round, verdict)
    changed = [name for name, value in asdict(verdict).items() if value != before[name]]
    for name in changed:
        object.__setattr__(verdict, name, before[name])
    expect(not changed, f"another {', '.join(changed)}", "copy what you change: dataclasses.asdict(verdict).")


def _prompt(case: _Case) -> None:
    """A run does not wait for a sink: each call returns within a second."""
    with case.sink() as sink:
        slowest = 0.0
        for verdict in VERDICTS.values():
            began = time.perf_counter()
            with suppress(Exception):
                sink(verdict.round, verdict)
            slowest = max(slowest, time.perf_counter() - began)
    expect(slowest <= _SECONDS, f"a call that took {slowest:.1f} s", "send from a thread of its own, as Webhook does.")


def _no_pickle(case: _Case) -> None:
    """A sink writes no pickles, which run code when they are read."""
    watched = mock.Mock(side_effect=ValueError("pickles are refused here"))
    with mock.patch.multiple(pickle, dumps=watched, dump=watched, Pickler=watched), case.sink() as sink:
        _tell(sink)
    expect(not watched.called, "a call of pickle", "write JSON: json.dumps(..., allow_nan=False).")


def _close(case: _Case) -> None:
    """`close`, where there is one, can be called twice."""
    sink = case.make()
    close = getattr(sink, "close", None)
    if close is None:
        not_applicable("it has no close")
    _tell(sink)
    for time_of in ("first", "second"):
        try:
            close()
        except Exception as error:
            got = f"{type(error).__name__} the {time_of} time: {error}"
            expect(False, got, "let the second call find nothing to do.")


def _never_stops_a_run(case: _Case) -> None:
    """Within `Sinks` nothing that a sink does stops a run, even after it was closed."""
    tell = Sinks([case.make()])
    with warnings.catch_warnings(record=True):  # `Sinks` insists on being heard
        for verdict in VERDICTS.values():
            tell(verdict.round, verdict)
        tell.close()
        tell(10, VERDICTS["no alarm"])
        tell.close()


def _every_round_arrives(case: _Case) -> None:
    """Every round arrives once."""
    rounds = [row["round"] for row in case.arrived()]
    wanted = sorted(verdict.round for verdict in VERDICTS.values())
    expect(rounds == wanted, f"rounds {rounds}, not {wanted}", "write in every call, and flush before it returns.")


def _numbers_arrive(case: _Case) -> None:
    """Numbers arrive as they are; those that are not finite as null, and never as NaN, Infinity or text."""
    fix = "replace them by None, and use json.dumps(..., allow_nan=False)."
    for row, verdict in zip(case.arrived(), VERDICTS.values(), strict=True):
        for name in row.keys() & {"statistic", "threshold", "alpha", "step", "onset", "rollback", "alarm"}:
            value = getattr(verdict, name)
            wanted = value if value is None or math.isfinite(value) else None
            got = f"{name} = {row[name]!r} in place of {wanted!r} in round {verdict.round}"
            expect(row[name] == wanted and type(row[name]) is type(wanted), got, fix)


def _words_arrive(case: _Case) -> None:
    """Words arrive unharmed, with their quotes, new lines and Greek letters."""
    for row, verdict in zip(case.arrived(), VERDICTS.values(), strict=True):
        for name, wanted in (("note", verdict.note), ("words", str(verdict)), ("channel", verdict.channel)):
            got = f"{name} = {row.get(name)!r} in place of {wanted!r}"
            expect(row.get(name, wanted) == wanted, got, "use json.dumps, or the escaping of your format.")


_RULES: Sequence[Any] = (
    _callable, _every_verdict, _repeated_rounds, _leaves_the_verdict, _prompt, _no_pickle, _close, _never_stops_a_run,
    _every_round_arrives, _numbers_arrive, _words_arrive,
)  # fmt: skip
