"""What a reader sees of a reproduction: the page, and the same in a terminal.

The page begins with its main point: what the start alone does to every distance.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fedgauss import __version__
from fedgauss._figures import LIGHT, styled
from fedgauss.paper.comparison import DistanceResult
from fedgauss.paper.judging import Outcome, Outcomes
from fedgauss.paper.readings import CODED, OPTIMUM, READINGS, ZERO
from fedgauss.paper.result import Reproduction, Result, Section
from fedgauss.paper.trends import trends
from fedgauss.report.output import Drawing, grid, key, named_rows
from fedgauss.report.page import Page
from fedgauss.report.text import listed, number, plain, print_table, print_whole, sentence, terminal_table

_LIMIT = "figure2_phase"  # scaled by Sigma/K, whose gap to Sigma_n is in its distances whatever the start
_COLOURS = {"finite": "green", "exact": "blue", "limit": "red", "muted": ""}
_READINGS = (
    "From zero (text, start at zero): settings as the text of the paper states them; every client starts at zero.",
    "From the optimum (text, start at optimum): the same, but every client starts at $θ^*$.",
    "As coded: what the published programs do where that differs from the text, or a setting found by trying; each "
    "result says which.",
)


def reproduction_page(
    found: Reproduction,
    sections: Sequence[Section],
    start: tuple[Drawing, Sequence[str]] | None,
    images: Mapping[str, bytes],
) -> Page:
    """The page, with the SVG of each drawing by name; `start` shows what the start does to distances."""
    page = Page("The paper’s numbers, computed again", _lead(found, sections))
    page.contents(
        [("overview", "At a glance"), ("judging", "How results are judged")]
        + [(section.result.name, section.result.title) for section in sections]
        + [("rerun", "Run it again")]
    )
    page.section("At a glance", "overview")
    if start is not None:
        drawing, texts = start
        for text in texts:
            page.paragraph(text)
        page.figure(images[drawing.name], drawing.caption, drawing.alt)
    page.overview(
        ("result", "verdict", "in short"),
        [
            (s.result.name, f"{s.result.title} ({s.result.where})", s.verdict_words, s.verdict.role, s.summary)
            for s in sections
        ],
        "Every result, its verdict and the reason",
    )
    _judging(page)
    for section in sections:
        _show(page, section, images)
    page.section("Run it again", "rerun")
    page.paragraph(
        "Finished parts are kept in results.sqlite beside this page, so the same command only draws again. Rows are in "
        "one CSV file for each result, verdicts and points in results.json, and every figure is there as PNG and SVG."
    )
    page.code(found.command)
    page.footer(
        f"fedgauss {__version__}, scale {found.scale.name}, {found.summary.total} cells. The theory is that of "
        "Bonnerjee, Karmakar and Wu, Sharp Gaussian approximations for Decentralized Federated Learning, 2025."
    )
    return page


def _lead(found: Reproduction, sections: Sequence[Section]) -> str:
    """Verdicts are counted for the paper's results; those that go beyond it have words of their own."""
    papers = [s for s in sections if not s.result.beyond]
    texts = [
        f"{len(sections)} result{'s' if len(sections) > 1 else ''} on decentralised federated local SGD, simulated "
        f"under every reading of the paper’s settings, with Monte-Carlo errors, at scale {found.scale.name}."
    ]
    if papers:
        counts = Counter(s.verdict for s in papers)
        verdicts = listed([f"{count} {verdict.value}" for verdict, count in counts.items()])
        texts.append(f"Of {len(papers)} result{'s' if len(papers) > 1 else ''} of the paper: {verdicts}.")
    if len(papers) < len(sections):
        further = [f"{s.result.title} ({s.verdict_words})" for s in sections if s.result.beyond]
        texts.append(f"Beyond the paper: {listed(further)}.")
    return " ".join(texts)


