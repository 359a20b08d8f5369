"""What every detector channel must keep to."""

from __future__ import annotations

import copy
import io
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedgauss import step_sizes
from fedgauss._linearization import Linearization, linearization
from fedgauss._types import FloatArray
from fedgauss.detect.channel import Channel, Conditions, Peak, RoundSeen, checked_channels
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.saved import Saved
from fedgauss.detect.thresholds import boundary
from fedgauss.testing.battery import Check, Report, checks, expect, run

_DIM, _TAU, _FIRST = 2, 20, 1
_CLIENTS = 6  # for channels that look at them
_RUNS, _ROUNDS, _CUT = 4, 40, 17  # of the battery's paths, and where they are saved and restored
_ROUNDING = 1e-9
_HORIZON = 500  # steps, for thresholds: 25 rounds


def check_channel(channel: Channel) -> Report:
    """Check a detector channel of your own: that it can be calibrated, watched, saved and restored.

    Parameters
    ----------
    channel : Channel
        The channel as it is handed to `Monitor(..., channels=...)`.

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
    >>> from fedgauss.detect import MeanChannel
    >>> from fedgauss.testing import check_channel
    >>> print(check_channel(MeanChannel()))  # doctest: +SKIP
    """
    return run(f"channel {type(channel).__name__}", checks_for_channel(channel))


def checks_for_channel(channel: Channel) -> list[Check]:
    """The checks of `check_channel` one by one, for `pytest.mark.parametrize("check", ..., ids=str)`.

    Parameters
    ----------
    channel : Channel
        As in `check_channel`.

    Returns
    -------
    list of Check
        Each is called without arguments and raises an AssertionError if its rule is broken.
    """
    if not isinstance(channel, Channel):
        got = type(channel).__name__
        raise ValueError(f"a channel must be an instance of a subclass of fedgauss.detect.Channel; got {got}.")
    return checks(_RULES, _Case(channel))


