"""A run as the page gets it: plain JSON, with every sentence already written."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.live.client_feed import ClientFeed
from fedgauss.integrations.live.feed import Part
from fedgauss.integrations.live.history import HistoryRow
from fedgauss.integrations.live.run import Run

_OF_AN_ALARM = ("round", "step", "onset", "onset_interval", "rollback", "channel", "reason")  # when it rang first
_MOST_CLIENTS = 1000  # that are listed


def state_of(run: Run, since: int = 0, numbers_since: int = 0) -> dict[str, Any]:
    """What a page shows, with the rounds from number `since` on, and accuracies and losses from `numbers_since` on."""
    with run.lock:
        first, rows = run.history.since(since)
        first_number, numbers = run.numbers.since(numbers_since)
        (step, number), feed, verdict, alarm = run.history.last, run.feed, run.verdict, run.alarm
        clients = run.roll.rows()
        if not feed.by_client:  # those who took part least come first
            clients.sort(key=lambda row: row[1])
        said = {} if verdict is None else verdict.parts()
        facts = {} if verdict is None else {"statistic": verdict.statistic, "threshold": verdict.threshold}
        facts |= {name.replace("_", " "): value for name, value in said.items() if isinstance(value, int | float)}
        marks = feed.marks() if isinstance(feed, ClientFeed) else {"alarms": [], "exclusions": []}
        return {
            "run": run.id,
            "first": first,
            "next": run.history.count,
            "each": run.history.each,
            "rows": [shown_row(row) for row in rows],
            "numbers": {
                "first": first_number,
                "next": run.numbers.count,
                "rows": [(row.round, name, value) for row in numbers for name, value in row.values.items()],
            },
            "kind": run.outcome.kind,
            "words": run.outcome.words,
            "health": asdict(run.health()),
            "round": number,
            "step": step if feed.sync_every > 1 else None,
            "invalid": run.history.invalid,
            "alpha": feed.watcher.alpha,
            "facts": {name: short(value) for name, value in facts.items()},
            "note": feed.note,
            "alarm": None if alarm is None else {name: getattr(alarm, name) for name in _OF_AN_ALARM},
            "by_client": feed.by_client,
            "clients": [
                (name, rounds, _tenths(record.last), _tenths(record.largest), record.at)
                for name, rounds, record in clients[:_MOST_CLIENTS]
            ],
            "took_part": {"rounds": run.roll.rounds, "words": run.roll.last_words(feed.n_clients)},
            **marks,
            "parts": {name: _part(part) for name, part in (parts_of(said, alarm) | feed.parts()).items()},
            "refused": run.refusals.state(),
        }


def shown_row(row: HistoryRow) -> tuple[Any, ...]:
    """Round, step, statistic over threshold, kind, clients, and tenths of their surprises, null where not judged."""
    cells = (row.clients, [_tenths(x) for x in row.surprises]) if row.clients else ()
    return row.round, row.step, short(row.ratio), row.kind, *cells


def short(value: float | None) -> float | None:
    """Four digits are enough to draw, and keep what is sent small; JSON knows no infinity."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def _tenths(surprise: float | None) -> int | None:
    return None if surprise is None or not math.isfinite(surprise) else round(10 * surprise)


def parts_of(said: Mapping[str, Any], alarm: Verdict | None) -> dict[str, Part]:
    """What the last verdict says beyond its sentence, as tables: a row for each name, a column for each number."""
    found: dict[str, Part] = {}
    for name, value in said.items():
        if isinstance(value, list | str):
            rows = [(x,) for x in (value if isinstance(value, list) else [value])]
            columns = []
        elif isinstance(value, dict):
            tables = [row for row in value.values() if isinstance(row, dict)]
            columns = list(dict.fromkeys(column for row in tables for column in row))
            rows = [(of, *(map(row.get, columns) if isinstance(row, dict) else [row])) for of, row in value.items()]
        else:  # a number, which is among the facts
            continue
        digits = [[short(cell) if isinstance(cell, float) else cell for cell in row] for row in rows]
        head = ("", *columns) if columns else ()
        found[name[:1].upper() + name[1:].replace("_", " ")] = {"head": head, "rows": digits, "note": ""}
    if alarm is not None and "Channels" in found:
        found["Channels"]["note"] = f"The alarm was raised by the channel {alarm.channel}: the {alarm.reason}."
    return found


def _part(part: Part) -> Part:
    """With numbers that JSON knows, and everything else in words."""

    def cell(value: Any) -> Any:
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        return value if value is None or (isinstance(value, int) and not isinstance(value, bool)) else str(value)

    return {**part, "rows": [[cell(value) for value in row] for row in part["rows"]]}
