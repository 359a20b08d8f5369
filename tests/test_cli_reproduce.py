"""The verb `reproduce`: what it prints and leaves, how it ends early, and how it goes on."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedgauss
from fedgauss.cli import app
from fedgauss.paper.result import catalogue
from fedgauss.sweep.run import Summary, SweepError, SweepInterrupted
from reproduction_rows import made_up_results

runner = CliRunner()


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Cells that take no time, and the file in which they note that they ran."""
    path = tmp_path / "log"
    monkeypatch.setattr("fedgauss.paper.result.catalogue", lambda: made_up_results(str(path)))
    return path


def reproduce(*arguments: object):
    return runner.invoke(app, ["reproduce", *map(str, arguments)])


def test_help_teaches():
    shown = reproduce("--help").output
    for word in ("quick", "paper", "large", "--list", "fedgauss reproduce --scale quick"):
        assert word in shown


def test_the_list_has_every_name():
    shown = reproduce("--list")
    assert shown.exit_code == 0
    assert all(name in shown.output for name in catalogue())


def test_results_come_with_tables_verdicts_files_and_a_page(tmp_path, log):
    out = tmp_path / "out"
    done = reproduce("heterogeneity", "figure1_left", "--out", out, "--workers", 0, "-v")
    assert done.exit_code == 0, done.output
    assert "Reproduced. From the optimum 15 of 15 points agree" in done.output
    assert done.output.index("Figure 1, left") < done.output.index("Appendix F.3")
    assert str(out / "report.html") in done.output
    files = {path.name for path in out.iterdir()}
    assert {"report.html", "results.json", "results.sqlite", "heterogeneity.csv", "figure1_left.svg"} <= files
    assert "figure2_phase.csv" not in files


def test_by_default_a_result_is_one_line(tmp_path, log):
    done = reproduce("heterogeneity", "figure1_left", "--out", tmp_path / "out", "--workers", 0)
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.output.splitlines() if line.split()][2:4] == [
        "figure1_left",
        "heterogeneity",
    ]
    assert "Claim" not in done.output
    assert len(done.output.splitlines()) <= 8


def test_finished_cells_are_not_run_again_and_new_ones_are(tmp_path, log):
    out = tmp_path / "out"
    for names in (["heterogeneity"], ["heterogeneity"], ["heterogeneity", "connection"]):
        assert reproduce(*names, "--out", out, "--workers", 0).exit_code == 0
    ran = [line.split()[0] for line in log.read_text().splitlines()]
    assert ran == ["heterogeneity"] * 3 + ["connection"] * 3


def test_results_run_one_by_one_add_up(tmp_path, log):
    """A report of one result would otherwise replace that of another."""
    out = tmp_path / "out"
    for names in (["heterogeneity"], ["Figure1_Left"], ["heterogeneity"]):
        assert reproduce(*names, "--out", out, "--workers", 0).exit_code == 0
    held = json.loads((out / "results.json").read_text())
    assert [result["name"] for result in held["results"]] == ["figure1_left", "heterogeneity"]
    assert "Appendix F.3" in (out / "report.html").read_text()


def test_a_folder_holds_one_scale(tmp_path, log):
    out = tmp_path / "out"
    assert reproduce("heterogeneity", "--scale", "QUICK", "--out", out, "--workers", 0).exit_code == 0
    before, ran = (out / "report.html").read_bytes(), log.read_text()
    failed = reproduce("connection", "--out", out, "--workers", 0)
    assert (failed.exit_code, failed.stderr.count("\n")) == (2, 1)
    assert "has a report of scale quick, and paper was asked for. Use another --out." in failed.stderr
    assert (out / "report.html").read_bytes() == before
    assert log.read_text() == ran
    (out / "results.json").write_text("half a fi")  # no report that could be lost
    assert reproduce("connection", "--out", out, "--workers", 0).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["figure2"], "got 'figure2'. Did you mean figure2_phase?"),
        (["--scale", "huge"], "--scale must be one of 'quick', 'paper', 'large'; got 'huge'"),
        (["--scale", "quik"], "got 'quik'. Did you mean 'quick'?"),
        (["heterogeneity", "--workers", "-1"], "--workers must be at least 0; got -1"),
    ],
)
def test_bad_input_is_one_line(tmp_path, log, arguments, rule):
    failed = reproduce(*arguments, "--out", tmp_path / "out")
    assert (failed.exit_code, failed.stderr.count("\n")) == (2, 1)
    assert rule in failed.stderr
    assert not log.exists()


