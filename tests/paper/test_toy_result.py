"""A result in a file of its own is listed, run, resumed, judged and drawn; nothing else is touched."""

import csv
import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedgauss.cli import app
from report_parsing import Checked

FILE = str(Path(__file__).parent / "toy_result.py")


def reproduce(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def test_it_is_listed():
    shown = reproduce(FILE, "--list")
    assert shown.exit_code == 0, shown.output
    assert "coin  A biased coin (nowhere in the paper)" in shown.output


@pytest.mark.parametrize("workers", [0, 1])
def test_it_is_run_judged_and_drawn(tmp_path, workers):
    """In a worker process too, which imports the file by itself."""
    done = reproduce(FILE, "--scale", "quick", "--out", tmp_path, "--workers", workers, "-v")
    assert done.exit_code == 0, done.output
    assert "Reproduced. From the optimum 3 of 3 points agree" in " ".join(done.output.split())
    assert {"coin.csv", "coin.png", "coin.svg", "report.html", "results.json"} <= {p.name for p in tmp_path.iterdir()}
    with (tmp_path / "coin.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["bias"] for row in rows] == ["0.2", "0.5", "0.8"] * 2
    (result,) = json.loads((tmp_path / "results.json").read_text())["results"]
    assert result["verdict"] == "reproduced"
    page = (tmp_path / "report.html").read_text()
    assert "Every second coin is a trick coin." in page
    assert Checked(page).count("img") == 1


def test_it_is_resumed(tmp_path):
    def finished():
        connection = sqlite3.connect(tmp_path / "results.sqlite")
        try:
            return connection.execute("SELECT key, finished_at, seconds FROM cells ORDER BY key").fetchall()
        finally:
            connection.close()

    assert reproduce(FILE, "--scale", "quick", "--out", tmp_path, "--workers", 0).exit_code == 0
    before = finished()
    connection = sqlite3.connect(tmp_path / "results.sqlite")
    with connection:
        connection.execute("DELETE FROM cells WHERE key = ?", before[:1][0][:1])
        connection.execute("DELETE FROM rows WHERE cell = ?", before[:1][0][:1])
    connection.close()
    assert reproduce(FILE, "--scale", "quick", "--out", tmp_path, "--workers", 0).exit_code == 0
    assert len(before) == 2
    assert finished()[1:] == before[1:]
    assert finished()[0][2] != before[0][2]


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no file"), ("x = 1\n", "holds none")],
)
def test_a_file_without_a_result_is_refused(tmp_path, content, message):
    path = tmp_path / "no_result_here.py"
    if content is not None:
        path.write_text(content)
    failed = reproduce(path, "--out", tmp_path / "out")
    assert (failed.exit_code, failed.stderr.count("\n")) == (2, 1)
    assert message in failed.stderr
