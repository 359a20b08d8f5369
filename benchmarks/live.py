"""How fast `fedgauss watch` follows a log, what it holds in memory, and what a save costs.

    python benchmarks/live.py                    # a million rounds of two parameters, a thousand of ten clients
    python benchmarks/live.py --rounds 100000

Seconds belong to a machine: compare rows of one run. CPU seconds are printed beside wall seconds, for busy machines.
"""

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import fedgauss as fg
from fedgauss.integrations.live.command import batches
from fedgauss.integrations.live.lines import line_from_json
from fedgauss.integrations.live.logs import LineLog
from fedgauss.integrations.live.run import Run
from fedgauss.integrations.live.saving import SaveFile
from fedgauss.integrations.live.state import state_of
from fedgauss.integrations.sinks import client_log

TAU, ETA0, BETA, CLIENTS = 20, 0.3, 0.75, 6


def monitor() -> fg.Monitor:
    """Of two parameters and six clients."""
    each = np.stack([np.eye(2)] * CLIENTS)
    lin = fg.linearization(each, 4.0 * each, optimum=np.zeros(2), gradients=np.zeros((CLIENTS, 2)))
    return fg.Monitor(lin, fg.step_sizes.polynomial(ETA0, BETA), TAU, start=np.zeros(2))


def path(rounds: int) -> Iterator[list[float]]:
    """Y after each round of the linearised mean: P_j Y + the noise of its steps, whose variance is known."""
    rng, y, t = np.random.default_rng(0), np.zeros(2), np.arange(1.0, TAU + 1.0)
    for j in range(rounds):
        eta = ETA0 * (t + TAU * j) ** -BETA
        later = np.append(np.cumprod(1.0 - eta[:0:-1])[::-1], 1.0)
        y = later[0] * (1.0 - eta[0]) * y + np.sqrt(4.0 / CLIENTS * np.sum((eta * later) ** 2)) * rng.normal(size=2)
        yield y.tolist()


@contextmanager
def timed(name: str, rounds: int) -> Iterator[None]:
    """Print how many rounds a second, and the memory of the process."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 2**20)
    print(f"{name:<52}{rounds / wall:>12,.0f}{rounds / cpu:>12,.0f}{memory:>8,.0f}", flush=True)


def follow(log: Path, run: Run) -> Run:
    """As the command does."""
    for lines in batches(LineLog(log, line_from_json, run.goes_on).poll()):
        for _ in run.take_many(lines):
            pass
    return run


def clients_logged(log: Path, rounds: int) -> None:
    """What `client_log` writes of ten clients."""
    rng = np.random.default_rng(0)
    own, watched = rng.normal(size=(10, 40)), fg.ClientMonitor(horizon=10**6, seed=1)
    sink = client_log(log, watched)
    for _ in range(rounds):
        verdict = watched.update({f"clinic {k}": own[k] + 0.5 * rng.normal(size=40) for k in range(10)})
        sink(verdict.round, verdict)
    sink.close()


def page(run: Run) -> None:
    """What a page loads."""
    began = time.perf_counter()
    state: dict[str, Any] = state_of(run)
    size = len(json.dumps(state))
    print(f"  the page's state: {len(state['rows']):,} rows, {size / 1e6:.2f} MB, {time.perf_counter() - began:.3f} s")


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1_000_000)
    parser.add_argument("--client-rounds", type=int, default=1_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log, few = Path(folder, "run.jsonl"), given.client_rounds
        with log.open("w") as file:
            for j, y in enumerate(path(given.rounds), start=1):
                file.write(json.dumps({"round": j, "parameters": y}) + "\n")
        print(f"{'':<52}{'rounds / s':>12}{'by CPU':>12}{'MB':>8}")
        with timed("a log of parameters (d = 2)", given.rounds):
            run = follow(log, Run(monitor()))
        page(run)
        with timed("the same, one round at a time", few):
            alone = Run(monitor())
            for line in islice(LineLog(log, line_from_json).poll(), few):
                if not isinstance(line, ValueError):
                    alone.take(line)
        with timed("the same, judged in an earlier session", given.rounds):
            again = follow(log, Run(run.monitor))
        page(again)
        told = Path(folder, "told.jsonl")
        with told.open("w") as file:
            for j, y in enumerate(path(few), start=1):
                uploads = {str(k): y for k in range(CLIENTS)}
                file.write(json.dumps({"round": j, "parameters": y, "clients": uploads}) + "\n")
        with timed("with what six clients uploaded, one round at a time", few):
            follow(told, Run(monitor()))
        of_clients = Path(folder, "clients.jsonl")
        clients_logged(of_clients, few)
        with timed("a log of ten clients of any model", few):
            watched = follow(of_clients, Run(fg.ClientMonitor()))
        with timed("the same, judged in an earlier session", few):
            page(follow(of_clients, Run(watched.monitor)))
        save_file, posted = SaveFile(Path(folder, "watch.db"), posted=True), Run(monitor())
        posted.take_up(save_file)
        lines = [json.dumps({"round": j, "parameters": y}).encode() for j, y in enumerate(path(few), start=1)]
        with timed("POSTed rounds, judged and on disk", few):
            for text in lines:
                posted.take_json(text)
        save_file.close()
        with timed("the monitor saved whole", 50):
            for _ in range(50):
                run.monitor.save(os.path.join(folder, "monitor.npz"))


if __name__ == "__main__":
    main()
