"""Sweeps end in every way a sweep can end, and lose nothing that finished."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from counting_cells import Costly, Counted, Environment, counted, pids, runs

import fedgauss
from fedgauss.experiments.cell import cell_key
from fedgauss.experiments.runner import Plan, Summary, SweepError, SweepInterrupted, _status, run_cells
from fedgauss.experiments.store import Store, StoreError


def swept(tmp_path, cells, workers):
    """The rows of an uninterrupted sweep, in a store of its own."""
    with Store(tmp_path / "reference.sqlite") as store:
        run_cells(cells, store, workers)
        return store.rows()


def start_sweep(tmp_path, n_cells, seconds, workers=2):
    """A sweep in a process of its own, as far as its first finished cells."""
    arguments = (str(tmp_path / "s.sqlite"), str(tmp_path / "log"), n_cells, seconds, workers)
    folders = [str(Path(__file__).parent), str(Path(fedgauss.__file__).parents[1])]
    process = subprocess.Popen(
        [sys.executable, "-c", f"from counting_cells import sweep; sweep(*{arguments!r})"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: len(runs(tmp_path / "log")) >= 4)
    return process


def wait_until(true, seconds=15.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def finished(tmp_path, cells):
    with Store(tmp_path / "s.sqlite") as store:
        keys = store.finished(cell_key(cell) for cell in cells)
    return {cell.number for cell in cells if cell_key(cell) in keys}


# --- the same rows, each cell once -----------------------------------------------------------------------------------


def test_rows_do_not_depend_on_the_number_of_workers(tmp_path):
    rows = []
    for workers in (0, 1, 2):
        folder = tmp_path / str(workers)
        folder.mkdir()
        cells = counted(7, folder / "log")
        rows.append(swept(folder, cells, workers))
        assert sorted(runs(folder / "log")) == list(range(7))
        assert len(pids(folder / "log") - {os.getpid()}) <= workers
    assert rows[0] == rows[1] == rows[2]


def test_finished_and_repeated_cells_are_not_run(tmp_path):
    cells = counted(5, tmp_path / "log")
    seen = []
    with Store(tmp_path / "s") as store:
        first = run_cells(cells[:2], store, workers=0)
        second = run_cells([*cells, *cells], store, workers=0, on_tick=seen.append)
        third = run_cells(cells, store, workers=2)  # starts no process
    assert [(s.total, s.found, s.run, s.left) for s in (first, second, third)] == [
        (2, 0, 2, 0),
        (5, 2, 3, 0),
        (5, 5, 0, 0),
    ]
    assert [(s.run, s.left) for s in seen] == [(1, 2), (2, 1), (3, 0)]
    assert sorted(runs(tmp_path / "log")) == list(range(5))


def test_an_empty_sweep_is_done(tmp_path):
    with Store(tmp_path / "s") as store:
        assert run_cells([], store).left == 0


def test_workers_have_one_thread_and_this_process_keeps_its_environment(tmp_path):
    before = dict(os.environ)
    with Store(tmp_path / "s") as store:
        run_cells([Environment("OPENBLAS_NUM_THREADS")], store, workers=1)
        assert store.rows() == [{"value": "1"}]
    assert dict(os.environ) == before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_workers_must_be_a_whole_number(tmp_path):
    with Store(tmp_path / "s") as store, pytest.raises(ValueError, match="workers must be at least 0; got -1"):
        run_cells([], store, workers=-1)


# --- who runs what ---------------------------------------------------------------------------------------------------


def test_workers_stay_with_their_groups_and_help_in_the_end():
    plan = Plan(counted(9, Path("log")))
    order = [plan.take(worker) for worker in (0, 1, 0, 1, 0, 1, 0, 1, 0)]
    assert [cell.group for cell in order] == [0, 1, 0, 1, 0, 1, 2, 2, 2]
    assert plan.take(0) is None
    assert len(set(order)) == 9


def test_long_cells_and_long_groups_come_first():
    plan = Plan([Costly("a", 2.0), Costly("b", 1.0), Costly("b", 5.0), Costly("a", 3.0)])
    assert plan.cost == 11.0
    assert [(cell.group, cell.cost) for cell in (plan.take(0) for _ in range(4))] == [
        ("b", 5),
        ("b", 1),
        ("a", 3),
        ("a", 2),
    ]


# --- sweeps that end early -------------------------------------------------------------------------------------------


def test_kill_9_loses_and_repeats_nothing(tmp_path):
    cells = counted(30, tmp_path / "log")
    process = start_sweep(tmp_path, len(cells), seconds=0.15)
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(alive, pids(tmp_path / "log"))), seconds=3.0)
    kept, before = finished(tmp_path, cells), Counter(runs(tmp_path / "log"))
    assert 0 < len(kept) < len(cells)
    with Store(tmp_path / "s.sqlite") as store:
        summary = run_cells(cells, store, workers=2)
        assert (summary.found, summary.left) == (len(kept), 0)
        again = Counter(runs(tmp_path / "log")) - before
        assert again == Counter(set(range(30)) - kept)
        assert store.rows() == swept(tmp_path, cells, workers=0)


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_stops_at_once_and_says_how_far_it_came(tmp_path, workers):
    cells = counted(40, tmp_path / "log")
    process = start_sweep(tmp_path, len(cells), seconds=0.3, workers=workers)
    pressed = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # a terminal tells the whole group
    out, err = process.communicate()
    assert time.monotonic() - pressed < 2.0
    assert (process.returncode, err) == (130, "")
    kept = finished(tmp_path, cells)
    assert out == f"begun\nrun {len(kept)} left {40 - len(kept)}\n"
    assert 0 < len(kept) < 40
    assert not any(map(alive, pids(tmp_path / "log")))


def test_an_interrupt_carries_the_counts(tmp_path):
    def press(summary):
        if summary.run == 2:
            raise KeyboardInterrupt

    cells = counted(6, tmp_path / "log", seconds=0.05)
    with Store(tmp_path / "s.sqlite") as store, pytest.raises(SweepInterrupted) as stopped:
        run_cells(cells, store, workers=2, on_tick=press)
    assert (stopped.value.summary.run, stopped.value.summary.left) == (2, 4)
    assert len(finished(tmp_path, cells)) == 2
    assert not any(map(alive, pids(tmp_path / "log")))


@pytest.mark.parametrize(
    ("ending", "workers", "words"),
    [
        ("error", 0, "cell 5 failed with ZeroDivisionError: no luck. Finished cells are kept"),
        ("error", 2, "cell 5 failed with ZeroDivisionError: no luck. Finished cells are kept"),
        ("kill", 2, r"ran cell 5 ended with signal 9 \(Killed\). Finished cells are kept.*fewer workers"),
    ],
)
def test_a_cell_that_fails_is_named_and_the_others_kept(tmp_path, ending, workers, words):
    cells = counted(6, tmp_path / "log")
    cells[5] = replace(cells[5], ending=ending, seconds=0.3)
    with Store(tmp_path / "s.sqlite") as store, pytest.raises(SweepError, match=words) as failed:
        run_cells(cells, store, workers)
    assert failed.value.cell == cells[5]
    kept = finished(tmp_path, cells)
    assert failed.value.summary.run == len(kept)
    assert 5 not in kept
    assert len(kept) >= 2
    assert not any(map(alive, pids(tmp_path / "log") - {os.getpid()}))
    if ending == "error" and workers:
        assert "in run\n" in failed.value.__notes__[0]


def test_a_cell_that_workers_cannot_import_is_named(tmp_path):
    class Local(Counted):
        pass

    with Store(tmp_path / "s") as store, pytest.raises(SweepError, match=r"cell 1 failed with .*Local"):
        run_cells([Local(1, str(tmp_path / "log"))], store, workers=1)


def test_a_program_without_a_guard_is_told(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), str(Path(fedgauss.__file__).parents[1])]!r}\n"
        "from counting_cells import sweep\n"
        f"sweep({str(tmp_path / 's')!r} + __name__, {str(tmp_path / 'log')!r}, 2, 0.0, 1)\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert 'Put the program\'s top level under `if __name__ == "__main__":`, or use workers=0.' in done.stderr


def test_a_full_disk_ends_the_sweep_with_everything_kept(tmp_path):
    cells = counted(300, tmp_path / "log")
    with Store(tmp_path / "s.sqlite") as store:
        store._connection.execute("PRAGMA max_page_count = 12")
        with pytest.raises(StoreError, match="must have room to grow"):
            run_cells(cells, store, workers=0)
    kept = finished(tmp_path, cells)
    assert len(kept) == len(runs(tmp_path / "log")) - 1
    with Store(tmp_path / "s.sqlite") as store:
        assert run_cells(cells, store, workers=0).found == len(kept) > 0


# --- what is shown ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "seconds", "left", "text"),
    [
        (0, 2.0, None, "starting"),
        (30, 10.0, 75.4, "3.0 a second, 1:15 left"),
        (1, 30.0, 3.0, "2.0 a minute, 0:03 left"),
    ],
)
def test_the_rate_and_the_time_left(run, seconds, left, text):
    assert _status(Summary(100, 0, run, seconds), left) == text


def test_the_bar_waits_before_it_shows_and_counts_cells(tmp_path, capsys, monkeypatch):
    with Store(tmp_path / "s") as store:
        run_cells(counted(2, tmp_path / "log"), store, workers=0, progress=True)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr("fedgauss.experiments.runner._PATIENCE", 0.0)
        monkeypatch.setenv("FORCE_COLOR", "1")
        run_cells(counted(5, tmp_path / "log", seconds=0.01), store, workers=0, progress=True)
    shown = capsys.readouterr().err
    assert "5/5" in shown
    assert "a second, 0:00 left" in shown


def test_a_summary_says_how_far_the_sweep_is():
    assert str(Summary(5, 2, 3, 1.84)) == "5 of 5 cells finished, 3 of them in these 1.8 s"
