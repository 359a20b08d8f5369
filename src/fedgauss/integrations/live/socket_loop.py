"""The loop that owns all sockets: it collects complete requests, hands them to workers and sends the answers."""

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
from fedgauss.integrations.live.connection import LOOPBACK, Connection, Limits, oldest, source_of
from fedgauss.integrations.live.request import LONGEST_HEAD, Malformed, Request, read_head

_PIECE = 2**16  # bytes per read, at least a TLS record: what is left of a decrypted one would not wake the selector
_ACCEPTED_AT_ONCE = 16  # connections accepted before the others get their turn
_GRACE = 0.2  # seconds that a connection has before it can be evicted
_LAST_SECONDS = 2.0  # to finish answers when the server stops
_HEAD_ENDS = re.compile(rb"\n\r?\n")


class SocketLoop:
    """Serves all connections from one thread with non-blocking sockets; workers only see complete requests.

    A slow connection therefore occupies a slot but never a thread. When all slots are taken, the oldest connection
    gives way: first those already answered, then incomplete requests, then answers that are not being read.
    Connections closed early are counted in `Answers.rejected`: "slow" past a deadline, "full" for lack of room.
    """

    def __init__(self, listener: socket.socket, answers: Answers, tls: ssl.SSLContext | None, limits: Limits) -> None:
        self._listener, self._answers, self._tls, self._limits = listener, answers, tls, limits
        self._connections: dict[Connection, None] = {}  # a set that keeps its order
        self._selector = selectors.DefaultSelector()
        self._done: queue.SimpleQueue[tuple[Connection, Answer]] = queue.SimpleQueue()
        self._woken, self._waker = socket.socketpair()
        for end in (self._listener, self._woken, self._waker):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._resume_at, self._listening = 0.0, False
        # Rounds are judged one at a time. In a thread of their own they never delay the page.
        self._rounds = ThreadPoolExecutor(1, "fedgauss rounds")
        self._pages = ThreadPoolExecutor(2, "fedgauss pages")
        self._stopping, self._stopped = threading.Event(), threading.Event()

    def serve(self, tick: float) -> None:
        """Run until `stop`; deadlines are checked every `tick` seconds."""
        last_check = monotonic()
        try:
            while not self._stopping.is_set():
                self._pause_when_full()
                self._turn(tick)
                if monotonic() - last_check >= tick:
                    last_check = monotonic()
                    self._close_overdue()
            self._finish(tick)
        finally:
            self._stopped.set()

    def stop(self) -> None:
        """End `serve`, from another thread, after complete requests have been answered."""
        self._stopping.set()
        self._wake()
        self._stopped.wait()

    def close(self) -> None:
        """Release sockets and threads, after `stop`."""
        for pool in (self._rounds, self._pages):
            pool.shutdown(cancel_futures=True)
        for conn in [*self._connections]:
            self._close(conn)
        self._selector.close()
        for end in (self._listener, self._woken, self._waker):
            end.close()

    def _finish(self, tick: float) -> None:
        self._listen(False)
        until = monotonic() + _LAST_SECONDS
        for conn in [*self._connections]:
            if conn.phase == "receiving":
                self._close(conn)
        while any(conn.phase in ("working", "sending") for conn in self._connections) and monotonic() < until:
            self._turn(min(tick, _LAST_SECONDS))

    def _turn(self, tick: float) -> None:
        for key, events in self._selector.select(tick):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._woken:
                self._deliver()
            elif key.data in self._connections and events & key.data.events:  # else it was closed in this turn
                self._advance(key.data)

    # Accepting

    def _pause_when_full(self) -> None:
        """Leave new connections in the system's backlog while there is no room for them."""
        room = len(self._connections) < self._limits.connections or oldest(self._connections, _GRACE) is not None
        self._listen(room and monotonic() >= self._resume_at)

    def _listen(self, on: bool) -> None:
        if on and not self._listening:
            self._selector.register(self._listener, selectors.EVENT_READ)
        elif self._listening and not on:
            self._selector.unregister(self._listener)
        self._listening = on

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            if len(self._connections) >= self._limits.connections and not self._evict(self._connections):
                return
            try:
                link, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # too many open files
                self._evict(self._connections)
                self._resume_at = monotonic() + 0.1
                return
            self._admit(link, source_of(address[0]))

    def _admit(self, link: socket.socket, source: str) -> None:
        there = [conn for conn in self._connections if conn.source == source != LOOPBACK]
        if len(there) >= self._limits.by_address and not self._evict(there):
            self._answers.rejected["full"] += 1
            link.close()
            return
        try:
            link.setblocking(False)
            if self._tls is not None:  # the handshake happens in the first reads, without blocking
                link = self._tls.wrap_socket(link, server_side=True, do_handshake_on_connect=False)
        except OSError:  # already disconnected
            link.close()
            return
        conn = Connection(link, source, self._limits.head_seconds)
        self._connections[conn] = None
        self._wait_for(conn, selectors.EVENT_READ)

    # Closing

    def _evict(self, connections: Iterable[Connection], age: float = _GRACE) -> bool:
        if (conn := oldest(connections, age)) is None:
            return False
        if conn.phase != "closing":
            self._answers.rejected["full"] += 1
        self._reject(conn, refusal(503, "too many connections, so the slowest were closed. Try again."))
        return True

    def _close_overdue(self) -> None:
        now, limits = monotonic(), self._limits
        deadlines = f"{limits.head_seconds:g} s and the body within another {limits.body_seconds:g} s"
        for conn in [conn for conn in self._connections if conn.phase != "working" and conn.deadline < now]:
            if conn.phase != "closing":
                self._answers.rejected["slow"] += 1
            self._reject(conn, refusal(408, f"headers must arrive within {deadlines}; this request was slower."))

    def _reject(self, conn: Connection, why: Answer) -> None:
        """Close, after sending the reason if that can be done without waiting."""
        if conn.phase == "receiving":
            with contextlib.suppress(OSError):
                conn.socket.send(why.sent(self._answers.policy))
        self._close(conn)

    def _close(self, conn: Connection) -> None:
        self._wait_for(conn, 0)
        self._connections.pop(conn, None)
        conn.socket.close()

    def _wait_for(self, conn: Connection, events: int) -> None:
        """Set the events that the selector reports for a connection; 0 for none."""
        if events == conn.events:
            return
        if not conn.events:
            self._selector.register(conn.socket, events, conn)
        elif events:
            self._selector.modify(conn.socket, events, conn)
        else:
            self._selector.unregister(conn.socket)
        conn.events = events

    # Receiving, answering, sending

    def _advance(self, conn: Connection) -> None:
        """Send or receive what is possible without blocking. Under TLS, sending may need reading first."""
        try:
            if conn.phase == "sending":
                self._send(conn)
            else:
                self._receive(conn)
        except ssl.SSLWantReadError:
            self._wait_for(conn, selectors.EVENT_READ)
        except ssl.SSLWantWriteError:
            self._wait_for(conn, selectors.EVENT_WRITE)
        except BlockingIOError:
            self._wait_for(conn, selectors.EVENT_WRITE if conn.phase == "sending" else selectors.EVENT_READ)
        except OSError:  # disconnected, or not TLS
            self._close(conn)
        except Exception:  # one connection's error, whatever it is, must not stop the loop that serves all others
            traceback.print_exc(file=sys.stderr)
            self._close(conn)

    def _receive(self, conn: Connection) -> None:
        piece = conn.socket.recv(_PIECE)
        if conn.phase == "closing":
            conn.to_drain -= len(piece)
            if not piece or conn.to_drain <= 0:
                self._close(conn)
            return
        conn.received += piece
        if conn.request is None:
            self._read_head(conn, len(piece))
        if conn.phase == "receiving" and conn.request is not None:
            self._read_body(conn, conn.request, ended=not piece)
        if conn.events:
            self._wait_for(conn, selectors.EVENT_WRITE if conn.phase == "sending" else selectors.EVENT_READ)

    def _read_head(self, conn: Connection, fresh: int) -> None:
        ends = _HEAD_ENDS.search(conn.received, max(0, len(conn.received) - fresh - 2))
        if ends is None and not fresh and not conn.received:
            self._close(conn)
        elif ends is None and not fresh:
            self._answer(conn, refusal(400, "a request must be complete; this one ended in its headers."))
        elif (ends.start() if ends else len(conn.received)) > LONGEST_HEAD:
            self._answer(conn, refusal(431, f"headers must have at most {LONGEST_HEAD:,} bytes."))
        elif ends is not None:
            head = bytes(conn.received[: ends.start()])
            del conn.received[: ends.end()]
            try:
                conn.request = read_head(head)
            except Malformed as error:
                self._answer(conn, refusal(error.status, str(error)))
                return
            conn.enter("receiving", self._limits.body_seconds)
            if (refused := self._answers.at_once(conn.request)) is not None:
                self._answer(conn, refused)

    def _read_body(self, conn: Connection, request: Request, ended: bool) -> None:
        """Hand the request to a worker once it is complete, or has ended early."""
        wanted = request.length if request.method == "POST" else 0
        if len(conn.received) >= wanted or ended:
            request.body = bytes(conn.received[:wanted])
            conn.received.clear()
            self._wait_for(conn, 0)
            conn.enter("working", 0.0)
            (self._rounds if request.method == "POST" else self._pages).submit(self._work, conn, request)
        self._bound_memory()

    def _bound_memory(self) -> None:
        """Close the connections that have been sending or reading for longest until memory is within its limit."""
        while sum(conn.held for conn in self._connections) > self._limits.held_bytes:
            if not self._evict((conn for conn in self._connections if conn.held > _PIECE), age=0.0):
                return

    def _work(self, conn: Connection, request: Request) -> None:
        """Runs in a worker."""
        try:
            answer = self._answers.respond(request)
        except Exception:  # raised here it would vanish with the worker, and the visitor would wait for ever
            traceback.print_exc(file=sys.stderr)
            answer = refusal(500, "the watcher failed to answer; its terminal says why.")
        self._done.put((conn, answer))
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # already awake, or closed
            self._waker.send(b"!")

    def _deliver(self) -> None:
        """Send the answers that workers have finished."""
        self._woken.recv(_PIECE)
        with contextlib.suppress(queue.Empty):
            while True:
                conn, answer = self._done.get_nowait()
                if conn in self._connections:
                    self._answer(conn, answer)
                    self._advance(conn)
                    self._bound_memory()

    def _answer(self, conn: Connection, answer: Answer) -> None:
        conn.received.clear()
        conn.request = None
        conn.unsent = memoryview(answer.sent(self._answers.policy))
        conn.enter("sending", self._limits.answer_seconds)
        self._wait_for(conn, selectors.EVENT_WRITE)

    def _send(self, conn: Connection) -> None:
        while conn.unsent:
            conn.unsent = conn.unsent[conn.socket.send(conn.unsent) :]
        conn.enter("closing", self._limits.head_seconds)
        with contextlib.suppress(OSError, ValueError):
            if isinstance(conn.socket, ssl.SSLSocket):
                conn.socket.unwrap()  # send close_notify, without waiting for the peer's
        conn.socket.shutdown(socket.SHUT_WR)
        self._wait_for(conn, selectors.EVENT_READ)
