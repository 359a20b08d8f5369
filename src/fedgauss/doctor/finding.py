"""What a check found."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One line of `fedgauss doctor`.

    Attributes
    ----------
    state : {"ok", "warning", "problem"}
        A warning hinders somebody some day, a problem makes something fail.
    name : str
        What was looked at.
    found : str
        What was seen.
    fix : str
        What to do about it; empty where nothing need be done.
    """

    state: State
    name: str
    found: str
    fix: str = ""
