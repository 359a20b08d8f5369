"""Why things were refused, for the page."""

from collections import deque
from typing import Any

_KEPT = 20  # messages


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