def test_an_unwritable_folder_is_reported_before_the_sweep(tmp_path, log):
    (tmp_path / "file").write_text("in the way")
    failed = reproduce("heterogeneity", "--out", tmp_path / "file" / "below", "--workers", 0)
    assert (failed.exit_code, failed.stderr.count("\n")) == (2, 1)
    assert "must be a folder that can be written to" in failed.stderr
    assert not log.exists()


def test_a_full_disk_is_reported_before_the_sweep(tmp_path, log, monkeypatch):
    class Usage:
        free = 1_000_000

    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage)
    failed = reproduce("heterogeneity", "--out", tmp_path / "out", "--workers", 0)
    assert (failed.exit_code, failed.stderr.count("\n")) == (2, 1)
    assert "has 1 MB free" in failed.stderr
    assert not log.exists()


def test_a_store_of_another_version_is_refused_and_left_alone(tmp_path, log):
    out = tmp_path / "out"
    assert reproduce("heterogeneity", "--out", out, "--workers", 0).exit_code == 0
    with sqlite3.connect(out / "results.sqlite") as connection:
        connection.execute("UPDATE meta SET value = '0.0.1' WHERE name = 'fedgauss'")
    connection.close()
    before = (out / "results.sqlite").read_bytes()
    failed = reproduce("heterogeneity", "--out", out, "--workers", 0)
    assert (failed.exit_code, failed.stderr.count("\n")) == (2, 1)
    assert "holds rows of one version only" in failed.stderr
    assert (out / "results.sqlite").read_bytes() == before


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            SweepInterrupted(Summary(9, 2, 3, 1.0)),
            130,
            "Interrupted; 5 of 9 cells are finished and saved. Resume with: {command}\n",
        ),
        (SweepError("cell 3 failed with no luck. Finished cells are kept."), 1, "cell 3 failed with no luck."),
    ],
)
def test_a_sweep_that_ends_early_says_so_and_how_to_go_on(tmp_path, log, monkeypatch, error, code, line):
    def end(*arguments, **more):
        raise error

    monkeypatch.setattr("fedgauss.paper.result.run_cells", end)
    out = tmp_path / "out put"
    ended = reproduce("heterogeneity", "--scale", "quick", "--out", out, "--workers", 1)
    command = f"fedgauss reproduce heterogeneity --scale quick --out '{out}' --workers 1"
    assert (ended.exit_code, ended.stderr.count("\n")) == (code, 1)
    assert ended.stderr.startswith(line.format(command=command))


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "Interrupted; finished cells are saved"),
        (OSError(28, "No space left on device"), 1, "No space left on device. Finished cells are saved."),
    ],
)
def test_trouble_while_drawing_keeps_the_sweep(tmp_path, log, monkeypatch, error, code, words):
    def end(*arguments):
        raise error

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("fedgauss.paper.page.reproduction_page", end)
        ended = reproduce("heterogeneity", "--out", out, "--workers", 0)
    assert (ended.exit_code, ended.stderr.count("\n")) == (code, 1)
    assert words in ended.stderr
    assert f"Resume with: fedgauss reproduce heterogeneity --out {out}" in ended.stderr
    assert reproduce("heterogeneity", "--out", out, "--workers", 0).exit_code == 0
    assert len(log.read_text().splitlines()) == 3  # nothing ran twice


