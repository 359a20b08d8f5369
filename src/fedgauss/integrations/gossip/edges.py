"""How two neighbours talk, whatever carries their arrays: who is heard, who is lost, and how that is told."""

import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import numpy as np

from fedgauss._checks import FedgaussWarning
from fedgauss._types import FloatArray

# Sends a neighbour an array under a tag and returns its own, of the same length; RuntimeError once it is closed.
Swap = Callable[[int, FloatArray, int], FloatArray]

COMING = 600.0  # seconds that peers have to come: to the rendezvous, and from there to their first exchange
_LENGTH_TAG, _MESSAGE_TAG, _PULSE_TAG = range(3)
_FAREWELL = -1.0  # in place of a length
_PULSES = 4  # in the patience


class Forged(RuntimeError):
    """What a neighbour sent is not of a peer."""


class Edges:
    """One peer's edges. A neighbour that is silent for `patience` seconds counts as lost, and cannot come back."""

    def __init__(self, swap: Swap, patience: float) -> None:
        self._swap, self._patience = swap, patience
        self._edges: dict[int, _Edge] = {}
        self._open: set[int] = set()
        self._arrived: queue.SimpleQueue[tuple[int, FloatArray | str]] = queue.SimpleQueue()

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Who was ever sent to."""
        return tuple(self._edges)

    def exchange(self, messages: Mapping[int, FloatArray]) -> dict[int, FloatArray]:
        """Send each neighbour its message and take its own, of the same length; who is lost is missing in what comes.

        A neighbour that is left out is told so: it counts this peer as lost, and is sent nothing more.
        """
        self._let_go(self._open - messages.keys())
        for neighbour, message in messages.items():
            if neighbour not in self._edges:
                self._edges[neighbour] = _Edge(neighbour, self._swap, self._patience, self._arrived)
                self._open.add(neighbour)
            if neighbour in self._open:
                self._edges[neighbour].send(message)
        heard = self._collect(self._open)
        self._let_go(self._open - heard.keys())
        return heard

    def part(self) -> None:
        """Take leave of every neighbour, and wait until it knows: a connection might close before a message is read."""
        open_edges = self._open
        self._let_go(open_edges)
        self._collect(open_edges)

    def release(self) -> None:
        """End what waits for nothing but this peer. What waits for a neighbour ends when its connection is closed."""
        self._let_go(self._open)
        for edge in self._edges.values():
            edge.over.set()

    def join(self) -> None:
        """Wait for all threads, once every connection is closed."""
        for edge in self._edges.values():
            for thread in edge.threads:
                thread.join()

    def _let_go(self, neighbours: Iterable[int]) -> None:
        self._open = self._open - set(neighbours)
        for neighbour in neighbours:
            self._edges[neighbour].send(None)

    def _collect(self, neighbours: Iterable[int]) -> dict[int, FloatArray]:
        awaited, heard = set(neighbours), dict[int, FloatArray]()
        while awaited:
            try:
                neighbour, message = self._arrived.get(timeout=self._patience / _PULSES)
            except queue.Empty:
                now = time.monotonic()
                awaited = {neighbour for neighbour in awaited if now < self._edges[neighbour].until}
                continue
            if neighbour not in awaited:  # it came too late
                continue
            awaited.remove(neighbour)
            if not isinstance(message, str):
                heard[neighbour] = message
            elif message:
                warnings.warn(f"Peer {neighbour} is let go: {message}", FedgaussWarning, stacklevel=4)
        return heard


class _Edge:
    """One neighbour. A thread exchanges messages with it, in their order; another feels its pulse meanwhile."""

    def __init__(
        self, neighbour: int, swap: Swap, patience: float, arrived: queue.SimpleQueue[tuple[int, FloatArray | str]]
    ) -> None:
        self._neighbour, self._swap, self._patience, self._arrived = neighbour, swap, patience, arrived
        # Nobody has a pulse before its first exchange: it may be loading its data.
        self.until = time.monotonic() + max(COMING, patience)
        self.over = threading.Event()
        self._outbox: queue.SimpleQueue[FloatArray | None] = queue.SimpleQueue()
        self.threads = [threading.Thread(target=target, daemon=True) for target in (self._talk, self._feel)]
        for thread in self.threads:
            thread.start()

    def send(self, message: FloatArray | None) -> None:
        """Exchange this message when those before it have been; None is the last, and says farewell."""
        self._outbox.put(message)

    def _talk(self) -> None:
        """A length each, then a message each: gloo aborts a process that is sent more than it expects."""
        words = ""
        try:
            while True:
                message = self._outbox.get()
                length = _FAREWELL if message is None else float(len(message))
                theirs = float(self._swap(self._neighbour, np.array([length]), _LENGTH_TAG)[0])
                if message is None or theirs == _FAREWELL:
                    break
                if theirs != length:
                    words = (
                        f"both ends of an edge must send as much; it sends {theirs:g} numbers, and this peer "
                        f"{length:g}. Start all peers with the same settings."
                    )
                    break
                received = self._swap(self._neighbour, message, _MESSAGE_TAG)
                self.until = time.monotonic() + self._patience
                self._arrived.put((self._neighbour, received))
        except Forged as error:
            words = str(error)
        except RuntimeError:
            pass
        self.over.set()
        self._arrived.put((self._neighbour, words))

    def _feel(self) -> None:
        with suppress(RuntimeError):
            while not self.over.wait(self._patience / _PULSES):
                self._swap(self._neighbour, np.zeros(1), _PULSE_TAG)
                self.until = time.monotonic() + self._patience
