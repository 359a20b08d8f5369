"""Sweeps on a Dask cluster: real processes on loopback, and the rows of local workers."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import fedgauss
from fedgauss.coverage import results as coverage
from fedgauss.coverage.federation import federations
from fedgauss.integrations import dask_cluster
from fedgauss.integrations.dask_cluster import on_dask
from fedgauss.paper import result as reproduction
from fedgauss.paper.result import catalogue, scale_named
from fedgauss.sweep.cell import cell_key
from fedgauss.sweep.run import SweepError, SweepInterrupted, run_cells
from fedgauss.sweep.store import Store
from sweep.counting_cells import Counted, Environment, counted, pids, runs

distributed = pytest.importorskip("distributed")
pickle = pytest.importorskip("distributed.protocol.pickle")

_PATH = os.pathsep.join([str(Path(fedgauss.__file__).parents[1]), str(Path(__file__).parents[1])])
# A cluster that knows nothing of us: more threads than local workers have, and another precision.
_ELSEWHERE = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "PJRT_NPROC": "2", "JAX_ENABLE_X64": "1"}


class Cluster:
    """A scheduler and its workers as processes on loopback; `end` ends every one of them."""

    def __init__(self, folder, path=_PATH):
        self.folder, self.path, self.processes, self.workers = folder, path, [], []
        self.file = folder / "scheduler.json"
        self.start("scheduler", "--port", "0", "--scheduler-file", str(self.file))

    def start(self, kind, *arguments):
        command = [sys.executable, "-m", "dask", kind, "--host", "127.0.0.1", "--no-dashboard", *arguments]
        with (self.folder / f"{kind}{len(self.processes)}.log").open("w") as log:
            environment = os.environ | _ELSEWHERE | {"PYTHONPATH": self.path}
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def bring_to(self, n_workers):
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < n_workers:
            own = str(self.folder / f"own{len(self.processes)}")
            options = ("--no-nanny", "--nthreads", "1", "--local-directory", own, "--scheduler-file", str(self.file))
            self.workers.append(self.start("worker", *options))

    @property
    def address(self):
        wait_until(self.file.exists)
        return json.loads(self.file.read_text())["address"]

    def end(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


@pytest.fixture(scope="module")
def one_cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield cluster
    finally:
        cluster.end()


@pytest.fixture
def cluster(one_cluster):
    """With two workers, whatever an earlier test has done to it."""
    one_cluster.bring_to(2)
    return one_cluster


def wait_until(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def lives(pid):
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def swept(path, cells, **how):
    with Store(path) as store:
        run_cells(cells, store, **how)
        return store.rows(dict)


def kept(path, cells):
    with Store(path) as store:
        return {cell.number for cell in cells if store.finished([cell_key(cell)])}


@pytest.mark.study
def test_rows_are_those_of_a_local_worker_bit_for_bit(cluster, tmp_path):
    """Catches workers that compute with the threads or the precision of their cluster."""
    cells = catalogue()["unequal_hessians"].cells(scale_named("quick"))[:3]
    there = swept(tmp_path / "dask", cells, executor=on_dask(cluster.address))
    assert there == swept(tmp_path / "local", cells, workers=1)
    assert len(there) > 2


@pytest.mark.study
def test_a_real_sweep_survives_a_killed_worker_bit_for_bit(cluster, tmp_path):
    results = [catalogue()[name] for name in ("error_budget", "phase_map", "unequal_hessians")]
    cells = [cell for result in results for cell in result.cells(scale_named("quick"))]
    killed = []

    def kill_one(summary):
        if summary.run == len(cells) // 2 and not killed:
            killed.append(cluster.workers[0])
            cluster.workers[0].kill()

    with Store(tmp_path / "dask") as store:
        assert run_cells(cells, store, on_tick=kill_one, executor=on_dask(cluster.address)).left == 0
        there = store.rows(dict)
    assert killed
    assert there == swept(tmp_path / "local", cells, workers=2)


def test_cells_run_in_the_environment_of_local_workers(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_TEST_OF_OURS", "here")
    names = [*_ELSEWHERE, "VECLIB_MAXIMUM_THREADS", "JAX_TEST_OF_OURS"]
    cells = [Environment(name) for name in names]
    with Store(tmp_path / "s") as store:
        run_cells(cells, store, executor=on_dask(cluster.address))
        found = {cell.name: store.rows(dict, [cell_key(cell)])[0]["value"] for cell in cells}
    threads = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PJRT_NPROC", "VECLIB_MAXIMUM_THREADS"], "1")
    assert found == {**threads, "JAX_ENABLE_X64": os.environ.get("JAX_ENABLE_X64"), "JAX_TEST_OF_OURS": "here"}


def test_a_worker_that_is_killed_loses_nothing(cluster, tmp_path):
    cells = counted(12, tmp_path / "log", seconds=0.25)
    killed = []

    def kill_one(summary):
        if summary.run >= 3 and not killed:
            child = next(pid for pid in pids(tmp_path / "log") if lives(pid))
            killed.extend([child, parent(child)])
            os.kill(parent(child), signal.SIGKILL)

    with Store(tmp_path / "dask") as store:
        summary = run_cells(cells, store, on_tick=kill_one, executor=on_dask(cluster.address))
        rows = store.rows(dict)
    assert summary.run == 12
    assert killed[1] in {worker.pid for worker in cluster.workers}
    wait_until(lambda: not lives(killed[0]), seconds=3.0)  # its child ends with it
    assert set(runs(tmp_path / "log")) == set(range(12))
    assert len(runs(tmp_path / "log")) <= 12 + 1  # finished cells are not run again
    assert rows == swept(tmp_path / "local", counted(12, tmp_path / "other"), workers=0)


def test_ctrl_c_ends_the_cells_that_are_out_and_the_same_call_goes_on(cluster, tmp_path):
    cells = counted(8, tmp_path / "log", seconds=0.2)
    cells[7] = replace(cells[7], seconds=60.0)
    cells = sorted(cells, key=lambda cell: -cell.seconds)

    def press(summary):
        if summary.run == 2:
            os.kill(os.getpid(), signal.SIGINT)

    began = time.monotonic()
    with Store(tmp_path / "s") as store, pytest.raises(SweepInterrupted) as stopped:
        run_cells(cells, store, on_tick=press, executor=on_dask(cluster.address))
    assert time.monotonic() - began < 30.0
    assert 2 <= stopped.value.summary.run == len(kept(tmp_path / "s", cells)) < 8
    assert stopped.value.summary.left == 8 - stopped.value.summary.run
    wait_until(lambda: not any(map(lives, pids(tmp_path / "log"))), seconds=5.0)
    cells[0] = replace(cells[0], seconds=0.0)  # the time a cell takes is not part of its identity
    with Store(tmp_path / "s") as store:
        assert run_cells(cells, store, executor=on_dask(cluster.address)).left == 0


@pytest.mark.parametrize(
    ("ending", "words", "tries"),
    [
        ("error", "cell 5 failed with ZeroDivisionError: no luck. Finished cells are kept", 1),
        pytest.param(
            *("kill", "cell 5 ended with ChildProcessError: the process that ran it ended with code -9.*kept", 3),
            marks=pytest.mark.study,
        ),
    ],
)
def test_a_cell_that_fails_is_named_and_the_others_kept(cluster, tmp_path, ending, words, tries):
    cells = counted(6, tmp_path / "log")
    cells[5] = replace(cells[5], ending=ending, seconds=0.3)
    with Store(tmp_path / "s") as store, pytest.raises(SweepError, match=words) as failed:
        run_cells(cells, store, executor=on_dask(cluster.address))
    assert failed.value.cell == cells[5]
    assert runs(tmp_path / "log").count(5) == tries
    assert failed.value.summary.run == len(kept(tmp_path / "s", cells)) >= 2


def test_a_cell_that_cannot_travel_is_named(cluster, tmp_path):
    class Local(Counted):
        pass

    with Store(tmp_path / "s") as store, pytest.raises(SweepError, match=r"cell 1 failed with .*Local"):
        run_cells([Local(1, str(tmp_path / "log"))], store, executor=on_dask(cluster.address))


def test_workers_with_other_versions_are_refused(cluster, tmp_path, monkeypatch):
    ours = {**dask_cluster.versions(), "numpy": "0.9"}
    monkeypatch.setattr(dask_cluster, "versions", lambda: ours)
    with Store(tmp_path / "s") as store, pytest.raises(SweepError, match=r"one has numpy \d\S* for 0\.9\. Finished"):
        run_cells(counted(1, tmp_path / "log"), store, executor=on_dask(cluster.address))
    assert runs(tmp_path / "log") == []


@pytest.fixture
def without_fedgauss(tmp_path):
    """A path on which fedgauss cannot be imported, even where it is installed."""
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / "fedgauss.py").write_text("raise ModuleNotFoundError(\"No module named 'fedgauss'\")")
    return str(folder)


def test_a_task_can_be_received_without_fedgauss(without_fedgauss):
    """Catches a function that travels as the name of its module: workers that cannot receive a task end themselves."""
    there = "import pickle, sys; task = pickle.load(sys.stdin.buffer); print('received', flush=True); task()"
    task = pickle.dumps(dask_cluster._by_value("run_cell"))
    environment = os.environ | {"PYTHONPATH": without_fedgauss}
    ended = subprocess.run([sys.executable, "-c", there], input=task, env=environment, capture_output=True)
    assert ended.stdout == b"received\n"
    assert b"No module named 'fedgauss'" in ended.stderr


@pytest.mark.study
def test_a_cluster_without_fedgauss_is_told_and_lives_on(tmp_path, without_fedgauss):
    cluster = Cluster(tmp_path, without_fedgauss)
    try:
        cluster.bring_to(1)
        with Store(tmp_path / "s") as store, pytest.raises(SweepError, match=r"must have fedgauss.*No module named"):
            run_cells(counted(2, tmp_path / "log"), store, executor=on_dask(cluster.address))
        with distributed.Client(cluster.address, set_as_default=False) as client:
            assert client.submit(sum, [1, 2]).result(timeout=10) == 3
        assert all(process.poll() is None for process in cluster.processes)
    finally:
        cluster.end()


@pytest.mark.study
def test_ctrl_c_ends_a_sweep_whose_scheduler_does_not_answer(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster, "_TIDY", 1.0)
    stuck = []

    def stop_scheduler(summary):
        if summary.run == 2 and not stuck:
            stuck.append(time.monotonic())
            cluster.processes[0].send_signal(signal.SIGSTOP)
            threading.Timer(4.0, os.kill, (os.getpid(), signal.SIGINT)).start()  # in a look at who works, by then

    try:
        with Store(tmp_path / "s") as store, pytest.raises(SweepInterrupted) as stopped:
            run_cells(
                counted(40, tmp_path / "log", 0.1), store, on_tick=stop_scheduler, executor=on_dask(cluster.address)
            )
    finally:
        cluster.processes[0].send_signal(signal.SIGCONT)
    assert time.monotonic() - stuck[0] < 4.0 + 2 * 1.0 + 3.0
    assert 2 <= stopped.value.summary.run < 40


@pytest.mark.study
def test_a_sweep_that_lost_all_workers_says_so_and_goes_on_with_another(cluster, tmp_path, monkeypatch):
    killed, said = [], []

    def kill_all_then_start_one(summary):
        if summary.run >= 2 and not killed:
            killed.extend(cluster.workers)
            for worker in killed:
                worker.kill()
                worker.wait()
        if said and cluster.workers == killed:
            cluster.bring_to(1)

    monkeypatch.setattr(dask_cluster, "_warn_of_waiting", said.append)
    address = cluster.address
    with Store(tmp_path / "s") as store:
        cells = counted(8, tmp_path / "log", seconds=0.3)
        assert run_cells(cells, store, on_tick=kill_all_then_start_one, executor=on_dask(address)).left == 0
    assert said == [address]
    monkeypatch.undo()
    with pytest.warns(fedgauss.FedgaussWarning, match=r"a cluster must have a worker; tcp://here .* the sweep waits"):
        dask_cluster._warn_of_waiting("tcp://here")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("nowhere", "missing port number"),
        ("http://127.0.0.1:1", "unknown address scheme"),
        ("tcp://127.0.0.1:1", "no answer in 0.5 s"),
        ("listener", "no answer in 0.5 s"),
    ],
)
def test_a_wrong_address_is_told_soon(tmp_path, monkeypatch, address, reason):
    monkeypatch.setattr(dask_cluster, "_CONNECT", 0.5)
    with socket.socket() as mute, Store(tmp_path / "s") as store:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}" if address == "listener" else address
        with pytest.raises(ValueError, match=f"scheduler must be the address .*{reason}.*dask scheduler"):
            run_cells(counted(1, tmp_path / "log"), store, executor=on_dask(address))


def test_a_finished_sweep_needs_no_cluster(tmp_path):
    cells = counted(2, tmp_path / "log")
    swept(tmp_path / "s", cells, workers=0)
    with Store(tmp_path / "s") as store:
        assert run_cells(cells, store, executor=on_dask("nowhere")).found == 2


def test_who_lacks_dask_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'fedgauss\[dask\]'"):
        on_dask("tcp://127.0.0.1:1")


def test_reproductions_and_coverage_pass_the_executor_on(tmp_path):
    def elsewhere(plan, ctrl_c):
        raise SweepError(f"{len(plan)} cells for elsewhere")
        yield

    with pytest.raises(SweepError, match="1 cells for elsewhere"):
        reproduction.measure([catalogue()["connection"]], scale_named("quick"), tmp_path, None, "", elsewhere)
    with pytest.raises(SweepError, match="2 cells for elsewhere"):
        coverage.measure(federations(n_steps=(50, 60), family=("linear",)), 20, 0, 0, tmp_path, None, "", elsewhere)


@pytest.mark.study
def test_a_cluster_without_workers_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster, "_FIRST_WORKER", 0.5)
    empty = Cluster(tmp_path)
    try:
        with Store(tmp_path / "s") as store, pytest.raises(ValueError, match="a cluster must have a worker"):
            run_cells(counted(1, tmp_path / "log"), store, executor=on_dask(empty.address))
    finally:
        empty.end()


@pytest.mark.study
def test_a_lost_scheduler_ends_the_sweep_with_everything_kept(tmp_path):
    cells = counted(40, tmp_path / "log", seconds=0.2)
    cluster = Cluster(tmp_path)

    def kill_scheduler(summary):
        if summary.run == 4:
            cluster.processes[0].kill()

    try:
        cluster.bring_to(2)
        with Store(tmp_path / "s") as store, pytest.raises(SweepError, match="kept: mend the cluster and run again"):
            run_cells(cells, store, on_tick=kill_scheduler, executor=on_dask(cluster.address))
    finally:
        cluster.end()
    assert len(kept(tmp_path / "s", cells)) >= 4
    wait_until(lambda: not any(map(lives, pids(tmp_path / "log"))), seconds=5.0)
