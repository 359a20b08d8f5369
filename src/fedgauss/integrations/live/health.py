"""Whether a run is being watched at this moment, and if not, since when and why."""

from dataclasses import dataclass
from typing import Literal

State = Literal["waiting", "warming up", "watching", "alarm", "not watching"]


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