def _judging(page: Page) -> None:
    page.section("How results are judged", "judging")
    page.paragraph(
        r"A distance is the largest difference over $x$ between $P(|√n Σ_n^{−1/2} (\bar{Y}_n − θ^*)| ≤ x)$ and "
        "$P(|Z| ≤ x)$, $Z$ standard normal, whose exact distribution is used. In Figure 2 $Σ/K$ stands for $Σ_n$. The "
        "paper leaves parts of its settings open, and its programs differ "
        "from its text. So each result is computed under named readings:"
    )
    page.items(_READINGS)
    page.paragraph(
        "Under one reading, a printed number $p$ is set beside our values $v_1, …, v_D$, one for each draw of the "
        "clients, with a Monte-Carlo standard error of $e$ from $R$ runs, where the paper had $R_p$. It agrees when"
    )
    page.equation("min $v$ − $m$ ≤ $p$ ≤ max $v$ + $m$,   $m = 0.02 + 2 e √(1 + R / R_p)$.")
    page.paragraph(
        "The root counts the error of the printed number beside ours; with as many runs as the paper it is $√2$. The "
        "0.02 is for values read off pictures and for other draws of the clients. A reading reproduces a result when "
        "at least 90 % of the points that were computed agree. The verdict is “reproduced” if a reading of the text "
        "does, else “reproduced as coded” if that reading does, else “not reproduced”. Where each point has clients of "
        "its own and they were drawn once, a point that is off may be the draw: there the verdict is “left open” if a "
        "reading agrees in more than half of its points, and more draws decide. “Within wide margins” is added where "
        "the median $m$ is more than half the median printed number, so that agreement says little. No number is "
        "adjusted afterwards. Settings of some readings “as coded” were found by trying which of them comes near the "
        "printed numbers, as no program is published: those of the tables over $τ$, $ρ$ and $γ$. The reading of Figure "
        "4, right, is taken over from the program of Figure 1, right."
    )
    page.paragraph(
        "Near the noise floor, which is what an exactly normal law would show at as many runs, a distance is biased "
        "upwards by up to that floor, and its error is that of a proportion. So two numbers that both lie there agree "
        "whatever their laws are, and agreement there means little."
    )
    page.paragraph(
        "Each draw of the clients has random numbers of its own; within a draw all curves and readings share theirs, "
        "and so do points along $n$, $τ$ and $ρ$. Tables give the mean over draws and the range."
    )
    page.paragraph(
        "A trend is the change of a line fitted to the points over the logarithm of the abscissa ($ρ$ as it is), for "
        "each draw, averaged over curves and draws. Its error comes from the spread over draws, with Student’s "
        "quantile for so few, and is at least the Monte-Carlo error it would have if curves shared their noise and "
        "points did not. A change of more than two errors is a trend; a smaller one is “not detected”, which is not to "
        "say that there is none. Where curves move in opposite directions, each by more than two errors, the direction "
        "“differs”. “At floor” means that no value is above 1.5 noise floors, so that these runs cannot tell; “one "
        "draw”, that clients are drawn anew along the axis and were drawn once, so that no direction is claimed."
    )


def _show(page: Page, section: Section, images: Mapping[str, bytes]) -> None:
    result = section.result
    page.section(result.title, result.name)
    page.paragraph(f"{sentence(result.where)}. The claim: {result.claim}.")
    page.verdict(f"{sentence(section.verdict_words)}.", section.verdict.role, section.summary)
    for drawing in section.drawings:
        page.figure(images[drawing.name], drawing.caption, drawing.alt, small=drawing.small)
    if section.findings:
        page.subsection("What was measured")
        page.items(section.findings)
    if section.why:
        page.subsection("Why they differ")
        for text in section.why:
            page.paragraph(text)
    for table in section.tables:
        page.table(table.header, table.rows, table.caption)


# --- what the start does ---


# A part, and its mean distance over all its points by reading; None: of the printed numbers.
Level = tuple[str, Mapping[str | None, float]]


def start_shown(sections: Sequence[Section]) -> tuple[Drawing, list[str]] | None:
    """What the start does to distances, as a drawing and in words, where there are at least two to set side by side."""
    outcomes = distance_outcomes(sections)
    return (start_drawing(outcomes), start_sentences(outcomes)) if len(outcomes) > 1 else None


def distance_outcomes(sections: Sequence[Section]) -> list[Outcome]:
    """Outcomes of the results that are distances, which lie between 0 and 1 and can be averaged."""
    return [one for section in sections if isinstance(section.result, DistanceResult) for one in section.outcomes]


def start_drawing(outcomes: Outcomes) -> Drawing:
    """The mean distance of each part, from both starts, as coded and as printed."""
    levels: list[Level] = []
    for one in outcomes:
        printed = float(np.mean([point.printed for point in one.flat if point.printed is not None]))
        levels.append((one.part.short, {None: printed, **_means(one)}))
    zero, optimum = (_overall(outcomes, reading) for reading in (ZERO, OPTIMUM))
    outside = " outside Figure 2" if _which(outcomes) else ""
    title = f"The mean distance{outside} is {zero} from zero and {optimum} from the optimum"
    return Drawing(
        "start",
        level_figure(title, levels),
        "Each mark is the mean over all points of a figure or table. The start is the one thing that differs between "
        "“from zero” and “from the optimum”.",
        f"A dot chart with a line for each figure or table. {title}.",
    )


