"""The web server of a run's page: one thread for all visitors, who have a place for a while, and never a thread."""

import asyncio
import contextlib
import re
import socket
import sys
import threading
import traceback
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from fedgauss.integrations.live.answers import Answer, Answers, Hear, refusal
from fedgauss.integrations.live.connection import LOOPBACK, Connection, Limits, oldest, source_of
from fedgauss.integrations.live.guard import Guard
from fedgauss.integrations.live.request import LONGEST_HEAD, Malformed, Request, read_head
from fedgauss.integrations.live.run import Run

_BACKLOG = 512  # connections that wait in the system's queue
_BUFFER = 2**18  # bytes of an answer that the system buffers for a slow reader
_PIECE = 2**16  # bytes per read
_AHEAD = 2**14  # of a visit that are read before they are asked for, at most twice as many
_GRACE = 0.2  # seconds that a connection has before it can be evicted
_RETRY = 0.05  # seconds until somebody else may be let in
_LAST_SECONDS = 2.0  # to finish answers when the server stops
_DRAINED = 64 * 2**20  # bytes read and discarded after an early answer; closing at once could destroy the answer
_HEAD_ENDS = re.compile(rb"\n\r?\n")


class LiveServer:
    """Serves a run's page; `hear` is told of every POSTed round that was judged, None where rounds are not taken.

    Each phase of a visit has a deadline as a whole. When all places are taken, the oldest visitor gives way: first
    those already answered, then incomplete requests, then answers that are not being read. Visits that end early are
    counted in `rejected`: "slow" past a deadline, "full" for lack of room.
    """

    def __init__(
        self, run: Run, title: str, guard: Guard, port: int, hear: Hear | None = None, limits: Limits | None = None
    ) -> None:
        self.guard, self._limits = guard, limits or Limits()
        self._listener = _listener(guard.host, port)
        self.port = int(self._listener.getsockname()[1])  # the actual one, where 0 was given
        self._answers = Answers(run, title, guard, self.port, hear)
        self.rejected = self._answers.rejected  # visits that ended early, by reason
        self.connections: dict[Connection, None] = {}  # a set that keeps its order
        self._loop = asyncio.new_event_loop()
        self._stopping, self._stopped = asyncio.Event(), threading.Event()
        # Rounds are judged one at a time. In a thread of their own they never delay the page.
        self._rounds = ThreadPoolExecutor(1, "fedgauss rounds")
        self._pages = ThreadPoolExecutor(2, "fedgauss pages")

    @property
    def address(self) -> str:
        """Where the page is."""
        host = f"[{self.guard.host}]" if ":" in self.guard.host else self.guard.host
        return f"{self.guard.scheme}://{host}:{self.port}/"

    def serve_forever(self) -> None:
        """Run until `shutdown`."""
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._stopped.set()

    def shutdown(self) -> None:
        """End `serve_forever`, which runs in another thread, after complete requests have been answered."""
        if not self._stopped.is_set():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._stopped.wait()

    def server_close(self) -> None:
        """Close the port, and end the threads."""
        for pool in (self._rounds, self._pages):
            pool.shutdown(cancel_futures=True)
        self._listener.close()
        self._loop.close()

    async def _serve(self) -> None:
        accepting = asyncio.create_task(self._accept())
        await self._stopping.wait()
        accepting.cancel()
        left = {one.task for one in self.connections if one.phase in ("working", "sending")}
        if left:
            await asyncio.wait(left, timeout=_LAST_SECONDS)
        tasks = [one.task for one in self.connections]
        for one in [*self.connections]:
            one.evicted = True  # without a word
            one.task.cancel()
        await asyncio.gather(accepting, *tasks, return_exceptions=True)

    async def _accept(self) -> None:
        """Let visitors in; while there is no room for them they wait in the system's queue."""
        while True:
            while len(self.connections) >= self._limits.connections and not self._evict(self.connections):
                await asyncio.sleep(_RETRY)
            try:
                link, address = await self._loop.sock_accept(self._listener)
            except OSError:  # too many open files
                self._evict(self.connections)
                await asyncio.sleep(_RETRY)
                continue
            source = source_of(address[0])
            there = [one for one in self.connections if one.source == source != LOOPBACK]
            if len(there) >= self._limits.by_address and not self._evict(there):
                self.rejected["full"] += 1
                link.close()
                continue
            one = Connection(source, asyncio.create_task(self._visit(link)))
            self.connections[one] = None
            one.task.add_done_callback(lambda _, one=one: self.connections.pop(one, None))  # type: ignore[misc]

    def _evict(self, connections: Iterable[Connection], age: float = _GRACE) -> bool:
        if (one := oldest(connections, age)) is None:
            return False
        one.evicted = True
        if one.phase != "closing":
            self.rejected["full"] += 1
        if one.phase == "receiving":
            self._send_at_once(one, refusal(503, "too many connections, so the slowest were closed. Try again."))
        one.task.cancel()
        self.connections.pop(one, None)
        return True

    def _send_at_once(self, one: Connection, why: Answer) -> None:
        """Send a reason if that can be done without waiting."""
        if one.writer is not None:
            one.writer.write(why.sent(self._answers.policy))

    def _bound_memory(self) -> None:
        """Close the visits that have been sending or reading for longest until memory is within its limit."""
        while sum(one.held for one in self.connections) > self._limits.held_bytes:
            if not self._evict((one for one in self.connections if one.held > _PIECE), age=0.0):
                return

    async def _visit(self, link: socket.socket) -> None:
        one = next(one for one in self.connections if one.task is asyncio.current_task())
        limits = self._limits
        try:
            rest = 0  # bytes of a body that nobody asked for
            try:
                async with asyncio.timeout(limits.head_seconds):
                    reader = await self._meet(one, link)
                    asked = await self._read_head(one, reader)
                answer = None if asked is None else self._answers.at_once(asked)
                if asked is not None and answer is None:
                    async with asyncio.timeout(limits.body_seconds):
                        await self._read_body(one, reader, asked)
                    answer = await self._respond(one, asked)
                elif asked is not None:
                    rest = asked.length - len(one.received)
            except Malformed as error:
                answer = refusal(error.status, str(error))
            if answer is not None:
                async with asyncio.timeout(limits.answer_seconds):
                    await self._send(one, answer)
                one.enter("closing")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(limits.head_seconds):
                        await self._part(one, reader, rest)
        except TimeoutError:
            self.rejected["slow"] += 1
            if one.phase == "receiving":
                within = f"{limits.head_seconds:g} s and the body within another {limits.body_seconds:g} s"
                self._send_at_once(one, refusal(408, f"headers must arrive within {within}; this request was slower."))
        except OSError:  # disconnected, or not TLS
            pass
        except Exception:  # one visitor's error, whatever it is, must not end the others'
            traceback.print_exc(file=sys.stderr)
        finally:
            one.writer.transport.abort() if one.writer is not None else link.close()

    async def _meet(self, one: Connection, link: socket.socket) -> asyncio.StreamReader:
        """A reader and a writer, under TLS once hands were shaken."""
        reader = asyncio.StreamReader(limit=_AHEAD)
        protocol, tls = asyncio.StreamReaderProtocol(reader), self.guard.tls
        limit = None if tls is None else self._limits.head_seconds + 1.0  # the visit's own deadline comes first
        link.setblocking(False)
        transport, _ = await self._loop.connect_accepted_socket(
            lambda: protocol, link, ssl=tls, ssl_handshake_timeout=limit
        )
        transport.set_write_buffer_limits(0)  # what is drained has been sent
        one.writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        return reader

    async def _read_head(self, one: Connection, reader: asyncio.StreamReader) -> Request | None:
        """The head of a request; None where there is none."""
        while (ends := _HEAD_ENDS.search(one.received)) is None and len(one.received) <= LONGEST_HEAD:
            if not (piece := await reader.read(_PIECE)):
                if one.received:
                    raise Malformed(400, "a request must be complete; this one ended in its headers.")
                return None
            one.received += piece
        if ends is None or ends.start() > LONGEST_HEAD:
            raise Malformed(431, f"headers must have at most {LONGEST_HEAD:,} bytes.")
        head = bytes(one.received[: ends.start()])
        del one.received[: ends.end()]
        return read_head(head)

    async def _read_body(self, one: Connection, reader: asyncio.StreamReader, asked: Request) -> None:
        wanted = asked.length if asked.method == "POST" else 0
        one.enter("receiving")
        while len(one.received) < wanted and (piece := await reader.read(_PIECE)):
            one.received += piece
            self._bound_memory()
        asked.body = bytes(one.received[:wanted])

    async def _respond(self, one: Connection, asked: Request) -> Answer:
        one.enter("working")
        pool = self._rounds if asked.method == "POST" else self._pages
        try:
            return await self._loop.run_in_executor(pool, self._answers.respond, asked)
        except Exception:  # the visitor would wait for ever
            traceback.print_exc(file=sys.stderr)
            return refusal(500, "the watcher failed to answer; its terminal says why.")

    async def _send(self, one: Connection, answer: Answer) -> None:
        assert one.writer is not None
        one.received.clear()
        one.enter("sending")
        one.writer.write(answer.sent(self._answers.policy))
        self._bound_memory()
        await one.writer.drain()

    async def _part(self, one: Connection, reader: asyncio.StreamReader, rest: int) -> None:
        """Say that this was all, and wait until the visitor has gone. TLS says it for both sides: after the body."""
        assert one.writer is not None
        plain = one.writer.can_write_eof()
        if plain:
            one.writer.write_eof()
        left = _DRAINED if plain else min(rest, _DRAINED)
        while left > 0 and (piece := await reader.read(_PIECE)):
            left -= len(piece)
        one.writer.close()
        await one.writer.wait_closed()


def _listener(host: str, port: int) -> socket.socket:
    """A listening socket, or a ValueError that says why there is none."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)  # inherited by connections
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except (OSError, OverflowError) as error:
        listener.close()
        why = str(error).rstrip(".")
        raise ValueError(f"port {port} at {host} cannot be used; {why}. Use another --port?") from error
    return listener
