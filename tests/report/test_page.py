"""The page builder: well formed, self-contained, and safe with any text."""

import pytest

from fedgauss.report.page import Page
from report_parsing import Checked

HOSTILE = "<script>alert('x')</script> & \"quoted\" $</style><b>$"


@pytest.fixture
def hostile_page() -> Page:
    page = Page(HOSTILE, HOSTILE)
    page.section(HOSTILE)
    page.subsection(HOSTILE)
    page.paragraph(HOSTILE)
    page.equation(HOSTILE)
    page.items([HOSTILE, HOSTILE])
    page.code(HOSTILE)
    page.facts([(HOSTILE, HOSTILE)])
    page.table([HOSTILE, HOSTILE], [[HOSTILE, HOSTILE]], HOSTILE)
    page.figure(b"<svg/>", HOSTILE, HOSTILE)
    page.footer(HOSTILE)
    return page


def test_hostile_text_is_only_text(hostile_page):
    parsed = Checked(hostile_page.html())
    assert parsed.count("script") == 0
    assert parsed.count("b") == 0
    assert parsed.count("style") == 1
    assert parsed.count("img") == 1
    image = next(attributes for tag, attributes in parsed.seen if tag == "img")
    assert set(image) == {"src", "alt"}
    assert image["alt"] == HOSTILE


def test_the_page_refers_to_nothing_outside(hostile_page):
    text = hostile_page.html()
    for outside in ("http:", "https:", "//", "url(", "@import", "<link"):
        assert outside not in text


def test_tables_name_their_rows_and_columns():
    page = Page("t", "l")
    page.table(["quantity", "value"], [["mean", "1"], ["variance", "2"]], "Numbers")
    parsed = Checked(page.html())
    scopes = [attributes["scope"] for tag, attributes in parsed.seen if tag == "th"]
    assert scopes == ["col", "col", "row", "row"]
    assert parsed.count("td") == 2
