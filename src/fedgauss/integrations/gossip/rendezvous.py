"""Where peers find each other, before they are connected."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fedgauss.integrations.gossip.edges import COMING

_POLL = 0.1  # seconds


def meet(distributed: Any, rank: int, size: int, rendezvous: str) -> Any:
    """A store of torch.distributed that all peers have come to. The wait is in Python, so that Ctrl-C is heard."""
    until = time.monotonic() + COMING
    address = urlsplit(rendezvous)
    if address.scheme == "file":
        store = _file_store(distributed, size, rendezvous, address.netloc + unquote(address.path))
    elif address.scheme == "tcp":
        store = _tcp_store(distributed, rank, size, rendezvous, until)
    else:
        raise ValueError(f"rendezvous must begin with file:// or tcp://; got {rendezvous!r}.")
    try:
        _await_all(store, rank, size, rendezvous, until)
    except BaseException as error:
        with suppress(RuntimeError):  # it goes: others must not try to connect to it, and it may come again
            store.add(_place(rank), -1)
        if not isinstance(error, RuntimeError):
            raise
        raise ConnectionError(
            f"peer 0 must stay at {rendezvous} until all have come; it left ({error}). Start all peers again."
        ) from error
    return store


def _await_all(store: Any, rank: int, size: int, rendezvous: str, until: float) -> None:
    if store.add(_place(rank), 1) > 1:
        raise ValueError(
            f"rendezvous must be new, and every peer must have a rank of its own; peer {rank} has already come to "
            f"{rendezvous}. Name another place, and start all peers again."
        )
    told = int(store.compare_set("size", "", str(size)))
    if told != size:
        raise ValueError(
            f"size must be the same for all peers; got {size}, and others came to {rendezvous} with {told}."
        )
    while missing := [peer for peer in range(size) if not _came(store, peer)]:
        if time.monotonic() > until:
            raise TimeoutError(
                f"all {size} peers must come to {rendezvous} within {COMING / 60:.0f} minutes; {missing} did not, or "
                "left again. Start all peers again."
            )
        time.sleep(_POLL)


def _place(rank: int) -> str:
    return f"peer {rank}"


def _came(store: Any, peer: int) -> bool:
    return store.check([_place(peer)]) and int(store.get(_place(peer))) > 0


def _file_store(distributed: Any, size: int, rendezvous: str, path: str) -> Any:
    place = Path(path)
    if not place.is_absolute() or not place.parent.is_dir() or place.is_dir():  # torch would wait for such a folder
        raise ValueError(
            f"rendezvous must name a new file in a folder that exists; got {rendezvous}. "
            "Use (Path(folder) / 'meeting').resolve().as_uri()?"
        )
    return distributed.FileStore(path, size)


def _tcp_store(distributed: Any, rank: int, size: int, rendezvous: str, until: float) -> Any:
    address = urlsplit(rendezvous)
    try:
        host, port = address.hostname, address.port
    except ValueError:  # no number, or too large a one
        host = port = None
    if not host or not port:
        raise ValueError(f"rendezvous must be tcp://host:port, where peer 0 runs; got {rendezvous}.")
    while rank > 0:  # torch would not hear Ctrl-C
        try:
            socket.create_connection((host, port), timeout=1.0).close()
            break
        except OSError as error:
            if time.monotonic() > until:
                raise TimeoutError(
                    f"peer 0 must come to {rendezvous} within {COMING / 60:.0f} minutes; it did not ({error}). "
                    "Start all peers again, with an address of the machine that peer 0 runs on."
                ) from error
            time.sleep(_POLL)
    try:
        return distributed.TCPStore(host, port, size, rank == 0, timedelta(seconds=COMING), wait_for_workers=False)
    except RuntimeError as error:
        raise ValueError(f"rendezvous must be a free port where peer 0 runs; at {rendezvous}: {error}") from error
