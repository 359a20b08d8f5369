"""Sweeps end in every way a sweep can end, and lose nothing that finished."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest
from counting_cells import Costly, Counted, Environment, counted, pids, runs

import fedgauss
from fedgauss.sweep.cell import Plan, cell_key
from fedgauss.sweep.run import Summary, SweepError, SweepInterrupted, run_cells, status
from fedgauss.sweep.store import Store, StoreError


def swept(tmp_path, cells, workers):
    """The rows of an uninterrupted sweep, in a store of its own."""
    with Store(tmp_path / "reference.sqlite") as store:
        run_cells(cells, store, workers)
        return store.rows(dict)


def start_sweep(tmp_path, n_cells, seconds, workers=2):
    """A sweep in a session of its own, as far as the call of `run_cells`."""
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
    assert process.stdout.readline() == "begun\n"
    return process


def wait_until(true, seconds=15.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def living(session):
    """The processes of a session that have not ended."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            state, _, _, its_session = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:4]
            if state not in "ZX" and int(its_session) == session:
                found.add(int(folder.name))
    return found


def press():
    """Ctrl-C, for this process alone."""
    os.kill(os.getpid(), signal.SIGINT)


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


def test_workers_have_one_thread_and_this_process_keeps_its_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    before = dict(os.environ)
    with Store(tmp_path / "s") as store:
        run_cells([Environment("OPENBLAS_NUM_THREADS")], store, workers=1)
        assert store.rows(dict) == [{"value": "1"}]
    assert dict(os.environ) == before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_sweep_brings_in_nothing_heavy():
    program = (
        "import sys, fedgauss; before = set(sys.modules); from fedgauss.sweep.run import run_cells\n"
        "print({'jax', 'matplotlib', 'networkx', 'pandas', 'rich'} & set(sys.modules))\n"
        "print({name for name in set(sys.modules) - before if name.startswith('scipy')})"
    )
    source = Path(fedgauss.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", program], cwd=source, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\nset()\n", "")


@pytest.mark.parametrize(("usable", "count"), [(1, 1), (3, 3), (64, 8)])
def test_a_worker_for_each_usable_cpu_up_to_eight(tmp_path, monkeypatch, usable, count):
    asked = []

    def run_in_workers(plan, count, ctrl_c):
        asked.append(count)
        yield from ()

    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(usable)))
    monkeypatch.setattr("fedgauss.sweep.run.run_in_workers", run_in_workers)
    with Store(tmp_path / "s") as store:
        run_cells([], store)
    assert asked == [count]


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


def test_the_last_cell_of_a_group_is_left_to_who_began_it():
    """Another worker would compile the group's program again for one cell. Catches a plan that then never ends, too."""
    plan = Plan([Costly("a", 2.0), Costly("a", 1.0)])
    assert plan.take(0).cost == 2.0
    assert plan.take(1) is None
    assert len(plan) == 1
    assert plan.take(0).cost == 1.0
    assert len(plan) == 0


# --- sweeps that end early -------------------------------------------------------------------------------------------


def test_kill_9_loses_and_repeats_nothing(tmp_path):
    cells = counted(30, tmp_path / "log")
    process = start_sweep(tmp_path, len(cells), seconds=0.15)
    wait_until(lambda: len(runs(tmp_path / "log")) >= 4)
    process.kill()
    process.communicate()
    wait_until(lambda: not living(process.pid), seconds=3.0)
    kept, before = finished(tmp_path, cells), Counter(runs(tmp_path / "log"))
    assert 0 < len(kept) < len(cells)
    with Store(tmp_path / "s.sqlite") as store:
        summary = run_cells(cells, store, workers=2)
        assert (summary.found, summary.left) == (len(kept), 0)
        again = Counter(runs(tmp_path / "log")) - before
        assert again == Counter(set(range(30)) - kept)
        assert store.rows(dict) == swept(tmp_path, cells, workers=0)


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
    assert not multiprocessing.active_children()
    if ending == "error" and workers:
        assert "in run\n" in failed.value.__notes__[0]


