"""What a run shows, in sentences computed from its rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedgauss.experiments.cell import Row
from fedgauss.experiments.explanations import EXPLANATIONS
from fedgauss.experiments.layouts import Panel
from fedgauss.experiments.trends import Trend, trend
from fedgauss.experiments.verdicts import CODED, OPTIMUM, ZERO, Outcome, Point, points_of
from fedgauss.report.reproduction.words import SHORT, heading, listed, number, sentence, signed, symbol

Trends = dict[str | None, Trend]  # by reading; None: of the printed numbers

_NOUNS = {"falls": "fall", "rises": "rise", "falls, then rises": "fall and later rise", "no trend": "trend"}
_SIDES = {"figure4_left": "left", "figure4_right": "right"}


def verdict_words(found: Sequence[Outcome]) -> str:
    """One verdict, or one for each part where they differ."""
    if len({outcome.verdict for outcome in found}) == 1:
        return found[0].verdict
    return "; ".join(f"{_SIDES[outcome.part]}: {outcome.verdict}" for outcome in found)


def summary(found: Sequence[Outcome], moving: Sequence[tuple[Panel, Trends]]) -> str:
    """One line: what agrees, the reason if not enough does, and where the claimed trends are."""
    texts = []
    for outcome in found:
        words, best = EXPLANATIONS[outcome.part], outcome.agreement(outcome.reading or "")
        side = f"{_SIDES[outcome.part]} panel: " if len(found) > 1 else ""
        if best is None:
            counts = listed([f"{a.agree} {SHORT[a.reading]}" for a in outcome.agreements])
            texts.append(f"{side}{words.reason}; of {outcome.compared} points {counts} agree.")
        else:
            setting = f" ({words.coded})" if best.reading == CODED else ""
            others = listed([f"{a.agree} {SHORT[a.reading]}" for a in outcome.agreements if a is not best])
            texts.append(
                f"{side}{SHORT[best.reading]}{setting} {best.agree} of {best.compared} points agree, {others}."
            )
    return " ".join(sentence(text) for text in [*texts, *(_claimed(panel, one) for panel, one in moving)])


def agreement(outcome: Outcome) -> list[str]:
    """How many printed points agree, and how many were computed at all."""
    agreeing = listed([f"{a.agree} {SHORT[a.reading]}" for a in outcome.agreements])
    apart = listed([number(a.rms) for a in outcome.agreements])
    of = f"{_SIDES[outcome.part]} panel: of" if outcome.part in _SIDES else "of"
    texts = [f"{of} {outcome.compared} printed points {agreeing} agree; the root mean square difference is {apart}."]
    if outcome.compared < outcome.n_printed:
        texts.append(f"the paper prints {outcome.n_printed} points; at this scale {outcome.compared} are computed.")
    return [sentence(text) for text in texts]


def trends(panel: Panel, points: Sequence[Point]) -> Trends:
    """The trend of the printed numbers (None) and under each reading, where there are enough points."""
    found = {reading: trend(panel, points, reading) for reading in (None, ZERO, OPTIMUM, CODED)}
    return {reading: one for reading, one in found.items() if one is not None}


def trend_sentence(panel: Panel, found: Trends) -> str:
    """How points move along the axis, and under which readings that is as claimed."""
    ours = {SHORT[reading]: one for reading, one in found.items() if reading is not None}
    if panel.expected == "falls, then rises":
        ends = "; ".join(_ends(panel, reading, one) for reading, one in ours.items())
        measured = f"the first, the lowest and the last mean over curves are {ends}"
    else:
        changes = [f"{signed(one.change)} ({number(one.error)}) {reading}" for reading, one in ours.items()]
        measured = f"the fitted change is {listed(changes)}"
    name, some = heading(panel), next(iter(ours.values()))
    where = f"from {symbol(panel.across)} = {some.x_first:g} to {some.x_last:g}"
    return sentence(f"{name + ': ' if name else ''}{where} {measured}. {sentence(_claimed(panel, found))}")


def title(found: Sequence[tuple[Panel, Trends]], what: str = "the distance") -> str:
    """From zero the distance does one thing, from the optimum another."""
    clauses: list[str] = []
    for reading in (ZERO, OPTIMUM):
        moves = [(panel, one[reading].direction) for panel, one in found if reading in one]
        if moves:
            clauses.append(f"{SHORT[reading]} {'it' if clauses else what} {_moves(moves)}")
    return sentence("; ".join(clauses) or what)


def floor_sentence(points: Sequence[Point]) -> str:
    """What a normal law would show at this many runs."""
    some = next(iter(points[0].ours.values()))
    return (
        f"Each point has {some.runs:,} runs; with as many, a law that is exactly normal would show a distance of "
        f"{number(some.floor)} on average."
    )


def single_draw_sentences(panels: Sequence[tuple[Panel, Sequence[Point]]]) -> list[str]:
    """A caveat where each K has clients of its own, drawn once."""
    ours = [pair for panel, points in panels if panel.new_clients for point in points for pair in point.ours.items()]
    once = list(dict.fromkeys(SHORT[reading] for reading, estimate in ours if estimate.draws == 1))
    if not once:
        return []
    readings = "" if len(once) == len({reading for reading, _ in ours}) else f" {listed(once)}"
    return [
        f"Every $K$ has clients of its own, drawn once{readings}. The errors do not count that, so a small movement "
        "may be the draw."
    ]


def against_gamma_1(rows: list[Row], others: list[Row]) -> list[str]:
    """Figure 4 claims smaller errors than Figure 1: the mean difference over the points that they share."""
    five, one = (
        {(p.series, p.x): p for p in points_of(Panel(part, "n", "n", "tau", "falls"), own)}
        for part, own in (("figure4_left", rows), ("figure1_left", others))
    )
    shared = sorted(five.keys() & one.keys())
    if not shared:
        return []
    printed = [(five[place].printed or 0.0) - (one[place].printed or 0.0) for place in shared]
    parts = [f"{signed(float(np.mean(printed)))} printed"]
    for reading in (ZERO, OPTIMUM, CODED):
        both = [(five[place].ours[reading], one[place].ours[reading]) for place in shared]
        difference = float(np.mean([a.mean - b.mean for a, b in both]))
        error = float(np.mean([np.hypot(a.error, b.error) for a, b in both]))
        parts.append(f"{signed(difference)} ({number(error)}) {SHORT[reading]}")
    return [
        "Errors are claimed to be smaller with $γ$ = 5 than with $γ$ = 1. Over the points that the left panels of "
        f"Figures 4 and 1 share, the mean difference is {listed(parts)}."
    ]


def _claimed(panel: Panel, found: Trends) -> str:
    """The claimed fall with n is there from zero and as coded, not from the optimum."""
    ours = {SHORT[reading]: one.direction for reading, one in found.items() if reading is not None}
    there = [reading for reading, direction in ours.items() if direction == panel.expected]
    missing = [reading for reading in ours if reading not in there]
    where = f" at {heading(panel)}" if panel.only is not None else ""
    verdict = f"is there {listed(there)}" if there else "is not there under any reading"
    if there and missing:
        verdict += f", not {listed(missing, 'or')}"
    of = " of trimmed $Q$" if panel.by == "approximation" else ""
    return f"the claimed {_NOUNS[panel.expected]}{of} with {symbol(panel.across)}{where} {verdict}."


def _ends(panel: Panel, reading: str, found: Trend) -> str:
    first, lowest, last = (number(value, 2) for value in (found.first, found.lowest, found.last))
    return f"{first}, {lowest} (at {symbol(panel.across)} = {found.x_lowest:g}) and {last} {reading}"


def _moves(moves: Sequence[tuple[Panel, str]]) -> str:
    """Falls with n at r = 0.2 and rises with n at r = 0.6; or, in both panels, the same."""
    verbs = [_verb(direction, panel) for panel, direction in moves]
    if len(moves) == 1:
        return verbs[0]
    if len(set(verbs)) == 1:
        return f"{verbs[0]} in both panels"
    if len({panel.across for panel, _ in moves}) > 1:
        return listed(verbs)
    return listed([f"{verb} at {heading(panel)}" for verb, (panel, _) in zip(verbs, moves, strict=True)])


def _verb(direction: str, panel: Panel) -> str:
    axis = symbol(panel.across)
    return f"shows no trend in {axis}" if direction == "no trend" else f"{direction} with {axis}"
