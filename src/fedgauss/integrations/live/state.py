"""A run as the page gets it: plain JSON, with every sentence already written."""

import math
from dataclasses import asdict
from typing import Any

from fedgauss.detect.attribution import Attribution
from fedgauss.integrations.live.history import HistoryRow
from fedgauss.integrations.live.run import LiveRun

_SHOWN = 50  # parameters whose intervals are sent
_OF_AN_ALARM = ("round", "step", "onset", "onset_interval", "rollback", "channel", "reason")  # when it rang first


def state_of(run: LiveRun, since: int = 0) -> dict[str, Any]:
    """What a page shows, with the rounds from number `since` on."""
    with run.lock:
        first, rows = run.history.since(since)
        step, number = run.history.last
        alarm = run.alarm
        return {
            "run": run.id,
            "first": first,
            "next": run.history.count,
            "rows": [shown_row(row) for row in rows],
            "kind": run.outcome.kind,
            "words": run.outcome.words,
            "health": asdict(run.health()),
            "round": number,
            "step": step,
            "invalid": run.history.invalid,
            "alpha": run.alpha,
            "note": run.note,
            "alarm": None if alarm is None else {name: getattr(alarm, name) for name in _OF_AN_ALARM},
            "channels": [(name, _short(top), _short(limit)) for name, top, limit in run.readings],
            "suspects": _suspects(run),
            "participation": run.participation.state(None if run.roster is None else run.roster.n_clients),
            "intervals": _intervals(run),
            "refused": run.refusals.state(),
        }


def shown_row(row: HistoryRow) -> tuple[Any, ...]:
    """Round, step, statistic over threshold and kind."""
    return row.round, row.step, _short(row.ratio), row.kind


def _short(ratio: float | None) -> float | None:
    """Four digits are enough to draw, and keep what is sent small; JSON knows no infinity."""
    return None if ratio is None or not math.isfinite(ratio) else float(f"{ratio:.4g}")


def _suspects(run: LiveRun) -> dict[str, Any]:
    if run.alarm is None:
        broken = "The refused update is described above. " * (run.outcome.kind == "invalid update")
        return {"rows": [], "note": f"{broken}No attack has been detected, so there are no suspects."}
    attribution = run.suspects()
    if not isinstance(attribution, Attribution):
        return {"rows": [], "note": attribution}
    names = None if run.roster is None else run.roster.names
    rows = [
        (str(row.client) if names is None else names[row.client], *map(_short, row[1:4]), row.malicious)
        for row in attribution.table
    ]
    note = (
        f"{attribution.rounds_after} rounds after the alarm against {attribution.baseline_rounds} before the onset. "
        f"At most {attribution.rate:.0%} of the clients called malicious are expected to be honest. {attribution.note}"
    ).rstrip()
    return {"rows": rows, "note": note}


def _intervals(run: LiveRun) -> dict[str, Any]:
    intervals = None if run.average is None else run.average.intervals()
    if intervals is None:
        why = "yet" if run.average is not None else "before the warm-up is over: A and V are not known"
        return {"rows": [], "note": f"There are no intervals {why}."}
    rows = [tuple(map(float, row)) for row in zip(intervals.average, intervals.low, intervals.high, strict=True)]
    note = (
        f"Average of the parameters over {intervals.rounds} rounds, with {intervals.level:.0%} intervals for the "
        "optimum, each for one parameter alone. They rest on the monitor's A and V, and on a start near the optimum."
    )
    if run.participation.uneven:
        note += " Some rounds lacked clients: where clients differ, intervals are then too short."
    if run.alarm is not None:
        note += " Rounds after the onset count too: do not rely on them after an attack."
    if len(rows) > _SHOWN:
        note += f" The first {_SHOWN} of {len(rows)} parameters are shown."
    return {"rows": rows[:_SHOWN], "note": note}
