"""The smoke test of extras: each works where it is installed, and elsewhere an error says what to install."""

import logging
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}  # read when flwr is imported

COMMAND = Path(sysconfig.get_path("scripts")) / "fedgauss"
PEER = """
import sys
import numpy as np
from fedgauss.integrations.gossip import TorchLinks
rank, meeting = int(sys.argv[1]), sys.argv[2]
with TorchLinks(rank, 2, meeting) as links:
    print(links.exchange({1 - rank: np.full(3, 10.0 + rank)})[1 - rank][0])
"""


def verdicts():
    """A quiet round and an alarm."""
    from fedgauss.detect.verdict import Verdict

    quiet = Verdict(False, 1.5, 4.0, "mean", 1, 20, None, None, 0.05)
    return (1, quiet), (2, Verdict(True, 6.0, 4.0, "mean", 2, 40, 21, 1, 0.05))


def tell(sink):
    """Hand both rounds to a sink."""
    for number, verdict in verdicts():
        sink(number, verdict)


def use_frames(folder):
    """A fit of a pandas frame, and its table as one."""
    import fedgauss as fg

    rng = np.random.default_rng(1)
    columns = {"y": rng.normal(size=40), "x": rng.normal(size=40), "site": ["a", "b"] * 20}
    if find_spec("pandas") is None:
        fg.fit(columns, target="y", client="site", family="linear").to_frame()
    import pandas

    frame = fg.fit(pandas.DataFrame(columns), target="y", client="site", family="linear").to_frame()
    assert list(frame.index) == ["const", "x"]
    return f"to_frame has {len(frame)} rows"


def use_private(folder):
    """The noise that a budget takes."""
    from fedgauss.federated.privacy import Privacy

    multiplier = Privacy(1.0, 1e-6).multipliers({"score": 1.0})["score"]
    assert 4.2 < multiplier < 4.3, multiplier
    return f"epsilon 1 takes a noise multiplier of {multiplier:g}"


def use_flower(folder):
    """A Flower strategy whose two bad clients are named and left out."""
    from fedgauss.integrations.flower import Clients, Monitored

    logging.getLogger("flwr").setLevel(logging.ERROR)  # it prints every round
    watcher = Clients(horizon=30, seed=1)
    from flwr.serverapp.strategy import FedAvg
    from smoke_flower import Nodes, zeros

    strategy = Monitored(FedAvg(fraction_evaluate=0.0, min_available_nodes=10), watcher, on_alarm="exclude")
    strategy.start(Nodes(bad=(3, 8), after=18), zeros(), num_rounds=26)
    assert strategy.monitor.left_out == (2, 7), strategy.monitor.left_out  # clients count from 0, nodes here from 1
    return "clients 2 and 7 left out of FedAvg"


def use_gossip(folder):
    """Two peers, each a process, exchange what they have."""
    import fedgauss.integrations.gossip as gossip

    if find_spec("torch") is None:
        gossip.TorchLinks(0, 2, (folder / "nowhere").as_uri())
    program, meeting = folder / "peer.py", (folder / "meeting").as_uri()
    program.write_text(PEER)
    peers = [
        subprocess.Popen([sys.executable, program, str(rank), meeting], stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    try:
        said = [float(peer.communicate(timeout=120)[0]) for peer in peers]
    finally:
        for peer in peers:
            peer.kill()
            peer.wait()
    assert said == [11.0, 10.0], said
    return "two peers exchanged parameters"


def use_dask(folder):
    """One cell of the coverage laboratory on a cluster of one worker."""
    from fedgauss.integrations.dask_cluster import on_dask

    on_dask("tcp://127.0.0.1:1")  # connects later; without the package it raises
    from distributed import LocalCluster

    options = ["--runs", "20", "--steps", "100", "--family", "linear", "--clients", "4", "--engine", "dask"]
    with LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
        where = ["--scheduler", cluster.scheduler_address, "--out", str(folder / "dask")]
        done = subprocess.run([COMMAND, "coverage", *options, *where], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return "coverage ran on a cluster"


def use_mlflow(folder):
    """Metrics of a run in a file store of its own."""
    from fedgauss.integrations.sinks import mlflow

    if find_spec("mlflow") is None:
        mlflow()
    import mlflow as package

    package.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    with package.start_run() as run:
        tell(mlflow())
    metrics = package.get_run(run.info.run_id).data.metrics
    assert metrics["fedgauss.alarm"] == 1.0, metrics
    return f"{len(metrics)} metrics read back"


def use_tensorboard(folder):
    """An event file."""
    from fedgauss.integrations.sinks import tensorboard

    sink = tensorboard(folder / "events")
    tell(sink)
    sink.close()
    (written,) = (folder / "events").iterdir()
    assert b"fedgauss/statistic" in written.read_bytes()
    return "event file written"


def use_prometheus(folder):
    """Gauges in a registry of their own."""
    from fedgauss.integrations.sinks import prometheus

    if find_spec("prometheus_client") is None:
        prometheus()
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    tell(prometheus(registry))
    assert registry.get_sample_value("fedgauss_alarms_total") == 1.0
    return "gauges read back"


def use_opentelemetry(folder):
    """The API alone takes the rounds, and keeps nothing: what keeps them is the user's SDK."""
    from fedgauss.integrations.sinks import opentelemetry

    tell(opentelemetry())
    return "rounds taken by the API"


class Extra(NamedTuple):
    """The module that an extra brings, and what to do with it."""

    module: str
    use: Callable[[Path], str]


EXTRAS = {
    "frames": Extra("pandas", use_frames),
    "flower": Extra("flwr", use_flower),
    "gossip": Extra("torch", use_gossip),
    "private": Extra("dp_accounting", use_private),
    "dask": Extra("distributed", use_dask),
    "mlflow": Extra("mlflow", use_mlflow),
    "tensorboard": Extra("tensorboardX", use_tensorboard),
    "prometheus": Extra("prometheus_client", use_prometheus),
    "opentelemetry": Extra("opentelemetry.metrics", use_opentelemetry),
}


def _is_there(module):
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package above it
        return False


def check_extra(name: str, wanted: bool, folder: Path) -> str:
    """Use the extra, or see that its error names it where it is not installed."""
    extra = EXTRAS[name]
    if _is_there(extra.module):
        return extra.use(folder)
    assert not wanted, f"fedgauss[{name}] did not bring {extra.module}"
    said = ""
    try:
        extra.use(folder)
    except ImportError as error:
        said = " ".join(str(error).split())
    assert f"pip install 'fedgauss[{name}]'" in said, f"without {extra.module}: {said or 'no error'}"
    return f"not installed, and told so: {said.removesuffix('.')}"
