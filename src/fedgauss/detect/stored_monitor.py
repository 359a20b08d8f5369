"""A monitor taken apart into words and arrays, and put together again: as it was, or refused."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fedgauss import _checks
from fedgauss.detect import storage
from fedgauss.detect.channel import Channel
from fedgauss.detect.client_record import ClientRecord
from fedgauss.detect.innovations import innovations
from fedgauss.detect.monitor_state import MonitorState, Settings
from fedgauss.detect.saved import part, prefixed
from fedgauss.detect.updates import LONGEST_GAP
from fedgauss.detect.watch import DEFAULT_CHANNELS


def contents_of(monitor: MonitorState) -> storage.Contents:
    """All that `fill` needs."""
    steps, arrays = storage.steps_to_words(monitor.steps)
    words = {
        "sync_every": monitor.sync_every,
        "alpha": monitor.alpha,
        "horizon": monitor.horizon,
        "n_warmup": monitor.lin.n_warmup,
        "dof": monitor.lin.dof,
        "steps": steps,
        "counters": [monitor.round, monitor.step, monitor.origin_round, monitor.origin_step],
        "alarm": None if monitor.alarm is None else asdict(monitor.alarm),
        "channels": [channel.name for channel in monitor.channels],
        "seed": monitor.seed,
        "may_join": monitor.may_join,
    }
    optional = {"last": monitor.last, "weights": monitor.weights}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    arrays |= storage.lin_to_arrays(monitor.lin) | {"ends": monitor.boundary.ends}
    arrays |= prefixed("above.", monitor.boundary.levels) | prefixed("watch.", monitor.watch.state())
    if monitor.uploads is not None:
        arrays |= prefixed("clients.", monitor.uploads.state())
    return words, arrays


def read_into(monitor: MonitorState, path: storage.Place, channels: tuple[Channel, ...]) -> None:
    """Make a blank monitor the one of a file, a ValueError where it is damaged."""
    words, arrays = storage.read(path)
    watched = storage.named_channels(words, channels)
    try:
        fill(monitor, words, arrays, watched)
    except Exception as error:  # a damaged file may break anything
        raise ValueError(
            f"{storage.called(path)} must be a file that Monitor.save wrote; a part is missing or wrong ({error})."
        ) from error


def fill(monitor: MonitorState, words: dict[str, Any], arrays: storage.Arrays, channels: tuple[Channel, ...]) -> None:
    """Make a blank monitor the one that `contents_of` took apart; a ValueError where parts do not fit together."""
    lin = storage.lin_from_arrays(arrays, words["n_warmup"], words["dof"])
    parts = innovations(lin, storage.steps_from_words(words["steps"], arrays))
    settings = checked_settings(words["sync_every"], words["alpha"], words["horizon"])
    limits = storage.boundary_from_arrays(arrays, channels, settings[0], settings[2])
    monitor.begin(parts, settings, limits, channels, _checks.whole("seed", words["seed"], at_least=0))
    monitor.may_join = words["may_join"]
    default = [channel.name for channel in channels] == [channel.name for channel in DEFAULT_CHANNELS]
    if not isinstance(monitor.may_join, bool) or (monitor.may_join and not default):
        raise ValueError("clients may join the default channels only")
    # The origin may lie before step 0: it is sync_every steps before a first update that came early.
    round, step, origin_round, origin_step = words["counters"]
    monitor.round = _checks.whole("round", round, at_least=0, at_most=storage.LATEST)
    monitor.step = _checks.whole("step", step, at_least=0, at_most=storage.LATEST)
    monitor.origin_round = _checks.whole("origin", origin_round, at_least=0, at_most=monitor.round)
    monitor.origin_step = _checks.whole("origin", origin_step, at_least=-settings[0], at_most=monitor.step)
    taken_in = monitor.round - monitor.origin_round
    if (last := arrays.get("last")) is not None:
        monitor.last = _checks.real_array("last", last, shape=(lin.dim,))
    elif taken_in:
        raise ValueError("the mean of the last round is missing")
    monitor.weights = storage.weights_from(arrays, lin.n_clients)
    monitor.alarm = storage.verdict_from_words(words.get("alarm"), channels, monitor.round, monitor.step)
    monitor.watch.restore(part(arrays, "watch."))
    monitor.watch.check(taken_in, monitor.step)
    if stored := part(arrays, "clients."):
        monitor.uploads = ClientRecord(lin)
        monitor.uploads.restore(stored)
        monitor.uploads.check(monitor.watch.rounds)
    if surplus := arrays.keys() - contents_of(monitor)[1].keys():
        raise ValueError(f"{min(surplus)[:60]!r} is not a part of a monitor")


def checked_settings(sync_every: Any, alpha: Any, horizon: Any) -> Settings:
    """The settings of a monitor, checked; they may come from a file."""
    fix = "Use the number of steps between two updates."
    tau = _checks.whole("sync_every", sync_every, fix=fix, at_most=LONGEST_GAP)
    level = _checks.probability("alpha", alpha, fix="Use 0.05, one false alarm in 20 runs?")
    if horizon is not None:
        horizon = _checks.whole("horizon", horizon, fix="It counts steps; use None for no end.")
    return tau, level, horizon
