"""Edges between peers over torch.distributed (gloo)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any

import numpy as np

from fedgauss import _checks
from fedgauss._types import FloatArray
from fedgauss.integrations.extras import needed
from fedgauss.integrations.gossip.edges import Edges
from fedgauss.integrations.gossip.rendezvous import meet

_CONNECTING = timedelta(minutes=2)  # peers that have met are awaited by gloo, which does not hear Ctrl-C
# Gloo answers a wait that runs out of time by closing every connection of the peer, to neighbours that are well too.
# So its waits have no end, and who has fallen silent is found by pulses.
_FOR_EVER = timedelta(days=365)
_UNUSED_TAG = 1000


class TorchLinks:
    """One peer's connections: a process group of `size` peers, of which only neighbours ever send to each other.

    Parameters
    ----------
    rank, size : int
        The number of this peer, from 0, and how many there are.
    rendezvous : str
        Where peers find each other: "file:///a/new/file" for peers of one machine, which then listen on loopback alone;
        "tcp://host:port" of peer 0 across machines, where nothing is encrypted and anybody who reaches the port is
        trusted: use it inside a network that you trust. Peers have ten minutes to arrive.
    patience : float
        Seconds until a neighbour whose process is frozen, or whose machine cannot be reached, counts as lost. From the
        first exchange on neighbours exchange pulses whatever else they do, so one that computes or waits is not given
        up; for its first exchange a neighbour has ten minutes. A process that ends closes its connections, and is
        noticed at once.

    Notes
    -----
    Use it in a `with` statement: its threads must end before Python does.
    """

    def __init__(self, rank: int, size: int, rendezvous: str, patience: float = 60.0) -> None:
        self._torch: Any = needed("torch", extra="gossip")
        self._group: Any = needed("torch.distributed", extra="gossip")
        patience = _checks.real("patience", patience, above=0.0)
        size = _checks.whole("size", size, at_least=2)
        rank = _checks.whole("rank", rank, at_least=0, at_most=size - 1)
        if rendezvous.startswith("file://"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback())
        store = meet(self._group, rank, size, rendezvous)
        try:
            self._group.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=_CONNECTING)
        except RuntimeError as error:
            raise TimeoutError(
                f"peers that came to {rendezvous} must connect to each other within {_CONNECTING.seconds} seconds; "
                f"they did not ({error}). Start all peers again, at a new place."
            ) from error
        self._edges = Edges(self._swap, patience)

    def __enter__(self) -> TorchLinks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._edges.part()
        finally:
            self._close()

    def exchange(self, messages: Mapping[int, FloatArray]) -> dict[int, FloatArray]:
        """Exchange messages with neighbours.

        Parameters
        ----------
        messages : mapping of int to array
            By neighbour. One that is left out is told so: it counts this peer as lost, and is sent nothing more.

        Returns
        -------
        dict
            What neighbours sent, of the same length; those that are lost are missing.
        """
        return self._edges.exchange(messages)

    def _close(self) -> None:
        """Leave the group, and let go of neighbours that have not answered."""
        self._edges.release()
        for neighbour in self._edges.neighbours:
            # Nothing is sent with this tag: the wait runs out, and gloo closes everything.
            with suppress(RuntimeError):
                self._group.irecv(self._torch.empty(1), neighbour, tag=_UNUSED_TAG).wait(timedelta(milliseconds=1))
        self._edges.join()
        self._group.destroy_process_group()

    def _swap(self, neighbour: int, message: FloatArray, tag: int) -> FloatArray:
        """What a neighbour sends in exchange. Both directions are posted first: two that only sent would wait."""
        out = self._torch.from_numpy(np.array(message, dtype=np.float64))
        coming = self._torch.full_like(out, np.nan)  # so that what did not come is seen
        works = self._group.irecv(coming, neighbour, tag=tag), self._group.isend(out, neighbour, tag=tag)
        for work in works:
            work.wait(_FOR_EVER)
        received: FloatArray = coming.numpy()
        return received


def _loopback() -> str:
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
