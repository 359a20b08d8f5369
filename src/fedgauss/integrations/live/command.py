"""What `fedgauss watch` does: a monitor, a source of rounds, and a page."""

import os
import signal
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any

from fedgauss import _checks
from fedgauss.integrations.live.announcer import Announcer, Say
from fedgauss.integrations.live.credentials import find_token, tls_context
from fedgauss.integrations.live.guard import Guard
from fedgauss.integrations.live.logs import ArrayLog, LineLog, Replaced
from fedgauss.integrations.live.notices import Notices
from fedgauss.integrations.live.options import WatchOptions
from fedgauss.integrations.live.run import Run
from fedgauss.integrations.live.saving import SaveFile
from fedgauss.integrations.live.server import LiveServer
from fedgauss.integrations.live.starting_point import starting_point
from fedgauss.integrations.sinks.webhook import host_of

_PERIOD = 0.2  # seconds between two looks at the log
_AT_ONCE = 2048  # lines that are judged before the rest of the world is looked at


class Ending(IntEnum):
    """How a watch ended: the exit code of the command."""

    WATCHED = 0
    ALARM = 3
    NOT_WATCHING = 4


def watch(options: WatchOptions, say: Say, stop: threading.Event | None = None) -> Ending:
    """Watch until Ctrl-C, a signal to end, or `stop`.

    Parameters
    ----------
    options : WatchOptions
        The options of the command.
    say : callable
        Prints a line.
    stop : threading.Event, optional
        Ends the watch.

    Returns
    -------
    Ending
        Whether the run was being watched when it ended, and whether an alarm was on.
    """
    _check(options)
    save_file = None if options.save is None else SaveFile(options.save, options.listen)
    try:
        run = _begun(options, save_file)
        notices = Notices(options.notices, options.webhook)
        announcer = Announcer(say, options.log_format, notices)
        try:
            return _watch(options, run, announcer, stop or threading.Event())
        finally:
            for words in notices.close():
                announcer.say(words, "notices", "error")
    finally:
        if save_file is not None:
            save_file.close()


def _watch(options: WatchOptions, run: Run, announcer: Announcer, ended: threading.Event) -> Ending:
    title = "Watching posted rounds" if options.log is None else f"Watching {options.log.name}"
    warned: list[str] = []
    token = find_token(options.token, options.token_file, os.environ, warned.append)
    guard = Guard(options.host, token, tls_context(options.cert, options.key, warned.append))
    server = LiveServer(run, title, guard, options.port, announcer if options.listen else None)
    say, why = announcer.say, ""
    with _signals(ended):
        threading.Thread(target=server.serve_forever, name="fedgauss page", daemon=True).start()
        try:
            say(f"The page is {server.address}" + ("?token=..." if token else "") + "; Ctrl-C ends.", "page")
            if options.listen:
                say(f"Rounds are taken by POST at {server.address}rounds.", "page")
            elif options.log is not None and not options.log.exists():
                say(f"Waiting for {options.log}.")
            for words in warned:
                say(words, "page", "warning")
            if run.save_file is not None and run.save_file.trouble:
                say(run.save_file.trouble, "saved", "warning")
            announcer.tell("started", title)
            _resumed(run, options, announcer)
            why = _follow(options.log, run, announcer, ended)
        finally:
            server.shutdown()
            server.server_close()
            run.end()
            _saved(run, announcer)
    health = run.health()
    announcer.health(health)
    say(why or "Stopped.", "stopped")
    announcer.tell("stopped", why or "Stopped.")
    if why or health.state == "not watching":
        return Ending.NOT_WATCHING
    return Ending.ALARM if health.state == "alarm" else Ending.WATCHED


def _check(options: WatchOptions) -> None:
    if (options.log is None) == (not options.listen):
        raise ValueError("watch needs one source of rounds: a LOG to follow, or --listen.")
    for path in (options.log, options.save, options.notices):
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"the folder of {path.name} must exist; {path.parent} does not.")
    if options.save is not None and options.save.is_dir():
        file = options.save / "watch.db"
        raise ValueError(f"--save must be a file to write; {options.save} is a folder. Use {file}?")
    if options.quiet_after is not None:
        _checks.real("quiet-after", options.quiet_after, above=0.0, fix="It counts seconds.")
    _checks.one_of("log-format", options.log_format, ("text", "json"))
    if options.webhook is not None:
        host_of(options.webhook, "webhook")


