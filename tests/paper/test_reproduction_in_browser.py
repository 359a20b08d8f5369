"""The report in a real browser: every image is drawn, and nothing is wider than the window."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape

import pytest

from attack_table_rows import attack_rows
from fedgauss.paper.page import distance_outcomes, reproduction_page, start_drawing, start_sentences
from fedgauss.paper.result import SCALES, Reproduction, catalogue, write_reproduction
from fedgauss.report.output import themed_svg
from fedgauss.report.text import Table
from fedgauss.sweep.run import Summary
from reproduction_rows import rows_of

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="Chromium is not installed: only a browser can say how a page looks"
)

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Runs in a copy of the page, after everything is loaded, and tells the window that the page is shown in.
PROBE = """
<script>
addEventListener("load", () => {
  const images = [...document.images];
  const box = (e) => e.getBoundingClientRect();
  const wide = [...document.querySelectorAll("main *")].filter(
    (e) => !e.closest(".wide, pre") && box(e).right > innerWidth + 0.5);
  parent.postMessage(JSON.stringify({
    images: images.length,
    broken: images.filter((i) => !i.complete || i.naturalWidth === 0 || box(i).width < 100).length,
    tables: [...document.querySelectorAll("table")].filter((t) => box(t).height > 0).length,
    hidden: [...document.querySelectorAll("h2, h3, p, td, li, figcaption")].filter((e) => box(e).height === 0).length,
    width: innerWidth,
    scroll: document.documentElement.scrollWidth,
    wide: wide.map((e) => e.tagName + " " + e.textContent.slice(0, 40)),
    text: Math.min(...[...document.querySelectorAll("p, li, td, figcaption")].map(
      (e) => parseFloat(getComputedStyle(e).fontSize))),
  }), "*");
});
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    names = ("figure2_phase", "figure3_qq", "synchronisation", "ablation_tau", "attack_shift", "attack_mnist")
    rows = {
        name: attack_rows(result=catalogue()[name]) if name.startswith("attack") else rows_of(name) for name in names
    }
    whole = Reproduction(
        tuple(catalogue()[name] for name in names), SCALES["paper"], rows, "fedgauss reproduce", Summary(1, 1, 0, 0.0)
    )
    sections, _ = write_reproduction(whole, folder)
    wide = Table(tuple(f"column {i}" for i in range(20)), (tuple("0.123 (0.045)" for _ in range(20)),), "Wide")
    sections[0] = replace(sections[0], tables=(*sections[0].tables, wide))
    outcomes = distance_outcomes(sections)
    start = (start_drawing(outcomes), start_sentences(outcomes))
    names = [drawing.name for section in sections for drawing in section.drawings] + [start[0].name]
    images = {name: themed_svg((folder / f"{name}.svg").read_bytes()) for name in names}
    probed = folder / "probed.html"
    probed.write_text(reproduction_page(whole, sections, start, images).html().replace("</body>", f"{PROBE}</body>"))
    return probed, sections


@pytest.mark.parametrize("width", [1280, 390])
def test_every_figure_and_table_shows_and_fits(page, width, tmp_path):
    """A broken image, an element that sticks out of the window and text too small to read all fail here."""
    probed, sections = page
    # In a frame, because the window itself cannot be made narrower than 500 pixels.
    frame = tmp_path / "frame.html"
    frame.write_text(
        "<script>onmessage = (event) => { document.documentElement.dataset.seen = event.data; };</script>"
        f'<iframe src="{probed.as_uri()}" style="width: {width}px; height: 900px; border: 0"></iframe>'
    )
    command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path}", "--window-size=1400,1000", "--virtual-time-budget=5000"]
    done = subprocess.run(
        [*command, "--dump-dom", frame.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    seen = json.loads(unescape(re.search(r'data-seen="([^"]*)"', done.stdout)[1]))
    assert seen["width"] == width
    assert seen["scroll"] <= width
    assert seen["wide"] == []
    assert (seen["broken"], seen["hidden"]) == (0, 0)
    assert seen["images"] == 1 + sum(len(s.drawings) for s in sections)
    assert seen["tables"] == 1 + sum(len(s.tables) for s in sections)
    assert seen["text"] >= 13
