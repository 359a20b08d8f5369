"""Collects whole requests from many visitors at once and sends the answers, so that who is slow holds up nobody."""

import contextlib
import queue
import re
import selectors
import socket
import ssl
import sys
import threading
import traceback
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from fedgauss.integrations.live.answers import Answer, Answers, refusal
from fedgauss.integrations.live.request import LONGEST_HEAD, Malformed, Request, read_head
from fedgauss.integrations.live.visits import HERE, Limits, Visit, home_of, oldest

_PIECE = 2**16  # bytes read at a time: not less than a record of TLS, or the rest of one would wait unseen
_AT_A_TIME = 16  # visitors let in before the others are looked after again
_YOUNG = 0.2  # seconds that everybody has before others may take the place
_GOODBYE = 2.0  # seconds for the last answers when the server stops
_HEAD_ENDS = re.compile(rb"\n\r?\n")


class Connections:
    """One thread has every socket, and none of them blocks; workers only ever see whole requests.

    A slow visitor therefore costs a place and no thread. When places run out, one who has had its time makes room, in
    the order of `oldest`: it has been answered, has not finished asking, or does not read its answer. `Answers.hung_up`
    counts who was not served: "slow" past a deadline, "full" for want of room.
    """

    def __init__(self, door: socket.socket, answers: Answers, tls: ssl.SSLContext | None, limits: Limits) -> None:
        self._door, self._answers, self._tls, self._limits = door, answers, tls, limits
        self._visits: dict[Visit, None] = {}  # in the order of their coming
        self._selector = selectors.DefaultSelector()
        self._done: queue.SimpleQueue[tuple[Visit, Answer]] = queue.SimpleQueue()
        self._bell, self._rope = socket.socketpair()
        for end in (self._door, self._bell, self._rope):
            end.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._door_opens, self._is_open = 0.0, False
        # Rounds are taken in turn. With a thread of their own they never keep a page waiting.
        self._rounds = ThreadPoolExecutor(1, "fedgauss rounds")
        self._pages = ThreadPoolExecutor(2, "fedgauss pages")
        self._stopping, self._stopped = threading.Event(), threading.Event()

    def serve(self, tick: float) -> None:
        """Until `stop`; deadlines are looked at every `tick` seconds."""
        last_look = monotonic()
        try:
            while not self._stopping.is_set():
                self._mind_the_door()
                self._attend_all(tick)
                if monotonic() - last_look >= tick:
                    last_look = monotonic()
                    self._hang_up_on_the_late()
            self._say_goodbye(tick)
        finally:
            self._stopped.set()

    def stop(self) -> None:
        """End `serve`, from another thread: who has asked is answered, nobody else is let in."""
        self._stopping.set()
        self._ring()
        self._stopped.wait()

    def close(self) -> None:
        """Give everything back, after `stop`."""
        for pool in (self._rounds, self._pages):
            pool.shutdown(cancel_futures=True)
        for visit in [*self._visits]:
            self._close(visit)
        self._selector.close()
        for end in (self._door, self._bell, self._rope):
            end.close()

    def _say_goodbye(self, tick: float) -> None:
        self._open_door(False)
        until = monotonic() + _GOODBYE
        for visit in [*self._visits]:
            if visit.phase == "asking":
                self._close(visit)
        while any(visit.phase in ("waiting", "hearing") for visit in self._visits) and monotonic() < until:
            self._attend_all(min(tick, _GOODBYE))

    def _attend_all(self, tick: float) -> None:
        for key, events in self._selector.select(tick):
            if key.fileobj is self._door:
                self._let_in()
            elif key.fileobj is self._bell:
                self._deliver()
            elif key.data in self._visits and events & key.data.events:  # else it was hung up on a moment ago
                self._attend(key.data)

    # Who comes

    def _mind_the_door(self) -> None:
        """While there is no room, newcomers wait outside, in the system's own queue."""
        room = len(self._visits) < self._limits.connections or oldest(self._visits, _YOUNG) is not None
        self._open_door(room and monotonic() >= self._door_opens)

    def _open_door(self, is_open: bool) -> None:
        if is_open and not self._is_open:
            self._selector.register(self._door, selectors.EVENT_READ)
        elif self._is_open and not is_open:
            self._selector.unregister(self._door)
        self._is_open = is_open

    def _let_in(self) -> None:
        for _ in range(_AT_A_TIME):
            if len(self._visits) >= self._limits.connections and not self._make_room(self._visits):
                return
            try:
                link, address = self._door.accept()
            except BlockingIOError:
                return
            except OSError:  # too many open files, here or on the whole machine
                self._make_room(self._visits)
                self._door_opens = monotonic() + 0.1
                return
            self._seat(link, home_of(address[0]))

    def _seat(self, link: socket.socket, home: str) -> None:
        there = [visit for visit in self._visits if visit.home == home != HERE]
        if len(there) >= self._limits.by_address and not self._make_room(there):
            self._answers.hung_up["full"] += 1
            link.close()
            return
        try:
            link.setblocking(False)
            if self._tls is not None:  # hands are shaken with the first bytes read, and never waited for
                link = self._tls.wrap_socket(link, server_side=True, do_handshake_on_connect=False)
        except OSError:  # gone already
            link.close()
            return
        visit = Visit(link, home, self._limits.head_seconds)
        self._visits[visit] = None
        self._await(visit, selectors.EVENT_READ)

    # Who must go

    def _make_room(self, visits: Iterable[Visit], age: float = _YOUNG) -> bool:
        if (visit := oldest(visits, age)) is None:
            return False
        if visit.phase != "leaving":
            self._answers.hung_up["full"] += 1
        self._hang_up(visit, refusal(503, "too many connections; the slowest are closed. Try again."))
        return True

    def _hang_up_on_the_late(self) -> None:
        now, limits = monotonic(), self._limits
        in_time = f"{limits.head_seconds:g} s, the body in {limits.body_seconds:g} s more"
        for visit in [visit for visit in self._visits if visit.phase != "waiting" and visit.deadline < now]:
            if visit.phase != "leaving":
                self._answers.hung_up["slow"] += 1
            self._hang_up(visit, refusal(408, f"headers must arrive in {in_time}; this was slower."))

    def _hang_up(self, visit: Visit, why: Answer) -> None:
        """Close, and say why if it has not been said and can be without waiting."""
        if visit.phase == "asking":
            with contextlib.suppress(OSError):
                visit.link.send(why.sent(self._answers.policy))
        self._close(visit)

    def _close(self, visit: Visit) -> None:
        self._await(visit, 0)
        self._visits.pop(visit, None)
        visit.link.close()

    def _await(self, visit: Visit, events: int) -> None:
        """Have the selector wait for these events, 0 for none."""
        if events == visit.events:
            return
        if not visit.events:
            self._selector.register(visit.link, events, visit)
        elif events:
            self._selector.modify(visit.link, events, visit)
        else:
            self._selector.unregister(visit.link)
        visit.events = events

    # What is said

    def _attend(self, visit: Visit) -> None:
        """Send or receive what can be without waiting. Under TLS either may first need the other."""
        try:
            if visit.phase == "hearing":
                self._send(visit)
            else:
                self._receive(visit)
        except ssl.SSLWantReadError:
            self._await(visit, selectors.EVENT_READ)
        except ssl.SSLWantWriteError:
            self._await(visit, selectors.EVENT_WRITE)
        except BlockingIOError:
            self._await(visit, selectors.EVENT_WRITE if visit.phase == "hearing" else selectors.EVENT_READ)
        except OSError:  # hung up, or no TLS
            self._close(visit)
        except Exception:  # one visitor's trouble is not everybody's
            traceback.print_exc(file=sys.stderr)
            self._close(visit)

    def _receive(self, visit: Visit) -> None:
        piece = visit.link.recv(_PIECE)
        if visit.phase == "leaving":
            visit.left -= len(piece)
            if not piece or visit.left <= 0:
                self._close(visit)
            return
        visit.heard += piece
        if visit.request is None:
            self._read_head(visit, len(piece))
        if visit.phase == "asking" and visit.request is not None:
            self._read_body(visit, visit.request, ended=not piece)
        if visit.events:
            self._await(visit, selectors.EVENT_WRITE if visit.phase == "hearing" else selectors.EVENT_READ)

    def _read_head(self, visit: Visit, fresh: int) -> None:
        ends = _HEAD_ENDS.search(visit.heard, max(0, len(visit.heard) - fresh - 2))
        if ends is None and not fresh and not visit.heard:
            self._close(visit)
        elif ends is None and not fresh:
            self._answer(visit, refusal(400, "a request must be complete; this one ended in its headers."))
        elif (ends.start() if ends else len(visit.heard)) > LONGEST_HEAD:
            self._answer(visit, refusal(431, f"headers must have at most {LONGEST_HEAD:,} bytes."))
        elif ends is not None:
            head = bytes(visit.heard[: ends.start()])
            del visit.heard[: ends.end()]
            try:
                visit.request = read_head(head)
            except Malformed as error:
                self._answer(visit, refusal(error.status, str(error)))
                return
            visit.enter("asking", self._limits.body_seconds)
            if (refused := self._answers.at_once(visit.request)) is not None:
                self._answer(visit, refused)

    def _read_body(self, visit: Visit, request: Request, ended: bool) -> None:
        """Hand the request to a worker when all of it is there, or the visitor stopped in the middle of it."""
        wanted = request.length if request.method == "POST" else 0
        if len(visit.heard) >= wanted or ended:
            request.body = bytes(visit.heard[:wanted])
            visit.heard.clear()
            self._await(visit, 0)
            visit.enter("waiting", 0.0)
            (self._rounds if request.method == "POST" else self._pages).submit(self._work, visit, request)
        self._bound_memory()

    def _bound_memory(self) -> None:
        """Keep what is held in bounds, at the expense of whoever has been sending or reading for longest."""
        while sum(visit.held for visit in self._visits) > self._limits.held_bytes:
            if not self._make_room((visit for visit in self._visits if visit.held > _PIECE), age=0.0):
                return

    def _work(self, visit: Visit, request: Request) -> None:
        """In a worker's thread."""
        try:
            answer = self._answers.to(request)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            answer = refusal(500, "the watcher failed to answer; its terminal says why.")
        self._done.put((visit, answer))
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # a bell that rings already, or is gone
            self._rope.send(b"!")

    def _deliver(self) -> None:
        """Begin to send what workers have finished."""
        self._bell.recv(_PIECE)
        with contextlib.suppress(queue.Empty):
            while True:
                visit, answer = self._done.get_nowait()
                if visit in self._visits:
                    self._answer(visit, answer)
                    self._attend(visit)
                    self._bound_memory()

    def _answer(self, visit: Visit, answer: Answer) -> None:
        visit.heard.clear()
        visit.request = None
        visit.unsent = memoryview(answer.sent(self._answers.policy))
        visit.enter("hearing", self._limits.answer_seconds)
        self._await(visit, selectors.EVENT_WRITE)

    def _send(self, visit: Visit) -> None:
        while visit.unsent:
            visit.unsent = visit.unsent[visit.link.send(visit.unsent) :]
        visit.enter("leaving", self._limits.head_seconds)
        with contextlib.suppress(OSError, ValueError):
            if isinstance(visit.link, ssl.SSLSocket):
                visit.link.unwrap()  # says goodbye; theirs is not waited for
        visit.link.shutdown(socket.SHUT_WR)
        self._await(visit, selectors.EVENT_READ)
