"""A part that a kind of verdict adds is on the page, in logs and in sinks, without a word of code for it."""

import json
from dataclasses import dataclass, field, replace

import client_runs
import numpy as np
import pytest
from live_runs import line, monitor, rounds

import fedgauss as fg
from fedgauss.detect.clients import ClientVerdict
from fedgauss.integrations.live.announcer import Announcer
from fedgauss.integrations.live.run import Run
from fedgauss.integrations.live.state import state_of
from fedgauss.integrations.sinks.base import as_json, readings

EVIL = "<img src=x onerror='window.ran = true'>"


@dataclass(frozen=True, repr=False)
class Telling(ClientVerdict):
    """With a forecast, grounds, and numbers that JSON does not know."""

    forecast: dict = field(default_factory=dict)
    grounds: dict = field(default_factory=dict)
    kept_out: tuple = ()
    dose: float = 0.0


class Toy(fg.ClientMonitor):
    """Its verdicts say more."""

    def update(self, *args, **more):
        verdict = super().update(*args, **more)
        said = {name: getattr(verdict, name) for name in ClientVerdict.__dataclass_fields__}
        return Telling(
            **said,
            forecast={"a flip": {"one": 0.123456, "two": np.float64(0.5), "a third": float("nan")}},
            grounds={EVIL: "its direction turned", 7: "its length doubled"},
            kept_out=(EVIL, "b"),
            dose=2.5,
        )


@pytest.fixture
def told():
    """A run with such a monitor, and its last outcome."""
    run = Run(Toy(seed=1))
    for j, moves in enumerate(client_runs.rounds(3, absent=0), start=1):
        outcome = run.take_json(client_runs.line(j, moves))
    return run, outcome


def test_a_page_gets_it_as_tables_and_lists(told):
    state = json.loads(json.dumps(state_of(told[0]), allow_nan=False))
    parts = state["parts"]
    assert parts["Forecast"]["head"] == ["", "one", "two", "a third"]
    assert parts["Forecast"]["rows"] == [["a flip", 0.1235, 0.5, None]]
    assert parts["Grounds"]["rows"] == [[EVIL, "its direction turned"], ["7", "its length doubled"]]
    assert parts["Kept out"]["rows"] == [[EVIL], ["b"]]
    assert state["facts"]["dose"] == 2.5
    assert "Dose" not in parts
    assert "Surprises" not in parts  # which the picture shows


def test_logs_and_sinks_have_it(told):
    said = []
    Announcer(said.append, "json")(told[1])
    (words,) = map(json.loads, said)
    assert words["parts"]["grounds"] == {EVIL: "its direction turned", "7": "its length doubled"}
    verdict = told[0].verdict
    assert json.loads(as_json(3, verdict))["forecast"] == {"a flip": {"one": 0.123456, "two": 0.5, "a third": None}}
    assert readings(verdict)["forecast_a_flip_two"] == 0.5
    assert "grounds" not in readings(verdict)


def test_channels_are_a_part_of_every_verdict_and_nothing_is_where_there_is_nothing():
    run = Run(monitor())
    for j, (y, theta) in enumerate(rounds(4), start=1):
        run.take_json(line(j, y, theta))
    parts = run.verdict.parts()
    assert [*parts] == ["channels"]
    assert [*parts["channels"]] == [channel.name for channel in run.monitor.channels]
    assert replace(run.verdict, readings=()).parts() == {}
