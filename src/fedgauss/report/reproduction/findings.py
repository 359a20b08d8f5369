"""What a run shows, in sentences computed from its rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedgauss.experiments.explanations import EXPLANATIONS
from fedgauss.experiments.layouts import Panel
from fedgauss.experiments.trends import Direction, Trend, trend
from fedgauss.experiments.verdicts import CODED, OPTIMUM, ZERO, Outcome, Point, points_of
from fedgauss.report.reproduction.claims import Trends, claimed
from fedgauss.report.reproduction.words import SHORT, heading, symbol
from fedgauss.report.words import listed, number, sentence, signed
from fedgauss.sweep.cell import Row

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
            apart = listed([number(a.rms) for a in outcome.agreements])
            draws = _drawn([a.draws for a in outcome.agreements])
            texts.append(
                f"{side}{words.reason}; of {outcome.compared} points {counts} agree, over {draws}; the mean is "
                f"{apart} off (root mean square)."
            )
        else:
            setting = f" ({words.coded})" if best.reading == CODED else ""
            others = listed([f"{a.agree} {SHORT[a.reading]}" for a in outcome.agreements if a is not best])
            wide = " within wide margins" if best.wide else ""
            texts.append(
                f"{side}{SHORT[best.reading]}{setting} {best.agree} of {best.compared} points agree{wide}, over "
                f"{_drawn([best.draws])}, with a mean that is {number(best.rms)} off (root mean square); "
                f"{others or 'nothing else was computed'}."
            )
        if outcome.verdict == "left open":
            texts.append("each point has clients of its own, drawn once here: more draws, at a larger scale, decide.")
    return " ".join(sentence(text) for text in [*texts, *(claimed(panel, one) for panel, one in moving)])


def agreement(outcome: Outcome) -> list[str]:
    """How many printed points agree, and how many were computed at all."""
    agreeing = listed([f"{a.agree} {SHORT[a.reading]}" for a in outcome.agreements])
    apart = listed([number(a.rms) for a in outcome.agreements])
    of = f"{_SIDES[outcome.part]} panel: of" if outcome.part in _SIDES else "of"
    draws = _drawn([a.draws for a in outcome.agreements])
    texts = [
        f"{of} {outcome.compared} printed points {agreeing} agree, over {draws}; the root mean square difference of "
        f"the mean is {apart}."
    ]
    if outcome.compared < outcome.n_printed:
        texts.append(f"the paper prints {outcome.n_printed} points; at this scale {outcome.compared} are computed.")
    return [sentence(text) for text in texts]


def _drawn(draws: Sequence[int]) -> str:
    """4 draws of the clients; 4, 4 and 1 where readings differ."""
    shown = [str(draws[0])] if len(set(draws)) == 1 else [str(count) for count in draws]
    return f"{listed(shown)} draw{'' if shown == ['1'] else 's'} of the clients"


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
    return sentence(f"{name + ': ' if name else ''}{where} {measured}. {sentence(claimed(panel, found))}")


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
        f"Each draw of the clients has {some.runs:,} runs; with as many, a law that is exactly normal would show a "
        f"distance of {number(some.floor)} on average."
    )


def against_gamma_1(rows: list[Row], others: list[Row]) -> list[str]:
    """Figure 4 claims smaller errors than Figure 1: the mean difference over the points that they share."""
    five, one = (
        {(p.series, p.x): p for p in points_of(Panel(part, "n", "n", "tau", "falls"), own)}
        for part, own in (("figure4_left", rows), ("figure1_left", others))
    )
    shared = sorted(five.keys() & one.keys())
    if not shared:
        return []
    pairs = [(five[place], one[place]) for place in shared]
    printed = [a.printed - b.printed for a, b in pairs if a.printed is not None and b.printed is not None]
    parts = [f"{signed(float(np.mean(printed)))} printed"] if printed else []
    for reading in (ZERO, OPTIMUM, CODED):
        both = [(a.ours[reading], b.ours[reading]) for a, b in pairs if reading in a.ours and reading in b.ours]
        if both:
            difference = float(np.mean([a.mean - b.mean for a, b in both]))
            error = float(np.mean([np.hypot(a.mean_error, b.mean_error) for a, b in both]))
            parts.append(f"{signed(difference)} ({number(error)}) {SHORT[reading]}")
    return [
        "Errors are claimed to be smaller with $γ$ = 5 than with $γ$ = 1. Over the points that the left panels of "
        f"Figures 4 and 1 share, the mean difference is {listed(parts)}."
    ]


def _ends(panel: Panel, reading: str, found: Trend) -> str:
    first, lowest, last = (number(value, 2) for value in (found.first, found.lowest, found.last))
    return f"{first}, {lowest} (at {symbol(panel.across)} = {found.x_lowest:g}) and {last} {reading}"


def _moves(moves: Sequence[tuple[Panel, Direction]]) -> str:
    """Falls with n at r = 0.2 and rises with n at r = 0.6; or, in both panels, the same."""
    verbs = [_verb(direction, panel) for panel, direction in moves]
    if len(moves) == 1:
        return verbs[0]
    if len(set(verbs)) == 1:
        return f"{verbs[0]} in both panels"
    if len({panel.across for panel, _ in moves}) > 1:
        return listed(verbs)
    return listed([f"{verb} at {heading(panel)}" for verb, (panel, _) in zip(verbs, moves, strict=True)])


def _verb(direction: Direction, panel: Panel) -> str:
    axis = symbol(panel.across)
    special: dict[Direction, str] = {
        "not detected": f"shows no trend in {axis} that is detected",
        "at floor": "stays near the noise floor",
        "differs": f"moves along {axis} in ways that differ with {symbol(panel.by)}",
        "one draw": f"has one draw of clients at each {axis}",
    }
    return special.get(direction, f"{direction} with {axis}")
