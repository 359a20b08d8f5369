"""Edges between peers over torch.distributed (gloo)."""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any

import numpy as np

from fedgauss import _checks
from fedgauss._types import FloatArray
from fedgauss.integrations.extras import needed

_MEETING = timedelta(minutes=10)  # until peers that did not come to the rendezvous are an error
# Gloo answers a wait that runs out of time by closing every connection of the peer, to neighbours that are well too.
# So its waits have no end, and who has fallen silent is found by pulses.
_FOR_EVER = timedelta(days=365)
_PULSES = 4  # in the patience
_MESSAGE_TAG, _PULSE_TAG, _FAREWELL_TAG, _UNUSED_TAG = range(4)


class TorchLinks:
    """One peer's connections: a process group of `size` peers, of which only neighbours ever send to each other.

    rendezvous  where peers find each other: "file:///a/new/file" for peers of one machine, which then listen on
                loopback alone; "tcp://host:port" of peer 0 across machines, where nothing is encrypted and anybody who
                reaches the port is believed: use it inside a network that you trust
    patience    seconds until a neighbour whose process is frozen, or whose machine is out of reach, counts as lost.
                Neighbours exchange pulses whatever else they do, so one that computes or waits is not given up. A
                process that ends closes its connections, and is noticed at once

    Use it in a `with` statement: its threads must end before Python does.
    """

    def __init__(self, rank: int, size: int, rendezvous: str, patience: float = 60.0) -> None:
        self._torch: Any = needed("torch", extra="gossip")
        self._group: Any = needed("torch.distributed", extra="gossip")
        self._patience = _checks.real("patience", patience, above=0.0)
        size = _checks.whole("size", size, at_least=2)
        rank = _checks.whole("rank", rank, at_least=0, at_most=size - 1)
        if rendezvous.startswith("file://"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback())
        elif not rendezvous.startswith("tcp://"):
            raise ValueError(f"rendezvous must begin with file:// or tcp://; got {rendezvous!r}.")
        self._group.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=size, timeout=_MEETING)
        self._pulse: dict[int, float] = {}  # when each neighbour was last heard
        self._linked: tuple[int, ...] = ()  # who answered last
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()

    def __enter__(self) -> TorchLinks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:  # wait until neighbours have taken in the last message: closing might overtake it
            self._exchange({neighbour: np.zeros(1) for neighbour in self._linked}, _FAREWELL_TAG)
        self._close()

    def exchange(self, messages: Mapping[int, FloatArray]) -> dict[int, FloatArray]:
        """Send each neighbour its message and take its own, of the same length; who is lost is missing in what comes.

        A neighbour that was lost must not be sent to again.
        """
        heard = self._exchange(messages, _MESSAGE_TAG)
        self._linked = tuple(heard)
        return heard

    def _exchange(self, messages: Mapping[int, FloatArray], tag: int) -> dict[int, FloatArray]:
        arrived: queue.SimpleQueue[tuple[int, FloatArray | None]] = queue.SimpleQueue()
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for neighbour, message in messages.items():
            if neighbour not in self._pulse:
                self._pulse[neighbour] = time.monotonic()
                self._start(self._feel, neighbour)
            self._start(self._swap, neighbour, message, tag, arrived)
        awaited, heard = set(messages), dict[int, FloatArray]()
        while awaited:
            try:
                neighbour, message_or_none = arrived.get(timeout=self._patience / _PULSES)
            except queue.Empty:
                now = time.monotonic()
                awaited = {neighbour for neighbour in awaited if now - self._pulse[neighbour] < self._patience}
                continue
            if neighbour in awaited:
                awaited.remove(neighbour)
                if message_or_none is not None:
                    heard[neighbour] = message_or_none
        return heard

    def _close(self) -> None:
        """Leave the group, and let go of neighbours that have not answered."""
        self._ended.set()
        for neighbour in self._pulse:  # nothing is sent with this tag: the wait runs out, and gloo closes everything
            with suppress(RuntimeError):
                self._group.irecv(self._torch.empty(1), neighbour, tag=_UNUSED_TAG).wait(timedelta(milliseconds=1))
        for thread in self._threads:
            thread.join()
        self._group.destroy_process_group()

    def _start(self, target: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=target, args=given, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _swap(
        self, neighbour: int, message: FloatArray, tag: int, arrived: queue.SimpleQueue[tuple[int, FloatArray | None]]
    ) -> None:
        try:
            arrived.put((neighbour, self._both_ways(neighbour, message, tag)))
        except RuntimeError:  # the connection is closed
            arrived.put((neighbour, None))

    def _both_ways(self, neighbour: int, message: FloatArray, tag: int) -> FloatArray:
        """What a neighbour sends in exchange. Both directions are posted first: two that only sent would wait."""
        out = self._torch.from_numpy(np.array(message, dtype=np.float64))
        coming = self._torch.empty_like(out)
        works = self._group.irecv(coming, neighbour, tag=tag), self._group.isend(out, neighbour, tag=tag)
        for work in works:
            work.wait(_FOR_EVER)
        received: FloatArray = coming.numpy()
        return received

    def _feel(self, neighbour: int) -> None:
        """Take a neighbour's pulse until its connection closes, or this one's."""
        with suppress(RuntimeError):
            while not self._ended.wait(self._patience / _PULSES):
                self._both_ways(neighbour, np.zeros(1), _PULSE_TAG)
                self._pulse[neighbour] = time.monotonic()


def _loopback() -> str:
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
