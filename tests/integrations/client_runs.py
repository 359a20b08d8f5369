"""Ten clients of a small model as a log would show them; two turn round."""

import json

import numpy as np

import fedgauss as fg
from fedgauss.integrations.sinks import client_log

NAMES = tuple(f"hospital {k}" for k in range(10))


def rounds(count, dim=40, bad=(2, 7), onset=31, seed=0, names=NAMES, absent=0.1):
    """What clients changed, by name; some are absent, and the last client joins in round 6."""
    rng = np.random.default_rng(seed)
    own, common = rng.normal(size=(len(names), dim)), rng.normal(size=dim)
    for number in range(1, count + 1):
        moves = 0.95**number * common + own + 0.5 * rng.normal(size=own.shape)
        if number >= onset:
            moves[list(bad)] *= -1
        here = rng.random(len(names)) >= absent
        here[-1] &= number > 5
        yield {name: move for name, move, there in zip(names, moves, here, strict=True) if there}


def logged(path, seen, act=True, monitor=None):
    """The verdicts of a monitor in the run, which writes its log; with `act` it leaves out whom it names."""
    monitor = fg.ClientMonitor(horizon=60, seed=1) if monitor is None else monitor
    log, verdicts = client_log(path, monitor), []
    for moves in seen:
        verdicts.append(monitor.update({name: u for name, u in moves.items() if name not in monitor.left_out}))
        log(verdicts[-1].round, verdicts[-1])
        log.add(accuracy=1 - 1 / verdicts[-1].round)
        if verdicts[-1].alarm and act:
            monitor.exclude()
    log.close()
    return verdicts


def line(number, moves, **more):
    moves = {name: list(move) for name, move in moves.items()}
    return json.dumps({"round": number, "moves": moves, **more}).encode()


def held(monitor):
    """Everything a client monitor holds."""
    arrays = {**monitor._watch.state(), "directions": monitor._directions.table}
    words = repr((monitor.round, monitor.clients, monitor.exclusions, monitor.alarm, monitor._dim))
    return words, {name: array.tobytes() for name, array in arrays.items()}
