"""Outcomes and trends in words and tables, for the page and the terminal alike.

What a run does not show is "not detected", never absent.
"""

from collections.abc import Sequence

from fedgauss.paper.judging import Estimate, Outcome, Panel, Point, Verdict
from fedgauss.paper.setting import CODED, OPTIMUM, READINGS, SHORT, ZERO
from fedgauss.paper.trends import Direction, Trend, Trends
from fedgauss.report.text import Table, listed, number, sentence, signed, with_error

AGREES = "✓"
_SYMBOLS = {"K0": "K_0", "mu": "μ", "tau": "τ", "gamma": "γ", "rho": "ρ", "beta": "β"}
_NOUNS = {"falls": "fall", "rises": "rise", "falls, then rises": "fall and later rise"}

# --- names -----------------------------------------------------------------------------------------------------------


def symbol(name: str) -> str:
    """A coordinate as a formula; a word as it is."""
    return name if name == "approximation" else f"${_SYMBOLS.get(name, name)}$"


def curve_name(panel: Panel, series: str) -> str:
    """The name of a curve."""
    return series if panel.by == "approximation" else f"{symbol(panel.by)} = {series}"


def heading(panel: Panel) -> str:
    """What tells a panel from the others of its result; "" for one that stands alone."""
    if panel.only is not None:
        return f"{symbol(panel.only[0])} = {panel.only[1]:g}"
    return f"{panel.side} panel" if panel.side else ""


# --- agreement with printed numbers ----------------------------------------------------------------------------------


def verdict_words(outcomes: Sequence[Outcome]) -> str:
    """One verdict, or one for each part where they differ."""
    if len({outcome.verdict for outcome in outcomes}) == 1:
        return outcomes[0].verdict.value
    return "; ".join(f"{outcome.part.side}: {outcome.verdict.value}" for outcome in outcomes)


def summary(outcomes: Sequence[Outcome], moving: Sequence[tuple[Panel, Trends]]) -> str:
    """One line: what agrees, the reason if not enough does, and where the claimed trends are."""
    texts = [text for outcome in outcomes for text in _outcome_texts(outcome)]
    return " ".join(sentence(text) for text in [*texts, *(claimed(panel, one) for panel, one in moving)])


def _outcome_texts(outcome: Outcome) -> list[str]:
    part, best = outcome.part, outcome.agreement(outcome.reading)
    side = f"{part.side} panel: " if part.side else ""
    if best is None:
        draws = _drawn([a.draws for a in outcome.agreements])
        texts = [
            f"{side}{part.reason}; of {outcome.compared} points {_counts(outcome)} agree, over {draws}; the mean is "
            f"{_apart(outcome)} off (root mean square)."
        ]
    else:
        setting = f" ({part.coded})" if best.reading == CODED else ""
        others = listed([f"{a.agree} {SHORT[a.reading]}" for a in outcome.agreements if a is not best])
        wide = " within wide margins" if best.wide else ""
        texts = [
            f"{side}{SHORT[best.reading]}{setting} {best.agree} of {best.compared} points agree{wide}, over "
            f"{_drawn([best.draws])}, with a mean that is {number(best.rms)} off (root mean square); "
            f"{others or 'nothing else was computed'}."
        ]
    if outcome.verdict is Verdict.LEFT_OPEN:
        texts.append("each point has clients of its own, drawn once here: more draws, at a larger scale, decide.")
    return texts


def agreement(outcome: Outcome) -> list[str]:
    """How many printed points agree, and how many were computed at all."""
    of = f"{outcome.part.side} panel: of" if outcome.part.side else "of"
    draws = _drawn([a.draws for a in outcome.agreements])
    texts = [
        f"{of} {outcome.compared} printed points {_counts(outcome)} agree, over {draws}; the root mean square "
        f"difference of the mean is {_apart(outcome)}."
    ]
    if outcome.compared < outcome.n_printed:
        texts.append(f"the paper prints {outcome.n_printed} points; at this scale {outcome.compared} are computed.")
    return [sentence(text) for text in texts]


def _counts(outcome: Outcome) -> str:
    return listed([f"{a.agree} {SHORT[a.reading]}" for a in outcome.agreements])


def _apart(outcome: Outcome) -> str:
    return listed([number(a.rms) for a in outcome.agreements])


def _drawn(draws: Sequence[int]) -> str:
    """4 draws of the clients; 4, 4 and 1 where readings differ."""
    shown = [str(draws[0])] if len(set(draws)) == 1 else [str(count) for count in draws]
    return f"{listed(shown)} draw{'' if shown == ['1'] else 's'} of the clients"


# --- trends ----------------------------------------------------------------------------------------------------------