def test_a_frozen_worker_is_given_up_and_long_cells_are_not(tmp_path, monkeypatch):
    """Catches a sweep that waits for ever, and one that takes a cell of some seconds for frozen."""
    monkeypatch.setattr("fedgauss.sweep.workers._PATIENCE", 2.0)
    cells = counted(6, tmp_path / "log")
    cells[0], cells[5] = replace(cells[0], seconds=4.0), replace(cells[5], ending="freeze")
    words = r"the one that runs cell 5 \(process \d+\) has stood still for 2 seconds.* Finished cells are kept"
    began = time.monotonic()
    with Store(tmp_path / "s.sqlite") as store:
        assert run_cells(cells[:2], store, workers=2).run == 2
        with pytest.raises(SweepError, match=words) as failed:
            run_cells(cells, store, workers=2)
    assert failed.value.cell == cells[5]
    assert {0, 1} <= finished(tmp_path, cells) <= set(range(5))
    assert not multiprocessing.active_children()
    assert time.monotonic() - began < 60.0


def test_a_worker_that_freezes_as_it_starts_is_given_up(tmp_path, monkeypatch):
    start = SpawnProcess.start

    def start_and_stop(process):
        start(process)
        os.kill(process.pid, signal.SIGSTOP)

    monkeypatch.setattr(SpawnProcess, "start", start_and_stop)
    monkeypatch.setattr("fedgauss.sweep.workers._STARTING", 2.0)
    with Store(tmp_path / "s") as store, pytest.raises(SweepError, match=r"one that starts .* for 2 seconds"):
        run_cells(counted(2, tmp_path / "log"), store, workers=1)
    assert not multiprocessing.active_children()


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


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("max_page_count = 1", "a store must have room to grow"),  # a full disk: no page beyond those in use
        ("query_only = ON", "a store must be a file that can be written to"),
    ],
)
def test_a_store_that_cannot_grow_ends_the_sweep_with_everything_kept(tmp_path, trouble, words, workers):
    def strike(summary):
        if summary.run == 2:
            store._connection.execute(f"PRAGMA {trouble}")

    cells = counted(100, tmp_path / "log")
    with Store(tmp_path / "s.sqlite") as store, pytest.raises(StoreError, match=words):
        run_cells(cells, store, workers, on_tick=strike)
    assert not multiprocessing.active_children()
    kept, before = finished(tmp_path, cells), Counter(runs(tmp_path / "log"))
    assert 2 <= len(kept) < 100
    with Store(tmp_path / "s.sqlite") as store:
        assert run_cells(cells, store, workers=0).found == len(kept)
    assert Counter(runs(tmp_path / "log")) - before == Counter(set(range(100)) - kept)


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------


def interrupted(process):
    """Press Ctrl-C in the terminal of a sweep, which tells the whole group; the counts that it ends with."""
    pressed = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate()
    assert time.monotonic() - pressed < 1.0
    assert (process.returncode, err) == (130, "")
    wait_until(lambda: not living(process.pid), seconds=1.0)
    _, run, _, left = out.split()
    return int(run), int(left)


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_stops_in_the_middle_of_a_cell_and_says_how_far_it_came(tmp_path, workers):
    cells = counted(40, tmp_path / "log")
    process = start_sweep(tmp_path, len(cells), seconds=0.3, workers=workers)
    wait_until(lambda: len(runs(tmp_path / "log")) >= 4)
    run, left = interrupted(process)
    assert 0 < run < 40
    assert (run, left) == (len(finished(tmp_path, cells)), 40 - run)


@pytest.mark.parametrize("seconds", [0.03, 0.6, *(pytest.param(at, marks=pytest.mark.study) for at in (0.0, 0.2, 1.0))])
def test_ctrl_c_at_any_moment_loses_nothing(tmp_path, seconds):
    cells = counted(200, tmp_path / "log")
    process = start_sweep(tmp_path, len(cells), seconds=0.02)
    time.sleep(seconds)  # workers take about half a second to start
    run, left = interrupted(process)
    kept, before = finished(tmp_path, cells), Counter(runs(tmp_path / "log"))
    assert (run, left) == (len(kept), 200 - len(kept))
    with Store(tmp_path / "s.sqlite") as store:
        run_cells(cells, store, workers=0)
        assert Counter(runs(tmp_path / "log")) - before == Counter(set(range(200)) - kept)
        assert store.rows(dict) == swept(tmp_path, cells, workers=0)


