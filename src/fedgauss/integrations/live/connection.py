"""One connection to the live page, what all of them may use, and which is closed first when there are too many."""

import asyncio
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Literal


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
    """Where a visitor is from, how far the visit is, and what is held of it."""

    def __init__(self, source: str, task: asyncio.Task[None]) -> None:
        self.source, self.task = source, task
        self.received = bytearray()
        self.writer: asyncio.StreamWriter | None = None  # once there is TLS, if it is asked for
        self.evicted = False
        self.enter("receiving")

    def enter(self, phase: Phase) -> None:
        """Begin a phase."""
        self.phase, self.began = phase, monotonic()

    @property
    def held(self) -> int:
        """Bytes of memory in use."""
        return len(self.received) + (0 if self.writer is None else self.writer.transport.get_write_buffer_size())


def oldest(connections: Iterable[Connection], age: float) -> Connection | None:
    """The connection to close when room is needed; None if each is younger than `age` seconds or being answered."""
    before = monotonic() - age
    able = [one for one in connections if one.phase in _EVICTED_FIRST and one.began <= before and not one.evicted]
    return min(able, key=lambda one: (_EVICTED_FIRST.index(one.phase), one.began), default=None)


LOOPBACK = "loopback"


def source_of(address: str) -> str:
    """The part of an address that a single host cannot vary: IPv4 in full, the first 64 bits of IPv6."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_loopback:
        return LOOPBACK
    return str(ip) if ip.version == 4 else str(ipaddress.ip_network((int(ip), 64), strict=False))
