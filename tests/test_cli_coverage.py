"""`fedgauss coverage`: what it prints and leaves, how it resumes, and what it refuses."""

import csv
import sqlite3
from dataclasses import asdict

import pytest
from typer.testing import CliRunner

from fedgauss.cli import app
from fedgauss.cli.coverage import _values
from fedgauss.coverage.cells import METHODS, BootstrapCell, CoverageCell, CoverageRow

runner = CliRunner()
SMALL = ["--clients", "3", "--dim", "2", "--runs", "20", "--workers", "0", "--family", "linear"]


def coverage(*arguments: object):
    return runner.invoke(app, ["coverage", *map(str, arguments)])


def made_up(*methods):
    """Rows of a cell that takes no time."""

    def run(cell):
        numbers = {"coverage": 0.94, "error": 0.01, "lowest": 0.9, "highest": 0.97, "width": 1.1, "joint": 0.93}
        more = {"runs": cell.runs, "predicted": 0.945, "bias": 0.1}
        return [CoverageRow(**asdict(cell.federation), method=method, **numbers, **more) for method in methods]

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two federations, and a third that a later command added."""
    out = tmp_path_factory.mktemp("coverage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoverageCell, "run", made_up(*(m for m in METHODS if m != "bootstrap")))
        patch.setattr(BootstrapCell, "run", made_up("bootstrap"))
        first = coverage(*SMALL, "--steps", "50,60", "--out", out)
        second = coverage(*SMALL, "--steps", "60", "--network", "ring,complete", "--bootstrap-runs", "2", "--out", out)
    return out, first, second


def test_help_teaches():
    shown = coverage("--help").output
    for word in ("ring^4", "--bootstrap-runs", "fedgauss coverage --runs 200", "rho"):
        assert word in shown


def test_tables_files_and_a_page(folder):
    out, first, _ = folder
    assert first.exit_code == 0, first.output
    for word in (
        "plug-in",
        "random",
        "Monte Carlo errors of 0.010",
        "predicted",
        "ellipsoid",
        "20 runs",
        "K = 3",
        "coverage.html",
    ):
        assert word in " ".join(first.output.split())
    files = {path.name for path in out.iterdir()}
    assert {"coverage.html", "coverage.csv", "coverage.sqlite", "coverage_steps.png", "coverage_steps.svg"} <= files


def test_another_command_adds_to_a_folder_and_runs_nothing_twice(folder):
    out, _, second = folder
    assert second.exit_code == 0, second.output
    with sqlite3.connect(out / "coverage.sqlite") as held:
        (cells,) = held.execute("SELECT count(*) FROM cells").fetchone()
    assert cells == 5  # three federations, two of them with a bootstrap
    with (out / "coverage.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {(row["network"], row["n_steps"]) for row in rows} == {("ring", "50"), ("ring", "60"), ("complete", "60")}
    assert sum(row["method"] == "bootstrap" for row in rows) == 2
    page = (out / "coverage.html").read_text(encoding="utf-8")
    assert "3 federations" in page
    assert "complete" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--network", "mesh"], "network must be one of ring, path, star, complete"),
        (["--steps", "many"], "--steps must be whole numbers separated by commas; got 'many'."),
        (["--runs", "5"], "--runs must be at least 20; got 5"),
        (["--beta", "0.4"], "beta must lie in (0.5, 1)"),
        (["--clients", "0"], "--clients must be at least 1; got 0"),
    ],
    ids=["network", "steps", "runs", "beta", "clients"],
)
def test_bad_input_ends_with_one_line_and_leaves_nothing(arguments, message, tmp_path):
    done = coverage(*arguments, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert message in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["", ",", "one", "1,two", "1.5"], ids=["empty", "comma", "word", "mixed", "fraction"])
def test_lists_that_cannot_be_read_are_refused(text):
    with pytest.raises(ValueError, match="--steps must be whole numbers separated by commas"):
        _values("steps", text, int)


def test_lists_drop_spaces_and_repeats():
    assert _values("steps", " 100, 50,100 ", int) == [100, 50]
