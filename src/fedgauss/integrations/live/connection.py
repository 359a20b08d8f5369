"""One connection to the live page, what all of them may use, and which is closed first when there are too many."""

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Literal

from fedgauss.integrations.live.request import Request

_DRAINED = 64 * 2**20  # bytes read and discarded after an early answer; closing at once could destroy the answer


@dataclass(frozen=True)
class Limits:
    """What connections may use; each carries one request.

    connections     open at once; each is an open file, and the log needs one too
    by_address      of these from one address or IPv6 network; loopback, where all share one address, is exempt
    head_seconds    from connecting to the end of the headers
    body_seconds    from there to the end of the body
    answer_seconds  to read the answer
    held_bytes      of all bodies and answers together
    """

    connections: int = 256
    by_address: int = 64
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    answer_seconds: float = 30.0
    held_bytes: int = 64 * 2**20


Phase = Literal["receiving", "working", "sending", "closing"]
_EVICTED_FIRST: tuple[Phase, ...] = ("closing", "receiving", "sending")  # never one that a worker is busy with


class Connection:
    """A socket, its phase, what it has received and what is still to be sent."""

    def __init__(self, sock: socket.socket, source: str, seconds: float) -> None:
        self.socket, self.source = sock, source
        self.received = bytearray()
        self.request: Request | None = None
        self.unsent = memoryview(b"")
        self.to_drain = _DRAINED
        self.events = 0  # what the selector waits for
        self.enter("receiving", seconds)

    def enter(self, phase: Phase, seconds: float) -> None:
        """Begin a phase, with a deadline for the whole of it."""
        self.phase, self.began = phase, monotonic()
        self.deadline = self.began + seconds

    @property
    def held(self) -> int:
        """Bytes of memory in use."""
        return len(self.received) + len(self.unsent) + (0 if self.request is None else len(self.request.body))


def oldest(connections: Iterable[Connection], age: float) -> Connection | None:
    """The connection to close when room is needed; None if each is younger than `age` seconds or being answered."""
    before = monotonic() - age
    able = [conn for conn in connections if conn.phase in _EVICTED_FIRST and conn.began <= before]
    return min(able, key=lambda conn: (_EVICTED_FIRST.index(conn.phase), conn.began), default=None)


LOOPBACK = "loopback"


def source_of(address: str) -> str:
    """The part of an address that a single host cannot vary: IPv4 in full, the first 64 bits of IPv6."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_loopback:
        return LOOPBACK
    return str(ip) if ip.version == 4 else str(ipaddress.ip_network((int(ip), 64), strict=False))
