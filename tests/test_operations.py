"""The files of docs/operations.md: options and metrics that exist, and what their own tools say where those are."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

import fedgauss as fg
from fedgauss.cli import app
from fedgauss.integrations.live.metrics import metrics
from fedgauss.integrations.live.run import Run

ROOT = Path(__file__).parents[1]
FILES = ROOT / "examples" / "operations"
UNIT = (FILES / "fedgauss-watch.service").read_text()
HARDENED = (
    "DynamicUser=yes", "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes",
    "CapabilityBoundingSet=", "SystemCallFilter=@system-service", "Restart=on-failure", "UMask=0077",
    "StateDirectory=fedgauss-watch",
)  # fmt: skip


def run(*command, folder=FILES):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def tool(name):
    """The program, or a skipped test."""
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


def test_the_unit_asks_for_options_that_watch_has():
    (start,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)$", UNIT, re.MULTILINE)
    words = start.replace("\\\n", " ").split()
    assert words[:2] == ["/opt/fedgauss/bin/fedgauss", "watch"]
    known = {name for parameter in get_command(app).commands["watch"].params for name in parameter.opts}
    asked = {word for word in words if word.startswith("--")}
    assert asked <= known
    assert {"--save", "--token-file", "--cert", "--key", "--log-format"} <= asked
    assert "--token" not in asked  # which others could see
    for name in re.findall(r"%d/(\S+)", start):
        assert f"LoadCredential={name}:/etc/fedgauss/{name}" in UNIT


def test_the_unit_is_hardened():
    assert set(HARDENED) <= set(UNIT.splitlines())


def test_systemd_accepts_the_unit(tmp_path):
    """With a program that is there in the place of ours."""
    analyze = tool("systemd-analyze")
    unit = tmp_path / "fedgauss-watch.service"
    unit.write_text(UNIT.replace("/opt/fedgauss/bin/fedgauss", sys.executable))
    assert run(analyze, "verify", str(unit)) == (0, "")
    code, said = run(analyze, "security", "--offline=true", "--no-pager", "--threshold=15", str(unit))
    if "unrecognized option" not in said:  # before version 250
        assert code == 0, said[-300:]


def test_rules_ask_for_metrics_that_the_watcher_has():
    there = set(re.findall(r"^# TYPE (\S+)", metrics(Run(fg.ClientMonitor()), {}), re.MULTILINE))
    rules = yaml.safe_load((FILES / "alerts.yml").read_text())["groups"][0]["rules"]
    asked = {name for rule in rules for name in re.findall(r"fedgauss_\w+", rule["expr"])}
    assert asked <= there
    assert {"fedgauss_watch_alarm", "fedgauss_watch_blind", "fedgauss_watch_silence_seconds"} <= asked
    tests = yaml.safe_load((FILES / "alerts_test.yml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules}  # each one is shown to fire


def test_prometheus_accepts_rules_and_scrape():
    promtool = tool("promtool")
    for arguments in (
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
        ["check", "config", "--syntax-only", "prometheus.yml"],
    ):
        code, said = run(promtool, *arguments)
        assert code == 0, said
        assert "SUCCESS" in said


def test_logrotate_accepts_its_file(tmp_path):
    logrotate = tool("logrotate")
    code, said = run(logrotate, "--debug", "--state", str(tmp_path / "state"), "logrotate.conf")
    assert code == 0, said
    assert "error" not in said.lower()


def test_every_file_is_on_the_page_or_named_there():
    page = (ROOT / "docs" / "operations.md").read_text()
    for file in FILES.iterdir():
        assert file.name in page
