"""What `Monitored` raises, or hands to a callback, at an alarm."""

from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.flower.kept import GoodRound


class Alarmed(Exception):
    """The monitor's alarm; `Monitored` raises it, or gives it to a callback.

    Attributes
    ----------
    verdict : Verdict
        What the monitor said.
    server_round : int
        Flower's round in which it did.
    rollback : GoodRound
        The last arrays kept from before the onset.
    last : GoodRound
        The last arrays from before the alarm, which include what happened between onset and alarm.
    """

    def __init__(self, verdict: Verdict, server_round: int, rollback: GoodRound, last: GoodRound) -> None:
        super().__init__(str(verdict))
        self.verdict, self.server_round = verdict, server_round
        self.rollback, self.last = rollback, last