def start_sentences(outcomes: Outcomes) -> list[str]:
    """How far apart the starts are, and which claimed trends are there from each."""
    zero, optimum = (_overall(outcomes, reading) for reading in (ZERO, OPTIMUM))
    there = dict.fromkeys(READINGS, 0)
    claims = 0
    for one in outcomes:
        for panel, points in zip(one.part.panels, one.points, strict=True):
            found = trends(panel, points)
            claims += bool(found)
            for reading in READINGS:
                there[reading] += reading in found and found[reading].direction == panel.expected
    return [
        "The paper does not say where its runs start, and that decides most of its numbers. In the setting of the "
        f"text, the distance to the normal law{_which(outcomes)} is {zero} on average when clients start at zero and "
        f"{optimum} when they start at the optimum.",
        f"The paper reads {claims} trends in its distances. {there[ZERO]} of them were detected from zero, "
        f"{there[OPTIMUM]} from the optimum and {there[CODED]} as coded; one that was not detected may still be there, "
        "too small for these runs.",
        "The start acts through its bias $n^{−1} ∑_t ∏_{j≤t} (I − η_j A) (Y_0 − θ^*)$, $D_1$ in the proofs, which is "
        "an error of location and no departure from normality; and, on the way from there, through $D_4$: gradients "
        "are noisier away from the optimum than $Σ_n$ counts.",
    ]


def _means(one: Outcome) -> dict[str | None, float]:
    """The mean distance over all points, by reading."""
    readings = [agreement.reading for agreement in one.agreements]
    return {r: float(np.mean([point.ours[r].mean for point in one.flat if r in point.ours])) for r in readings}


def _overall(outcomes: Outcomes, reading: str) -> str:
    """Over parts that are scaled by Sigma_n, or over all if there are none."""
    means = [_means(one) for one in _alike(outcomes)]
    return number(float(np.mean([ours[reading] for ours in means if reading in ours])), 2)


def _alike(outcomes: Outcomes) -> list[Outcome]:
    return [one for one in outcomes if one.part.name != _LIMIT] or list(outcomes)


def _which(outcomes: Outcomes) -> str:
    return " (without Figure 2, which scales by $Σ/K$)" if len(_alike(outcomes)) < len(outcomes) else ""


@styled
def level_figure(title: str, levels: Sequence[Level]) -> Any:
    """A line for each part: where its distances lie on average, printed and under each reading."""
    looks: dict[str | None, tuple[str, str, str, str]] = {
        ZERO: ("s", "limit", "limit", "from zero"),
        OPTIMUM: ("o", "finite", "finite", "from the optimum"),
        CODED: ("^", "exact", "exact", "as coded"),
        None: ("D", "ink", "paper", "printed"),
    }
    legend = [
        key(name, role, ls="", marker=mark, mfc=LIGHT[inside], ms=5.5) for mark, role, inside, name in looks.values()
    ]
    figure, ((axes,),) = grid(title, 1, 1, legend, height=0.3 * len(levels), head=0.05, left=1.55)
    named_rows(axes, [name for name, _ in levels])
    for row, (_, means) in enumerate(reversed(levels)):
        for reading, (mark, role, inside, _) in looks.items():
            if reading in means:
                axes.plot(means[reading], row, mark, color=LIGHT[role], mfc=LIGHT[inside], ms=5.5, clip_on=False)
    axes.set(xlim=(0.0, 1.0), xlabel="mean distance to the normal law")
    return figure


# --- in a terminal ---


def print_reproduction(sections: Sequence[Section], console: Console, verbose: bool = False) -> None:
    """A line for each result with its verdict; with `verbose`, first the tables and reasons behind them."""
    for section in sections if verbose else ():
        _print_section(section, console)
    short = terminal_table()
    short.add_column("result", no_wrap=True)
    short.add_column("in the paper")
    short.add_column("verdict")
    for section in sections:
        verdict = Text(section.verdict_words, style=_COLOURS[section.verdict.role])
        short.add_row(section.result.name, section.result.where, verdict)
    print_whole(short, console)
    console.print()


def _print_section(section: Section, console: Console) -> None:
    """Everything but the figures."""
    result = section.result
    console.print(Text(f"{result.title} ({result.where})", style="bold"))
    console.print(Text(f"Claim: {plain(result.claim)}."))
    for table in section.tables:
        console.print()
        print_table(table, console)
    verdict = (sentence(section.verdict_words), f"bold {_COLOURS[section.verdict.role]}")
    console.print(Text.assemble(verdict, f". {plain(section.summary)}"))
    console.print()


def print_list(results: Iterable[Result], console: Console) -> None:
    """Names, where they stand in the paper, and what they claim."""
    for result in results:
        console.print(Text.assemble((result.name, "bold"), f"  {result.title} ({result.where})"), soft_wrap=True)
        console.print(Padding(Text(plain(result.claim)), (0, 0, 0, 4)))
