"""What `fedgauss watch` does: a monitor, a source of rounds, and a page."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedgauss import _checks, step_sizes
from fedgauss._types import FloatArray
from fedgauss.detect import storage
from fedgauss.detect.clients import ClientMonitor
from fedgauss.detect.clients.monitor import FORMAT as CLIENT_FORMAT
from fedgauss.detect.monitor import Monitor
from fedgauss.integrations.live.client_run import ClientRun
from fedgauss.integrations.live.credentials import find_token, tls_context
from fedgauss.integrations.live.followed import Outcome
from fedgauss.integrations.live.guard import Guard
from fedgauss.integrations.live.history import Kind
from fedgauss.integrations.live.logs import ArrayLog, LineLog, Replaced
from fedgauss.integrations.live.run import LiveRun
from fedgauss.integrations.live.server import LiveServer
from fedgauss.integrations.live.warm_up import WarmUp

_PERIOD = 0.2  # seconds between two looks at the log
_SAID = 20  # refusals that the terminal hears of

Say = Callable[[str], None]


@dataclass(frozen=True)
class WatchOptions:
    """The options of the command; without `monitor`, `hessian` and `eta0` clients are watched. Else see its help."""

    log: Path | None = None
    listen: bool = False
    monitor: Path | None = None
    hessian: str | None = None
    warm_up: int = 25
    sync_every: int = 20
    eta0: float | None = None
    beta: float = 0.75
    shift: float = 0.0
    alpha: float = 0.05
    horizon: int | None = None
    rate: float = 0.05
    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    token_file: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    save: Path | None = None


def watch(asked: WatchOptions, say: Say, stop: threading.Event | None = None) -> bool:
    """Watch until Ctrl-C or `stop`.

    Parameters
    ----------
    asked : WatchOptions
        The options of the command.
    say : callable
        Prints a line.
    stop : threading.Event, optional
        Ends the watch.

    Returns
    -------
    bool
        False if it ended because the log was replaced by that of another run.
    """
    if (asked.log is None) == (not asked.listen):
        raise ValueError("watch needs one source of rounds: a LOG to follow, or --listen.")
    for path in (asked.log, asked.save):
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"the folder of {path.name} must exist; {path.parent} does not.")
    if asked.save is not None and asked.save.is_dir():
        raise ValueError(f"--save must be a file to write; {asked.save} is a folder. Use {asked.save / 'monitor.npz'}?")
    watcher, tell, ended = _watcher(asked), Announcer(say), stop or threading.Event()
    run = ClientRun(watcher) if isinstance(watcher, ClientMonitor) else LiveRun(watcher)
    if isinstance(run, ClientRun) and asked.log is not None and asked.log.suffix.lower() == ".npz":
        raise ValueError(f"a log of clients must be JSON lines; {asked.log.name} would be arrays. Use client_log?")
    title = "Watching posted rounds" if asked.log is None else f"Watching {asked.log.name}"
    warned: list[str] = []
    token = find_token(asked.token, asked.token_file, os.environ, warned.append)
    guard = Guard(asked.host, token, tls_context(asked.cert, asked.key, warned.append))
    server = LiveServer(run, title, guard, asked.port, tell if asked.listen else None)
    with _signals(ended):
        threading.Thread(target=server.serve_forever, name="fedgauss page", daemon=True).start()
        try:
            say(f"The page is {server.address}" + ("?token=..." if token else "") + "; Ctrl-C ends.")
            if asked.listen:
                say(f"Rounds are taken by POST at {server.address}rounds.")
            elif asked.log is not None and not asked.log.exists():
                say(f"Waiting for {asked.log}.")
            for words in warned:
                say(words)
            if run.alarm is not None:
                say(run.outcome.words)
            why = "" if asked.log is None else _follow(asked.log, run, tell, say, ended)
            while not why and not ended.wait(_PERIOD):  # a wait without an end would not hear Ctrl-C everywhere
                pass
        finally:
            server.shutdown()
            server.server_close()
            run.end()
            if asked.save is not None and run.monitor is not None:
                run.monitor.save(asked.save)
                say(f"The monitor is saved as {asked.save}; go on from it with --monitor {asked.save}.")
            elif asked.save is not None:
                say("Nothing is saved: the warm-up was not over.")
    say(why or "Stopped.")
    return not why


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


class Announcer:
    """Says what a round brought when it is not what the round before brought."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._kind: Kind = "waiting"
        self._lock = threading.Lock()

    def __call__(self, told: Outcome) -> None:
        """Of one round."""
        with self._lock:
            if told.kind != self._kind:
                self._say(told.words)
            self._kind = told.kind


