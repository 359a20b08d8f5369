"""`Clients`: every client of a run watched by what it uploads, whatever the model, the optimiser and the strategy."""

from __future__ import annotations

import math
from collections import Counter
from logging import INFO, WARNING

from fedgauss._types import FloatArray
from fedgauss.detect.channel import INVALID
from fedgauss.detect.clients import ClientMonitor, ClientVerdict
from fedgauss.detect.clients.gauge import ROUNDS
from fedgauss.detect.clients.moves import LARGEST
from fedgauss.detect.clients.sketch import Single
from fedgauss.detect.clients.surprise import LEAST_PAST
from fedgauss.detect.clients.verdict import Name
from fedgauss.detect.clients.watch import FEWEST, LEFT_OUT_FIRST
from fedgauss.integrations.flower.feed import far_off
from fedgauss.integrations.flower.records import Request, Views, log
from fedgauss.integrations.flower.rounds import TrainingRound

_UNWATCHED = LEFT_OUT_FIRST + LEAST_PAST  # rounds of a client before the monitor judges it, at most
_ASKED_EVERY = 20  # rounds: what would be seen takes as long as many rounds, and changes slowly


class Clients:
    """Feeds a `ClientMonitor` with what each client changed: its upload minus what it was sent.

    Parameters
    ----------
    alpha, horizon, rate, seed, clip, noise, population
        As in `ClientMonitor`; the horizon counts rounds.

    Attributes
    ----------
    monitor : ClientMonitor
        The monitor; its clients have the numbers that `Monitored.nodes` gives to nodes.

    Notes
    -----
    Nothing is asked of clients, and neither rate, optimiser nor strategy matter: uploads are judged before the strategy
    sees them. With `Monitored(..., on_alarm="exclude")` a run goes back to before the onset and on without the
    suspects. Arrays of integers, and running statistics that torch or Keras named, are not judged.

    Clients are judged from round 12 on, and only in rounds in which four or more take part; the log says when judging
    begins, why it does not, and when attacks would no longer be seen. Until then, an upload more than 100 times as far
    from what was sent as the median upload is refused; so are numbers above 1e15 at any time.
    """

    def __init__(
        self,
        alpha: float = 0.05,
        horizon: int | None = None,
        rate: float = 0.05,
        seed: int | None = None,
        *,
        clip: float | None = None,
        noise: float | None = None,
        population: bool = False,
    ) -> None:
        self.monitor = ClientMonitor(alpha, horizon, rate, seed, clip=clip, noise=noise, population=population)
        self._rounds: Counter[int] = Counter()  # of each client
        self._logged: set[str] = set()  # what the log says once
        self._blind = False  # as of the last answer
        self._ask: int | None = None  # the round in which to ask again

    def request(self, server_round: int) -> Request:
        """Nothing, not even which partition a client has."""
        return {}

    def faults(self, seen: TrainingRound) -> dict[int, str]:
        """Uploads that are huge, or far off while the monitor cannot judge their clients yet."""
        largest = [max(float(move.max(initial=0.0)), -float(move.min(initial=0.0))) for move in seen.moves]
        huge = {
            client: f"Client {client} changed a parameter by {by:.3g}; {LARGEST:.0e} is the most."
            for client, by in zip(seen.clients, largest, strict=True)
            if by > LARGEST
        }
        far = {client: words for client, words in far_off(seen).items() if self._rounds[client] < _UNWATCHED}
        return far | huge

    def judge_uploads(self, seen: TrainingRound) -> ClientVerdict:
        """The monitor's verdict."""
        weights: dict[Name, float] = {upload.client: upload.examples for upload in seen.uploads}
        moves: dict[Name, FloatArray | Single] = dict(zip(seen.clients, seen.moves, strict=True))
        verdict = self.monitor.update(moves, weights=weights if seen.weighted else None)
        self._rounds.update(seen.clients)
        self._say_whether_judged(seen, verdict)
        self._say_whether_blind(seen, verdict)
        return verdict

    def _say_whether_judged(self, seen: TrainingRound, verdict: ClientVerdict) -> None:
        """Tell the log, once each, that clients are judged, or why not: a run without alarms looks alike in both."""
        if verdict.alarm:
            return
        horizon = self.monitor.horizon or math.inf
        if verdict.round > horizon:
            words = f"the horizon of {horizon} rounds is over, so no client is judged any more."
        elif verdict.watched:
            words = "clients are judged from now on."
        else:
            words = f"no client is judged in this round. {verdict.note}"
        never = len(seen.clients) < FEWEST or not _UNWATCHED < horizon >= verdict.round
        if words not in self._logged:
            self._logged.add(words)
            log.log(WARNING if never else INFO, "fedgauss, round %d: %s", seen.number, words)

    def _say_whether_blind(self, seen: TrainingRound, verdict: ClientVerdict) -> None:
        """Tell the log when attacks stop being seen, and when they are seen again; once each."""
        if self._ask is None and verdict.watched:
            self._ask = verdict.round + ROUNDS  # those that are seen once more must have been judged themselves
        over = self.monitor.horizon is not None and verdict.round > self.monitor.horizon  # as the log has said
        if verdict.alarm or over or self._ask is None or verdict.round < self._ask:
            return
        self._ask = verdict.round + _ASKED_EVERY
        now = verdict.would_see
        if now.known and now.blind != self._blind:
            self._blind = now.blind
            log.log(WARNING if now.blind else INFO, "fedgauss, round %d: %s", seen.number, now)

    def judge(self, seen: TrainingRound, after: Views) -> None:
        """None: what the strategy makes of uploads does not matter."""

    def refuse(self, server_round: int, last: int, note: str) -> ClientVerdict:
        """An alarm that leaves the monitor as it was."""
        at = self.monitor.round
        return ClientVerdict(True, math.inf, 0.0, INVALID, at, at, None, last, self.monitor.alpha, note=note)
