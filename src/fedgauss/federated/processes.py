"""Sites as processes behind pipes: each is started by its own command, on this machine or by ssh on another."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from fedgauss import _checks
from fedgauss.federated.mailbox import LostSite
from fedgauss.federated.wire import LONGEST, Message, decode, order_line, printable

_A_MOMENT = 5.0  # seconds, for a process that is about to end: on a busy machine that may take a while
_LAST_WORDS = 5  # lines
_LONGEST_WORDS = 300  # characters of a line
_LONGEST_SAID = 8192  # bytes of a line on standard error that are taken in at once
_LONGEST_BANNER = 50  # lines
_PATIENCE = 10.0  # seconds that a process has to end by itself once its orders have


class SiteProcesses:
    """Sites by name, sorted; each command must run `fedgauss site`, whose pipes carry orders and replies.

    No port is opened, and no shell reads the commands.

    Parameters
    ----------
    commands : mapping of str to str or sequence of str
        The command that starts each site.
    timeout : float
        Seconds that a site has to reply to an order.

    Examples
    --------
    >>> with SiteProcesses({"a": "fedgauss site a.csv", "b": "ssh b"}) as sites:
    ...     fit = federate(Model("y ~ x"), sites)
    """

    def __init__(self, commands: Mapping[str, str | Sequence[str]], timeout: float = 600.0) -> None:
        self.names = sorted(commands)
        self._timeout = _checks.real("timeout", timeout, above=0.0)
        self._commands = [_words(name, commands[name]) for name in self.names]
        self._started: dict[str, _Process] = {}
        self._replies: dict[str, Future[bytes]] = {}  # to the last order
        self._threads = ThreadPoolExecutor(max(1, len(self.names)))  # one a site, or a silent one would stop the others

    def __enter__(self) -> SiteProcesses:
        try:
            for name, words in zip(self.names, self._commands, strict=True):
                self._started[name] = _Process(name, words)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def ask(self, order: str, contents: Mapping[str, Message]) -> dict[str, Message]:
        """Send an order to every site and wait for all replies; sites work at the same time."""
        end = time.monotonic() + self._timeout
        self._replies = {
            name: self._threads.submit(self._started[name].exchange, order_line(order, content).encode())
            for name, content in contents.items()
        }
        return {name: self._reply(name, order, end) for name in self._replies}

    def close(self) -> None:
        """Close the pipes, and end processes that do not end by themselves."""
        for name, reply in self._replies.items():
            if not reply.done():
                self._started[name].kill()  # its thread waits for it, and its pipes cannot be closed before
        for site in self._started.values():
            site.close_orders()
        for site in self._started.values():
            site.end(_PATIENCE)
        self._started = {}
        self._threads.shutdown()

    def _reply(self, name: str, order: str, end: float) -> Message:
        site = self._started[name]
        try:
            line = self._replies[name].result(max(0.0, end - time.monotonic()))
        except TimeoutError:
            site.kill()  # who is not waited for any more must not answer the next order
            raise LostSite(
                name,
                f"site {name!r} did not answer the order {order!r} within {self._timeout:g} s. Is it still running? "
                "For long runs use a longer timeout.",
            ) from None
        except OSError as error:
            raise LostSite(name, f"site {name!r} is gone ({error}){site.last_words()}") from error
        if len(line) == LONGEST and not line.endswith(b"\n"):
            site.kill()
            raise LostSite(name, f"site {name!r} sent a line of more than {LONGEST:,} bytes, which is no reply.")
        if not line.endswith(b"\n"):
            raise LostSite(name, f"site {name!r} ended without a reply to {order!r}{site.last_words()}")
        try:
            return decode(line)
        except ValueError as error:
            raise ValueError(f"site {name!r} sent something other than a reply: {error}{site.last_words()}") from error


class _Process:
    """A site's process with its pipes; what it writes to standard error is passed on, and its end kept."""

    def __init__(self, name: str, words: list[str]) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise ValueError(f"site {name!r} could not be started; {words[0]}: {error.strerror}.") from error
        self._name, self._said, self._replied = name, deque[str](maxlen=_LAST_WORDS), False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def exchange(self, line: bytes) -> bytes:
        """The line that answers another. Before the first reply, what is none (the banner of a login) is skipped."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        for _ in range(_LONGEST_BANNER):
            reply = self._process.stdout.readline(LONGEST)
            if self._replied or not reply or reply.lstrip().startswith(b"{"):
                break
            if len(reply) == LONGEST:
                break
            self._hear(reply, ", before its first reply")
        self._replied = True
        return reply

    def last_words(self) -> str:
        """How the process ended, and what it said last, as the end of a sentence."""
        try:
            ended = f"; {_ending(self._process.wait(_A_MOMENT))}"
            self._listener.join(_A_MOMENT)
        except subprocess.TimeoutExpired:
            ended = "; it still runs"
        said = " / ".join(self._said)
        return f'{ended}. It said last: "{said}".' if said else f"{ended}, without a word."

    def kill(self) -> None:
        """At once."""
        self._process.kill()

    def close_orders(self) -> None:
        """Which tells a site that it may end."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def end(self, patience: float) -> None:
        """Wait for the end, or bring it about."""
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(patience)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        while line := self._process.stderr.readline(_LONGEST_SAID):
            self._hear(line)

    def _hear(self, line: bytes, when: str = "") -> None:
        self._said.append(printable(line.decode(errors="replace").rstrip()[:_LONGEST_WORDS]))
        print(f"site {self._name!r}{when}: {self._said[-1]}", file=sys.stderr)


def _ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"it ended with exit status {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"


def _words(name: str, command: str | Sequence[str]) -> list[str]:
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as error:
        raise ValueError(f"site {name!r} needs a command whose quotes close; got {command!r}.") from error
    if not words:
        raise ValueError(f"site {name!r} needs a command that runs it, such as 'fedgauss site data.csv'.")
    return words
