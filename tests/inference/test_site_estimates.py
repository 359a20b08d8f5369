"""Sites' own estimates: who takes part, what changes without one, and the figure."""

import numpy as np
import pytest

from fedgauss.inference.estimate import Estimate
from fedgauss.inference.meta import meta_analysis
from fedgauss.inference.site_estimates import site_estimates

RNG = np.random.default_rng(3)
SITES, NAMES = ["north", "south", "<b>east</b>", "west", "tiny"], ["const", "age", "ward[T.b]"]
PARAMS = RNG.normal(0.5, 0.3, (5, 3))
ROOTS = RNG.normal(0.0, 0.2, (5, 3, 6))
COV = ROOTS @ ROOTS.transpose(0, 2, 1)


def some(params=PARAMS, cov=COV, **more):
    return site_estimates(SITES, NAMES, params, cov, **more)


def test_each_coefficient_is_a_meta_analysis_of_its_own():
    found = some(level=0.9)
    assert found.names == tuple(NAMES)
    np.testing.assert_array_equal(found.std_errors, np.sqrt([np.diag(each) for each in COV]))
    age, alone = found.meta("age"), meta_analysis(PARAMS[:, 1], COV[:, 1, 1], SITES, "age", 0.9)
    assert age.random == alone.random
    assert (age.tau2, age.q, age.level) == (alone.tau2, alone.q, 0.9)
    assert found.meta("age", level=0.5).random.high < age.random.high
    table = found.to_frame()
    assert list(table.index) == NAMES
    assert table.loc["age", "estimate"] == age.random.estimate
    with pytest.raises(KeyError, match="Did you mean 'age'"):
        found.meta("aeg")


def test_sites_whose_fit_failed_are_left_out_and_named():
    broken = PARAMS.copy()
    broken[0] = np.nan
    found = some(broken, failed={"tiny": "separable classes", "elsewhere": "4 rows for 3 coefficients"})
    assert found.sites == ("south", "<b>east</b>", "west")
    assert found.left_out == {
        "tiny": "separable classes",
        "elsewhere": "4 rows for 3 coefficients",
        "north": "its own fit estimates no coefficient",
    }
    assert found.meta("age").left_out == found.left_out
    for shown in (str(found), str(found.meta("age"))):
        assert "tiny (separable classes)" in shown
    html = found._repr_html_()
    assert html.count("<tr>") == 4
    assert "Left out: tiny" in html


def test_a_site_without_a_level_takes_part_in_the_other_coefficients():
    params, cov = PARAMS.copy(), COV.copy()
    params[1, 2] = np.nan
    cov[3, 2, 2] = 0.0
    found = some(params, cov)
    assert len(found.meta("age").sites) == 5
    assert found.meta("ward[T.b]").sites == ("north", "<b>east</b>", "tiny")
    assert set(found.meta("ward[T.b]").left_out) == {"south", "west"}
    params[:4, 2] = np.nan
    lonely = some(params, cov)
    assert list(lonely.to_frame().index) == ["const", "age"]
    with pytest.raises(ValueError, match=r"at least two sites; got 1 for 'ward\[T.b\]'"):
        lonely.meta("ward[T.b]")


def test_leave_one_out_finds_the_site_that_decides():
    params, cov = PARAMS.copy(), COV.copy()
    params[2, 1], cov[2, 1, 1] = 30.0, 0.01
    found = some(params, cov).leave_one_out("age")
    assert found.most_influential == "<b>east</b>"
    assert list(found.without) == SITES
    rest = [0, 1, 3, 4]
    alone = meta_analysis(params[rest, 1], cov[rest, 1, 1])
    assert found.without["<b>east</b>"].random == alone.random
    assert "left out" in str(found)
    assert str(found).count("\n") == 9  # a title, two rules, a head and six rows
    assert "&lt;b&gt;east" in found._repr_html_()
    assert list(found.to_frame().index) == SITES
    two = site_estimates(["a", "b"], ["x"], [[1.0], [2.0]], np.ones((2, 1, 1)))
    with pytest.raises(ValueError, match="at least three sites that estimate 'x'; got 2"):
        two.leave_one_out("x")


@pytest.mark.parametrize("exp", [False, True])
def test_the_forest_plot_has_a_line_for_everyone(exp):
    found = some()
    pooled = Estimate([0.1, 0.5, 0.2], np.eye(3) / 100, 0.95, "scoring", tuple(NAMES))
    axes = found.forest("age", pooled, exp).axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [*SITES, "pooled fit", "random effects", "another site"]
    squares = [line for line in axes.lines if line.get_marker() == "s"]
    shown = np.array([line.get_xdata()[0] for line in squares])
    np.testing.assert_allclose(np.log(shown) if exp else shown, PARAMS[:, 1])
    sizes = [line.get_markersize() for line in squares]
    assert np.argmax(sizes) == np.argmax(found.meta("age").weights)
    (dot,) = (line for line in axes.lines if line.get_marker() == "o")
    assert dot.get_xdata()[0] == pytest.approx(np.exp(0.5) if exp else 0.5)
    assert len(axes.texts) == len(labels)


def test_one_wild_site_does_not_squeeze_the_others():
    params, cov = np.array([[0.1], [0.2], [0.3]]), np.array([[[0.01]], [[0.01]], [[400.0]]])
    axes = site_estimates(["a", "b", "c"], ["x"], params, cov).forest("x").axes[0]
    low, high = axes.get_xlim()
    assert high - low < 3.0
    assert {line.get_marker() for line in axes.lines} >= {"<", ">"}  # where the interval goes on
    with pytest.raises(ValueError, match="exp=True needs estimates within 300 of 0"):
        site_estimates(["a", "b"], ["x"], params[:2] + 1e4, cov[:2]).forest("x", exp=True)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ((["a", "a"], ["x"], np.zeros((2, 1)), np.ones((2, 1, 1))), "sites must differ; 'a' occurs more than once"),
        ((["a", "b"], ["x", "x"], np.zeros((2, 2)), np.ones((2, 2, 2))), "names must differ"),
        ((["a", "b"], ["x"], np.zeros((1, 2)), np.ones((2, 1, 1))), r"shapes \(2, 1\) and \(2, 1, 1\)"),
        ((["a"], ["x"], [[np.nan]], np.ones((1, 1, 1))), "at least one site whose own fit succeeds"),
    ],
)
def test_what_is_refused(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        site_estimates(*arguments)


def test_a_single_site_says_so():
    alone = site_estimates(["a"], ["x"], [[1.0]], np.ones((1, 1, 1)))
    assert str(alone) == "Own fit of one site, a"
    assert alone._repr_html_() == "<p>Own fit of one site, a</p>"


def test_small_negative_numbers_leave_a_space_between_columns():
    found = site_estimates(["a", "b"], ["x"], [[-1.1e-3], [-0.9e-3]], np.full((2, 1, 1), 1e-6))
    (row,) = [line for line in str(found).splitlines() if line.startswith("x ")]
    assert row.split()[1:3] == ["-1.00e-03", "-1.00e-03"]