class _Case:
    """A channel, and Gaussian rounds for it to see."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    @cached_property
    def x(self) -> FloatArray:
        """Whitened innovations of honest runs, (rounds, d, R)."""
        return np.random.default_rng(1).standard_normal((_ROUNDS, _DIM, _RUNS)) / np.sqrt(_TAU)

    @cached_property
    def calibrated(self) -> bool:
        """Whether thresholds are quantiles of the statistic; a channel that knows them may look at clients instead."""
        return self.channel.threshold(0.05) is None

    def started(self, replicates: int = _RUNS) -> Channel:
        """Ready for its first round."""
        lin = None if self.calibrated else _clients(_CLIENTS)
        return self.channel.started(Conditions(_DIM, replicates, _TAU, _FIRST, lin=lin))

    def watched(self, channel: Channel, x: FloatArray, after: int = 0) -> list[Peak]:
        """What a channel shows after each of these rounds, `after` rounds from the beginning."""
        seen = (self._round(each, after + j) for j, each in enumerate(x))
        return [copy.deepcopy(channel.update(each)) for each in seen]

    def _round(self, x: FloatArray, number: int) -> RoundSeen:
        """With clients whose pulls come from the same numbers, one of them noisy in the end, where they are seen."""
        sizes = np.array([1.0, -0.7, 1.2, 0.9, -1.1, 5.0 if number > _CUT else 1.0])
        pulls = None if self.calibrated else sizes[:, None, None] * x
        return RoundSeen(x, float(_TAU), (_FIRST + number) * _TAU, pulls=pulls)

    @cached_property
    def peaks(self) -> list[Peak]:
        """After every round of the battery."""
        return self.watched(self.started(), self.x)

    @cached_property
    def statistics(self) -> FloatArray:
        """(rounds, R)."""
        return _stacked(self.peaks)


def _named(case: _Case) -> None:
    """A channel has a name of letters, digits, spaces, - and _, a positive share, and words for its alarm."""
    try:
        checked_channels([case.channel])
    except (ValueError, AttributeError) as error:
        expect(False, str(error), "set `name`, `share` and `alarm_words` in the class.")
    words = getattr(case.channel, "alarm_words", None)
    expect(isinstance(words, str) and words, f"alarm_words = {words!r}", "say what happened: 'mean gradient moved'.")


def _template(case: _Case) -> None:
    """Watching leaves the channel itself as it was: each run has a copy of its own, made by `begin`."""
    before = copy.deepcopy(vars(case.channel))
    case.watched(case.started(), case.x[:3])
    after = vars(case.channel)
    changed = [name for name in {*before, *after} if not _same(before.get(name), after.get(name))]
    fix = "make arrays and lists in `begin`, not in `__init__` or in the class."
    expect(not changed, f"another {', '.join(sorted(changed))}", fix)


def _peak(case: _Case) -> None:
    """A peak has one statistic, one step and one number of rounds for each run; steps and rounds are whole numbers."""
    for peak in case.peaks:
        shapes = [np.shape(part) for part in peak]
        expect(shapes == [(_RUNS,)] * 3, f"shapes {shapes} for {_RUNS} runs", "return Peak of three arrays (R,).")
        kinds = [np.asarray(part).dtype.kind for part in peak]
        expect(kinds[0] == "f" and kinds[1:] == ["i", "i"], f"types {kinds}", "use float64, and int64 twice.")


def _finite(case: _Case) -> None:
    """The statistic is finite and not negative, from the first round on."""
    bad = ~np.isfinite(case.statistics) | (case.statistics < 0)
    got = f"{case.statistics[bad][:1]} after round {int(np.argmax(bad.any(axis=1))) + 1}"
    expect(not bad.any(), got, "return no_peak(replicates) while there is nothing to compare.")


def _points_back(case: _Case) -> None:
    """The change that a peak points to lies in the past: before this round, or -1 while there is none."""
    for j, peak in enumerate(case.peaks):
        got = f"step {np.max(peak.step)} and {np.max(peak.rounds)} rounds before it, in round {j + 1}"
        fix = "`step` is the last step before the change, `rounds` the watched rounds before it."
        last = (_FIRST + j) * _TAU
        expect(np.all((peak.step >= -1) & (peak.step <= last)), got, fix)
        expect(np.all((peak.rounds >= 0) & (peak.rounds <= j)), got, fix)


def _moves(case: _Case) -> None:
    """The statistic of an honest run moves: thresholds are quantiles of it, and there are none of a constant."""
    fix = "compute the statistic from seen.x and seen.weight, which every round has."
    expect(np.ptp(case.statistics) > 0, "the same statistic in every round of every run", fix)


def _runs_apart(case: _Case) -> None:
    """One run alone and many at once show the same."""
    for r in range(2):
        alone = _stacked(case.watched(case.started(1), case.x[:, :, r : r + 1]))
        gap = float(np.abs(alone[:, 0] - case.statistics[:, r]).max())
        fix = "treat the last axis entry by entry: never reduce over it, and never share state between runs."
        expect(gap <= _ROUNDING, f"statistics that differ by {gap:.3g} when run {r} is watched alone", fix)


def _weights(case: _Case) -> None:
    """A round counts by its weight: rounds of other lengths are seen without an error."""
    channel = case.started()
    for j, weight in enumerate((5.0, 20.0, 1.0, 60.0)):
        peak = channel.update(RoundSeen(case.x[j] * np.sqrt(_TAU / weight), weight, 20 * (j + 1)))
        got, fix = f"{peak.statistic} after a round of weight {weight:g}", "use seen.weight."
        expect(np.isfinite(peak.statistic).all(), got, fix)


def _everything_known(case: _Case) -> None:
    """What is None in a calibration may be there in a run: the place, the clients' uploads, the linearisation."""
    conditions = Conditions(_DIM, 1, _TAU, _FIRST, lin=_clients(3))
    channel, uploads = case.channel.started(conditions), np.ones((3, _DIM))
    uploads[1] = np.nan  # an absent client
    for j in range(5):
        place, x = np.full((_DIM, 1), 0.1), case.x[j][:, :1]
        known = (place, uploads, uploads, uploads[..., None])
        peak = channel.update(RoundSeen(x, float(_TAU), (_FIRST + j) * _TAU, *known))
    got, fix = f"{peak.statistic}", "leave out clients whose uploads are NaN."
    expect(np.isfinite(peak.statistic).all(), got, fix)
    doubt = channel.may_be_travel(peak, np.full(1, 0.1))
    got = f"may_be_travel of type {np.asarray(doubt).dtype} and shape {np.shape(doubt)}"
    expect(np.asarray(doubt).dtype == bool and np.shape(doubt) == (1,), got, "return an array of bool, (R,).")


def _saved(case: _Case) -> None:
    """Saved after any round and restored, a channel goes on to the bit; its state is arrays of numbers."""
    channel, restored = case.started(), case.started()
    case.watched(channel, case.x[:_CUT])
    file = io.BytesIO()
    fix = "list in `saved` every attribute that changes: an int, a float, an array or another Saved."
    try:
        np.savez(file, allow_pickle=False, **channel.state())
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            restored.restore(dict(arrays))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        expect(False, f"{type(error).__name__}: {error}", fix)
    went_on, anew = (case.watched(each, case.x[_CUT:], _CUT) for each in (channel, restored))
    gap = float(np.abs(_stacked(went_on) - _stacked(anew)).max())
    expect(gap == 0.0, f"statistics that differ by {gap:.3g} after it was restored", fix)
    pairs = zip(went_on, anew, strict=True)
    same = all(np.array_equal(mine[1:], theirs[1:]) for mine, theirs in pairs)
    expect(same, "another onset after it was restored", fix)


