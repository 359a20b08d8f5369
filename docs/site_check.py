"""The built site is whole: every link and anchor leads somewhere, and no page fetches anything from elsewhere.

MkDocs checks links between Markdown files; this looks at what was built, with what plugins and notebooks put in. It
runs at the end of each build, which fails if anything is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_FETCHED_BY = {  # attributes whose address a browser fetches by itself
    "audio": ("src",), "embed": ("src",), "iframe": ("src",), "image": ("href", "xlink:href"), "img": ("src", "srcset"),
    "input": ("src",), "link": ("href",), "object": ("data",), "script": ("src",), "source": ("src", "srcset"),
    "track": ("src",), "use": ("href", "xlink:href"), "video": ("src", "poster"),
}  # fmt: skip
_ONLY_NAMED = {"canonical", "next", "prev"}  # kinds of <link> that are not fetched
_IN_STYLES = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")


def on_post_build(config: Any, **_: Any) -> None:
    """Called by MkDocs when all is written."""
    from mkdocs.exceptions import PluginError

    if found := problems(Path(config.site_dir)):
        raise PluginError("The built site is not whole:\n" + "\n".join(found))


def problems(site: Path) -> list[str]:
    """A sentence for each thing that is wrong with the site in a folder."""
    site = site.resolve()
    pages = {path.relative_to(site).as_posix(): _read(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for name, page in pages.items():
        found += [f"{name}: {problem}" for problem in _of_page(site, name, page, pages)]
    for path in sorted(site.rglob("*.css")):
        name = path.relative_to(site).as_posix()
        found += [f"{name}: {problem}" for each in _styles(path.read_text()) if (problem := _fetch(site, name, each))]
    return found


@dataclass
class _Page(HTMLParser):
    """What a page links to, what it fetches, and where links can lead."""

    links: list[str] = field(default_factory=list)
    fetches: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    mermaid: bool = False
    _in_style: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        self.mermaid |= "mermaid" in given.get("class", "").split()
        self._in_style = tag == "style"
        if tag in ("a", "area") and "href" in given:
            self.links.append(given["href"])
        if not _ONLY_NAMED & set(given.get("rel", "").split()):
            for name in _FETCHED_BY.get(tag, ()):
                self.fetches += _addresses(name, given.get(name, ""))
        self.fetches += _styles(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.fetches += _styles(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text())
    return page


def _addresses(attribute: str, value: str) -> list[str]:
    """One address, or those of a `srcset`, each with a width behind it."""
    if attribute == "srcset" and not value.startswith("data:"):
        return [part.split()[0] for part in value.split(",") if part.strip()]
    return [value] if value else []


def _styles(text: str) -> list[str]:
    return [first or second for first, second in _IN_STYLES.findall(text)]


def _of_page(site: Path, name: str, page: _Page, pages: dict[str, _Page]) -> Iterator[str]:
    for address in page.fetches:
        if problem := _fetch(site, name, address):
            yield problem
    if page.mermaid:
        yield "it has a Mermaid diagram, for which the theme fetches a script from elsewhere. Draw an SVG."
    for address in page.links:
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue  # a link to elsewhere is followed by readers only
        target = _target(site, name, parts.path)
        if not (target.is_file() and target.is_relative_to(site)):
            yield f"the link {address} leads nowhere."
        elif parts.fragment and target.suffix == ".html":
            other = pages[target.relative_to(site).as_posix()]
            if unquote(parts.fragment) not in other.anchors:
                yield f"the link {address} has an anchor that is not there."


def _fetch(site: Path, name: str, address: str) -> str | None:
    """What is wrong with an address that a browser fetches."""
    parts = urlsplit(address.strip())
    if parts.scheme == "data" or address.startswith("#"):
        return None
    if parts.scheme or parts.netloc:
        return f"it fetches {address} from elsewhere."
    target = _target(site, name, parts.path)
    return None if target.is_file() and target.is_relative_to(site) else f"it fetches {address}, which is not there."


def _target(site: Path, name: str, path: str) -> Path:
    """The file that a relative address means; those of 404.html count from the root."""
    if not path:
        return site / name
    start = site if path.startswith("/") else (site / name).parent
    target = (start / unquote(path).lstrip("/")).resolve()
    return target / "index.html" if target.is_dir() else target
