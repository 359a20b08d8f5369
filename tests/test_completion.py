"""Completion: what a shell is told on TAB, and that the scripts for it run."""

import os
import shutil
import subprocess
import sys
from typing import get_args

import pytest
from typer.testing import CliRunner

from fedgauss._families import shipped_families
from fedgauss.cli import app
from fedgauss.cli.completion import among, several_among
from fedgauss.inference.model import Errors
from fedgauss.inference.sgd import Method
from fedgauss.paper.results import ORDER


def offered(line: str, shell: str = "bash") -> list[str]:
    """What the command answers to a shell in which this line was typed."""
    asked = {"_FEDGAUSS_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    asked |= {
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = CliRunner().invoke(app, [], prog_name="fedgauss", env=asked)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("fedgauss re", ["reproduce"]),
        ("fedgauss do", ["doctor"]),
        ("fedgauss doctor --j", ["--json"]),
        ("fedgauss fit data.csv --family ", shipped_families()),
        ("fedgauss fit data.csv --errors ", list(get_args(Errors))),
        ("fedgauss fit data.csv --solver ", ["scoring", "sgd"]),
        ("fedgauss fit data.csv --method ", list(get_args(Method))),
        ("fedgauss federate --miss", ["--missing"]),
        ("fedgauss reproduce figure1_left ", list(ORDER)),
        ("fedgauss coverage --family linear,po", ["linear,poisson"]),
        ("fedgauss fit no_such_", [""]),  # the shell offers files
    ],
)
def test_names_are_completed(line, names):
    assert offered(line) == names


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_told_the_same(shell):
    told = "\n".join(offered("fedgauss reproduce figure1_", shell))
    assert [name for name in ORDER if name in told] == ["figure1_left", "figure1_right"]


def test_case_and_commas():
    assert among(["HC0", "HC1", "model"])("h") == ["HC0", "HC1"]
    assert several_among(["ring", "path"])("") == ["ring", "path"]
    assert several_among(["ring", "path"])("ring,") == ["ring,path"]  # not the same one twice


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    """A folder with the command, first on the path, and a home in which nothing is."""
    script = tmp_path / "bin" / "fedgauss"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedgauss "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_shown(shell, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # which takes the shell's name instead
    done = CliRunner().invoke(app, ["--show-completion", shell], prog_name="fedgauss")
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"_FEDGAUSS_COMPLETE=complete_{shell}" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_after_it_was_installed(on_path):
    installed = subprocess.run(["bash", "-c", "fedgauss --install-completion; true"], capture_output=True, text=True)
    assert "bash completion installed" in installed.stdout, installed.stderr
    typed = (
        "source ~/.bashrc; COMP_WORDS=(fedgauss fit --family po); COMP_CWORD=3; "
        '"$(complete -p fedgauss | sed "s/.*-F \\([^ ]*\\) .*/\\1/")" fedgauss po --family; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "--norc", "-c", typed], capture_output=True, text=True)
    assert done.stdout == "poisson\n", done.stderr