def test_ctrl_c_while_workers_start(tmp_path, monkeypatch):
    start, started = SpawnProcess.start, []

    def start_and_press(process):
        press()
        start(process)
        started.append(process.pid)
        press()

    monkeypatch.setattr(SpawnProcess, "start", start_and_press)
    with Store(tmp_path / "s") as store, pytest.raises(SweepInterrupted) as stopped:
        run_cells(counted(4, tmp_path / "log"), store, workers=2)
    assert (stopped.value.summary.run, stopped.value.summary.left) == (0, 4)
    assert len(started) == 2
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(("workers", "n_cells"), [(0, 1), (0, 4), (2, 4)])
def test_ctrl_c_while_a_cell_is_written(tmp_path, workers, n_cells):
    class Pressed(Store):
        def add(self, *finished):
            press()
            super().add(*finished)
            press()

    cells = counted(n_cells, tmp_path / "log")
    with Pressed(tmp_path / "s.sqlite") as store, pytest.raises(SweepInterrupted) as stopped:
        run_cells(cells, store, workers)
    # Both workers may have finished by then, and what has come is kept.
    assert 1 <= stopped.value.summary.run == len(finished(tmp_path, cells)) <= max(workers, 1)
    assert not multiprocessing.active_children()


def test_ctrl_c_again_while_workers_end(tmp_path, monkeypatch):
    kill = SpawnProcess.kill

    def press_and_kill(process):
        press()
        kill(process)
        press()

    monkeypatch.setattr(SpawnProcess, "kill", press_and_kill)
    with Store(tmp_path / "s") as store, pytest.raises(SweepInterrupted):
        run_cells(counted(4, tmp_path / "log"), store, workers=2, on_tick=lambda summary: press())
    assert not multiprocessing.active_children()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_carries_the_counts(tmp_path):
    def interrupt(summary):
        if summary.run == 2:
            raise KeyboardInterrupt

    cells = counted(6, tmp_path / "log", seconds=0.05)
    with Store(tmp_path / "s.sqlite") as store, pytest.raises(SweepInterrupted) as stopped:
        run_cells(cells, store, workers=2, on_tick=interrupt)
    assert (stopped.value.summary.run, stopped.value.summary.left) == (2, 4)
    assert len(finished(tmp_path, cells)) == 2
    assert not multiprocessing.active_children()


def test_a_callers_own_handler_stays(tmp_path):
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append("Ctrl-C"))
    try:
        with Store(tmp_path / "s") as store:
            assert run_cells(counted(2, tmp_path / "log"), store, 0, on_tick=lambda summary: press()).run == 2
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == ["Ctrl-C", "Ctrl-C"]


def test_a_sweep_runs_in_any_thread(tmp_path):
    thread = threading.Thread(target=swept, args=(tmp_path, counted(2, tmp_path / "log"), 1))
    thread.start()
    thread.join()
    assert sorted(runs(tmp_path / "log")) == [0, 1]


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
    assert status(Summary(100, 0, run, seconds), left) == text


def test_the_bar_waits_before_it_shows_and_counts_cells(tmp_path, capsys, monkeypatch):
    with Store(tmp_path / "s") as store:
        run_cells(counted(2, tmp_path / "log"), store, workers=0, progress=True)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr("fedgauss._progress._PATIENCE", 0.0)
        monkeypatch.setenv("FORCE_COLOR", "1")
        run_cells(counted(5, tmp_path / "log", seconds=0.01), store, workers=0, progress=True)
    shown = capsys.readouterr().err
    assert "5/5" in shown
    assert "a second, 0:00 left" in shown


def test_a_summary_says_how_far_the_sweep_is():
    assert str(Summary(5, 2, 3, 1.84)) == "5 of 5 cells finished, 3 of them in these 1.8 s"
