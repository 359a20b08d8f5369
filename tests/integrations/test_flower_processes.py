"""The example as Flower runs it: `flwr run` in a simulation, and a SuperLink with two SuperNodes as real processes.

Verdicts must be those of the in-process twin. Everything listens on 127.0.0.1, and whatever was started is ended by
its process id.
"""

import contextlib
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_grid import EXAMPLE, InProcessGrid, example_config
from flower_watch.client_app import app
from flower_watch.server_app import run, watched
from flwr.app import Array, ArrayRecord

BIN = Path(sys.executable).parent
SRC = Path(__file__).parents[2] / "src"
PATIENCE = 900  # seconds for one run; SuperNodes need 12 a round, and 30 on a busy machine


def descendants(pid):
    """Ids of the processes below this one."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    found, level = [], {pid}
    while level:
        level = {child for child, parent in pairs if parent in level}
        found += sorted(level)
    return found


def end(process):
    """End a process and those it started, by their ids."""
    below = descendants(process.pid)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=10)
    for pid in [process.pid, *below]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    process.wait(timeout=10)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Flower:
    """A SuperLink of our own, and runs that are sent to it."""

    def __init__(self, folder, *options):
        self.folder, self.port = folder, free_port()
        self.app = folder / "app"
        shutil.copytree(EXAMPLE, self.app, ignore=shutil.ignore_patterns("__pycache__"))
        self.env = os.environ | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(SRC),
            "OMP_NUM_THREADS": "1",
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        (folder / "home").mkdir()
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        self.processes = []
        self.begin(
            "flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(self.port), *options,
        )  # fmt: skip
        self.wait_for(self.port)

    def begin(self, name, *options):
        log = (self.folder / f"{name}-{len(self.processes)}.log").open("w")
        command = [str(BIN / name), *options]
        self.processes.append(
            subprocess.Popen(command, env=self.env, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT)
        )
        log.close()

    def wait_for(self, port, seconds=90):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            assert self.processes[-1].poll() is None, "the SuperLink ended"
            time.sleep(0.2)
        raise AssertionError(f"nobody listens on port {port} after {seconds} s")

    def run(self, config, *options):
        """What the server application wrote down."""
        output = self.folder / f"outcome-{time.monotonic_ns()}.json"
        given = example_config()
        changes = {name: value for name, value in config.items() if given[name] != value} | {"output": str(output)}
        words = " ".join(f"{k}={json.dumps(v)}" for k, v in changes.items())
        command = [str(BIN / "flwr"), "run", str(self.app), "here", "--stream", "--run-config", words, *options]
        log = (self.folder / "run.log").open("a")
        process = subprocess.Popen(command, env=self.env, stdout=log, stderr=subprocess.STDOUT)
        try:
            process.wait(timeout=PATIENCE)
        finally:
            end(process)
            log.close()
        assert output.exists(), (self.folder / "run.log").read_text()[-3000:]
        return json.loads(output.read_text())

    def close(self):
        for process in reversed(self.processes):
            end(process)


@contextlib.contextmanager
def flower(folder, *options):
    found = None
    try:
        found = Flower(folder, *options)
        yield found
    finally:
        if found is not None:
            found.close()


def twin(config):
    return run(InProcessGrid(app, config["n-clients"], config), config)


def same(found, expected):
    assert expected["alarm_round"] is not None
    for name in ("alarm_round", "onset", "predicted_round"):
        assert found[name] == expected[name]
    assert list(found["verdicts"]) == [str(r) for r in expected["verdicts"]]
    for r, verdict in expected["verdicts"].items():
        np.testing.assert_allclose(found["verdicts"][str(r)], verdict, rtol=1e-6)
    assert found["participation"] == {str(r): list(who) for r, who in expected["participation"].items()}


def hooks(config, rounds):
    """Seconds that the strategy's hooks take in each round, on the in-process grid."""
    random.seed(0)
    strategy, spent = watched(config), {}

    def timed(name):
        method = getattr(strategy, name)

        def call(server_round, *rest):
            begin = time.thread_time()  # other processes on the machine do not count
            result = method(server_round, *rest)
            spent[server_round] = spent.get(server_round, 0.0) + time.thread_time() - begin
            return result

        setattr(strategy, name, call)

    for name in ("configure_train", "aggregate_train"):
        timed(name)
    start = ArrayRecord({"weight": Array(np.zeros((1, 3)))})
    strategy.start(InProcessGrid(app, config["n-clients"], config), start, num_rounds=rounds)
    return statistics.median(spent.values())


@pytest.mark.study
def test_flwr_run_gives_the_verdicts_of_the_grid_and_the_hooks_take_at_most_5_per_cent_of_a_round(tmp_path):
    """The median round of `flwr run` is a poll, of a tenth of a second or two of them, so that two medians differ by
    nothing or by half. What is asserted is the time of the hooks alone, against that median; both medians are printed.
    They have differed by 3.4 to 5.8 % where no poll came between: that a round grows by 5 % at most is not shown."""
    pytest.importorskip("ray")
    size = ("--federation-config", "num-supernodes=10 client-resources-num-cpus=1")
    attacked, honest = example_config(), example_config(n_rounds=60, attack_after=60)
    unwatched = honest | {"watch": "nothing"}
    with flower(tmp_path, "--simulation", "--isolation", "subprocess") as link:
        same(link.run(attacked, *size), twin(attacked))
        medians = {c["watch"]: statistics.median(link.run(c, *size)["seconds"]) for c in (unwatched, honest)}
    cost = hooks(honest, 60) - hooks(unwatched, 60)
    print(f"median rounds {medians}, monitoring {1e3 * cost:.2f} ms")
    assert cost <= 0.05 * medians["nothing"]


@pytest.mark.study
def test_two_supernodes_give_the_verdicts_of_the_grid(tmp_path):
    config = example_config(
        n_clients=2, n_rounds=12, warm_start=2, attack_after=8, attackers="1", shift=2.0, on_alarm="go on"
    )
    with flower(tmp_path) as link:
        for k in range(2):
            link.begin(
                "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{link.port}", "--host", "127.0.0.1",
                "--port", str(free_port()), "--node-config", f"partition-id={k} num-partitions=2",
            )  # fmt: skip
        same(link.run(config), twin(config))
