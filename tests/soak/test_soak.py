"""The soak itself: a short one, a schedule that its seed repeats, and toys that it must find out."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from soak import invariants
from soak.invariants import Violation
from soak.logged import Logged
from soak.posted import Posted
from soak.processes import Child, environment, marked, program
from soak.report import record, stories, table
from soak.runner import Outcome, Soak
from soak.scenarios import SCENARIOS
from soak.schedule import Planned, planned
from soak.sweeps import Sweeps


def soaked(tmp_path, kinds, seconds, faults=None, seed=16):
    soak = Soak(kinds, tmp_path, seed, seconds, faults)
    soak.start()
    soak.join()
    soak.clear()
    assert not marked(soak.mark)
    assert stories(soak.outcomes) == ""
    return soak.outcomes


def test_a_short_soak(tmp_path):
    """Two faults each of a watcher by POST, a watcher of a log and a sweep, of which one is a kill."""
    kinds = [Posted, Logged, Sweeps]
    names = {kind.name: [*kind(tmp_path / "none", 0, "none").faults()] for kind in kinds}
    seed = next(seed for seed in itertools.count() if all(kills(seed, *named) == 1 for named in names.items()))
    assert len(soaked(tmp_path, kinds, seconds=600, faults=2, seed=seed)) == 6


def kills(seed, scenario, kinds):
    """Among the first two faults."""
    return sum(planned(seed, scenario, kinds, number).kind == "kill -9" for number in (1, 2))


@pytest.mark.study
def test_two_minutes(tmp_path):
    kinds = [kind for kind in SCENARIOS if kind.name != "flower"]  # which has an environment of its own
    outcomes = soaked(tmp_path, kinds, seconds=120)
    assert len({outcome.fault.kind for outcome in outcomes}) >= 10


# --- the schedule ----------------------------------------------------------------------------------------------------


def test_faults_are_a_function_of_the_seed_and_each_kind_comes_up_before_the_deck_is_dealt_again():
    kinds = ["a", "b", "c", "d"]
    first = [planned(7, "posted", kinds, number) for number in range(1, 9)]
    assert first == [planned(7, "posted", reversed(kinds), number) for number in range(1, 9)]
    assert first != [planned(8, "posted", kinds, number) for number in range(1, 9)]
    assert sorted(fault.kind for fault in first[:4]) == sorted(fault.kind for fault in first[4:]) == kinds
    assert first[2].rng().random() == planned(7, "posted", kinds, 3).rng().random() != first[3].rng().random()


def test_every_scenario_has_a_name_of_its_own_and_there_are_more_than_ten_kinds_of_faults(tmp_path):
    assert len({kind.name for kind in SCENARIOS}) == len(SCENARIOS)
    every = {name for kind in SCENARIOS for name in kind(tmp_path / kind.name, 1, "none").faults()}
    assert len(every) >= 20


def test_the_table_counts_what_recovered_and_the_story_says_how_to_repeat():
    outcomes = [
        Outcome(Planned(7, "posted", 1, "kill -9"), 1.0),
        Outcome(Planned(7, "fits", 1, "kill -9"), 1.0, "a sad story"),
        Outcome(Planned(7, "fits", 2, "NaN"), 1.0),
    ]
    lines = table(outcomes).splitlines()
    assert lines[2].split() == ["NaN", "1", "1", "fits"]
    assert lines[3].split() == ["kill", "-9", "2", "1", "fits,", "posted"]
    assert lines[-1].split()[-2:] == ["3", "2"]
    assert stories(outcomes) == "a sad story"
    kept = json.loads(record(outcomes, 7, 12.3))
    assert (kept["seed"], kept["faults"], kept["recovered"]) == (7, 3, 2)


# --- what a soak must find out ---------------------------------------------------------------------------------------


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A scenario whose watcher is a toy."""
    monkeypatch.setattr(invariants, "_PATIENCE", 1.0)
    mark = f"toys-{os.getpid()}-{time.monotonic_ns()}"

    scenarios = []

    def begun(wrong):
        class WithToy(Posted):
            longest = 4000  # no alarm in so short a time

            def _words(self):
                return program("toy_watcher", wrong, self._fresh, self.save)

        scenario = WithToy(tmp_path / wrong, 1, mark)
        scenarios.append(scenario)
        scenario.begin()
        return scenario

    yield begun
    for scenario in scenarios:
        scenario.close()


