"""`Clients`: every client of a run watched by what it uploads, whatever the model, the optimiser and the strategy."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from fedgauss.detect.channel import INVALID
from fedgauss.detect.clients import ClientMonitor, ClientVerdict
from fedgauss.integrations.flower.feed import far_off
from fedgauss.integrations.flower.records import Request, Views
from fedgauss.integrations.flower.rounds import TrainingRound

_HUGE = 1e15  # what the monitor does not take
_UNWATCHED = 11  # rounds of a client before the monitor judges it


class Clients:
    """Feeds a `ClientMonitor` with what each client changed: its upload minus what it was sent.

    Parameters
    ----------
    alpha : float
        The chance of any false alarm: over the first `horizon` rounds, or for ever without a horizon.
    horizon : int, optional
        The number of rounds over which alpha holds.
    rate : float
        The chance of a wrong name in an alarm.
    seed : int, optional
        Of the sketch that stands for models with more than 16,384 parameters; secret and random by default.

    Attributes
    ----------
    monitor : ClientMonitor
        The monitor; its clients have the numbers that `Monitored.nodes` gives to nodes.

    Notes
    -----
    Nothing is asked of clients, and neither rate, optimiser nor strategy matter: uploads are judged before the strategy
    sees them. With `Monitored(..., on_alarm="exclude")` a run goes back to before the onset and on without the
    suspects.

    A client is judged from its twelfth round on. Until then, an upload more than 100 times as far from what was sent as
    the median upload is refused; so are numbers above 1e15 at any time.
    """

    def __init__(
        self, alpha: float = 0.05, horizon: int | None = None, rate: float = 0.1, seed: int | None = None
    ) -> None:
        self.monitor = ClientMonitor(alpha, horizon, rate, seed)
        self._rounds: Counter[int] = Counter()  # of each client

    def request(self, server_round: int) -> Request:
        """Nothing, not even which partition a client has."""
        return {}

    def faults(self, seen: TrainingRound) -> dict[int, str]:
        """Uploads that are huge, or far off while the monitor cannot judge their clients yet."""
        largest = np.abs(seen.each - seen.origin).max(axis=1, initial=0.0)
        huge = {
            client: f"Client {client} changed a parameter by {by:.3g}; {_HUGE:.0e} is the most."
            for client, by in zip(seen.clients, largest, strict=True)
            if by > _HUGE
        }
        far = {client: words for client, words in far_off(seen).items() if self._rounds[client] < _UNWATCHED}
        return far | huge

    def judge_uploads(self, seen: TrainingRound) -> ClientVerdict:
        """The monitor's verdict."""
        verdict = self.monitor.update(dict(zip(seen.clients, seen.each - seen.origin, strict=True)))
        self._rounds.update(seen.clients)
        return verdict

    def judge(self, seen: TrainingRound, after: Views) -> None:
        """None: what the strategy makes of uploads does not matter."""

    def refuse(self, server_round: int, last: int, note: str) -> ClientVerdict:
        """An alarm that leaves the monitor as it was."""
        at = self.monitor.round
        return ClientVerdict(True, math.inf, 0.0, INVALID, at, at, None, last, self.monitor.alpha, note=note)
