"""The first chapter: three clients turn bad while a network learns, and the run goes on without them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauss._progress import Tick
from fedgauss.demo.digits_task import DigitsTask
from fedgauss.detect.clients.monitor import ClientMonitor
from fedgauss.detect.clients.verdict import ClientVerdict

ROUNDS, TURNED = 60, 31  # the last round, and the first bad one
BAD = ("Cork", "Ghent", "Izmir")
_LAST = 10  # rounds over which accuracy is averaged: under an attack it leaps


@dataclass(frozen=True)
class Training:
    """A run of 60 rounds.

    accuracy   after each round, that of the start first; (61,)
    verdicts   what the monitor said of each round; none where nobody watched
    """

    accuracy: tuple[float, ...]
    verdicts: tuple[ClientVerdict, ...] = ()

    @property
    def alarms(self) -> list[ClientVerdict]:
        """The verdicts with an alarm; after each the run went on without its suspects."""
        return [verdict for verdict in self.verdicts if verdict.alarm]

    @property
    def final(self) -> float:
        """The mean accuracy of the last ten rounds."""
        return float(np.mean(self.accuracy[-_LAST:]))


@dataclass(frozen=True)
class Healing:
    """The same clients and batches four times.

    protected     three clients turn bad, and a monitor watches
    unprotected   they turn bad, and nobody watches
    without       they never take part
    honest        nobody turns bad, and a monitor watches
    monitor       that of the protected run, at its end
    """

    protected: Training
    unprotected: Training
    without: Training
    honest: Training
    monitor: ClientMonitor

    @property
    def named(self) -> tuple[str, ...]:
        """All clients that were left out of the protected run, in alphabetical order."""
        return tuple(sorted({str(name) for alarm in self.protected.alarms for name in alarm.suspects}))


def heal(seed: int, tick: Tick = lambda what, done, total: None) -> Healing:
    """Train four times over the same images and batches.

    Parameters
    ----------
    seed : int
        Fixes every random number.
    tick : callable
        Called as tick(what, done, total) to report progress.
    """
    tick("training", 0, 4)
    task = DigitsTask(seed)
    monitor = ClientMonitor(horizon=ROUNDS, seed=0)
    protected = train(task, BAD, monitor)
    tick("training", 1, 4)
    unprotected = train(task, BAD)
    tick("training", 2, 4)
    without = train(task, absent=BAD)
    tick("training", 3, 4)
    honest = train(task, monitor=ClientMonitor(horizon=ROUNDS, seed=0))
    tick("training", 4, 4)
    return Healing(protected, unprotected, without, honest, monitor)


def train(
    task: DigitsTask, bad: Collection[str] = (), monitor: ClientMonitor | None = None, absent: Collection[str] = ()
) -> Training:
    """Federated averaging; from round 31 on `bad` clients send the opposite of what they learnt.

    With a monitor, an alarm takes the run back to the round that it advises, and on without its suspects.
    """
    networks, verdicts = [task.start], []
    left_out: set[str | int] = set(absent)
    for number in range(1, ROUNDS + 1):
        moves = task.moves(networks[-1], number)
        if number >= TURNED:
            moves |= {name: -moves[name] for name in bad}
        present: dict[str | int, Any] = {name: move for name, move in moves.items() if name not in left_out}
        if monitor is not None:
            verdicts.append(monitor.update(present))
            if verdicts[-1].alarm:
                networks.append(networks[verdicts[-1].rollback or 0])
                left_out |= set(verdicts[-1].suspects)
                monitor.exclude()
                continue
        networks.append(networks[-1] + np.mean(list(present.values()), axis=0))
    return Training(tuple(map(task.accuracy, networks)), tuple(verdicts))
