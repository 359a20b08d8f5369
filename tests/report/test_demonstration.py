"""The demonstration, small: what it computes, and what `fedgauss demo` leaves behind."""

import base64
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from report_parsing import Checked
from typer.testing import CliRunner

from fedgauss.cli import app
from fedgauss.report.comparison import judge
from fedgauss.report.demonstration import findings
from fedgauss.report.demonstration.drawings import DRAWINGS
from fedgauss.report.demonstration.run import _compare, run_demo
from fedgauss.report.demonstration.setup import Setup, demo_setup

NAMES = [draw.__name__ for draw in DRAWINGS]


TICKS: dict[str, list[tuple[int, int]]] = {}


def short(replicates: int, seed: int) -> Setup:
    """The demonstration with fewer steps, one size for all tests, so that they share a compilation."""
    return replace(demo_setup(replicates, seed), n_steps=60, checkpoints=(20, 40, 60))


@pytest.fixture(scope="module")
def result():
    return run_demo(short(390, 5), lambda what, done, total: TICKS.setdefault(what, []).append((done, total)))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedgauss.report.demonstration.setup.demo_setup", short)
        done = CliRunner().invoke(app, ["demo", "--out", str(folder), "--replicates", "390", "--seed", "5"])
    assert done.exit_code == 0, done.output
    return folder, done


def test_simulation_agrees_with_exact_theory(result):
    # At level 1e-4 a right simulation fails this for one seed in ten thousand.
    comparisons = [*result.from_optimum.comparisons, *result.from_zero.comparisons]
    assert len(comparisons) == 18
    assert judge(comparisons, result.setup.replicates, level=1e-4).agrees


def test_a_wrong_theory_would_be_noticed(result):
    zero, optimum = result.from_zero, result.from_optimum
    mixed_up = _compare(result.setup, zero.start, zero.simulated, optimum.exact)
    assert not judge(mixed_up, result.setup.replicates, level=1e-4).agrees


def test_every_replicate_is_used_once(result):
    for part in (result.from_optimum, result.from_zero):
        assert part.simulated.averages.shape == (390, 3, 2)
        assert part.simulated.last.shape == (390, 2)
        assert len(np.unique(part.simulated.last[:, 0])) == 390  # two blocks, each with a seed of its own
        assert part.simulated.paths.shape == (195, 60, 2)
    np.testing.assert_allclose(
        result.from_zero.simulated.paths.mean(axis=1), result.from_zero.simulated.averages[:195, -1], rtol=1e-5
    )


def test_ticks_count_up_to_the_whole(result):
    assert len(TICKS) == 2
    for counts in TICKS.values():
        done, total = zip(*counts, strict=True)
        assert list(done) == sorted(done)
        assert set(total) == {done[-1]}


def test_ratios_are_one_over_the_right_covariance():
    points = np.random.default_rng(2).standard_normal((500, 2)) @ np.diag([1.0, 3.0])
    own = findings.ratio(points, np.diag([1.0, 9.0]), np.cov(points.T))
    assert own.simulated == pytest.approx(1.0)
    half = findings.ratio(points, np.diag([1.0, 9.0]), np.diag([2.0, 18.0]))
    assert half.exact == pytest.approx(0.5)
    assert abs(half.simulated - 0.5) < 4 * half.error


def test_the_demo_writes_every_file(written):
    folder, _ = written
    expected = {"index.html"} | {f"{name}.{kind}" for name in NAMES for kind in ("png", "svg")}
    assert {path.name for path in folder.iterdir()} == expected
    for name in NAMES:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert ET.fromstring((folder / f"{name}.svg").read_text()).tag.endswith("svg")


def test_the_page_holds_every_figure_and_nothing_from_outside(written):
    folder, _ = written
    text = (folder / "index.html").read_text()
    page = Checked(text)
    images = [attributes for tag, attributes in page.seen if tag == "img"]
    assert len(images) == len(NAMES)
    for image in images:
        kind, data = image["src"].split(";base64,")
        assert kind == "data:image/svg+xml"
        svg = base64.b64decode(data).decode()
        ET.fromstring(svg)
        assert set(re.findall(r'(?:href|src)="(.)', svg)) <= {"#"}
        assert image["alt"]
    assert page.count("table") == 2
    assert page.count("script") == page.count("link") == 0
    assert "http" not in re.sub(r"base64,[^\"]*", "", text)


def test_the_terminal_shows_the_table_the_verdict_the_advice_and_the_place(written):
    folder, done = written
    assert "average: variance 1" in done.output
    assert "simulated (error)" in done.output
    assert "Simulation and exact theory" in done.output
    assert "Berry-Esseen" in done.output
    assert str(folder / "index.html") in done.output
    assert "…" not in done.output  # nothing is cut off at 80 columns
