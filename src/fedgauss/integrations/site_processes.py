"""Sites as processes behind pipes: each is started by its own command, on this machine or by ssh on another."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from fedgauss import _checks
from fedgauss.inference.federated.lines import LONGEST, Message, decoded, order_line

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
    >>> with SiteProcesses({"a": "fedgauss site a.csv", "b": "ssh b fedgauss site b.csv"}) as sites:
    ...     fit = fit_sites(sites.ask, sites.names, "y")
    """

    def __init__(self, commands: Mapping[str, str | Sequence[str]], timeout: float = 600.0) -> None:
        self.names = sorted(commands)
        self._timeout = _checks.real("timeout", timeout, above=0.0)
        self._commands = [_words(name, commands[name]) for name in self.names]
        self._started: list[subprocess.Popen[bytes]] = []
        self._replies: list[Future[bytes]] = []  # to the last order
        self._threads = ThreadPoolExecutor(max(1, len(self.names)))  # one a site, or a silent one would stop the others

    def __enter__(self) -> SiteProcesses:
        try:
            for name, words in zip(self.names, self._commands, strict=True):
                self._started.append(_start(name, words))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def ask(self, order: str, contents: Sequence[Message]) -> list[Message]:
        """Send an order to every site and wait for all replies; sites work at the same time."""
        lines = [order_line(order, content).encode() for content in contents]
        end = time.monotonic() + self._timeout
        told = zip(self._started, lines, strict=True)
        self._replies = [self._threads.submit(_exchanged, process, line) for process, line in told]
        return [self._heard(name, reply, order, end) for name, reply in zip(self.names, self._replies, strict=True)]

    def close(self) -> None:
        """Close the pipes, and end processes that do not end by themselves."""
        for process, reply in zip(self._started, self._replies, strict=False):
            if not reply.done():
                process.kill()  # its thread waits for it, and its pipes cannot be closed before
        for process in self._started:
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
        for process in self._started:
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._started = []
        self._threads.shutdown()

    def _heard(self, name: str, reply: Future[bytes], order: str, end: float) -> Message:
        try:
            line = reply.result(max(0.0, end - time.monotonic()))
        except TimeoutError:
            raise ValueError(
                f"site {name!r} did not answer the order {order!r} within {self._timeout:g} s. Is it still running? "
                "For long runs use a longer timeout."
            ) from None
        except OSError as error:
            raise ValueError(f"site {name!r} is gone ({error}); see its output above.") from error
        if not line.endswith(b"\n"):
            raise ValueError(f"site {name!r} ended without a reply; see its output above.")
        try:
            return decoded(line)
        except ValueError as error:
            raise ValueError(f"site {name!r} sent something other than a reply: {error}") from error


def _exchanged(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    process.stdin.flush()
    return process.stdout.readline(LONGEST)


def _words(name: str, command: str | Sequence[str]) -> list[str]:
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as error:
        raise ValueError(f"site {name!r} needs a command whose quotes close; got {command!r}.") from error
    if not words:
        raise ValueError(f"site {name!r} needs a command that runs it, such as 'fedgauss site data.csv'.")
    return words


def _start(name: str, words: list[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        raise ValueError(f"site {name!r} could not be started; {words[0]}: {error.strerror}.") from error
