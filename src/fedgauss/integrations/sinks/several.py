"""Several sinks as one, of which none can stop a run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TypeAlias

from fedgauss._checks import FedgaussWarning
from fedgauss.detect.verdict import Verdict

Sink: TypeAlias = Callable[[int, Verdict], None]


class Sinks:
    """Tells every sink of every round. One that fails is warned of once and tried again in the next round."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self._sinks = tuple(sinks)
        for sink in self._sinks:
            if not callable(sink):
                raise ValueError(f"a sink must be callable as sink(round, verdict); got {sink!r}.")
        self._warned: set[int] = set()

    def __call__(self, round: int, verdict: Verdict) -> None:
        """Tell every sink of a round."""
        for i, sink in enumerate(self._sinks):
            self._try(i, lambda sink=sink: sink(round, verdict))  # type: ignore[misc]

    def close(self) -> None:
        """Close those that can be closed; what is still on its way is sent, or after a while given up and warned of."""
        for i, sink in enumerate(self._sinks):
            if (close := getattr(sink, "close", None)) is not None:
                self._warned.discard(i)  # what it has lost in all is news, whatever was said before
                self._try(i, close)
                self._warned.discard(i)  # and so is a call that comes too late

    def _try(self, i: int, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # whatever it is, the run matters more
            if i in self._warned:
                return
            self._warned.add(i)
            _warn(f"{_name(self._sinks[i])} failed and the run goes on; {type(error).__name__}: {error}")


def _warn(message: str) -> None:
    """A warning even where warnings are errors: no setting may turn a lost metric into a lost run."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", FedgaussWarning)
        warnings.warn(message, FedgaussWarning, stacklevel=5)


def _name(sink: Sink) -> str:
    return f"the sink {getattr(sink, '__name__', type(sink).__name__)}"
