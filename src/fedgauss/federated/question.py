"""What the program of a run asks of sites, and what it hears: totals, since their answers are added up."""

from __future__ import annotations

from typing import Any, NamedTuple

from fedgauss._types import FloatArray


class Question(NamedTuple):
    """What all sites are asked now, as it follows from all that was heard so far."""

    kind: str
    content: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]  # of the numbers in the answer


class Heard(NamedTuple):
    """What all sites answered."""

    total: dict[str, FloatArray]
