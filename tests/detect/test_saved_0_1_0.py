"""Monitors that version 0.1.0 saved: they load, and go on as they would have gone on there."""

import json
from pathlib import Path

import pytest

from fedgauss import Monitor

FOLDER = Path(__file__).parent / "saved_0_1_0"
NEXT = json.loads((FOLDER / "next.json").read_text())  # updates, and what 0.1.0 said to them


@pytest.mark.parametrize("name", NEXT)
def test_it_gives_the_verdicts_that_0_1_0_gave(name):
    """Statistics to 1e-9, since another machine may round otherwise; else exactly, but for the rollback."""
    monitor = Monitor.load(FOLDER / f"{name}.npz")
    before = monitor.alarm
    for update, wanted in zip(NEXT[name]["updates"], NEXT[name]["verdicts"], strict=True):
        verdict = monitor.update(**update)
        for field in ("alarm", "channel", "round", "step", "onset", "alpha", "travelling", "threshold"):
            assert getattr(verdict, field) == wanted[field], field
        assert verdict.statistic == pytest.approx(wanted["statistic"], rel=1e-9)
        if verdict.alarm:  # 0.1.0 went back to the estimated onset, and not to before its interval
            assert verdict.rollback <= wanted["rollback"]
    if NEXT[name]["suspects"] is not None:
        found = monitor.suspects()
        assert found.malicious == tuple(sorted(row[0] for row in NEXT[name]["suspects"] if row[4]))
        if before is not None:  # a later alarm has another baseline than 0.1.0 took
            for row, wanted in zip(found.table, NEXT[name]["suspects"], strict=True):
                assert row == pytest.approx(wanted, rel=1e-7)


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
