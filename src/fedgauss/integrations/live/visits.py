"""Who visits the server: what they may take, how far each has come, and who makes room for others."""

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Literal

from fedgauss.integrations.live.request import Request

_DRAINED = 64 * 2**20  # bytes read and thrown away behind an answer, so that whoever still sends hears it


@dataclass(frozen=True)
class Limits:
    """What visitors may take. Each connection is for one request.

    connections     at once; each holds an open file, and the log needs one too
    by_address      of them from one address, or one IPv6 network; on loopback everybody has the same, so all
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


Phase = Literal["asking", "waiting", "hearing", "leaving"]  # the request, for a worker, the answer, to be gone
_DISPENSABLE: tuple[Phase, ...] = ("leaving", "asking", "hearing")  # who must make room first


class Visit:
    """A connection: what has arrived, and what is still to be sent."""

    def __init__(self, link: socket.socket, home: str, seconds: float) -> None:
        self.link, self.home = link, home
        self.heard = bytearray()
        self.request: Request | None = None
        self.unsent = memoryview(b"")
        self.left = _DRAINED
        self.events = 0  # what the selector waits for
        self.enter("asking", seconds)

    def enter(self, phase: Phase, seconds: float) -> None:
        """Begin a phase that may last this long."""
        self.phase, self.began = phase, monotonic()
        self.deadline = self.began + seconds

    @property
    def held(self) -> int:
        """Bytes of memory."""
        return len(self.heard) + len(self.unsent) + (0 if self.request is None else len(self.request.body))


def oldest(visits: Iterable[Visit], age: float) -> Visit | None:
    """Who is to make room; None where all are younger than `age` seconds, or a worker has their request."""
    before = monotonic() - age
    able = [visit for visit in visits if visit.phase in _DISPENSABLE and visit.began <= before]
    return min(able, key=lambda visit: (_DISPENSABLE.index(visit.phase), visit.began), default=None)


HERE = "this machine"


def home_of(address: str) -> str:
    """What one visitor cannot change: the IPv4 address, or the network of an IPv6 address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_loopback:
        return HERE
    return str(ip) if ip.version == 4 else str(ipaddress.ip_network((int(ip), 64), strict=False))