def after(scenario, kind, seed=3):
    scenario.faults()[kind](random.Random(seed))
    scenario.check_all()


def test_a_watcher_that_saves_at_the_end_only(toy):
    with pytest.raises(Violation, match=r"rounds up to \d+ were accepted; the restored monitor has 0"):
        after(toy("late"), "kill -9")


@pytest.mark.study
def test_a_watcher_without_a_flaw(toy):
    right = toy("nothing")
    after(right, "replayed round")
    after(right, "kill -9")


@pytest.mark.study
@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        ("doubling", "replayed round", "round .* was answered 200"),
        ("deaf", "NaN", "a round with NaN was answered 200"),
        ("blind", "implausible round", r"round \d+ was answered 200"),
        ("messy", "kill -9", "processes are left over"),
        ("nothing", "two writers on one save", "a second watcher writes to the same save"),
        ("nothing", "NaN", "never heard of this invalid update"),
        ("nothing", "full disk", "."),
    ],
)
def test_other_flaws(toy, wrong, kind, words):
    with pytest.raises(Exception, match=words):
        after(toy(wrong), kind)


@pytest.mark.study
def test_a_leak(toy):
    leaky = toy("leaky")
    leaky._post(30)
    after(leaky, "implausible round")
    leaky._post(60)
    with pytest.raises(Violation, match=r"watch grew from \d+ to \d+ MB"):
        after(leaky, "implausible round")


def test_a_process_that_grows_and_one_that_is_left_over(tmp_path, monkeypatch):
    monkeypatch.setattr(invariants, "_PATIENCE", 0.2)
    mark = f"grows-{os.getpid()}"
    words = (
        "held = []\nprint('begun', flush=True)\ninput()\nheld.append(b'x' * 2**26)\nprint('grown', flush=True)\ninput()"
    )
    child = Child([sys.executable, "-c", words], tmp_path / "child.log", mark)
    try:
        child.wait_for("begun")
        child.settle()
        invariants.flat(child)
        child.tell("")
        child.wait_for("grown")
        with pytest.raises(Violation, match=r"child grew from \d+ to \d+ MB; 50 MB is the most"):
            invariants.flat(child)
        invariants.no_orphans(mark, [child.pid])
        with pytest.raises(Violation, match="processes are left over"):
            invariants.no_orphans(mark, [])
    finally:
        child.end()
    invariants.no_orphans(mark, [])


def test_an_alarm_that_never_arrives(monkeypatch):
    monkeypatch.setattr(invariants, "_PATIENCE", 0.1)
    invariants.all_delivered({3, 5}, lambda: [5, 3, 4], "the receiver")
    with pytest.raises(Violation, match=r"the receiver never heard of \[5\]"):
        invariants.all_delivered({3, 5}, lambda: [3, 4], "the receiver")


@pytest.mark.study
def test_ctrl_c_ends_a_soak_with_its_table_and_no_process_left(tmp_path):
    words = [sys.executable, "-m", "soak", "--only", "sweeps", "--seconds", "600", "--seed", "3", "--folder", tmp_path]
    running = subprocess.Popen(
        words, env=environment("by hand"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )  # fmt: skip
    while not list(Path(tmp_path).glob("sweeps-1/sweep-1*")) and running.poll() is None:
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    said, _ = running.communicate(timeout=120)
    assert running.returncode == 0, said
    assert "all, of 1 kinds" in said
    assert "Repeat with: make soak SECONDS=600 SEED=3 ONLY=sweeps" in said
