"""Whom a peer leaves out after an alarm, and the model that it goes back to.

Names are those of `Monitor.suspects`. A `ClientMonitor` would name without delay, but it is made for models with many
parameters, and needs four clients. With two parameters it saw none of the shifts that a peer's monitor sees.
"""

import warnings
from collections.abc import Sequence

from fedgauss import _checks
from fedgauss._types import FloatArray
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.gossip.column import PeerColumn
from fedgauss.integrations.gossip.neighbourhood import Neighbourhood

_ASKED_AFTER = 100  # steps after an alarm: fewer name the wrong one more often
_RATE = 0.10  # of wrong names: half of it for the first time that names are asked for, a quarter for the second, ...


class Healing:
    """What a peer needs to go on without a neighbour: who it was, and where its columns were before.

    client   this peer
    around   its neighbourhood
    columns  what goes back: its parameter first, its chains
    at_most  how many neighbours may be left out in all; None for fewer than half of the members
    """

    def __init__(
        self, client: int, around: Neighbourhood, columns: Sequence[PeerColumn], at_most: int | None = None
    ) -> None:
        self._client, self._around, self._columns = client, around, columns
        half = (len(around.members) - 1) // 2
        self._left = half if at_most is None else _checks.whole("at_most", at_most, fix="It counts neighbours.")
        self._begin()

    def _begin(self) -> None:
        self._asked = 0  # times since the alarm
        self._kept: dict[int, list[FloatArray]] = {}  # by round, as the monitor counts
        self._keep()

    def _keep(self) -> None:
        self._kept.setdefault(self._around.monitor.round, [column.theta for column in self._columns])

    def after(self, verdict: Verdict) -> tuple[int, ...]:
        """Act on a round: who is left out from now on. The columns have then gone back."""
        self._keep()
        named = self._named(verdict)
        if not named or verdict.rollback is None:
            return ()
        self._left -= len(named)
        for column, theta in zip(self._columns, self._kept[verdict.rollback], strict=True):
            column.theta = theta
        self._around.begin_anew(self._columns[0].theta[:, 0])
        self._begin()
        return named

    def _named(self, verdict: Verdict) -> tuple[int, ...]:
        """Neighbours that the monitor names, when it is time to ask and they are not too many."""
        monitor = self._around.monitor
        if monitor.alarm is None or verdict.invalid:
            return ()
        if verdict.step < monitor.alarm.step + _ASKED_AFTER * 2**self._asked:
            return ()
        self._asked += 1
        try:
            found = monitor.suspects(_RATE / 2**self._asked).malicious
        except ValueError:  # too few rounds before the onset
            return ()
        members = [self._around.members[place] for place in found]
        named = tuple(member for member in members if member != self._client)
        if len(named) < len(members):
            _warn(f"peer {self._client} names itself: look at its data. Nobody can leave out itself.")
        if len(named) > self._left:
            _warn(f"peer {self._client} names {list(named)} and may leave out {self._left} more: nobody is left out.")
            return ()
        return named


def _warn(words: str) -> None:
    warnings.warn(words, _checks.FedgaussWarning, stacklevel=5)