def _follow(log: Path, run: LiveRun | ClientRun, tell: Announcer, say: Say, stop: threading.Event) -> str:
    """Read a log until told to stop, or until another run's takes its place; returns why it ended."""
    try:
        source = ArrayLog(log) if log.suffix.lower() == ".npz" else LineLog(log, run.read)
        for found in _new_rounds(source, log, stop):
            if stop.is_set():
                break
            try:
                if isinstance(found, ValueError):
                    raise found
                tell(run.take(found))
            except ValueError as error:
                run.refuse(str(error))
                if (count := run.refusals.count) <= _SAID:
                    say(f"refused: {error}" + " Further ones are only counted." * (count == _SAID))
    except Replaced as ended:
        return f"{ended}: another run seems to have begun. Start again to watch it."
    return ""


def _new_rounds(source: ArrayLog | LineLog[Any], log: Path, stop: threading.Event) -> Iterator[Any]:
    """What is new in a log. One that cannot be opened now, as with too many open files, is tried again; said once."""
    troubles: set[str] = set()
    while not stop.is_set():
        try:
            yield from source.poll()
        except OSError as error:
            if (words := f"{log} cannot be read now, and is tried again; {error.strerror}.") not in troubles:
                troubles.add(words)
                yield ValueError(words)
        stop.wait(_PERIOD)


def _watcher(asked: WatchOptions) -> Monitor | WarmUp | ClientMonitor:
    if asked.monitor is not None:
        if asked.hessian is not None or asked.eta0 is not None:
            raise ValueError("--monitor brings its own A and step sizes; leave out --hessian and --eta0.")
        if not asked.monitor.is_file():
            raise ValueError(f"--monitor must be a file that Monitor.save wrote; {asked.monitor} is not there.")
        of_clients = storage.format_of(asked.monitor) == CLIENT_FORMAT
        return ClientMonitor.load(asked.monitor) if of_clients else Monitor.load(asked.monitor)
    if asked.hessian is None and asked.eta0 is None:
        return ClientMonitor(asked.alpha, asked.horizon, asked.rate)
    if asked.hessian is None or asked.eta0 is None:
        raise ValueError("a warm-up needs --hessian and --eta0; leave out both to watch clients.")
    eta0, beta = asked.eta0, asked.beta
    steps = step_sizes.constant(eta0) if beta == 0 else step_sizes.polynomial(eta0, beta, asked.shift)
    return WarmUp(
        _hessian(asked.hessian),
        steps,
        _checks.whole("sync-every", asked.sync_every),
        _checks.whole("warm-up", asked.warm_up),
        _checks.probability("alpha", asked.alpha, fix="Use 0.05, one false alarm in 20 runs?"),
        None if asked.horizon is None else _checks.whole("horizon", asked.horizon),
    )


def _hessian(text: str) -> FloatArray:
    """A from a .npy file, or c for c times the identity."""
    try:
        return np.array(_checks.real("hessian", float(text), above=0.0))
    except ValueError:
        if not text.endswith(".npy"):
            raise ValueError(f"--hessian must be a .npy file with A, or a positive number; got {text}.") from None
    try:
        matrix = np.load(text, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"--hessian must be a .npy file with A, (d, d); {text} cannot be read.") from error
    return _checks.covariance("hessian", matrix, definite=True)
