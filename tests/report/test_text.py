"""Formulas, numbers and lists in text, and text that is not to be trusted."""

import pytest

from fedgauss.report.text import listed, markup, number, plain, sentence, signed, with_error


def test_letters_marks_and_bars():
    assert markup("mean $Y_t$ of") == 'mean <span class="math"><i>Y</i><sub><i>t</i></sub></span> of'
    assert markup("$n^{−1}$") == '<span class="math"><i>n</i><sup>−1</sup></span>'
    assert markup(r"$\bar{Y}_n$") == '<span class="math"><span class="bar"><i>Y</i></span><sub><i>n</i></sub></span>'


def test_text_outside_formulas_is_left_alone():
    assert markup("exact_moments costs 5 $ and x^2") == "exact_moments costs 5 $ and x^2"


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "$<b>_<i>$", '"><img src=x>', "$&lt;_&$", r"$\bar{<a>}$"]
)
def test_hostile_text_adds_no_markup(text):
    shown = markup(text)
    for own in ('<span class="math">', '<span class="bar">', "<i>", "<sub>", "</span>", "</i>", "</sub>"):
        shown = shown.replace(own, "")
    assert "<" not in shown
    assert ">" not in shown
    assert '"' not in shown


def test_entities_stay_whole():
    assert markup("$a<b$") == '<span class="math"><i>a</i>&lt;<i>b</i></span>'


def test_plain_text_for_titles():
    assert plain(r"Law of $\bar{Y}_n$") == "Law of Y_n"


def test_numbers_have_a_true_minus_and_no_negative_zero():
    assert [number(-1.25, 1), number(-0.0004), number(2.0)] == ["−1.2", "0.000", "2.000"]
    assert [signed(-0.04, 1), signed(-0.06, 1), signed(0.3, 1)] == ["+0.0", "−0.1", "+0.3"]
    assert with_error(-0.1234, 0.004) == "−0.123 (0.004)"


def test_lists_and_sentences():
    assert [listed([]), listed(["a"]), listed(["a", "b"])] == ["", "a", "a and b"]
    assert listed(["a", "b", "c"], last="or") == "a, b or c"
    assert sentence("no alarm") == "No alarm"
