"""Whether a run is being watched at this moment, and if not, since when and why: what decides it, and what is said."""

import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from fedgauss.integrations.live.history import Kind

IN_A_ROW = 3  # rounds refused, not finite, or that made a warm-up begin anew, after which nothing is being watched
_INTERVALS = 20  # between rounds, of which the longest is usual
_KNOWN = 5  # intervals that are needed to say so
_FACTOR, _AT_LEAST = 10.0, 300.0  # a run is quiet after ten times what is usual, and at least five minutes
_UNKNOWN = 3600.0  # seconds, where nothing is known of how often rounds come
_SHORTEST = 0.1  # seconds: rounds that come at once are one beat
_KEPT = 20  # messages

State = Literal["waiting", "warming up", "watching", "alarm", "not watching"]
UNJUDGED: tuple[Kind, ...] = ("warming up", "begun anew")


@dataclass(frozen=True)
class Health:
    """What a page, a sink, `/health` and the exit code say of a watch.

    Attributes
    ----------
    state : str
        "waiting" for the first round; "warming up" while nothing can be judged yet; "watching"; "alarm" while an alarm
        is on; "not watching" where rounds are missing, refused or cannot be judged.
    watching : bool
        Whether an attack in the next round would be seen: in the states "watching" and "alarm".
    since : float
        When the state last changed, in seconds of unix time.
    reason : str
        Why it is not watching, or what the alarm says; empty where all is well.
    round : int or None
        The last round taken; None before the first.
    refused, taken : int
        Rounds refused and taken so far.
    """

    state: State
    watching: bool
    since: float
    reason: str
    round: int | None
    refused: int
    taken: int


class Refusals:
    """How many there were, and the last 20."""

    def __init__(self) -> None:
        self.count = 0
        self._last: deque[str] = deque(maxlen=_KEPT)

    def add(self, message: str) -> None:
        """One more."""
        self.count += 1
        self._last.append(message)

    def state(self) -> dict[str, Any]:
        """For the page."""
        return {"count": self.count, "last": list(self._last)}


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
