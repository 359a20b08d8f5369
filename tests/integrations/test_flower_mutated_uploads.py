"""Mutated uploads of Flower's clients: refused in words, or taken for what they say; no verdict is NaN.

In every round one to three clients send other bytes, shapes, types, names, numbers, metrics or records; the run goes
on. A round that is refused leaves model and monitor as they were; but what only the strategy cannot use, such as other
metrics than most have, `Clients` has judged before. Memory does not grow by more than 50 MB.
"""

import logging
import math
import random

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid, example_config, example_lin
from flower_watch.client_app import app
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg

import fedgauss as fg
from fedgauss.integrations.flower import Clients, Monitored
from memory_used import highest_memory

HOW_MANY = pytest.mark.parametrize("how_many", [60, pytest.param(10_000, marks=pytest.mark.study)])
CONFIG = example_config(n_rounds=20, attack_after=20, watch="reports")
N, TAU = CONFIG["n-clients"], CONFIG["local-steps"]
LIN = example_lin(CONFIG)
NUMBERS = [math.nan, math.inf, -math.inf, 1e30, -1e30, 1e101, 1e300, 1e-300, 0.0, 5.0]
VALUES = [0, -1, 3, 2**62, 1.5, math.nan, math.inf, 1e308, [], [1, 2], [math.nan], [1e308] * 3, [0.0] * 100]
TYPES = ["<f8", ">f8", "<f4", "<f2", "<i8", "|b1", "<c16", "|O", "<U3", "|V8", "nonsense"]


def mutated_array(rng, array):
    kind, numbers = rng.integers(9), array.numpy().copy()
    if kind == 0:
        data = bytearray(array.data)
        for place in rng.integers(len(data), size=rng.integers(1, 4)):
            data[place] ^= int(rng.integers(1, 256))
        return Array(array.dtype, array.shape, array.stype, bytes(data))
    if kind == 1:
        return Array(array.dtype, array.shape, array.stype, array.data[: rng.integers(len(array.data))])
    if kind == 2:
        other = str(rng.choice(TYPES))[:3].encode().ljust(3)
        said = array.data[:8] + array.data[8:].replace(b"<f8", other, 1)
        return Array(str(rng.choice(TYPES)), array.shape, array.stype, said)
    if kind == 3:
        claimed = tuple(rng.integers(-3, 10**6, size=rng.integers(0, 4)).tolist())
        return Array(array.dtype, claimed, array.stype, array.data)
    if kind == 4:
        return Array(array.dtype, array.shape, "pickle", array.data)
    if kind == 5:
        return Array(array.data and numbers.reshape(-1)[: rng.integers(0, 4)])
    if kind == 6:
        return Array(numbers.astype(rng.choice(["f4", "f2", "i8", "u1", "?", "U3", "c16"])))
    if kind == 7:
        return Array(np.zeros(rng.integers(0, 300_000)))
    numbers.flat[rng.integers(numbers.size)] = rng.choice(NUMBERS)
    return Array(numbers)


def mutated(rng, reply):
    """A reply with one thing changed, or none at all."""
    if not reply.has_content():
        return reply
    content, kind = reply.content, rng.integers(10)
    names = list(content.array_records)
    if kind == 0:
        return None
    if kind <= 5 and names:
        record = dict(content[names[0]].items())
        name = str(rng.choice(list(record)))
        if kind == 1:
            other = str(rng.choice(["x", "", "\x1b[31m", name + " "]))
            record[other] = record.pop(name) if rng.random() < 0.5 else record[name]
        elif kind == 2:
            del record[name]
        else:
            record[name] = mutated_array(rng, record[name])
        content[names[0]] = ArrayRecord(record)
    elif kind == 6:
        del content[str(rng.choice(list(content)))]
    elif kind == 7:
        content["more"] = ArrayRecord({"weight": Array(np.zeros(3))})
    elif kind == 8:
        key = str(rng.choice(["num-examples", "loss", "more"]))
        content["metrics"] = MetricRecord({"num-examples": 400, key: VALUES[rng.integers(len(VALUES))]})
    else:
        key = str(rng.choice(["partition", "hessian", "noise", "reason", "x"]))
        content["fedgauss"] = ConfigRecord({key: VALUES[rng.integers(len(VALUES))]})
    return reply


def state(monitor):
    words, arrays = monitor.state()
    return repr(words), {name: array.tobytes() for name, array in arrays.items()}


def of_the_model():
    return fg.Monitor(LIN, fg.step_sizes.constant(CONFIG["rate"]), TAU, horizon=500)


@HOW_MANY
@pytest.mark.parametrize("watcher", [of_the_model, lambda: Clients(horizon=40, seed=1)], ids=["model", "clients"])
def test_mutated_uploads_are_refused_or_taken_and_the_run_goes_on(watcher, how_many, caplog):
    caplog.set_level(logging.CRITICAL, logger="flwr")  # what is logged would be kept until the end
    rng, count, refused, before = np.random.default_rng(16), 0, 0, None
    while count < how_many:
        chosen = {}

        def tamper(reply, partition, server_round, chosen=chosen):
            nonlocal count
            if not reply.metadata.message_type.startswith("train"):
                return reply
            if server_round not in chosen:
                chosen[server_round] = set(rng.choice(N, size=rng.integers(1, 4), replace=False).tolist())
            if partition not in chosen[server_round]:
                return reply
            count += 1
            return mutated(rng, reply)

        random.seed(count)  # Flower samples its nodes with it
        path, states = {}, {}
        inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=N, min_available_nodes=N)
        strategy = Monitored(inner, watcher(), on_alarm=lambda alarm: None)

        def after_each(server_round, arrays, strategy=strategy, path=path, states=states):
            path[server_round] = arrays["weight"].numpy().tobytes()
            states[server_round] = None if strategy.monitor is None else state(strategy.monitor)

        first = ArrayRecord({"weight": Array(np.zeros((1, 3)))})
        strategy.start(InProcessGrid(app, N, CONFIG, tamper), first, num_rounds=20, evaluate_fn=after_each)
        for number, verdict in strategy.verdicts.items():
            assert not math.isnan(verdict.statistic)
            assert str(verdict).isprintable()
            if verdict.invalid:
                refused += 1
                assert path[number] == path[number - 1]
                judged = isinstance(strategy.monitor, fg.ClientMonitor) and "The strategy cannot use" in verdict.note
                assert judged or states[number] == states[number - 1]
        assert np.isfinite(np.frombuffer(path[20])).all()
        before = highest_memory(reset=True) if before is None else before  # after what is imported and compiled once
    grown = highest_memory() - before
    print(f"\n{count} uploads: {refused} rounds refused, {grown:.1f} MB more")
    assert refused > 0.2 * how_many / 2
    assert grown < 50
