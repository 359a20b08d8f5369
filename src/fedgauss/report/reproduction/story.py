"""The page: what was claimed, what was measured, and why they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fedgauss import __version__
from fedgauss.experiments.beyond import beyond_results
from fedgauss.report.drawing import Drawing
from fedgauss.report.page import Page
from fedgauss.report.reproduction.section import Section
from fedgauss.report.reproduction.start import distance_outcomes, start_sentences, worth_showing
from fedgauss.report.reproduction.sweep import Measured
from fedgauss.report.text import listed, sentence

_READINGS = (
    "From zero (text, start at zero): settings as the text of the paper states them; every client starts at zero.",
    "From the optimum (text, start at optimum): the same, but every client starts at $θ^*$.",
    "As coded: what the published programs do where that differs from the text, or a setting found by trying; each "
    "result says which.",
)


def reproduction_page(
    measured: Measured, sections: Sequence[Section], start: Drawing | None, images: Mapping[str, bytes]
) -> Page:
    """The page, with the SVG of each drawing by name."""
    page = Page("The paper’s numbers, computed again", _lead(measured, sections))
    page.contents(
        [("overview", "At a glance"), ("judging", "How results are judged")]
        + [(section.name, section.title) for section in sections]
        + [("rerun", "Run it again")]
    )
    page.section("At a glance", "overview")
    if worth_showing(measured.results):
        for sentence in start_sentences(distance_outcomes(sections)):
            page.paragraph(sentence)
    if start is not None:
        page.figure(images[start.name], start.caption, start.alt)
    page.overview(
        ("result", "verdict", "in short"),
        [(s.name, f"{s.title} ({s.where})", s.verdict, s.role, s.summary) for s in sections],
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
    page.code(measured.command)
    page.footer(
        f"fedgauss {__version__}, scale {measured.scale.name}, {measured.summary.total} cells. The theory is that of "
        "Bonnerjee, Karmakar and Wu, Sharp Gaussian approximations for Decentralized Federated Learning, 2025."
    )
    return page


def _lead(measured: Measured, sections: Sequence[Section]) -> str:
    """Verdicts are counted for the paper's results; those that go beyond it have words of their own."""
    further = beyond_results()
    own = [s for s in sections if s.name not in further]
    counts = Counter(_counted(s.verdict) for s in own)
    texts = [
        f"{len(sections)} result{'s' if len(sections) > 1 else ''} on decentralised federated local SGD, simulated "
        f"under every reading of the paper’s settings, with Monte-Carlo errors, at scale {measured.scale.name}."
    ]
    if own:
        verdicts = listed([f"{count} {verdict}" for verdict, count in counts.items()])
        texts.append(f"Of {len(own)} result{'s' if len(own) > 1 else ''} of the paper: {verdicts}.")
    if len(own) < len(sections):
        beyond = [f"{s.title} ({s.verdict})" for s in sections if s.name in further]
        texts.append(f"Beyond the paper: {listed(beyond)}.")
    return " ".join(texts)


def _counted(verdict: str) -> str:
    """The verdict on a result with two parts, where they differ, as one."""
    if ";" not in verdict:
        return verdict
    return "reproduced in part" if ": reproduced" in verdict else "not reproduced"


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
    page.section(section.title, section.name)
    page.paragraph(f"{sentence(section.where)}. The claim: {section.claim}.")
    page.verdict(f"{sentence(section.verdict)}.", section.role, section.summary)
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