def _begun(options: WatchOptions, save_file: SaveFile | None) -> Run:
    """The run as an earlier watch left it, or at its beginning."""
    run = Run(starting_point(options, None if save_file is None else save_file.read()))
    if run.feed.by_client and options.log is not None and options.log.suffix.lower() == ".npz":
        raise ValueError(f"a log of clients must be JSON lines; {options.log.name} would be arrays. Use client_log?")
    run.pulse.quiet_after = options.quiet_after
    if save_file is not None:
        run.take_up(save_file)
    return run


def _resumed(run: Run, options: WatchOptions, announcer: Announcer) -> None:
    """Say what is known from before; an alarm that is on is told again, since nobody knows whether it arrived."""
    if options.save is not None and (run.feed.seen_before or run.taken):
        announcer.say(f"Going on from {options.save}, after round {run.round or run.feed.seen_before}.", "resumed")
    if run.alarm is not None:
        announcer.say(run.outcome.words, "alarm", "error")
        announcer.tell("alarm", run.outcome.words)


def _saved(run: Run, announcer: Announcer) -> None:
    if run.save_file is None:
        return
    say = announcer.say
    try:
        run.save_file.save()
    except (OSError, sqlite3.Error) as error:
        say(f"Not saved: {run.save_file.why_not(error)} What was saved before is there.", "saved", "error")
        return
    what = "The warm-up, which was not over," if run.monitor is None else "The monitor"
    say(f"{what} is saved as {run.save_file.path}; the same command goes on from it.", "saved")


@contextmanager
def _signals(ended: threading.Event) -> Iterator[None]:
    """Ctrl-C, or a polite request to end, acts between two rounds, so that what is saved is never half a round."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread hears signals
        yield
        return
    kinds = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as with nohup
        kinds.append(signal.SIGHUP)  # the terminal was closed
    before = [signal.signal(kind, lambda *_: ended.set()) for kind in kinds]
    try:
        yield
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


def _follow(log: Path | None, run: Run, announcer: Announcer, ended: threading.Event) -> str:
    """Read a log, if there is one, and look after the run until the end; returns why, if another run has begun."""
    source: ArrayLog | LineLog | None = None
    if log is not None:
        source = ArrayLog(log) if log.suffix.lower() == ".npz" else LineLog(log, run.read, run.goes_on)
    troubles: set[str] = set()
    run.pulse.catching_up = source is not None  # with the lines that are there already
    while not ended.is_set():
        if source is not None and log is not None:
            try:
                for lines in batches(source.poll()):
                    for found in run.take_many(lines):
                        announcer.refused(found) if isinstance(found, ValueError) else announcer(found)
                    _look_after(run, announcer)
                    if ended.is_set():
                        return ""
                run.pulse.catching_up = False
            except Replaced as why:
                return f"{why}: another run seems to have begun. Start again to watch it."
            except OSError as error:  # as with too many open files; it is tried again, and said once
                if (words := f"{log} cannot be read now, and is tried again; {error.strerror}.") not in troubles:
                    troubles.add(words)
                    run.refuse(words)
                    announcer.refused(ValueError(words))
        _look_after(run, announcer)
        ended.wait(_PERIOD)  # a wait without an end would not hear Ctrl-C everywhere
    return ""


def batches(found: Iterable[Any]) -> Iterator[list[Any]]:
    """What is found, in lists; where an error ends it, what came before the error is there."""
    lines: list[Any] = []
    try:
        for line in found:
            lines.append(line)
            if len(lines) == _AT_ONCE:
                yield lines
                lines = []
    except (Replaced, OSError):
        if lines:
            yield lines
        raise
    if lines:
        yield lines


def _look_after(run: Run, announcer: Announcer) -> None:
    run.tick()
    announcer.health(run.health())
