"""Results at a prompt and in a notebook: words, and no dump of arrays."""

import re
from html import unescape

import numpy as np
import pytest

import fedgauss as fg
from fedgauss._shown import Shown, html_table
from fedgauss.detect.attribution import Attribution, Suspect
from fedgauss.theory.exact import ExactMoments

RING = fg.networks.ring(4)
RESULTS = {
    "runs": (fg.Runs(np.zeros((9, 2)), np.zeros((9, 2)), 5, 4, 0), "<9 runs of local SGD: 4 clients, 5 steps"),
    "linearization": (fg.linearization([np.eye(2)] * 3, [np.eye(2)] * 3), "<Linearization of 3 clients in 2 dim"),
    "network": (RING, "<Network ring: 4 clients>"),
    "tampered": (fg.networks.man_in_the_middle(RING, 0, 1, 3), "<TamperedNetwork ring: 4 clients>"),
    "moments": (
        ExactMoments(*(np.zeros(s) for s in ((2,), (2, 2), (2,), (2, 2), (4, 2), (4, 2, 4, 2), (2,))), n_steps=5),
        "<Exact moments after 5 steps, 4 clients in 2 dimensions>",
    ),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_prompt_gets_one_line_and_a_notebook_what_is_printed(name):
    result, line = RESULTS[name]
    assert repr(result).startswith(line)
    assert "\n" not in repr(result)
    page = result._repr_html_()
    if name != "runs":  # a table
        assert unescape(page.partition(">")[2].removesuffix("</pre>")) == str(result)


def test_a_notebook_is_not_given_tags():
    class Hostile(Shown):
        def __str__(self):
            return "<script>"

    assert "<script>" not in Hostile()._repr_html_()


def test_runs_are_a_table_in_a_notebook_with_the_numbers_that_are_printed():
    rng = np.random.default_rng(0)
    runs = fg.Runs(rng.normal(size=(9, 12)), rng.normal(size=(9, 12)), 5, 4, 0, {"cusum": np.zeros((9, 5))})
    page = runs._repr_html_()
    cells = re.findall(r"<td>([^<]*)</td>", page)
    assert len(cells) == 40
    assert all(cell in str(runs) for cell in cells)
    assert "... and 2 more coordinates" in page
    assert "cusum (9, 5)" in page


SENTENCES = {
    "distance": fg.ball_distance(np.zeros((4, 2)), np.zeros(2), np.eye(2), rate=1.0),
    "advice": fg.advise(n_steps=500, n_clients=10),
    "verdict": fg.ClientMonitor().update(np.ones((3, 4))),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_sentences_are_paragraphs_in_a_notebook_and_one_line_at_a_prompt(name):
    result = SENTENCES[name]
    paragraphs = re.findall(r"<p>(.*?)</p>", result._repr_html_())
    assert [unescape(text) for text in paragraphs] == str(result).splitlines()
    assert repr(result) == f"<{str(result).splitlines()[0]}>"


def test_a_table_shows_words_and_no_tags():
    page = html_table(("a", "<b>"), [("<i>", "1"), ("x", "2")], caption="c & d")
    assert re.findall(r"<t[hd](?: [^>]*)?>([^<]*)<", page) == ["a", "&lt;b&gt;", "&lt;i&gt;", "1", "x", "2"]
    assert "<caption>c &amp; d</caption>" in page


def test_suspects_are_a_table_with_those_called_malicious_marked():
    rows = (Suspect(3, 9.1, 1e-9, 1e-8, True), Suspect(0, 0.2, 0.8, 0.8, False))
    page = Attribution(rows, 0.1, 20, 5, note="a <note>")._repr_html_()
    assert re.findall(r'scope="row">(\d)</th>(?:<td>[^<]*</td>){3}<td>(.?)</td>', page) == [("3", "*"), ("0", "")]
    assert page.endswith("<p>a &lt;note&gt;</p>")


def test_a_figure_shows_itself_where_pyplot_was_never_imported():
    """Without pyplot a notebook does not know how to show a figure, and would print `<Figure size ...>`."""
    rng = np.random.default_rng(0)
    figure = fg.Runs(rng.normal(size=(50, 2)), rng.normal(size=(50, 2)), 5, 4, 0).plot()
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_quantiles_lie_on_the_diagonal_of_their_own_law_alone():
    sample = np.random.default_rng(0).normal(loc=3.0, scale=2.0, size=(2_000, 1))
    runs = fg.Runs(sample, sample, 5, 4, 0)
    for given, on_diagonal in (((), True), (([3.0], [[4.0]]), True), (([0.0], [[4.0]]), False)):
        points = runs.plot(*given).axes[0].lines[-1]
        apart = np.abs(points.get_ydata() - points.get_xdata())[50:-50]
        assert (apart.max() < 0.2) == on_diagonal  # about five standard errors of a quantile
    with pytest.raises(ValueError, match=r"center and cov must be \(1,\) and \(1, 1\)"):
        runs.plot([0.0, 0.0])
