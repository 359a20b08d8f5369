"""What must hold after every fault; each of them raises a `Violation` that says what was found."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from soak.processes import Child, marked

GROWTH = 50 * 2**20  # bytes that a process may grow by once it has settled
_FILES = 64  # descriptors, likewise: as many as a server may have visitors
_PATIENCE = 60.0  # seconds; the machine may be busy with something else


class Violation(AssertionError):
    """An invariant does not hold."""


def demand(holds: object, words: str) -> None:
    """A violation unless it holds."""
    if not holds:
        raise Violation(words)


def eventually(holds: Callable[[], Any], words: Callable[[], str] | str, patience: float | None = None) -> Any:
    """Wait until it holds, and return what made it so."""
    patience = _PATIENCE if patience is None else patience
    end = time.monotonic() + patience
    while not (found := holds()):
        if time.monotonic() > end:
            raise Violation(f"{words if isinstance(words, str) else words()} (after {patience:g} s)")
        time.sleep(0.02)
    return found


def no_orphans(mark: str, expected: Collection[int]) -> None:
    """Of all processes that a scenario brought about, only those that it knows of are left."""
    eventually(
        lambda: set(marked(mark)) <= set(expected),
        lambda: (
            f"processes are left over: { {pid: words for pid, words in marked(mark).items() if pid not in expected} }"
        ),
    )


def flat(child: Child) -> None:
    """A process that lives long holds no more memory and open files than when it had settled."""
    if child.settled is None:
        return
    early, files = child.settled
    now, open_now = child.memory(), child.open_files()
    demand(
        now - early <= GROWTH, f"{child.name} grew from {early / 2**20:.0f} to {now / 2**20:.0f} MB; 50 MB is the most"
    )
    demand(open_now - files <= _FILES, f"{child.name} has {open_now} files open, and had {files}")


def none_lost(accepted: int, restored: int) -> None:
    """Every round that was answered 200 is in the restored monitor."""
    demand(restored >= accepted, f"rounds up to {accepted} were accepted; the restored monitor has {restored}")


def same(found: Any, wanted: Any, what: str) -> None:
    """Equal to the undisturbed twin, to the bit."""
    demand(
        found == wanted, f"{what} differ from those of the undisturbed twin: {_short(found)} against {_short(wanted)}"
    )


def all_delivered(alarms: Iterable[Any], delivered: Callable[[], Collection[Any]], where: str) -> None:
    """Every alarm arrived at least once, if need be after a while."""
    wanted = set(alarms)
    eventually(
        lambda: wanted <= set(delivered()), lambda: f"{where} never heard of {sorted(wanted - set(delivered()))}"
    )


def plain_refusal(code: int | None, said: str, what: str) -> None:
    """Something that cannot work ends with an exit code and a sentence, not with a traceback."""
    demand(code not in (None, 0), f"{what} was not refused (exit code {code}): {said[-500:]}")
    demand("Traceback" not in said, f"{what} ended with a traceback: {said[-2000:]}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:200]} ... {text[-80:]}"
