"""What a reproduction leaves behind, from made-up rows: files, page, tables and words."""

import base64
import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from types import SimpleNamespace as Columns
from typing import Any

import pytest
from rich.console import Console

from fedgauss.paper.judging import ResultVerdict
from fedgauss.paper.page import (
    distance_outcomes,
    level_figure,
    print_list,
    print_reproduction,
    reproduction_page,
    start_sentences,
)
from fedgauss.paper.readings import CODED, OPTIMUM, ZERO
from fedgauss.paper.result import SCALES, Reproduction, Section, catalogue, write_reproduction
from fedgauss.report.output import rows_csv
from fedgauss.report.text import Table, plain
from fedgauss.sweep.run import Summary
from report_parsing import Checked
from reproduction_rows import PAPER, distance_rows, rows_of

HOSTILE = "<script>alert('x')</script> & $</style><b>$"


def measured(rows: dict[str, list]) -> Reproduction:
    chosen = tuple(PAPER[name] for name in rows)
    return Reproduction(chosen, SCALES["paper"], rows, "fedgauss reproduce --out here", Summary(9, 9, 0, 1.0))


def section(name: str, rows: list, others: dict[str, list] | None = None) -> Section:
    return PAPER[name].section(rows, others or {})


def made_up(result, verdict: ResultVerdict, words: str = "", **more: Any) -> Section:
    texts = {"summary": "", "findings": (), "drawings": (), "tables": ()} | more
    return Section(result, verdict, words=words, **texts)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction")
    whole = measured({name: rows_of(name) for name in PAPER})
    sections, page = write_reproduction(whole, folder)
    return folder, sections, page


def shown(sections) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    print_reproduction(sections, console, verbose=True)
    return console.export_text()


def test_every_result_has_its_files(written):
    folder, sections, page = written
    expected = {"report.html", "results.json", "start.png", "start.svg"}
    expected |= {f"{name}.{kind}" for name in PAPER for kind in ("csv", "png", "svg")}
    assert {path.name for path in folder.iterdir()} == expected
    assert page == folder / "report.html"
    assert page.stat().st_size < 5_000_000
    for name in PAPER:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert ET.fromstring((folder / f"{name}.svg").read_text()).tag.endswith("svg")
    assert [s.result.name for s in sections] == list(PAPER)


def test_the_page_is_whole_and_refers_to_nothing_outside(written):
    _, sections, page = written
    text = page.read_text()
    parsed = Checked(text)
    images = [attributes for tag, attributes in parsed.seen if tag == "img"]
    assert len(images) == 1 + sum(len(s.drawings) for s in sections)
    for image in images:
        kind, data = image["src"].split(";base64,")
        assert kind == "data:image/svg+xml"
        ET.fromstring(base64.b64decode(data))
        assert image["alt"]
    assert parsed.count("table") == 1 + sum(len(s.tables) for s in sections)
    assert parsed.count("script") == parsed.count("link") == 0
    assert "http" not in re.sub(r"base64,[^\"]*", "", text)


def test_every_link_leads_to_a_section(written):
    _, sections, page = written
    parsed = Checked(page.read_text())
    anchors = [attributes["id"] for _, attributes in parsed.seen if "id" in attributes]
    links = [attributes["href"] for tag, attributes in parsed.seen if tag == "a"]
    assert len(anchors) == len(set(anchors))
    assert {f"#{anchor}" for anchor in anchors} == set(links)
    assert {s.result.name for s in sections} <= set(anchors)


def test_no_sentence_shows_a_number_that_is_not_one(written):
    _, sections, page = written
    for text in (page.read_text(), shown(sections)):
        assert not re.search(
            r"\bnan\b|\binf\b|\bNone\b|Measurement\(|\{", re.sub(r"<style>.*</style>|base64,\S*", "", text, flags=re.S)
        )


