"""Monitors that version 0.1.0 saved: they load, and go on from what they saw, with today's statistics."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedgauss import Monitor
from fedgauss.detect.thresholds import boundary

FOLDER = Path(__file__).parent / "saved_0_1_0"
NEXT = json.loads((FOLDER / "next.json").read_text())  # updates, and what 0.1.0 said to them


@pytest.mark.parametrize("name", NEXT)
def test_it_goes_on_from_what_0_1_0_saw(name):
    """0.1.0 looked at the largest evidence over onsets, today's statistic combines all: it is no less, nor much more.

    Thresholds are other ones, too, so an alarm that had just begun to ring may wait for the next round.
    """
    monitor = Monitor.load(FOLDER / f"{name}.npz")
    before = monitor.alarm
    for update, wanted in zip(NEXT[name]["updates"], NEXT[name]["verdicts"], strict=True):
        verdict = monitor.update(**update)
        for field in ("round", "step", "alpha", "travelling"):
            assert getattr(verdict, field) == wanted[field], field
        if verdict.alarm and wanted["alarm"]:
            assert (verdict.channel, verdict.onset) == (wanted["channel"], wanted["onset"])
        then = next(reading for reading in verdict.readings if reading.channel == wanted["channel"])
        count = len(next(c for c in monitor._watch.channels if c.name == wanted["channel"]).candidates.positions)
        most = np.sqrt(wanted["statistic"] ** 2 + 3 * np.log(max(count, 1)))
        assert wanted["statistic"] * (1 - 1e-9) <= then.statistic <= most * (1 + 1e-9)
        if verdict.alarm and wanted["alarm"]:  # 0.1.0 went back to the estimated onset, and not to before its interval
            assert verdict.rollback <= wanted["rollback"]
    if NEXT[name]["suspects"] is not None:
        found = monitor.suspects()
        assert found.malicious == tuple(sorted(row[0] for row in NEXT[name]["suspects"] if row[4]))
        if before is not None:  # a later alarm has another baseline than 0.1.0 took
            for row, wanted in zip(found.table, NEXT[name]["suspects"], strict=True):
                assert row == pytest.approx(wanted, rel=1e-7)


@pytest.mark.parametrize("name", NEXT)
def test_its_thresholds_are_those_of_today(name):
    """Those in the file are for the largest evidence, and would be exceeded too often."""
    monitor = Monitor.load(FOLDER / f"{name}.npz")
    settings = (monitor.sync_every, monitor.alpha, monitor.horizon, 0)
    today = boundary(monitor.lin.dim, *settings, monitor.innovations.whitening, monitor.channels)
    assert {name: level.tolist() for name, level in monitor.boundary.levels.items()} == {
        name: level.tolist() for name, level in today.levels.items()
    }


@pytest.mark.parametrize("name", NEXT)
def test_saved_again_it_is_the_same(name, tmp_path):
    monitor = Monitor.load(FOLDER / f"{name}.npz")
    monitor.save(tmp_path / "again.npz")
    again = Monitor.load(tmp_path / "again.npz")
    for update in NEXT[name]["updates"]:
        assert again.update(**update) == monitor.update(**update)  # every field, to the last bit


def test_an_alarm_keeps_its_channel():
    """0.1.0 restored any channel but "mean" as "spread"."""
    assert Monitor.load(FOLDER / "alarm_of_spread.npz").alarm.channel == "spread"
    assert Monitor.load(FOLDER / "alarm_with_clients.npz").alarm.channel == "mean"
