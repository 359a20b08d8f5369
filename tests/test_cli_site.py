"""The built documentation: what `docs/site_check.py` finds in small sites, and how the real one looks in a browser.

The real one is the folder that `make docs` writes, a part of `make check`; without it those tests are skipped.
"""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "docs"
sys.path.append(str(ROOT / "tests" / "integrations"))

from live_chromium import BROWSER, Tab  # noqa: E402

spec = importlib.util.spec_from_file_location("site_check", ROOT / "docs" / "site_check.py")
site_check = importlib.util.module_from_spec(spec)
sys.modules["site_check"] = site_check  # where dataclasses look for it
spec.loader.exec_module(site_check)

built = pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="not built: make docs")
browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium")

WHOLE = """<html><head><link rel="stylesheet" href="a.css"><link rel="canonical" href="https://example.org/"></head>
<body id="top"><a href="#top">up</a><a href="b/c.html#part%20two">c</a><a href="https://example.org/x">elsewhere</a>
<img src="a.svg#only-light"><img src="data:image/png;base64,AA"></body></html>"""


@pytest.fixture
def small(tmp_path):
    """A site with nothing wrong."""
    (tmp_path / "b").mkdir()
    (tmp_path / "a.css").write_text("p { background: url(data:x) } q { background: url('a.svg') }")
    (tmp_path / "a.svg").write_text("<svg/>")
    (tmp_path / "index.html").write_text(WHOLE)
    (tmp_path / "b" / "c.html").write_text('<h2 id="part two">Two</h2><a href="../index.html">back</a>')
    return tmp_path


def test_a_whole_site_has_no_problems(small):
    assert site_check.problems(small) == []


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ('<a href="d.html">', "d.html leads nowhere"),
        ('<a href="../../../../etc/hostname">', "leads nowhere"),
        ('<a href="b/c.html#three">', "#three has an anchor that is not there"),
        ('<a href="#nowhere">', "#nowhere has an anchor"),
        ('<img src="gone.png">', "gone.png, which is not there"),
        ('<img srcset="a.svg 1x, https://example.org/2.png 2x">', "https://example.org/2.png from elsewhere"),
        ('<script src="//example.org/x.js"></script>', "//example.org/x.js from elsewhere"),
        ('<link rel="stylesheet" href="https://example.org/x.css">', "x.css from elsewhere"),
        ('<p style="background: url(https://example.org/x.png)">', "x.png from elsewhere"),
        ("<style>@import 'https://example.org/y.css';</style>", "y.css from elsewhere"),
        ('<pre class="mermaid">', "Mermaid"),
    ],
)
def test_what_is_wrong_is_found(small, added, said):
    (small / "index.html").write_text(WHOLE.replace("</body>", added + "</body>"))
    (found,) = site_check.problems(small)
    assert found.startswith("index.html: ")
    assert said in found


def test_styles_are_looked_at(small):
    (small / "a.css").write_text("@font-face { src: url(https://example.org/f.woff2) }")
    assert site_check.problems(small) == ["a.css: it fetches https://example.org/f.woff2 from elsewhere."]


# --- the real site ----------------------------------------------------------------------------------------------------


@built
def test_the_built_site_is_whole():
    assert len(list(SITE.rglob("*.html"))) > 15
    assert site_check.problems(SITE) == []


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    found = Tab(tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


@built
@browser
def test_pages_fit_a_phone_and_fetch_nothing(tab):
    """No page is wider than 390 pixels; what is wide, tables and code, scrolls within itself."""
    tab.size(390)
    for path in sorted(SITE.rglob("*.html")):
        if path.name == "404.html":  # its addresses count from the root of a server
            continue
        tab.open(path.as_uri())
        wide = tab.value("document.documentElement.scrollWidth")
        assert wide <= 390, f"{path.name} is {wide} wide"
        fetched = json.loads(tab.value("JSON.stringify(performance.getEntriesByType('resource').map((r) => r.name))"))
        assert [name for name in fetched if not name.startswith(("file:", "data:", "blob:"))] == []
        assert tab.value("[...document.images].every((i) => !i.checkVisibility() || i.naturalWidth > 0)"), path.name


@built
@browser
def test_search_works_without_a_server(tab):
    tab.size(1280)
    tab.open((SITE / "index.html").as_uri())
    tab.call("Emulation.setFocusEmulationEnabled", enabled=True)  # search begins when its box has the focus
    typed = "i.focus(); i.value = 'exposure'; i.dispatchEvent(new Event('input', {bubbles: true}));"
    tab.value(f"(() => {{ const i = document.querySelector('.md-search__input'); {typed} }})()")
    tab.wait_for("document.querySelectorAll('.md-search-result__link').length > 2")
    first = tab.value("document.querySelector('.md-search-result__link').href")
    assert first.startswith(SITE.as_uri())


@built
@browser
def test_pictures_follow_the_switch_between_light_and_dark(tab):
    tab.size(1280)
    tab.open((SITE / "tutorials" / "protect_flower.html").as_uri())
    shown = "[...document.images].filter((i) => i.checkVisibility()).map((i) => i.src.split('-').pop()).join()"
    before = tab.value(shown)
    tab.value("document.querySelector('form.md-header__option label:not([hidden])').click()")
    after = tab.value(shown)
    assert {before, after} == {"light", "dark"}