@pytest.mark.study
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_ctrl_c_ends_a_real_sweep_and_the_same_command_goes_on(tmp_path):
    """Two of three cells finish at once and the third waits; Ctrl-C comes then."""
    log, out = tmp_path / "log", tmp_path / "out"
    program = (
        "import os\n"
        "from reproduction_rows import made_up_results\n"
        "from fedgauss.cli import app\n"
        "from fedgauss.paper import result\n"
        "if __name__ == '__main__':\n"
        "    results = made_up_results(os.environ['LOG'], float(os.environ['SECONDS']))\n"
        "    result.catalogue = lambda: results\n"
        "    app()\n"
    )
    (tmp_path / "program.py").write_text(program)
    paths = [str(Path(__file__).parent), str(Path(fedgauss.__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}

    def start(seconds: float) -> subprocess.Popen:
        command = [sys.executable, str(tmp_path / "program.py"), "reproduce", "heterogeneity", "--out", str(out)]
        given = environment | {"LOG": str(log), "SECONDS": str(seconds)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*command, "--workers", "2"], env=given, text=True, **pipes)

    first = start(60.0)
    while not (log.exists() and len(log.read_text().splitlines()) == 3):
        assert first.poll() is None, first.communicate()[1]
        time.sleep(0.05)
    time.sleep(0.3)
    first.send_signal(signal.SIGINT)
    pressed = time.monotonic()
    _, said = first.communicate(timeout=30)
    assert time.monotonic() - pressed < 5.0  # it is well below one second on an idle machine
    assert first.returncode == 130
    assert said.startswith(
        "Interrupted; 2 of 3 cells are finished and saved. Resume with: fedgauss reproduce heterogeneity"
    )
    second = start(0.0)
    assert " reproduced" in second.communicate(timeout=120)[0]
    assert len(log.read_text().splitlines()) == 4


_FINISHED = "SELECT key, finished_at, seconds FROM cells"


def _cells(out: Path) -> dict[str, tuple[str, float]]:
    connection = sqlite3.connect(out / "results.sqlite")
    try:
        return {key: (when, seconds) for key, when, seconds in connection.execute(_FINISHED)}
    finally:
        connection.close()


@pytest.mark.study
def test_killed_in_the_middle_it_gives_the_same_rows_and_runs_no_cell_twice(tmp_path):
    """kill -9 of the whole process group, workers included, once some cells are in the store."""
    program = [sys.executable, "-c", "from fedgauss.cli import app; app()", "reproduce", "figure2_phase", "figure4"]
    arguments = ["--scale", "quick", "--out"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    first = subprocess.Popen(
        [*program, *arguments, str(killed)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log, sizes = killed / "results.sqlite-wal", set()
    deadline = time.monotonic() + 120
    while len(sizes) < 4:  # the log grows with each cell
        assert first.poll() is None, "the sweep ended before it could be killed"
        assert time.monotonic() < deadline
        if log.exists():
            sizes.add(log.stat().st_size)
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    before = _cells(killed)
    subprocess.run([*program, *arguments, str(killed)], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([*program, *arguments, str(whole)], check=True, stdout=subprocess.DEVNULL)
    after = _cells(killed)
    print(f"{len(before)} of {len(after)} cells were finished when it was killed")
    assert 0 < len(before) < len(after)
    assert all(after[key] == entry for key, entry in before.items())
    for name in ("figure2_phase.csv", "figure4.csv"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("verb", ["reproduce", "coverage"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "ray"], "engine must be one of 'local', 'dask'; got 'ray'"),
        (["--engine", "dask"], "--engine dask needs a scheduler; got none. Use --scheduler tcp://host:8786?"),
        (["--scheduler", "tcp://127.0.0.1:1"], "--scheduler belongs to --engine dask"),
        (["--engine", "dask", "--scheduler", "tcp://127.0.0.1:1"], "scheduler must be the address of a Dask scheduler"),
    ],
    ids=["engine", "no scheduler", "no engine", "nobody there"],
)
def test_where_to_compute_is_checked(verb, options, message, tmp_path, log, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("fedgauss.integrations.dask_cluster._CONNECT", 0.5)
    done = runner.invoke(app, [verb, *options, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert message in done.output
