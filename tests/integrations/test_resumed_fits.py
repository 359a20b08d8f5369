"""`fedgauss federate`, killed with SIGKILL and started again: to the bit what an undisturbed run gives."""

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest
from site_programs import environment, python, site_program

from site_rows import ROWS, own

NAMES = ("a", "b", "c")
PAUSE = 0.02  # seconds that a site thinks about each round, so that a kill lands between two


class Fit:
    """The command in a folder of its own, with tables, logs and what it writes."""

    def __init__(self, folder, masked):
        self.folder, self.out, self.options = folder, folder / "fit", ["--masked"] if masked else []
        self.rounds = self.out / "rounds.jsonl"
        self.environment = environment() | {"XDG_STATE_HOME": str(folder)}
        program = site_program(folder)
        for name in NAMES:
            own(ROWS, name).to_csv(folder / f"{name}.csv", index=False)
            options = [("log", folder / f"{name}.jsonl"), ("pid", folder / f"{name}.pid"), ("pause", PAUSE)]
            words = [part for key, value in options for part in (f"--{key}", value)]
            command = shlex.join(python(program, folder / f"{name}.csv", *words))
            self.options += ["--site", f"{name}={command}"]

    def started(self):
        program = "from fedgauss.cli import app; app()"
        model = ["--target", "visits", "--family", "poisson", "--formula", "visits ~ scale(age) + dose + ward"]
        command = [sys.executable, "-c", program, "federate", *model, "--exposure", "years", *self.options]
        return subprocess.Popen(
            [*command, "--out", str(self.out)], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def run(self):
        """To the end; what it printed and wrote."""
        done = self.started()
        said, errors = done.communicate(timeout=120)
        assert done.returncode == 0, errors
        assert not self.rounds.exists()
        return said, json.loads((self.out / "fit.json").read_text())

    def killed(self, who, after, delay):
        """Kill the coordinator, or a site, once so many rounds are kept, and a moment later."""
        running = self.started()
        end = time.monotonic() + 120
        while self.kept() < after and running.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(delay)
        if self.rounds.exists():
            assert stat.S_IMODE(self.rounds.stat().st_mode) == 0o600
        while who == "site" and "b" not in self.pids() and running.poll() is None:
            time.sleep(0.001)
        with suppress(ProcessLookupError):  # it may be done by then
            os.kill(running.pid if who == "coordinator" else self.pids()["b"], signal.SIGKILL)
        errors = running.communicate(timeout=120)[1]
        self.wait_for_end(list(self.pids().values()))
        return running.returncode, errors

    def pids(self):
        """Of the sites that have come so far."""
        files = {name: self.folder / f"{name}.pid" for name in NAMES}
        return {name: int(text) for name, file in files.items() if file.exists() and (text := file.read_text())}

    def wait_for_end(self, sites):
        """Sites end by themselves when who asked is gone."""
        end = time.monotonic() + 30
        while any(map(alive, sites)) and time.monotonic() < end:
            time.sleep(0.01)
        assert not any(map(alive, sites))

    def kept(self):
        return self.rounds.read_text().count('{"round":') if self.rounds.exists() else 0

    def orders(self, name):
        return [json.loads(line)["order"] for line in (self.folder / f"{name}.jsonl").read_text().splitlines()]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def new_fit(tmp_path):
    def make(masked, number=0):
        folder = tmp_path / f"{'masked' if masked else 'plain'}{number}"
        folder.mkdir()
        return Fit(folder, masked)

    return make


def numbers(written):
    """All that is written but for what was asked when."""
    return {name: value for name, value in written.items() if name in ("params", "cov", "statistics", "notes", "names")}


@pytest.mark.study
def test_a_fit_whose_site_and_then_whose_coordinator_are_killed_is_resumed_to_the_bit(new_fit):
    wanted = numbers(new_fit(True).run()[1])
    fit = new_fit(True, 1)
    code, errors = fit.killed("site", after=2, delay=0.0)
    assert code == 2
    assert "site 'b'" in errors
    assert "it was ended by SIGKILL" in errors
    told = fit.kept()
    assert told >= 2
    code, _ = fit.killed("coordinator", after=told + 2, delay=0.0)
    assert code == -signal.SIGKILL
    assert fit.kept() > told
    said, found = fit.run()
    assert f"rounds of a fit that was stopped are in {fit.rounds}" in said.replace("\n", "")
    assert numbers(found) == wanted
    asked, whole = fit.orders("a"), new_fit(True, 2)
    whole.run()
    assert asked.count("join") == 3
    rounds = whole.orders("a").count("open")
    assert asked.count("open") <= rounds + 2  # two were broken off
    for name in NAMES:
        assert stat.S_IMODE((fit.folder / f"{name}.jsonl").stat().st_mode) == 0o600


@pytest.mark.study
def test_rounds_of_another_model_are_not_used(new_fit):
    """Another exposure: the start is the same parameter, and the totals there are others."""
    fit = new_fit(False)
    fit.killed("coordinator", after=4, delay=0.0)
    assert fit.kept() >= 4
    fit.options += ["--offset", "shift"]
    other = new_fit(False, 1)
    other.options += ["--offset", "shift"]
    assert numbers(fit.run()[1]) == numbers(other.run()[1])


@pytest.mark.study
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("who", ["site", "coordinator"])
def test_ten_random_moments(new_fit, who, masked):
    """From the start of the processes to the last round: whatever was kept by then, the result is one to the bit."""
    rng = np.random.default_rng([14, who == "site", masked])
    undisturbed = new_fit(masked)
    began = time.monotonic()
    wanted = numbers(undisturbed.run()[1])
    seconds = time.monotonic() - began
    broken = 0
    for number in range(1, 11):
        fit = new_fit(masked, number)
        after = int(rng.integers(0, 14))
        code, _ = fit.killed(who, after, float(rng.uniform(0, seconds if after == 0 else 2 * PAUSE)))
        broken += code != 0
        assert numbers(fit.run()[1]) == wanted, (number, after)
    assert broken >= 7
