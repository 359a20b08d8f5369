"""Programs that wait for orders: a line of JSON in, a line of JSON out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from soak.processes import Child

_PATIENCE = 300.0  # seconds; the first order may have to compile


def serve(answer: Callable[[dict[str, Any]], Any]) -> None:
    """What a program does: it says that it is ready, and answers orders until there are no more."""
    print("ready", flush=True)
    for number, line in enumerate(sys.stdin, start=1):
        print(f"\nanswer {number}: {json.dumps(answer(json.loads(line)))}:end of answer {number}.", flush=True)


class Orders:
    """The other end."""

    def __init__(self, child: Child) -> None:
        self.child, self._count = child, 0
        child.wait_for("ready", _PATIENCE)

    def give(self, **order: Any) -> None:
        """Send an order."""
        self._count += 1
        self.child.tell(json.dumps(order))

    def answer(self) -> Any:
        """What came of the last one."""
        text = self.child.wait_for(f":end of answer {self._count}.", _PATIENCE)
        begin = text.index(f"\nanswer {self._count}: ") + len(f"\nanswer {self._count}: ")
        return json.loads(text[begin : text.index(f":end of answer {self._count}.")])

    def asked(self, **order: Any) -> Any:
        """Both."""
        self.give(**order)
        return self.answer()
