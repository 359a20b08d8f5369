"""`fedgauss doctor`: every check says ok here, and says problem, with a fix, where something is made to be wrong."""

import json
import signal
import subprocess
import sys
import tomllib
from importlib import metadata
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from fedgauss.cli import app
from fedgauss.doctor import jax_check, packages, self_test, surroundings
from fedgauss.doctor import thresholds as table_check
from fedgauss.doctor.checkup import checkup
from fedgauss.doctor.requirements import Requirement, requirements

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def invoke(*options):
    return CliRunner().invoke(app, ["doctor", *options])


def test_all_is_well_here():
    """In JSON: one object, with every package of the metadata and all three self-tests."""
    done = invoke("--json")
    told = json.loads(done.stdout)
    checks = {check["name"]: check for check in told["checks"]}
    wrong = [check for check in told["checks"] if check["state"] == "problem"]
    assert (done.exit_code, told["ok"], wrong) == (0, True, [])
    assert {"numpy", "jax", "devices", "first compilation", "thresholds", "temporary folder"} < set(checks)
    assert "alarm in round 42 naming clients 3 and 8" in checks["self-test: Monitor"]["found"]
    assert "alarm in round 21 naming clients 3 and 8" in checks["self-test: ClientMonitor"]["found"]
    assert [f"extra {name}" in checks for name in PROJECT["optional-dependencies"]] == [True] * len(packages.PURPOSES)


def test_every_extra_has_a_purpose():
    assert list(packages.PURPOSES) == list(PROJECT["optional-dependencies"])


def test_lines_have_a_state_and_a_fix(monkeypatch):
    """In words; a problem ends with exit code 1."""
    monkeypatch.setattr(packages, "installed", lambda name: "1.0")
    monkeypatch.setattr(jax_check, "first_compilation", lambda: jax_check.Finding("ok", "first compilation", "no time"))
    done = invoke()
    assert done.exit_code == 1
    assert any(line.split() == ["problem", "numpy", "1.0;", "needed:", ">=2.0"] for line in done.stdout.splitlines())
    assert "-> pip install 'numpy>=2.0'" in done.stdout
    assert " problems" in done.stdout.splitlines()[-1]


WITHOUT = """
import sys
for name in {missing}:
    sys.modules[name] = None
from fedgauss.cli import app
app(["doctor", "--json"])
"""


@pytest.mark.parametrize(("missing", "works"), [(["jax"], True), (["numpy", "scipy", "jax"], False)])
def test_it_works_and_says_so_where_packages_are_missing(missing, works):
    program = WITHOUT.format(missing=missing)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    states = {check["name"]: (check["state"], check["found"]) for check in json.loads(done.stdout)["checks"]}
    for name in missing:
        assert states[name][0] == "problem"
        assert "cannot be imported" in states[name][1]
    assert states["devices"][1] == "unknown, since JAX cannot be imported"
    assert [state for name, (state, _) in states.items() if "self-test" in name] == ["ok" if works else "problem"] * 3


@pytest.mark.parametrize(
    ("line", "name", "words", "extra"),
    [
        ("jax>=0.10", "jax", ">=0.10", None),
        ("flwr<1.42,>=1.41; extra == 'flower'", "flwr", "<1.42,>=1.41", "flower"),
        ('torch (>=2.3) ; extra == "gossip"', "torch", ">=2.3", "gossip"),
        ("rich", "rich", "", None),
    ],
)
def test_requirements_are_read(line, name, words, extra):
    (read,) = requirements([line])
    assert (read.name, read.words, read.extra) == (name, words, extra)


@pytest.mark.parametrize(
    ("version", "admitted"),
    [("1.41", True), ("1.41.0", True), ("1.41.7+cpu", True), ("1.40.9", False), ("1.42", False), ("1.9", False)],
)
def test_versions_are_compared_as_numbers(version, admitted):
    assert Requirement("flwr", ((">=", "1.41.0"), ("<", "1.42"))).admits(version) is admitted


def test_those_of_the_installed_package_are_all_read():
    written = [*PROJECT["dependencies"], *chain.from_iterable(PROJECT["optional-dependencies"].values())]
    try:
        read = requirements()
    except metadata.PackageNotFoundError:
        pytest.skip("fedgauss is not installed here")
    assert len(read) == len(written)


