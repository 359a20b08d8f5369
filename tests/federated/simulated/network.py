"""The way between a mailbox and sites, on which a seed loses, delays, repeats, reorders, changes and swaps messages."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple

from fedgauss.federated.mailbox import LostSite
from fedgauss.federated.wire import Message, decode, encode
from simulated.machine import Gone, Machine

ON_THE_WAY = (
    "order lost", "reply lost", "order repeated", "old reply", "too late", "bit flipped there", "bit flipped back",
    "cut off", "replies swapped",
)  # fmt: skip
AT_A_SITE = ("crash at a write", "crash between orders", "full disk", "read-only disk")
HARMLESS = ("put away", "lost and sent again", "clock jumps", "second process")
_PATIENCE = 30.0  # seconds until a reply is too late
_SHOWN = 200  # characters of an error
_LATE = 1.0  # seconds that count as a delay


class MailboxStops(BaseException):
    """The process of who carries the messages is killed."""


class Fault(NamedTuple):
    """What goes wrong in a turn, and at which site."""

    kind: str
    turn: int
    site: str


class Clock:
    """Time goes on with messages, and jumps where a seed says so."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        """By so much, which may be negative."""
        self.now += timedelta(seconds=seconds)


class Network:
    """An `Exchange` between named machines.

    Parameters
    ----------
    machines : mapping of str to Machine
        By the names that they have in this run.
    random, clock : Random and Clock
    faults : sequence of Fault
    count : Counter
        Of faults that took place.
    watch : callable
        watch(text) for every text that arrives, in order.
    tell : callable, optional
        tell(line) for every turn, of what goes wrong in it and what comes back.
    """

    def __init__(
        self,
        machines: Mapping[str, Machine],
        random: Random,
        clock: Clock,
        faults: Iterable[Fault],
        count: Counter[str],
        audit: Any,
        watch: Callable[[str], None],
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.machines, self._random, self._clock, self._count = dict(machines), random, clock, count
        self._faults: dict[tuple[int, str], str] = {(one.turn, one.site): one.kind for one in faults}
        self._audit, self._watch, self._tell = audit, watch, tell
        self.changed = False  # whether a text came otherwise than it was sent
        self._turn, self._last = 0, dict[str, str]()  # the last reply of each

    @property
    def names(self) -> list[str]:
        """Of all sites."""
        return sorted(self.machines)

    def ask(self, order: str, contents: Mapping[str, Message]) -> dict[str, Message]:
        """The replies that come back in time."""
        self._turn += 1
        texts: dict[int, tuple[str, Message]] = {}
        for content in contents.values():
            if id(content) not in texts:
                text = encode(content)
                texts[id(content)] = text, decode(text)
        delays = {name: self._random.expovariate(4.0) for name in contents}
        arrival = sorted(contents, key=delays.__getitem__)
        self._count["out of order"] += arrival != list(contents)
        self._count["delay"] += sum(delay > _LATE for delay in delays.values())
        self._clock.advance(max(delays.values(), default=0.0))
        replies = {name: self._deliver(name, order, *texts[id(contents[name])]) for name in arrival}
        self._swap(replies)
        self._audit.rounds += order == "open" and all(
            reply and reply.startswith('{"opening"') for reply in replies.values()
        )
        if self._tell is not None:
            faults = {name: self._faults.get((self._turn, name), "") for name in contents}
            shown = (f"{name} {faults[name] and f'[{faults[name]}] '}{_short(replies[name])}" for name in contents)
            self._tell(f"  {self._turn:>3} {order:<5} {', '.join(shown)}")
        if (self._turn, "") in self._faults:
            self._count["mailbox stopped"] += 1
            raise MailboxStops
        return {name: self._read(name, replies[name]) for name in contents if replies[name] is not None}

    def _deliver(self, name: str, order: str, text: str, content: Message) -> str | None:
        """The text of a reply, or None."""
        machine, kind = self.machines[name], self._faults.get((self._turn, name), "")
        if kind and kind != "replies swapped":
            self._count[kind] += 1
        if kind == "order lost":
            self._clock.advance(_PATIENCE)
            return None
        if kind == "clock jumps":
            self._clock.advance(self._random.uniform(-1e7, 1e7))
        elif kind == "crash between orders":
            machine.stop()
        elif kind == "crash at a write":
            machine.disk.crash_in = self._random.randint(1, 3)
        elif kind in ("full disk", "read-only disk"):
            machine.disk.error = errno.ENOSPC if kind == "full disk" else errno.EROFS
        elif kind == "put away" and machine.site is not None:
            machine.put_away()
        elif kind == "second process":
            machine.second_process()
        elif kind == "bit flipped there":
            text = self._flip(text)
        elif kind == "order repeated":
            self._answer(machine, order, text, content)
        before = self._last.get(name)
        reply = self._answer(machine, order, text, None if kind == "bit flipped there" else content)
        if kind in ("reply lost", "too late"):
            self._clock.advance(_PATIENCE)
            return None
        if reply is None:
            return None
        self._last[name] = reply
        if kind == "old reply":
            return before
        if kind == "bit flipped back":
            return self._flip(reply)
        return reply[: self._random.randrange(len(reply))] if kind == "cut off" else reply

    def _answer(self, machine: Machine, order: str, text: str, content: Message | None) -> str | None:
        """What a site's process writes to a line that it reads."""
        self._watch(text)
        if content is None:
            try:
                content = decode(text)
            except ValueError as error:
                return encode({"error": str(error)})
        try:
            reply = machine.answer(order, content)
        except Gone:
            return None
        written = encode(reply)
        self._watch(written)
        self._audit.note_reply(machine, order, content, reply, written)
        return written

    def _swap(self, replies: dict[str, str | None]) -> None:
        for name in list(replies):
            if self._faults.get((self._turn, name)) == "replies swapped":
                other = self._random.choice(list(replies))
                replies[name], replies[other] = replies[other], replies[name]
                self._count["replies swapped"] += other != name

    def _read(self, name: str, text: str) -> Message:
        try:
            return decode(text)
        except ValueError as error:
            raise LostSite(name, f"site {name!r} sent something other than a reply: {error}") from error

    def _flip(self, text: str) -> str:
        self.changed = True
        place = self._random.randrange(len(text))
        return text[:place] + chr(ord(text[place]) ^ (1 << self._random.randrange(7))) + text[place + 1 :]


def _short(reply: str | None) -> str:
    """What came back, in few words."""
    if reply is None:
        return "no reply"
    return reply[:_SHOWN] if reply.startswith('{"error"') else reply[2:].partition('"')[0]
