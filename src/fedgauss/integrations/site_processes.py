"""Sites as processes behind pipes: each is started by a command of its own, on this machine or, by ssh, on another."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from fedgauss.inference.federated.lines import order_line
from fedgauss.inference.federated.messages import LONGEST, Message, decoded

_PATIENCE = 10.0  # seconds that a process has to end by itself once its orders have


class SiteProcesses:
    """Sites by name, sorted; each command must run `fedgauss site`, whose pipes carry orders and replies.

    with SiteProcesses({"a": "fedgauss site a.csv", "b": "ssh b fedgauss site b.csv"}) as sites:
        fit_sites(sites.ask, sites.names, "y")

    Nothing is bound to a port, and no shell reads the commands.
    """

    def __init__(self, commands: Mapping[str, str | Sequence[str]]) -> None:
        self.names = sorted(commands)
        self._commands = [commands[name] for name in self.names]
        self._started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> SiteProcesses:
        try:
            for name, command in zip(self.names, self._commands, strict=True):
                self._started.append(_start(name, command))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, order: str, contents: Sequence[Message]) -> list[Message]:
        """Tell every site, then hear every site: they work at the same time."""
        for name, process, content in zip(self.names, self._started, contents, strict=True):
            assert process.stdin is not None
            try:
                process.stdin.write(order_line(order, content))
                process.stdin.flush()
            except OSError as error:
                raise ValueError(f"site {name!r} has gone ({error}); see what it wrote before.") from error
        return [self._heard(name, process) for name, process in zip(self.names, self._started, strict=True)]

    def close(self) -> None:
        """No more orders; whoever does not end by itself is ended."""
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

    def _heard(self, name: str, process: subprocess.Popen[str]) -> Message:
        assert process.stdout is not None
        line = process.stdout.readline(LONGEST)
        if not line.endswith("\n"):
            raise ValueError(f"site {name!r} ended without a reply; see what it wrote before.")
        try:
            return decoded(line)
        except ValueError as error:
            raise ValueError(f"site {name!r} sent something else than a reply: {error}") from error


def _start(name: str, command: str | Sequence[str]) -> subprocess.Popen[str]:
    words = shlex.split(command) if isinstance(command, str) else list(command)
    if not words:
        raise ValueError(f"site {name!r} needs a command that runs it, such as 'fedgauss site data.csv'.")
    try:
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"site {name!r} could not be started; {words[0]}: {error.strerror}.") from error
