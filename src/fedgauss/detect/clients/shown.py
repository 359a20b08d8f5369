"""A client monitor in a notebook: what it says, and a table of its clients."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from fedgauss._shown import html_table
from fedgauss.detect.clients.verdict import Name, counted

if TYPE_CHECKING:
    from fedgauss.detect.clients.monitor import ClientMonitor

_MOST_ROWS = 60


def monitor_html(monitor: ClientMonitor) -> str:
    """The state in words, and a row for each client; of many, the most surprising."""
    largest = _largest(monitor)
    ranked = sorted(monitor.clients, key=lambda name: -largest.get(name, (-1.0, 0))[0])[:_MOST_ROWS]
    kept = [name for name in monitor.clients if name in set(ranked)]
    rows = [(str(name), *_cells(largest.get(name)), _state(monitor, name)) for name in kept]
    heads = ("client", "largest surprise", "in round", "")
    caption = f"{len(monitor.clients)} clients, round {monitor.round}"
    if len(kept) < len(monitor.clients):
        caption += f"; the {len(kept)} most surprising are shown"
    return f"<p>{escape(_words(monitor))}</p>{html_table(heads, rows, caption)}"


def _words(monitor: ClientMonitor) -> str:
    if monitor.alarm is not None:
        return str(monitor.alarm)
    if not monitor.seen.alarms:
        return f"No alarm in {monitor.round} rounds."
    return " ".join(f"Alarm in round {alarm.round}: {counted(alarm.clients)} named." for alarm in monitor.seen.alarms)


def _largest(monitor: ClientMonitor) -> dict[Name, tuple[float, int]]:
    """The largest surprise of each client that was judged, and its round."""
    table, rounds = monitor.seen.tenths(len(monitor.clients)), monitor.seen.rounds
    if not len(table):
        return {}
    at = table.argmax(axis=0)
    found = {name: (table[at[k], k] / 10, int(rounds[at[k]])) for k, name in enumerate(monitor.clients)}
    return {name: value for name, value in found.items() if value[0] >= 0}


def _cells(largest: tuple[float, int] | None) -> tuple[str, str]:
    return ("", "") if largest is None else (f"{largest[0]:.1f}", str(largest[1]))


def _state(monitor: ClientMonitor, name: Name) -> str:
    if since := [out.round for out in monitor.exclusions if name in out.clients]:
        if name in monitor.left_out:
            return f"left out after round {since[-1]}"
        if name in monitor.quarantined:
            return f"in quarantine after round {since[-1]}"
    if monitor.alarm is not None and name in monitor.alarm.suspects:
        return f"named in round {monitor.alarm.round}"
    return ""
