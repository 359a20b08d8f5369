"""Tables of an estimate: frames, ratios, LaTeX and HTML."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from fedgauss.inference.estimate import Estimate
from fedgauss.inference.fit_result import Fit, FitStatistics
from fedgauss.inference.reference_laws import ChiSquared
from fedgauss.inference.site_estimates import site_estimates

HOSTILE = r"<script>x_1 & 50% $\input{/etc/passwd}$ #{}~^|</script>"
NAMES = ("const", "age", HOSTILE)
FIT = Fit(
    [-2.0, 0.05, 1.5], np.diag([0.04, 0.0004, 0.25]), 0.9, "scoring", NAMES, facts={"Target": HOSTILE, "Rows": "90"},
    notes=(HOSTILE,), heterogeneity=ChiSquared(3.0, 2, 0.22), intercepts=(0,), scales=np.array([1.0, 10.0, 0.5]),
    statistics=FitStatistics(90, 3, 87, -40.0, -50.0, 80.0, 100.0, 1.0, 88.0, 6),
    sites=site_estimates(["a", "b"], NAMES, np.zeros((2, 3)), np.tile(np.eye(3), (2, 1, 1)), {HOSTILE: "few rows"}),
)  # fmt: skip


class Tags(HTMLParser):
    """Collects tags and text, and checks that tags are closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.seen, self.text = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_columns_do_not_run_into_each_other_where_nothing_is_left_to_explain():
    perfect = Estimate([2.0, -3.0], np.diag([1e-34, 1e-36]), 0.95, "scoring", ("const", "x"))
    const, x = (line.split() for line in perfect.summary().splitlines() if line.startswith(("const ", "x ")))
    assert const == ["const", "2.0000", "1.000e-17", "2.000e+17", "0.000", "2.0000", "2.0000"]
    assert x[3] == "-3.000e+18"
    assert r"$2.000\times 10^{17}$" in perfect.to_latex()


def test_parameters_errors_and_tests_are_found_by_name():
    assert FIT.params["age"] == 0.05
    assert FIT.std_errors["age"] == pytest.approx(0.02)
    assert FIT.z_values["age"] == pytest.approx(2.5)
    assert FIT.p_values["age"] == pytest.approx(0.012419, rel=1e-4)
    assert type(FIT.conf_int()) is np.ndarray
    assert FIT.conf_int().shape == (3, 2)
    with pytest.raises(KeyError, match="Did you mean 'age'"):
        FIT.params["aeg"]


def test_the_frame_has_estimates_first_and_names_as_its_index():
    table = FIT.to_frame()
    assert list(table.columns) == ["estimate", "std_error", "z", "p", "low", "high"]
    assert list(table.index) == list(NAMES)
    np.testing.assert_array_equal(table[["low", "high"]].to_numpy(), FIT.conf_int())
    assert table.loc["const", "estimate"] == -2.0


def test_ratios_have_exponential_intervals_and_no_intercept():
    table = FIT.to_frame(exp=True)
    assert list(table.index) == ["age", HOSTILE]
    assert table.loc["age", "estimate"] == pytest.approx(np.exp(0.05))
    assert table.loc["age", "std_error"] == pytest.approx(np.exp(0.05) * 0.02)
    assert table.loc["age", "low"] == pytest.approx(np.exp(FIT.conf_int()[1, 0]))
    assert table.loc["age", "p"] == FIT.p_values["age"]
    # the delta method: the spread of exponentials of draws
    draws = np.exp(0.05 + 0.02 * np.random.default_rng(1).standard_normal(200_000))
    assert table.loc["age", "std_error"] == pytest.approx(draws.std(), rel=0.01)
    alone = Fit([0.5], np.eye(1), 0.95, "scoring", ("const",), intercepts=(0,))
    assert list(alone.to_frame(exp=True).index) == ["const"]  # there is nothing else
    assert Estimate([900.0], np.eye(1), 0.95, "plugin", ("x",)).to_frame(exp=True).loc["x", "estimate"] == np.inf


def test_latex_is_a_table_in_which_names_are_no_commands():
    text = FIT.to_latex()
    lines = text.splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrrr}"
    assert [line for line in lines if line.endswith("rule")] == [r"\toprule", r"\midrule", r"\bottomrule"]
    rows = [line for line in lines if line.endswith(r"\\")]
    assert len(rows) == 4
    assert all(len(re.findall(r"(?<!\\)&", row)) == 6 for row in rows)
    assert all(len(re.findall(r"(?<!\\)\$", row)) % 2 == 0 for row in rows)
    assert r"\input" not in text
    bracket = Estimate([1.0], np.eye(1), 0.9, "plugin", ("[a]",)).to_latex()
    assert "\n[" not in bracket  # which LaTeX would read as an option of the row above
    assert "$-2.0000$" in rows[1]
    assert "$< 0.001$" in rows[1]
    for row in rows:
        bare = re.sub(r"\\.", "", row)
        assert bare.count("{") == bare.count("}")
    ratio = FIT.to_latex(exp=True)
    assert r"$\exp(b)$" in ratio
    assert "const" not in ratio
    small = Estimate([1e-7], np.eye(1) * 1e-16, 0.95, "plugin", ("x",)).to_latex()
    assert r"$1.000\times 10^{-7}$" in small


def test_html_is_tables_in_which_words_are_no_tags():
    found = Tags(FIT._repr_html_())
    assert not found.open
    assert found.seen.count("table") == 3  # facts, coefficients, sites
    assert "script" not in found.seen
    assert HOSTILE in found.text
    assert any("Heterogeneity test" in text for text in found.text)
    assert any("Log-likelihood" in text for text in found.text)


def test_the_summary_has_statistics_and_sites():
    text = FIT.summary()
    statistics = ("Log-likelihood: -40", "Deviance: 80", "AIC: 86", "Pseudo R2 (McFadden): 0.2000", "Rounds: 6")
    for part in (*statistics, "Own fits of 2 sites", "Left out:"):
        assert part in text
    assert str(FIT) == text


@pytest.mark.parametrize("exp", [False, True])
@pytest.mark.parametrize("standardised", [False, True])
def test_the_figure_shows_slopes_and_their_intervals(exp, standardised):
    axes = FIT.plot(exp, standardised).axes[0]
    dots = np.array([line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"])
    scale = FIT.scales[1:] if standardised else 1.0
    np.testing.assert_allclose(np.log(dots) if exp else dots, FIT.params[1:] * scale)
    assert axes.get_xscale() == ("log" if exp else "linear")
    assert axes.get_yticklabels()[0].get_text() == "age"
    assert ("standard deviation" in axes.get_xlabel()) == standardised


def test_an_estimate_is_drawn_too_and_needs_scales_to_be_standardised():
    assert len(Estimate([1.0, 2.0], np.eye(2), 0.95, "plugin", ("a", "b")).plot().axes[0].get_yticklabels()) == 2
    with pytest.raises(ValueError, match="standardised=True needs the scales"):
        Fit([1.0], np.eye(1), 0.95, "scoring", ("a",)).plot(standardised=True)
    with pytest.raises(ValueError, match="needs the sites' own estimates"):
        Fit([1.0], np.eye(1), 0.95, "scoring", ("a",)).forest("a")
    labels = [label.get_text() for label in FIT.forest("age").axes[0].get_yticklabels()]
    assert labels == ["a", "b", "pooled fit", "random effects"]
