"""The command: what it prints, how it fails, and that help is quick."""

import runpy

import pytest
from typer.testing import CliRunner

import fedgauss
from fedgauss.cli import app

runner = CliRunner()


def words(text: str) -> str:
    return " ".join(text.split())


def test_help_teaches():
    shown = runner.invoke(app, ["--help"])
    assert shown.exit_code == 0
    assert "fedgauss demo" in shown.output
    assert "fedgauss advise --steps" in shown.output
    assert "fedgauss reproduce" in shown.output
    for verb in ("demo", "advise", "reproduce"):
        assert runner.invoke(app, [verb, "--help"]).exit_code == 0
    assert "A .csv or .parquet file" in words(runner.invoke(app, ["fit", "--help"]).output)  # arguments too


def test_version():
    shown = runner.invoke(app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"fedgauss {fedgauss.__version__}\n")


def test_python_runs_the_package(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fedgauss", "--version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("fedgauss", run_name="__main__")
    assert capsys.readouterr().out == f"fedgauss {fedgauss.__version__}\n"


def test_a_terminal_that_lacks_a_letter_shows_a_question_mark():
    """Claims have letters, such as the square root sign, that Latin-1 has not."""
    shown = CliRunner(charset="latin-1").invoke(app, ["reproduce", "--list"])
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "grows like ?K" in shown.stdout


def test_advise_prints_the_advice():
    shown = runner.invoke(app, ["advise", "--steps", "5000", "--clients", "40", "--beta", "0.8", "--sync-every", "20"])
    assert shown.exit_code == 0
    assert words(shown.output) == words(str(fedgauss.advise(5000, 40, beta=0.8, sync_every=20)))


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["advise", "--steps", "500", "--clients", "10", "--beta", "1.5"], "--beta must lie in (1/2, 1)"),
        (["advise", "--steps", "500", "--clients", "0"], "--clients must be at least 1; got 0"),
        (["advise", "--steps", "-5", "--clients", "9"], "--steps must be at least 2; got -5"),
        (["advise", "--steps", "9", "--clients", "9", "--sync-every", "0"], "--sync-every must be at least 1; got 0"),
        (["advise", "--steps", "500", "--clients", "10", "--beta", "nan"], "--beta must lie in (1/2, 1)"),
    ],
)
def test_bad_input_is_one_line(arguments, rule):
    failed = runner.invoke(app, arguments)
    assert failed.exit_code == 2
    assert rule in failed.stderr
    assert failed.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--replicates", "3", "--replicates must be at least 200; got 3"),
        ("--replicates", "100000000000000", "--replicates must be at most 1000000"),
        ("--seed", "-1", "--seed must be at least 0; got -1"),
    ],
)
def test_demo_checks_its_numbers(tmp_path, option, value, rule):
    failed = runner.invoke(app, ["demo", "--out", str(tmp_path), option, value])
    assert (failed.exit_code, failed.stderr.count("\n")) == (2, 1)
    assert rule in failed.stderr


def test_an_unwritable_folder_is_reported_before_any_computation(tmp_path, monkeypatch):
    def never(*arguments):
        raise AssertionError("computed although nothing can be written")

    monkeypatch.setattr("fedgauss.demo.run.run_demo", never)
    (tmp_path / "file").write_text("in the way")
    failed = runner.invoke(app, ["demo", "--out", str(tmp_path / "file" / "demo")])
    assert (failed.exit_code, failed.stderr.count("\n")) == (2, 1)
    assert "must be a folder that can be written to" in failed.stderr


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "Interrupted; no file is left half written.\n"),
        (
            OSError(28, "No space left on device"),
            1,
            "A file could not be read or written: [Errno 28] No space left on device.\n",
        ),
    ],
)
def test_a_run_that_ends_early_says_so_in_one_line(tmp_path, monkeypatch, error, code, line):
    def end(*arguments):
        raise error

    monkeypatch.setattr("fedgauss.demo.healing.heal", end)
    ended = runner.invoke(app, ["demo", "--out", str(tmp_path)])
    assert (ended.exit_code, ended.stderr) == (code, line)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [(["fti"], "Did you mean 'fit'?"), (["advise", "--step", "9", "--clients", "9"], "--steps")],
)
def test_a_mistyped_name_is_suggested_once(arguments, suggestion):
    failed = runner.invoke(app, arguments)
    assert failed.exit_code == 2
    assert words(failed.output.replace("│", " ")).count(suggestion) == 1


def test_messages_name_options_of_the_command_that_ran():
    """The options of one invocation do not stay for the next."""
    failed = runner.invoke(app, ["advise", "--steps", "500", "--clients", "0"])
    assert failed.stderr.startswith("--clients must be")
    failed = runner.invoke(app, ["demo", "--seed", "-1"])
    assert failed.stderr.startswith("--seed must be")