def test_verdicts_and_points_are_in_the_json(written):
    folder, sections, _ = written
    found = json.loads((folder / "results.json").read_text())
    assert (found["scale"], found["command"]) == ("paper", "fedgauss reproduce --out here")
    by_name = {result["name"]: result for result in found["results"]}
    assert {name: r["verdict"] for name, r in by_name.items()} == {s.result.name: s.verdict_words for s in sections}
    part = by_name["figure1_left"]["parts"][0]
    assert (part["verdict"], part["reading"], part["printed_points"]) == ("reproduced", OPTIMUM, 15)
    point = next(p for p in part["points"] if p["tau"] == "10" and p["n"] == 200)
    assert point["printed"] == 0.351
    assert point["ours"][OPTIMUM] | {"agrees": True, "mean": pytest.approx(0.351), "draws": 2} == point["ours"][OPTIMUM]
    assert point["ours"][OPTIMUM]["values"] == pytest.approx([0.346, 0.356])
    assert point["ours"][ZERO]["agrees"] is False
    assert len(by_name["figure4"]["parts"]) == 2


def test_rows_come_back_from_the_csv(written):
    folder, _, _ = written
    rows = rows_of("figure3_qq")
    with (folder / "figure3_qq.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == len(rows)
    for row, back in zip(rows, read, strict=True):
        given = {name: str(value) for name, value in vars(row).items() if value is not None}
        assert given == {name: text for name, text in back.items() if text}


def test_a_csv_quotes_what_needs_it():
    rows = [Columns(reading="text, start at zero", x=1), Columns(reading='say "so"', x=None, extra=None)]
    assert list(csv.reader(rows_csv(rows).decode().splitlines())) == [
        ["reading", "x"],
        ["text, start at zero", "1"],
        ['say "so"', ""],
    ]


def test_the_terminal_shows_printed_measured_error_and_verdict(written):
    _, sections, _ = written
    text = shown(sections)
    assert "0.351" in text
    assert "0.651 [0.65–0.66]" in text  # from zero, which is .3 too large; two draws, .01 apart
    assert "0.351 [0.35–0.36] ✓" in text
    assert "Monte-Carlo errors of means up to 0.007" in " ".join(text.split())  # .01 / sqrt(2)
    assert "Reproduced. From the optimum 15 of 15 points agree, over 2 draws of the clients" in " ".join(text.split())
    assert "Claim: the Berry-Esseen error decays with n" in text
    assert "…" not in text  # nothing is cut off at 80 columns
    assert "$" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_one_draw_is_shown_with_its_error():
    once = shown([section("figure1_left", rows_of("figure1_left", draws=1))])
    assert "0.351 (0.010) ✓" in once
    assert "over 1 draw of the clients" in " ".join(once.split())


def test_a_narrow_terminal_loses_no_number(written):
    """At 40 columns rich would cut cells off at the right edge."""
    _, sections, _ = written
    console = Console(width=40, record=True, file=io.StringIO())
    print_reproduction(sections, console, verbose=True)
    text = console.export_text()
    numbers = [
        re.findall(r"\d[\d.]*", plain(cell)) for s in sections for t in s.tables for row in t.rows for cell in row
    ]
    assert "…" not in text
    assert sum(map(len, numbers)) > 500
    assert {one for cell in numbers for one in cell} <= set(re.findall(r"\d[\d.]*", text))
    assert console.width == 40


def test_the_list_names_where_and_what():
    console = Console(width=80, record=True, file=io.StringIO())
    print_list(PAPER.values(), console)
    text = " ".join(console.export_text().split())
    for result in PAPER.values():
        assert f"{result.name} {result.title} ({result.where}) {plain(result.claim)}" in text


def distance_section(rule, **more) -> Section:
    return section("figure1_left", distance_rows("figure1_left", rule, **more))


def test_a_trend_that_only_the_start_makes_is_said_so():
    """The claim of Figure 1: the text is about rows, so rows that fall from zero and stay from the optimum decide."""
    falling = distance_section(lambda reading, x, value: 0.9 - x / 1000 if reading == ZERO else 0.06)
    assert (
        "claimed fall with $n$ is there from zero; it was not detected from the optimum or as coded" in falling.summary
    )
    assert falling.drawings[0].figure.texts[0].get_text().replace("\n", " ").startswith("From zero the distance falls")
    flat = distance_section(lambda reading, x, value: 0.06)
    assert "claimed fall with $n$ was not detected from zero, from the optimum or as coded." in flat.summary


def test_what_cannot_be_told_is_not_denied():
    near = distance_section(lambda reading, x, value: 0.03)
    assert "was not detected from zero, from the optimum or as coded, so near the noise floor" in near.summary
    rows = [row for row in rows_of("figure1_right") if row.x in (10, 100)]
    assert "rise with $K$ is not examined at this scale" in section("figure1_right", rows).summary
    once = section("figure1_right", rows_of("figure1_right", draws=1))
    assert "one draw of the clients: no direction is claimed" in once.summary


def test_curves_that_part_are_told_apart():
    rows = [
        replace(row, estimate=0.5 + (1 if row.beta == 0.95 else -1) * row.n / 4000 + 0.01 * row.draw)
        for row in rows_of("figure2_phase")
    ]
    found = section("figure2_phase", rows)
    assert "falls for $β$ = 0.85 and $β$ = 0.9 and rises for $β$ = 0.95" in found.summary
    assert [row[-1] for row in found.tables[0].rows] == ["", "differs", "differs", "differs"]


def test_agreement_within_wide_margins_is_said_so():
    wide = distance_section(lambda reading, x, value: value, error=0.1)
    assert "15 of 15 points agree within wide margins" in wide.summary
    assert "wide" not in distance_section(lambda reading, x, value: value).summary


def test_the_mean_distance_leaves_out_what_is_scaled_otherwise():
    rows = {name: rows_of(name) for name in ("figure1_left", "figure2_phase")}
    found = distance_outcomes([section(name, own, rows) for name, own in rows.items()])
    own = [row.estimate for row in rows["figure1_left"] if row.reading == OPTIMUM]
    sentences = start_sentences(found)
    assert f"{sum(own) / len(own):.2f} when they start at the optimum" in sentences[0]
    assert "without Figure 2, which scales by $Σ/K$" in sentences[0]
    assert "without Figure 2" not in start_sentences(found[:1])[0]


def test_a_mark_at_the_end_of_the_axis_is_drawn_whole():
    axes = level_figure("Title", [("Figure 4, right", {None: 0.1, ZERO: 1.0})]).axes[0]
    marks = [line for line in axes.lines if line.get_marker() != "None"]
    assert len(marks) == 2
    assert not any(mark.get_clip_on() for mark in marks)


def test_verdicts_are_counted_for_the_papers_results_only():
    listed = [
        made_up(PAPER["figure1_left"], ResultVerdict.REPRODUCED),
        made_up(catalogue()["phase_map"], ResultVerdict.BEYOND, "no transition"),
    ]
    page = reproduction_page(measured({}), listed, None, {}).html()
    title = catalogue()["phase_map"].title
    assert f"Of 1 result of the paper: 1 reproduced. Beyond the paper: {title} (no transition)." in page


@pytest.mark.parametrize(
    ("parts", "counted", "role"),
    [
        ([ResultVerdict.LEFT_OPEN, ResultVerdict.LEFT_OPEN], "1 left open", "muted"),
        ([ResultVerdict.REPRODUCED, ResultVerdict.REPRODUCED], "1 reproduced", "finite"),
        ([ResultVerdict.AS_CODED, ResultVerdict.LEFT_OPEN], "1 reproduced in part", "exact"),
        ([ResultVerdict.LEFT_OPEN, ResultVerdict.NOT_REPRODUCED], "1 not reproduced", "limit"),
        ([ResultVerdict.REPRODUCED, ResultVerdict.AS_CODED], "1 reproduced in part", "exact"),
    ],
)
def test_every_verdict_is_counted_and_coloured(parts, counted, role):
    found = made_up(PAPER["figure4"], ResultVerdict.of_parts(parts))
    assert found.verdict.role == role
    assert f"Of 1 result of the paper: {counted}." in reproduction_page(measured({}), [found], None, {}).html()


def test_a_result_that_one_draw_leaves_open_says_what_decides():
    rows = distance_rows("figure2_phase", lambda reading, x, value: value + 0.5 * (reading != ZERO or x < 300))
    found = section("figure2_phase", rows)
    assert (found.verdict, found.verdict_words) == (ResultVerdict.LEFT_OPEN, "left open")
    assert found.summary.startswith("From zero 48 of 60 points agree, over 1 draw of the clients")
    assert "drawn once here: more draws, at a larger scale, decide." in found.summary


def test_a_verdict_gives_its_reason():
    coded = distance_section(lambda reading, x, value: value if reading == CODED else 0.9)
    assert coded.verdict is ResultVerdict.AS_CODED
    assert coded.summary.startswith("As coded (start at zero, client noise of standard deviation 1 to 10) 15 of 15")
    lost = distance_section(lambda reading, x, value: 0.9)
    assert lost.verdict is ResultVerdict.NOT_REPRODUCED
    assert lost.summary.startswith("The start and the noise levels are not those of the text; of 15 points 0 from zero")


def test_a_thinned_run_says_how_much_it_compares():
    rows = [row for row in rows_of("figure1_right") if row.x in (10, 60, 100)]
    thinned = section("figure1_right", rows)
    assert "The paper prints 18 points; at this scale 9 are computed." in thinned.findings


def test_figure_4_is_set_beside_figure_1_where_both_were_run():
    alone = section("figure4", rows_of("figure4"))
    both = section("figure4", rows_of("figure4"), {"figure1_left": rows_of("figure1_left")})
    (extra,) = set(both.findings) - set(alone.findings)
    assert "the mean difference is −0.267 printed" in extra


def test_a_number_that_is_not_printed_is_not_taken_for_zero():
    """A point that the paper does not have is compared among ours and left out of the printed mean."""
    rows, others = (rows_of(name) for name in ("figure4", "figure1_left"))
    for some in (rows, others):
        some += [replace(row, x=600, n=600) for row in some if row.n == 500]

    def beside_figure_1(rows):
        (text,) = (t for t in section("figure4", rows, {"figure1_left": others}).findings if "Figures 4 and 1" in t)
        return text

    assert "the mean difference is −0.267 printed" in beside_figure_1(rows)
    assert "as coded" not in beside_figure_1([row for row in rows if row.reading != CODED])


def test_a_panel_shows_every_point_of_every_reading():
    drawn = section("synchronisation", rows_of("synchronisation")).drawings[0].figure
    assert [axes.get_title(loc="left") for axes in drawn.axes] == ["From zero", "From the optimum", "As coded"]
    for axes in drawn.axes:
        assert axes.get_ylim()[0] == 0.0
        lengths = [len(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) > 2]
        assert lengths == [10] * 6  # ours and printed, for three n


def test_hostile_words_are_only_text():
    table = Table((HOSTILE,), ((HOSTILE,),), HOSTILE)
    result = replace(PAPER["figure1_left"], title=HOSTILE, where=HOSTILE, claim=HOSTILE)
    texts = {"summary": HOSTILE, "findings": (HOSTILE,), "tables": (table,), "why": (HOSTILE,)}
    hostile = made_up(result, ResultVerdict.REPRODUCED, HOSTILE, **texts)
    parsed = Checked(reproduction_page(measured({}), [hostile], None, {}).html())
    assert parsed.count("script") == parsed.count("b") == 0
    assert parsed.count("style") == 1


def test_one_result_alone_makes_a_page(tmp_path):
    """There is nothing to set side by side then, and no figure for it."""
    sections, page = write_reproduction(measured({"heterogeneity": rows_of("heterogeneity")}), tmp_path)
    assert len(sections) == 1
    assert Checked(page.read_text()).count("img") == 1
    assert not (tmp_path / "start.png").exists()
