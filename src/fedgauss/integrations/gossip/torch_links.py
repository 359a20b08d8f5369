"""Edges between peers over torch.distributed (gloo), and where peers find each other before they are connected."""

import socket
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import numpy as np

from fedgauss import _checks
from fedgauss._checks import FedgaussWarning
from fedgauss._types import FloatArray
from fedgauss.integrations.extras import needed
from fedgauss.integrations.gossip.edges import COMING, Edges
from fedgauss.integrations.gossip.seals import Seals, secret_in

_CONNECTING = timedelta(minutes=2)  # peers that have met are awaited by gloo, which does not hear Ctrl-C
_FOR_EVER = timedelta(days=365)
_UNUSED_TAG = 1000
_LOOPBACK = "127.0.0.1"
_POLL = 0.1  # seconds between two looks at who has come


class TorchLinks:
    """One peer's connections: a process group of `size` peers, of which only neighbours ever send to each other.

    Parameters
    ----------
    rank, size : int
        The number of this peer, from 0, and how many there are.
    rendezvous : str
        Where peers find each other: "file:///a/new/file" for peers of one machine, which then listen on loopback alone;
        "tcp://host:port" of peer 0 across machines, where nothing is encrypted. Peer 0 listens at that host, which must
        mean the same to all, and each other one at the address from which it reaches it. Peers have ten minutes to
        arrive.
    patience : float
        Seconds until a neighbour whose process is frozen, or whose machine cannot be reached, counts as lost. From the
        first exchange on neighbours exchange pulses whatever else they do, so one that computes or waits is not given
        up; for its first exchange a neighbour has ten minutes. A process that ends closes its connections, and is
        noticed at once.
    secret : path, optional
        A file that all peers have the same of, 16 characters or more, and nobody else: who sends without it is let go.
        tcp:// beyond this machine needs one.

    Notes
    -----
    Use it in a `with` statement: its threads must end before Python does.
    """

    def __init__(
        self, rank: int, size: int, rendezvous: str, patience: float = 60.0, secret: str | Path | None = None
    ) -> None:
        self._torch: Any = needed("torch", extra="gossip")
        distributed: Any = needed("torch.distributed", extra="gossip")
        patience = _checks.real("patience", patience, above=0.0)
        size = _checks.whole("size", size, at_least=2)
        rank = _checks.whole("rank", rank, at_least=0, at_most=size - 1)
        key = None if secret is None else secret_in(secret)
        store, here = meet(distributed, rank, size, rendezvous, sealed=key is not None)
        gloo = distributed.ProcessGroupGloo
        options = gloo._Options()
        options._devices, options._timeout = [gloo.create_device(hostname=here)], _CONNECTING
        try:
            self._group: Any = gloo(distributed.PrefixStore("gloo", store), rank, size, options)
        except RuntimeError as error:
            raise TimeoutError(
                f"peers at {rendezvous} must connect within {_CONNECTING.seconds} seconds; they did not ({error}). "
                "Start all peers again, at a new place."
            ) from error
        self._edges = Edges(self._swap if key is None else Seals(self._swap, rank, key), patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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
                self._group.recv([self._torch.empty(1)], neighbour, _UNUSED_TAG).wait(timedelta(milliseconds=1))
        self._edges.join()
        del self._group

    def _swap(self, neighbour: int, message: FloatArray, tag: int) -> FloatArray:
        """What a neighbour sends in exchange. Both directions are posted first: two that only sent would wait.

        Gloo answers a wait that runs out of time by closing every connection of the peer, to neighbours that are well
        too. So its waits have no end, and who has fallen silent is found by pulses.
        """
        out = self._torch.from_numpy(np.array(message, dtype=float))
        coming = self._torch.full_like(out, np.nan)  # so that what did not come is seen
        works = self._group.recv([coming], neighbour, tag), self._group.send([out], neighbour, tag)
        for work in works:
            work.wait(_FOR_EVER)
        return np.asarray(coming.numpy())


def meet(distributed: Any, rank: int, size: int, rendezvous: str, sealed: bool = False) -> tuple[Any, str]:
    """A store of torch.distributed that all peers have come to, and the address of this machine that leads there.

    The wait is in Python, so that Ctrl-C is heard.
    """
    until = time.monotonic() + COMING
    address = urlsplit(rendezvous)
    if address.scheme == "file":
        store, here = _file_store(distributed, size, rendezvous, address.netloc + unquote(address.path)), _LOOPBACK
    elif address.scheme == "tcp":
        store, here = _tcp_store(distributed, rank, size, rendezvous, until, sealed)
    else:
        raise ValueError(f"rendezvous must begin with file:// or tcp://; got {rendezvous!r}.")
    try:
        _await_all(store, rank, size, rendezvous, until, sealed)
    except BaseException as error:
        with suppress(RuntimeError):  # it goes: others must not try to connect to it, and it may come again
            store.add(f"peer {rank}", -1)
        if not isinstance(error, RuntimeError):
            raise
        raise ConnectionError(
            f"peer 0 must stay at {rendezvous} until all have come; it left ({error}). Start all peers again."
        ) from error
    return store, here


def _await_all(store: Any, rank: int, size: int, rendezvous: str, until: float, sealed: bool) -> None:
    if store.add(f"peer {rank}", 1) > 1:
        raise ValueError(
            f"rendezvous must be new, and each rank used once; peer {rank} has already come to {rendezvous}. "
            "Name another place, and start all peers again."
        )
    told = int(store.compare_set("size", "", str(size)))
    if told != size:
        raise ValueError(f"size must be the same for all peers at {rendezvous}; got {size}, and others have {told}.")
    if store.compare_set("sealed", "", str(sealed)).decode() != str(sealed):
        raise ValueError(
            f"all peers at {rendezvous} must have the same secret, or none; some have one and some do not."
        )
    while missing := [peer for peer in range(size) if not _came(store, peer)]:
        if time.monotonic() > until:
            raise TimeoutError(
                f"all {size} peers must come to {rendezvous} within {COMING / 60:.0f} minutes; {missing} did not, or "
                "left again. Start all peers again."
            )
        time.sleep(_POLL)


def _came(store: Any, peer: int) -> bool:
    return store.check([f"peer {peer}"]) and int(store.get(f"peer {peer}")) > 0


def _file_store(distributed: Any, size: int, rendezvous: str, path: str) -> Any:
    place = Path(path)
    if not place.is_absolute() or not place.parent.is_dir() or place.is_dir():  # torch would wait for such a folder
        raise ValueError(
            f"rendezvous must name a new file in a folder that exists; got {rendezvous}. "
            "Use (Path(folder) / 'meeting').resolve().as_uri()?"
        )
    return distributed.FileStore(path, size)


def _tcp_store(distributed: Any, rank: int, size: int, rendezvous: str, until: float, sealed: bool) -> tuple[Any, str]:
    address = urlsplit(rendezvous)
    try:
        host, port = address.hostname, address.port
    except ValueError:  # no number, or too large a one
        host = port = None
    if not host or not port:
        raise ValueError(f"rendezvous must be tcp://host:port, where peer 0 runs; got {rendezvous}.")
    here, there = _way_to(host, port, rendezvous, until) if rank > 0 else (_own_address(host, rendezvous),) * 2
    _need_secret(here, rendezvous, sealed)
    options: dict[str, Any] = {"timeout": timedelta(seconds=COMING), "wait_for_workers": False}
    try:
        if rank == 0:  # left to itself the store listens on all interfaces
            family = socket.AF_INET6 if ":" in here else socket.AF_INET
            options["master_listen_fd"] = socket.create_server((here, port), family=family).detach()
        return distributed.TCPStore(there, port, size, rank == 0, **options), here
    except (OSError, RuntimeError) as error:
        raise ValueError(f"rendezvous must be a free port where peer 0 runs; at {rendezvous}: {error}") from error


def _own_address(host: str, rendezvous: str) -> str:
    """What the name of a host means where peer 0 runs."""
    try:
        address = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise ValueError(f"rendezvous must name the machine that peer 0 runs on; {rendezvous}: {error}.") from error
    if ip_address(address).is_unspecified:
        raise ValueError(f"rendezvous must have one address, at which peer 0 listens; {rendezvous} means all of them.")
    return address


def _need_secret(here: str, rendezvous: str, sealed: bool) -> None:
    """Refuse to listen beyond this machine without a secret; on it, warn."""
    if sealed:
        return
    if not ip_address(here).is_loopback:
        raise ValueError(
            f"peers that listen beyond their machine need secret=, a file that all have the same of; {rendezvous} is "
            f"reached from {here}. Use openssl rand -hex 32 > FILE, and give each peer a copy?"
        )
    warnings.warn(
        f"Peers at {rendezvous} authenticate nobody: whoever runs programs on this machine can read what they meet "
        "with, and send in their place. Give all the same secret=.",
        FedgaussWarning,
        stacklevel=5,
    )


def _way_to(host: str, port: int, rendezvous: str, until: float) -> tuple[str, str]:
    """Both ends of a connection to peer 0, once it listens."""
    while True:  # torch would not hear Ctrl-C
        try:
            with socket.create_connection((host, port), timeout=1.0) as way:
                return way.getsockname()[0], way.getpeername()[0]
        except OSError as error:
            if time.monotonic() > until:
                raise TimeoutError(
                    f"peer 0 must come to {rendezvous} within {COMING / 60:.0f} minutes; it did not ({error}). "
                    "Start all peers again, with an address of the machine that peer 0 runs on."
                ) from error
            time.sleep(_POLL)
