"""What an alarm hands over: the verdict, and arrays from before it."""

from __future__ import annotations

from typing import NamedTuple

from flwr.app import ArrayRecord

from fedgauss.detect.verdict import Verdict


class Good(NamedTuple):
    """Arrays of a round that was found in order; rounds as the monitor counts them, which leaves refused ones out."""

    round: int
    arrays: ArrayRecord


class Alarmed(Exception):
    """The monitor's alarm; `Monitored` raises it, or gives it to a callback.

    verdict       what the monitor said
    server_round  Flower's round in which it did
    rollback      the last arrays kept from before the onset
    last          the last arrays from before the alarm; what happened between onset and alarm is in them
    """

    def __init__(self, verdict: Verdict, server_round: int, rollback: Good, last: Good) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict
        self.server_round = server_round
        self.rollback = rollback
        self.last = last
