"""Figures in the house style, and the files made of them."""

import xml.etree.ElementTree as ET

import matplotlib as mpl
import pytest

from fedgauss._figures import DARK, LIGHT, png, styled, svg, titled_figure
from fedgauss.report.output import Drawing, save, themed_svg


@styled
def draw(title="A line"):
    figure = titled_figure(title, 2.0)
    axes = figure.subplots()
    axes.plot([1, 2, 3], [2, 3, 1], color=LIGHT["exact"], label="line")
    axes.legend()
    return figure


@pytest.fixture
def figure():
    return draw()


def test_a_figure_has_its_title(figure):
    assert figure.get_suptitle() == "A line"


def test_drawing_leaves_the_settings_of_others_alone():
    before = dict(mpl.rcParams)
    png(draw(), dpi=40)
    assert dict(mpl.rcParams) == before


def test_the_settings_of_others_leave_a_drawing_alone(figure):
    with mpl.rc_context({"font.size": 30.0, "lines.linewidth": 9.0}):
        assert svg(draw()) == svg(figure)


def test_the_same_data_give_the_same_file():
    files = [(png(drawn, dpi=50), svg(drawn)) for drawn in (draw(), draw())]
    assert files[0] == files[1]
    assert files[0][0].startswith(b"\x89PNG")


def test_a_themed_svg_has_every_colour_of_the_palette_twice(figure):
    themed = themed_svg(svg(figure)).decode()
    root = ET.fromstring(themed)
    assert root.tag.endswith("svg")
    for role in LIGHT:
        assert themed.count(f"--{role}:{LIGHT[role]}") == 1
        assert themed.count(f"--{role}:{DARK[role]}") == 1
    assert "var(--exact)" in themed
    assert "<!DOCTYPE" not in themed


def test_a_drawing_is_saved_twice_and_embedded(figure, tmp_path):
    embedded = save(Drawing("line", figure, "A caption.", "A line."), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"line.png", "line.svg"}
    assert (tmp_path / "line.png").read_bytes().startswith(b"\x89PNG")
    assert embedded == themed_svg((tmp_path / "line.svg").read_bytes())


def test_palette_values_differ_so_that_each_names_one_role():
    assert len(set(LIGHT.values())) == len(LIGHT)
    assert LIGHT.keys() == DARK.keys()
