"""Figures and the files made of them."""

import xml.etree.ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest

from fedgauss import networks
from fedgauss.report import figures, images
from fedgauss.report.palette import DARK, LIGHT


@pytest.fixture(scope="module")
def figure():
    return figures.disagreement_figure("Falls", np.linspace(2, 1, 40), np.linspace(2, 1, 40), sync_every=20)


def test_an_ellipse_holds_95_percent_of_its_law():
    cov = np.array([[2.0, 0.7], [0.7, 1.0]])
    ellipse = figures.Ellipse("law", "exact", np.array([1.0, -1.0]), cov)
    draws = np.random.default_rng(1).multivariate_normal(ellipse.center, cov, size=20_000)
    # Four binomial standard errors: fails once in 16,000 seeds. A radius of 1.96, a common slip, holds 85 %.
    assert abs(ellipse.share(draws) - 0.95) < 4 * (0.95 * 0.05 / 20_000) ** 0.5
    inside = ellipse.center + 0.999 * (ellipse.outline - ellipse.center)
    outside = ellipse.center + 1.001 * (ellipse.outline - ellipse.center)
    assert ellipse.share(inside) == 1.0
    assert ellipse.share(outside) == 0.0


def test_every_figure_names_its_axes_and_has_a_title(figure):
    rng = np.random.default_rng(0)
    points = rng.standard_normal((50, 2))
    round_law = figures.Ellipse("law", "exact", np.zeros(2), np.eye(2))
    n = np.array([10.0, 20.0])
    curve = figures.Curve("ratio", "limit", n, n / 20, n / 100, n, n / 20)
    drawn = [
        figure,
        figures.path_figure("Runs", rng.standard_normal((3, 30, 2)), np.zeros((30, 2)), np.ones((30, 2)), np.ones(2)),
        figures.cloud_figure("Cloud", [("a start", points, [round_law])]),
        figures.ratio_figure("Ratio", [curve]),
    ]
    for one in drawn:
        assert one.get_suptitle()
        assert all(axes.get_ylabel() for axes in one.axes)
        assert one.axes[-1].get_xlabel()


def test_a_network_is_drawn_with_all_its_clients():
    drawn = figures.network_figure("Star", networks.star(6), [f"note {k}" for k in range(6)])
    texts = {text.get_text() for text in drawn.axes[0].texts}
    assert {str(k + 1) for k in range(6)} | {f"note {k}" for k in range(6)} == texts


def test_drawing_leaves_the_settings_of_others_alone():
    before = dict(mpl.rcParams)
    images.png(figures.network_figure("Ring", networks.ring(4), [""] * 4), dpi=40)
    assert dict(mpl.rcParams) == before


def test_the_same_data_give_the_same_file():
    files = []
    for _ in range(2):
        drawn = figures.ratio_figure("Ratio", [figures.Curve("r", "limit", *np.ones((5, 2)))])
        files.append((images.png(drawn, dpi=50), images.svg(drawn)))
    assert files[0] == files[1]
    assert files[0][0].startswith(b"\x89PNG")


def test_a_themed_svg_has_every_colour_of_the_palette_twice(figure):
    themed = images.themed_svg(images.svg(figure)).decode()
    root = ET.fromstring(themed)
    assert root.tag.endswith("svg")
    for role in LIGHT:
        assert themed.count(f"--{role}:{LIGHT[role]}") == 1
        assert themed.count(f"--{role}:{DARK[role]}") == 1
    assert "var(--exact)" in themed
    assert "<!DOCTYPE" not in themed


def test_palette_values_differ_so_that_each_names_one_role():
    assert len(set(LIGHT.values())) == len(LIGHT)
    assert LIGHT.keys() == DARK.keys()