def trend_sentence(panel: Panel, found: Trends) -> str:
    """How points move along the axis, and under which readings that is as claimed."""
    ours = _by_short_name(found)
    if panel.expected == "falls, then rises":
        ends = "; ".join(_ends(panel, reading, one) for reading, one in ours.items())
        measured = f"the first, the lowest and the last mean over curves are {ends}"
    else:
        changes = [f"{signed(one.change)} ({number(one.error)}) {reading}" for reading, one in ours.items()]
        measured = f"the fitted change is {listed(changes)}"
    name, some = heading(panel), next(iter(ours.values()))
    where = f"from {symbol(panel.across)} = {some.x_first:g} to {some.x_last:g}"
    return sentence(f"{name + ': ' if name else ''}{where} {measured}. {sentence(claimed(panel, found))}")


def _by_short_name(found: Trends) -> dict[str, Trend]:
    return {SHORT[reading]: one for reading, one in found.items() if reading is not None}


def _ends(panel: Panel, reading: str, found: Trend) -> str:
    first, lowest, last = (number(value, 2) for value in (found.first, found.lowest, found.last))
    return f"{first}, {lowest} (at {symbol(panel.across)} = {found.x_lowest:g}) and {last} {reading}"


def claimed(panel: Panel, found: Trends) -> str:
    """The claimed fall with n is there from zero; it was not detected from the optimum; as coded the distance rises."""
    ours = _by_short_name(found)
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
        by_direction.setdefault(moved, []).append(curve_name(panel, series))
    return listed([f"{moved} for {listed(curves)}" for moved, curves in by_direction.items()])


def _readings(ours: dict[str, Trend], direction: str) -> list[str]:
    return [reading for reading, one in ours.items() if one.direction == direction]


def title(found: Sequence[tuple[Panel, Trends]], what: str = "the distance") -> str:
    """From zero the distance does one thing, from the optimum another."""
    clauses: list[str] = []
    for reading in (ZERO, OPTIMUM):
        moves = [(panel, one[reading].direction) for panel, one in found if reading in one]
        if moves:
            clauses.append(f"{SHORT[reading]} {'it' if clauses else what} {_moves(moves)}")
    return sentence("; ".join(clauses) or what)


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


# --- tables ----------------------------------------------------------------------------------------------------------


def over_draws(estimate: Estimate, digits: int = 3) -> str:
    """0.123 (0.004) for one draw of the clients; for several the mean and their range, 0.123 [0.10–0.15]."""
    if estimate.draws == 1:
        return with_error(estimate.mean, estimate.error, digits)
    return f"{number(estimate.mean, digits)} [{number(estimate.low, 2)}–{number(estimate.high, 2)}]"


def errors_shown(estimates: Sequence[Estimate]) -> str:
    """What stands beside the means that `over_draws` writes, for a caption."""
    several = [estimate for estimate in estimates if estimate.draws > 1]
    if not several:
        return "Monte-Carlo errors in brackets"
    count = listed([str(draws) for draws in sorted({estimate.draws for estimate in several})], "or")
    noise = number(max(estimate.noise for estimate in several))
    some = "; one draw with its Monte-Carlo error" if len(several) < len(estimates) else ""
    return f"means over {count} draws of the clients with their range, Monte-Carlo errors of means up to {noise}{some}"


def point_table(panel: Panel, points: Sequence[Point], what: str, runs_of_paper: int) -> Table:
    """A row for each point: printed, and ours with its error or range over draws, marked where they agree."""
    readings = [reading for reading in READINGS if any(reading in point.ours for point in points)]
    name, ours = heading(panel), [estimate for point in points for estimate in point.ours.values()]

    def cell(point: Point, reading: str) -> str:
        if reading not in point.ours:
            return ""
        agrees = point.ours[reading].agrees(point.printed, runs_of_paper)
        return over_draws(point.ours[reading]) + (f" {AGREES}" if agrees else "")

    return Table(
        (symbol(panel.by), symbol(panel.across), "printed", *(SHORT[reading] for reading in readings)),
        tuple(
            (
                point.series,
                f"{point.x:g}",
                "" if point.printed is None else number(point.printed),
                *(cell(point, reading) for reading in readings),
            )
            for point in points
        ),
        f"{what}{', ' + name if name else ''}: printed, and measured ({errors_shown(ours)}); {AGREES} where they agree",
    )


def trend_table(panel: Panel, trends: Trends) -> Table:
    """A row for the printed numbers (None) and for each reading: both ends and the fitted change."""
    axis, name = symbol(panel.across), heading(panel)
    some = next(iter(trends.values()))
    return Table(
        ("", f"{axis} = {some.x_first:g}", f"{axis} = {some.x_last:g}", "change", "direction"),
        tuple(
            (
                "printed" if reading is None else SHORT[reading],
                number(found.first),
                number(found.last),
                signed(found.change) + ("" if reading is None else f" ({number(found.error)})"),
                "" if reading is None else found.direction,
            )
            for reading, found in trends.items()
        ),
        f"Along {axis}{', ' + name if name else ''}: means over curves and draws at both ends, and the change of a "
        "fitted line with its error",
    )