def _damaged(case: _Case) -> None:
    """A state that is damaged is refused: with a NaN where none can be, or an array of another shape."""
    channel = case.started()
    case.watched(channel, case.x[:_CUT])
    state = channel.state()
    for name in _finite_parts(channel):
        array = np.array(state[name])
        if not array.size:
            continue
        without_number, longer = array.copy(), np.concatenate([array.reshape(-1, 1)] * 3, axis=1)
        without_number.flat[0] = np.nan
        for damaged, words in ((without_number, "NaN"), (longer, f"shape {longer.shape}")):
            try:
                case.started().restore(state | {name: damaged})
            except ValueError:
                continue
            fix = "call the `restore` of Saved, and list in `unfilled` what may be NaN."
            expect(False, f"{name} restored with {words}", fix)


def _finite_parts(part: Saved, prefix: str = "") -> Iterator[str]:
    """The names of saved numbers that are never NaN."""
    for name in part.saved:
        value = getattr(part, name)
        if isinstance(value, Saved):
            yield from _finite_parts(value, f"{prefix}{name}.")
        elif np.asarray(value).dtype.kind == "f" and name not in part.unfilled:
            yield prefix + name


def _memory(case: _Case) -> None:
    """The state does not grow with every round: a monitor may watch for years."""
    channel, generator, sizes = case.started(1), np.random.default_rng(2), []
    for length in (128, 384):
        case.watched(channel, generator.standard_normal((length, _DIM, 1)) / np.sqrt(_TAU))
        sizes.append(sum(array.size for array in channel.state().values()))
    got = f"{sizes[0]} numbers after 128 rounds and {sizes[1]} after 512"
    expect(sizes[1] <= 2.0 * sizes[0] + 64, got, "keep sums, or prefix sums at O(log t) rounds: detect.candidates.")


def _dof(case: _Case) -> None:
    """`dof` is a positive whole number in every dimension."""
    for dim in (1, 2, 40):
        found = case.channel.dof(dim)
        expect(isinstance(found, int) and found >= 1, f"dof({dim}) = {found!r}", "return `dim`, or 1 for one number.")


def _thresholds(case: _Case) -> None:
    """Thresholds can be found: they are finite, and higher where fewer false alarms are allowed."""
    fix = "set tabulated=True only for channels whose quantiles are in thresholds.json."
    limits = []
    for alpha in (0.1, 0.01):
        try:
            levels = boundary(_DIM, _TAU, alpha, _HORIZON, channels=[case.channel]).levels
        except KeyError as error:
            expect(False, f"no table for {error}", fix)
        limits.append(float(levels[case.channel.name][0]))
    expect(np.isfinite(limits).all(), f"thresholds {limits}", "see that the statistic leaves zero within 25 rounds.")
    expect(limits[0] < limits[1], f"thresholds {limits} at alpha .1 and .01", "let the statistic vary continuously.")


def _in_a_monitor(case: _Case) -> None:
    """A monitor with the channel goes on to the bit when it is saved and loaded."""
    channels = (case.channel,)
    steps, generator = step_sizes.polynomial(0.3, 0.75), np.random.default_rng(3)
    monitor = Monitor(_clients(3), steps, _TAU, horizon=_HORIZON, channels=channels)
    path = 0.05 * generator.standard_normal((8, _DIM))
    for y in path[:6]:
        monitor.update(y)
    with tempfile.TemporaryDirectory() as folder:
        monitor.save(Path(folder) / "monitor.npz")
        loaded = Monitor.load(Path(folder) / "monitor.npz", channels=channels)
    for y in path[6:]:
        here, there = monitor.update(y), loaded.update(y)
        expect(here == there, f"{there} from the loaded monitor, not {here}", "list in `saved` all that changes.")


def _clients(count: int) -> Linearization:
    """Clients that are alike, at their optimum."""
    eye = np.stack([np.eye(_DIM)] * count)
    return linearization(eye, eye, optimum=np.zeros(_DIM))


def _stacked(peaks: Sequence[Peak]) -> FloatArray:
    """The statistics after each round, (rounds, R)."""
    return np.stack([np.asarray(peak.statistic, float) for peak in peaks])


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, np.ndarray) or isinstance(after, np.ndarray):
        return np.array_equal(before, after)
    return type(before) is type(after) and bool(before == after)


_RULES: Sequence[Any] = (
    _named, _template, _peak, _finite, _points_back, _moves, _runs_apart, _weights, _everything_known, _saved, _damaged,
    _memory,
    _dof, _thresholds, _in_a_monitor,
)  # fmt: skip
