"""A run whose clients are watched as the page gets it: plain JSON, with every sentence already written."""

import math
from dataclasses import asdict
from typing import Any

from fedgauss.detect.clients import ClientVerdict, Exclusion
from fedgauss.detect.clients.verdict import listed
from fedgauss.integrations.live.client_run import CellRow, ClientRun


def client_state(run: ClientRun, since: int, numbers_since: int) -> dict[str, Any]:
    """What a page shows, with the rounds from number `since` on, and accuracies and losses from `numbers_since` on."""
    with run.lock:
        first, rows = run.cells.since(since)
        first_number, numbers = run.numbers.since(numbers_since)
        monitor, verdict = run.monitor, run.verdict
        return {
            "run": run.id,
            "first": first,
            "next": run.cells.count,
            "each": run.cells.each,
            "rows": [shown_row(row) for row in rows],
            "numbers": {
                "first": first_number,
                "next": run.numbers.count,
                "rows": [(row.round, name, value) for row in numbers for name, value in row.values.items()],
            },
            "kind": run.outcome.kind,
            "words": run.outcome.words,
            "health": asdict(run.health()),
            "round": run.last,
            "alpha": monitor.alpha,
            "statistic": None if verdict is None else round(verdict.statistic, 2),
            "threshold": None if verdict is None else round(verdict.threshold, 2),
            "watched": None if verdict is None else verdict.watched,
            "alarm": None if run.alarm is None else run.alarm.round,
            "clients": [
                (name, record.rounds, _tenths(record.last), _tenths(record.largest), record.at)
                for name, record in zip(run.numbered, run.records, strict=True)
            ],
            "alarms": [_alarm(run, alarm) for alarm in run.alarms],
            "exclusions": [_exclusion(run, out) for out in monitor.exclusions],
            "refused": run.refusals.state(),
        }


def shown_row(row: CellRow) -> tuple[Any, ...]:
    """Round, kind, clients, and tenths of their surprises, null for those not judged."""
    return row.round, row.kind, row.clients, [_tenths(surprise) for surprise in row.surprises]


def _tenths(surprise: float | None) -> int | None:
    return None if surprise is None or not math.isfinite(surprise) else round(10 * surprise)


def _alarm(run: ClientRun, alarm: ClientVerdict) -> dict[str, Any]:
    first, last = alarm.onset_interval or (alarm.round, alarm.round)
    began = f"in round {alarm.onset}" if first == last else f"near round {alarm.onset} ({first} to {last})"
    return {
        "round": alarm.round,
        "onset": alarm.onset,
        "clients": [run.numbered[str(name)] for name in alarm.suspects],
        "words": f"Round {alarm.round}: {listed(alarm.suspects)} named. It began {began}; roll back to round "
        f"{alarm.rollback}.",
    }


def _exclusion(run: ClientRun, out: Exclusion) -> dict[str, Any]:
    went = f"the run went back to round {out.back_to}" if out.back_to < out.round else "the run went on"
    return {
        "round": out.round,
        "back_to": out.back_to,
        "clients": [run.numbered[str(name)] for name in out.clients],
        "words": f"After round {out.round}: {listed(out.clients)} left out; {went}.",
    }
