"""When rounds come, how many in a row were refused or could not be judged: what decides whether a run is watched."""

import time
from collections import deque

from fedgauss.integrations.live.history import Kind

IN_A_ROW = 3  # rounds refused, not finite, or that made a warm-up begin anew, after which nothing is being watched
_INTERVALS = 20  # between rounds, of which the longest is usual
_KNOWN = 5  # intervals that are needed to say so
_FACTOR, _AT_LEAST = 10.0, 300.0  # a run is quiet after ten times what is usual, and at least five minutes
_UNKNOWN = 3600.0  # seconds, where nothing is known of how often rounds come
_SHORTEST = 0.1  # seconds: rounds that come at once are one beat

UNJUDGED: tuple[Kind, ...] = ("warming up", "begun anew")


class Pulse:
    """Counts, for `FollowedRun.health`.

    Parameters
    ----------
    quiet_after : float, optional
        Seconds without a round after which a run is not being watched. By default ten times the longest of the last 20
        intervals between rounds, and at least five minutes; an hour while fewer than five intervals are known.
    """

    def __init__(self, quiet_after: float | None = None) -> None:
        self.quiet_after = quiet_after
        self.catching_up = False  # rounds that were logged long ago say nothing of how often they come
        self.refused = self.invalid = self.unjudged = self.begun_anew = 0  # in a row
        self.alarms = 0  # rounds that alarmed after one that did not
        self._kind: Kind = "waiting"
        self.last_refusal = ""
        self.first_refusal = 0.0  # unix time of the first in a row
        self._intervals: deque[float] = deque(maxlen=_INTERVALS)
        self._beat = self._heard = time.monotonic()
        self.heard_at = time.time()

    def taken(self, kind: Kind, rounds: int = 1) -> None:
        """Rounds were taken, or found invalid."""
        now = time.monotonic()
        if not self.catching_up and now - self._beat >= _SHORTEST:
            self._intervals.append(now - self._beat)
            self._beat = now
        elif self.catching_up:
            self._beat = now
        self._heard, self.heard_at = now, time.time()
        self.refused = 0
        self.alarms += kind == "alarm" != self._kind
        self._kind = kind
        self.invalid = self.invalid + rounds if kind == "invalid update" else 0
        self.unjudged = self.unjudged + rounds if kind in UNJUDGED else 0
        self.begun_anew = self.begun_anew + (kind == "begun anew") if kind in UNJUDGED else 0

    def refusal(self, message: str) -> None:
        """A round was refused."""
        if not self.refused:
            self.first_refusal = time.time()
        self.refused += 1
        self.last_refusal = message

    @property
    def longest_silence(self) -> float:
        """Seconds without a round that are still usual."""
        if self.quiet_after is not None:
            return self.quiet_after
        if len(self._intervals) < _KNOWN:
            return _UNKNOWN
        return max(_FACTOR * max(self._intervals), _AT_LEAST)

    def silence(self, now: float | None) -> float:
        """Seconds since the last round, by a clock that is never set; or until `now`, in unix time."""
        return time.monotonic() - self._heard if now is None else now - self.heard_at
