"""The section of an attack table: words, tables and pictures follow the rows, on the page and in the terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from attack_table_rows import MNIST, SHIFT, attack_rows
from fedgauss._figures import png
from fedgauss.paper.attack import DETECTED, EARLY, POWER, TRACE
from fedgauss.paper.attack_rules import INNOVATION, OTHER_RULES, PAPER_RULES, RIGHT_TUNED, RIGHT_ZERO, UNDER_FOUND
from fedgauss.paper.judging import ResultVerdict
from fedgauss.paper.mnist import OPTIMUM_RULES, RIGHT_AT_OPTIMUM, WARM_UP_RULES
from fedgauss.paper.page import print_reproduction
from fedgauss.paper.result import SCALES, Reproduction, write_reproduction
from fedgauss.sweep.run import Summary
from report_parsing import Checked

RULES = (*PAPER_RULES, *OTHER_RULES)
MNIST_RULES = (*MNIST.papers, *MNIST.others)


def shown(rows, result=SHIFT):
    return result.section(rows, {})


def in_terminal(found, width=80):
    console = Console(width=width, record=True, file=io.StringIO())
    print_reproduction([found], console, verbose=True)
    return console.export_text()


def moved(rows, rule, x, measure, value):
    """The rows with one number replaced."""
    where = (rule, x, measure)
    return [replace(row, estimate=value) if (row.rule, row.x, row.measure) == where else row for row in rows]


@pytest.fixture(scope="module")
def found():
    return shown(attack_rows(lambda rule: 0.0 if rule == RIGHT_TUNED else 0.1))


def test_printed_and_measured_stand_side_by_side(found):
    assert found.verdict is ResultVerdict.REPRODUCED
    shares = found.tables[1]
    assert shares.header == ("$μ$", "0.5", "1", "1.5", "2", "2.5", "3")
    by_name = {row[0]: row[1:] for row in shares.rows}
    assert by_name["printed"][:2] == ("0.172", "0.966")
    assert by_name["right scale, $c$ tuned"][0] == "0.172 ✓ (0.001)"
    assert by_name["right scale, $c$ = 0"][0] == "0.272 (0.001)"
    onsets = {row[0]: row[1:] for row in found.tables[2].rows}
    assert onsets["printed"][0] == "201; 59–291"
    assert onsets["right scale, $c$ tuned"][0] == "201 ✓; 59–291"
    assert onsets["innovation, horizon"][0] == "251; 109–341"


def test_only_the_papers_rules_are_marked():
    agreeing = shown(attack_rows())
    for table in agreeing.tables[1:4]:
        marked = {row[0] for row in table.rows if any("✓" in cell for cell in row)}
        assert marked == {row[0] for row in table.rows if "scale" in row[0]}


def test_false_alarms_and_early_ones_are_told_for_every_rule(found):
    rows = {row[0]: row[1:] for row in found.tables[0].rows}
    assert len(rows) == 1 + len(RULES)
    assert rows["printed"][1] == "0.046"
    assert rows["right scale, $c$ tuned"] == ("0.300", "0.046 ✓ (0.001)", "0.060 (0.010)", "0.100 (0.001)")
    assert rows["e-process"] == ("", "0.146 (0.001)", "", "0.100 (0.001)")


def test_words_follow_the_rows():
    rows = moved(attack_rows(lambda rule: 0.1), RIGHT_ZERO, 0.0, DETECTED, 0.353)
    rows = moved(moved(rows, INNOVATION, 0.5, POWER, 0.53), RIGHT_ZERO, 0.5, EARLY, 0.33)
    found = shown(rows)
    assert found.verdict is ResultVerdict.NOT_REPRODUCED
    assert "alarms in 0.353 (0.001) of honest runs" in found.summary
    assert "innovation, horizon: 0.530 (0.001)" in found.summary
    assert any("right scale, $c$ = 0: 0.330 (0.001)" in text for text in found.findings)
    assert any("falls under every rule" in text for text in found.findings)
    assert "sees 0.53" in found.drawings[1].figure.texts[0].get_text().replace("\n", " ")


def test_a_rule_found_by_trying_is_said_so():
    found = shown(attack_rows(lambda rule: 0.0 if rule == UNDER_FOUND else 0.1))
    assert (found.verdict, found.verdict.role) == (ResultVerdict.AS_CODED, "exact")
    assert found.summary.startswith("43 of 43 numbers agree")
    assert "found by trying" in found.summary


def test_the_run_is_drawn_with_its_alarm_and_both_onsets(found):
    figure = found.drawings[0].figure
    assert "alarms at step 300" in figure.texts[0].get_text().replace("\n", " ")
    assert len(figure.axes) == 2
    for axes in figure.axes:
        lines = [(list(line.get_xdata()), line.get_label()) for line in axes.lines]
        upright = sorted(xs[0] for xs, _ in lines if len(xs) == 2 and xs[0] == xs[1])
        assert upright == [240, 250]
        assert [300] in [xs for xs, _ in lines]


def test_curves_have_a_line_for_every_rule_and_a_mark_for_every_printed_number(found):
    power, delay = (drawing.figure.axes[0] for drawing in found.drawings[1:])
    for axes, printed in ((power, 7), (delay, 6)):
        lengths = [len(line.get_xdata()) for line in axes.lines]
        assert lengths.count(6) == len(RULES)
        assert sum(line.get_marker() == "D" and line.get_markerfacecolor() == "none" for line in axes.lines) == printed
    assert all(png(drawing.figure, dpi=50).startswith(b"\x89PNG") for drawing in found.drawings)


def test_the_terminal_has_room_for_every_table(found):
    text = in_terminal(found)
    assert max(map(len, text.splitlines())) <= 80
    assert "0.172 ✓" in text
    assert "$" not in text
    assert "…" not in text
    assert "…" not in in_terminal(found, 40)


def test_one_attack_alone_is_a_table_of_measures_without_curves():
    found = shown(attack_rows(cases=(0.0, 2.0)))
    assert [drawing.name for drawing in found.drawings] == ["attack_shift_run"]
    assert len(found.tables) == 3
    assert all(len(table.rows[0]) == len(table.header) == 4 for table in found.tables[1:])
    assert not any("rises" in text for text in found.findings)


def test_rules_that_never_alarm_leave_gaps():
    kept = (DETECTED, POWER, EARLY, TRACE)
    rows = [row for row in attack_rows() if row.rule != INNOVATION or row.measure in kept]
    found = shown(moved(rows, INNOVATION, 0.5, POWER, 0.0))
    assert "" in next(row for row in found.tables[2].rows if row[0] == "innovation, horizon")
    assert not re.search(r"\bnan\b|\bNone\b", in_terminal(found))


def test_the_page_and_the_json_have_it(tmp_path):
    rows = attack_rows(lambda rule: 0.1)
    summary = Summary(3, 3, 0, 1.0)
    whole = Reproduction((SHIFT,), SCALES["paper"], {"attack_shift": rows}, "fedgauss reproduce", summary)
    _, page = write_reproduction(whole, tmp_path)
    parsed = Checked(page.read_text())
    assert parsed.count("img") == 3
    assert parsed.count("table") == 8
    assert {f"attack_shift_{name}.png" for name in ("run", "power", "delay")} <= {p.name for p in tmp_path.iterdir()}
    text = page.read_text()
    assert "Of 1 result of the paper: 1 not reproduced." in text
    assert not re.search(r"\bnan\b|\bNone\b|\{", re.sub(r"<style>.*</style>|base64,\S*", "", text, flags=re.S))
    assert '"measure": "s_hat mean"' in (tmp_path / "results.json").read_text()


@pytest.fixture(scope="module")
def mnist():
    return shown(attack_rows(lambda rule: 0.0 if rule == RIGHT_AT_OPTIMUM else 0.1, result=MNIST), MNIST)


def test_mnist_has_every_rule_beside_the_printed_numbers(mnist):
    assert mnist.verdict is ResultVerdict.REPRODUCED
    honest, beside, own = ({row[0]: row[1:] for row in table.rows} for table in mnist.tables)
    assert len(honest) == len(beside) == 1 + len(MNIST_RULES) == 1 + len(own)
    assert beside["printed"] == ("0.900", "58.5; 32–96", "95.7; 89–99")
    near = beside["right scale, $c$ tuned, at optimum"]
    assert near == ("0.900 ✓ (0.001)", "58.5 ✓ (0.5); 32–96", "95.7 ✓ (0.5); 89–99")
    assert beside["innovation, warm-up 200"] == ("1.000 (0.001)", "78.5 (0.5); 52–116", "115.7 (0.5); 109–119")
    assert own["innovation, warm-up 500"] == ("0.800 (0.001)", "90.0 (0.5)", "20.0 (0.5)")
    assert honest["printed"][1] == "0.060"


def test_mnist_is_judged_by_the_papers_rules_from_both_starts():
    (outcome,) = shown(attack_rows(lambda rule: 0.1, result=MNIST), MNIST).outcomes
    assert (outcome.verdict, outcome.reading, outcome.n_printed) == (ResultVerdict.NOT_REPRODUCED, None, 8)
    assert {agreement.reading for agreement in outcome.agreements} == set(MNIST_RULES) - set(WARM_UP_RULES)
    assert {agreement.reading for agreement in outcome.agreements} > set(OPTIMUM_RULES)


def test_mnist_says_what_its_runs_are_and_shows_one(mnist):
    assert "Power at $K_0$ = 3" in mnist.summary
    assert any("first four runs" in text for text in mnist.findings)
    (drawing,) = mnist.drawings
    title = drawing.figure.texts[0].get_text().replace("\n", " ")
    assert title.startswith("One run, attacked after step 50 with $K_0$ = 3")
    assert "the default alarms at step 100" in title
    assert len(drawing.figure.axes) == 2
    assert png(drawing.figure, dpi=50).startswith(b"\x89PNG")


def test_the_terminal_has_room_for_mnist(mnist):
    text = in_terminal(mnist)
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r"[$…]|\bnan\b|\bNone\b", text)
    assert "…" not in in_terminal(mnist, 40)