def test_an_extra_with_the_wrong_version_is_a_warning(monkeypatch):
    versions = {"flwr": "1.41.0", "click": "8.5"}
    monkeypatch.setattr(packages, "installed", versions.get)
    lines = ["flwr>=1.41,<1.42; extra == 'flower'", "click<8.4; extra == 'flower'"]
    monkeypatch.setattr(packages, "requirements", lambda: requirements(lines))
    (found,) = packages.extras()
    assert (found.state, found.fix) == ("warning", "pip install 'fedgauss[flower]'")
    assert "click 8.5, needed: <8.4" in found.found
    versions.pop("flwr")
    (found,) = packages.extras()
    assert (found.state, found.found.partition(";")[0]) == ("ok", "not installed")


def test_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert surroundings.current_folder().state == "ok"
    monkeypatch.setenv(surroundings.CACHE, str(tmp_path / "not" / "yet"))
    assert surroundings.compiled_programs().state == "ok"

    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert [surroundings.current_folder().state, surroundings.temporary_folder().state] == ["warning", "problem"]
    assert "cannot be written to: Permission denied" in surroundings.compiled_programs().found
    monkeypatch.undo()
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=5e6))
    assert surroundings.temporary_folder().found.endswith("has 5 MB left")


def test_a_current_folder_that_is_gone(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert surroundings.current_folder().state == "problem"


def test_an_ignored_ctrl_c_is_a_warning():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert surroundings.ctrl_c().state == "warning"
    finally:
        signal.signal(signal.SIGINT, before)
    assert surroundings.ctrl_c().state == "ok"


@pytest.mark.parametrize(
    "change",
    [
        {"format": "fedgauss thresholds 0"},
        {"mean": [[1.0]]},
        {"taus": None},
        {"spread": "not numbers"},
    ],
)
def test_a_damaged_table_of_thresholds_is_a_problem(monkeypatch, change):
    table = table_check.threshold_table() | change
    monkeypatch.setattr(table_check, "threshold_table", lambda: table)
    found = table_check.thresholds()
    assert found.state == "problem"
    assert "reinstall" in found.fix


def test_falling_levels_are_a_problem(monkeypatch):
    table = dict(table_check.threshold_table())
    table["mean"] = np.flip(np.array(table["mean"]), axis=-1).tolist()
    monkeypatch.setattr(table_check, "threshold_table", lambda: table)
    assert table_check.thresholds().state == "problem"


@pytest.mark.parametrize(
    ("seen", "quiet", "words"),
    [
        (None, None, "a seeded attack gave no alarm; known are round 42 and clients 3 and 8"),
        ((42, (3,)), None, "an alarm in round 42 that named clients 3"),
        ((42, (3, 8)), (17, ()), "an honest run raised an alarm in round 17"),
    ],
)
def test_a_monitor_that_is_wrong_is_a_problem(monkeypatch, seen, quiet, words):
    monkeypatch.setattr(self_test, "_monitor_run", lambda attacked: seen if attacked else quiet)
    found = self_test.monitor_test()
    assert found.state == "problem"
    assert words in found.found


@pytest.mark.parametrize(("kind", "run"), [("Monitor", "_monitor_run"), ("ClientMonitor", "_client_run")])
def test_alarms_of_the_self_test_are_clear(monkeypatch, kind, run):
    """Statistics lie well below thresholds, then well above: another processor's rounding changes nothing."""
    ratios = []

    class Recorded(getattr(self_test, kind)):
        def update(self, *arguments, **options):
            verdict = super().update(*arguments, **options)
            ratios.append(verdict.statistic / verdict.threshold)
            return verdict

    monkeypatch.setattr(self_test, kind, Recorded)
    alarm = getattr(self_test, run)(attacked=True)
    assert max(ratios[: alarm[0] - 1]) < 0.95
    assert ratios[alarm[0] - 1] > 1.05
    ratios.clear()
    assert getattr(self_test, run)(attacked=False) is None
    assert max(ratios) < 0.95


def test_a_check_that_fails_hides_no_other(monkeypatch):
    def explode():
        raise RuntimeError("cuInit failed")

    monkeypatch.setattr(jax_check, "devices", explode)
    monkeypatch.setattr(jax_check, "first_compilation", lambda: jax_check.Finding("ok", "first compilation", "no time"))
    ticks = []
    findings = checkup(lambda *tick: ticks.append(tick))
    (wrong,) = (found for found in findings if found.state == "problem")
    assert wrong.found == "could not be checked: RuntimeError: cuInit failed"
    assert findings[-1].name == "self-test: exact fit"
    assert [done for _, done, _ in ticks] == list(range(len(ticks)))
    assert {total for _, _, total in ticks} == {len(ticks) - 1}
