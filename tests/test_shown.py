"""Results at a prompt and in a notebook: words, and no dump of arrays."""

from html import unescape

import numpy as np
import pytest

import fedgauss as fg
from fedgauss._shown import Shown
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
    assert unescape(page.partition(">")[2].removesuffix("</pre>")) == str(result)


def test_a_notebook_is_not_given_tags():
    class Hostile(Shown):
        def __str__(self):
            return "<script>"

    assert "<script>" not in Hostile()._repr_html_()
