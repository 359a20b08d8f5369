"""`Clients`: every client of a run watched by what it uploads, whatever the model, the optimiser and the strategy."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from fedgauss.detect.channel import INVALID
from fedgauss.detect.clients import ClientMonitor, ClientVerdict
from fedgauss.detect.clients.moves import LARGEST
from fedgauss.detect.clients.surprise import LEAST_PAST
from fedgauss.detect.clients.watch import LEFT_OUT_FIRST
from fedgauss.integrations.flower.feed import far_off
from fedgauss.integrations.flower.records import Request, Views
from fedgauss.integrations.flower.rounds import TrainingRound

_UNWATCHED = LEFT_OUT_FIRST + LEAST_PAST  # rounds of a client before the monitor judges it, at most


class Clients:
    """Feeds a `ClientMonitor` with what each client changed: its upload minus what it was sent.

    Parameters
    ----------
    alpha, horizon, rate, seed
        As in `ClientMonitor`; the horizon counts rounds.

    Attributes
    ----------
    monitor : ClientMonitor
        The monitor; its clients have the numbers that `Monitored.nodes` gives to nodes.

    Notes
    -----
    Nothing is asked of clients, and neither rate, optimiser nor strategy matter: uploads are judged before the strategy
    sees them. With `Monitored(..., on_alarm="exclude")` a run goes back to before the onset and on without the
    suspects.

    Clients are judged from round 12 on. Until then, an upload more than 100 times as far from what was sent as
    the median upload is refused; so are numbers above 1e15 at any time.
    """

    def __init__(
        self, alpha: float = 0.05, horizon: int | None = None, rate: float = 0.05, seed: int | None = None
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
            client: f"Client {client} changed a parameter by {by:.3g}; {LARGEST:.0e} is the most."
            for client, by in zip(seen.clients, largest, strict=True)
            if by > LARGEST
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
