"""What became of a claimed trend, in words. What a run does not show is "not detected", never absent."""

from __future__ import annotations

from fedgauss.experiments.layouts import Panel
from fedgauss.experiments.trends import Trend
from fedgauss.report.reproduction.words import SHORT, curve, heading, symbol
from fedgauss.report.text import listed

Trends = dict[str | None, Trend]  # by reading; None: of the printed numbers

_NOUNS = {"falls": "fall", "rises": "rise", "falls, then rises": "fall and later rise"}


def claimed(panel: Panel, found: Trends) -> str:
    """The claimed fall with n is there from zero; it was not detected from the optimum; as coded the distance rises."""
    ours = {SHORT[reading]: one for reading, one in found.items() if reading is not None}
    where = f" at {heading(panel)}" if panel.only is not None else ""
    of = " of trimmed $Q$" if panel.by == "approximation" else ""
    claim = f"the claimed {_NOUNS[panel.expected]}{of} with {symbol(panel.across)}{where}"
    if not all(one.examines(panel) for one in ours.values()):
        return f"{claim} is not examined at this scale: that takes more than two values of {symbol(panel.across)}."
    clauses = _clauses(panel, ours)
    return f"{claim} {clauses[0]}{''.join(f'; it {clause}' for clause in clauses[1:])}."


def _clauses(panel: Panel, ours: dict[str, Trend]) -> list[str]:
    """Each goes on from "it"."""
    clauses = []
    if there := _readings(ours, panel.expected):
        clauses.append(f"is there {listed(there)}")
    if unseen := _readings(ours, "not detected"):
        clauses.append(f"was not detected {listed(unseen, 'or')}")
    if low := _readings(ours, "at floor"):
        clauses.append(f"was not detected {listed(low, 'or')}, so near the noise floor that these runs cannot tell")
    if once := _readings(ours, "one draw"):
        clauses.append(f"is left open {listed(once)} (one draw of the clients: no direction is claimed)")
    what = "it" if panel.by == "approximation" else "the distance"
    for reading, one in ours.items():
        if one.direction == "differs":
            clauses.append(f"differs with {symbol(panel.by)} {reading}: {what} {_by_curve(panel, one)}")
    against = {"falls", "rises"} - {panel.expected}
    for direction in sorted(against):
        if others := _readings(ours, direction):
            on_the_whole = " on the whole" if panel.expected == "falls, then rises" else ""
            clauses.append(f"was not detected {listed(others, 'or')}, where {what} {direction}{on_the_whole}")
    return clauses


def _by_curve(panel: Panel, found: Trend) -> str:
    """Falls for beta = 0.85 and rises for beta = 0.95."""
    by_direction: dict[str, list[str]] = {}
    for series, moved in found.by_curve:
        by_direction.setdefault(moved, []).append(curve(panel, series))
    return listed([f"{moved} for {listed(curves)}" for moved, curves in by_direction.items()])


def _readings(ours: dict[str, Trend], direction: str) -> list[str]:
    return [reading for reading, one in ours.items() if one.direction == direction]
