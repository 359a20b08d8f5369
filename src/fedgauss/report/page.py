"""A small builder of self-contained HTML pages.

Whatever text it is given is escaped; formulas in it stand between dollar signs (see `formula`).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

from fedgauss.report.formula import markup, plain
from fedgauss.report.palette import DARK, LIGHT


class Page:
    """Collects the pieces of a page in order; `html()` is the page. It refers to nothing outside itself."""

    def __init__(self, title: str, lead: str) -> None:
        self._title = title
        self._pieces = [f"<header><h1>{markup(title)}</h1>", f'<p class="lead">{markup(lead)}</p></header>']

    def section(self, title: str, anchor: str = "") -> None:
        """A heading, which `contents` and `overview` can point to by its anchor."""
        name = f' id="{escape(anchor)}"' if anchor else ""
        self._pieces.append(f"<h2{name}>{markup(title)}</h2>")

    def contents(self, entries: Sequence[tuple[str, str]]) -> None:
        """A list of sections, (anchor, title)."""
        links = "".join(f'<li><a href="#{escape(anchor)}">{markup(title)}</a></li>' for anchor, title in entries)
        self._pieces.append(f'<nav aria-label="Contents"><ul>{links}</ul></nav>')

    def overview(self, header: Sequence[str], entries: Sequence[tuple[str, str, str, str, str]], caption: str) -> None:
        """A table of words: (anchor, title, verdict, its colour in the palette, line) for each section."""
        head = "".join(f'<th scope="col">{markup(cell)}</th>' for cell in header)
        body = "".join(
            f'<tr><th scope="row"><a href="#{escape(anchor)}">{markup(title)}</a></th>'
            f'<td><span class="verdict {escape(role)}">{markup(verdict)}</span></td><td>{markup(line)}</td></tr>'
            for anchor, title, verdict, role, line in entries
        )
        self._pieces.append(
            f'<table class="words"><caption>{markup(caption)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )

    def verdict(self, verdict: str, role: str, line: str) -> None:
        """A verdict in a colour of the palette, and the sentence that goes with it."""
        self._pieces.append(
            f'<p class="judged"><span class="verdict {escape(role)}">{markup(verdict)}</span> {markup(line)}</p>'
        )

    def subsection(self, title: str) -> None:
        """A smaller heading."""
        self._pieces.append(f"<h3>{markup(title)}</h3>")

    def paragraph(self, text: str) -> None:
        """Running text."""
        self._pieces.append(f"<p>{markup(text)}</p>")

    def equation(self, text: str) -> None:
        """A formula on a line of its own."""
        self._pieces.append(f'<p class="equation">{markup(text)}</p>')

    def items(self, texts: Sequence[str]) -> None:
        """A list of sentences."""
        self._pieces.append("<ul>" + "".join(f"<li>{markup(text)}</li>" for text in texts) + "</ul>")

    def code(self, text: str) -> None:
        """A program, as it stands."""
        self._pieces.append(f"<pre><code>{escape(text)}</code></pre>")

    def facts(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Names with their values."""
        rows = "".join(f"<div><dt>{markup(name)}</dt><dd>{markup(value)}</dd></div>" for name, value in pairs)
        self._pieces.append(f"<dl>{rows}</dl>")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> None:
        """A table whose first column names the rows and whose other columns are numbers."""
        head = "".join(f'<th scope="col">{markup(cell)}</th>' for cell in header)
        body = "".join(
            f'<tr><th scope="row">{markup(first)}</th>' + "".join(f"<td>{markup(cell)}</td>" for cell in rest) + "</tr>"
            for first, *rest in rows
        )
        self._pieces.append(
            f'<div class="wide"><table><caption>{markup(caption)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def figure(self, image: bytes, caption: str, alt: str, kind: str = "svg+xml", small: bool = False) -> None:
        """An image, `kind` "svg+xml" or "png", with its caption and the words that stand for it unseen."""
        source = f"data:image/{kind};base64,{base64.b64encode(image).decode()}"
        size = ' class="small"' if small else ""
        self._pieces.append(
            f'<figure{size}><img src="{escape(source)}" alt="{escape(alt)}">'
            f"<figcaption>{markup(caption)}</figcaption></figure>"
        )

    def footer(self, text: str) -> None:
        """What produced the page."""
        self._pieces.append(f"<footer>{markup(text)}</footer>")

    def html(self) -> str:
        """The page."""
        body = "\n".join(self._pieces)
        return (
            '<!DOCTYPE html>\n<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(plain(self._title))}</title>\n<style>\n{_css()}</style>\n</head>\n"
            f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
        )


def _css() -> str:
    light, dark = ("".join(f"--{role}: {colour}; " for role, colour in palette.items()) for palette in (LIGHT, DARK))
    themes = (
        f":root {{ color-scheme: light dark; {light}}}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}\n"
    )
    return themes + _RULES


_RULES = """\
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1.0625rem/1.6 Charter, "Bitstream Charter", "Iowan Old Style", Georgia, "Liberation Serif", serif; }
main { max-width: 46rem; margin: 0 auto; padding: 3.5rem 1.25rem 4rem; overflow-wrap: break-word; }
h1 { font-size: 2rem; line-height: 1.2; font-weight: 600; margin: 0 0 1rem; letter-spacing: -0.01em; }
h2 { font-size: 1.3rem; line-height: 1.3; font-weight: 600; margin: 3rem 0 0.75rem; padding-top: 1rem;
  border-top: 1px solid var(--faint); }
h3 { font-size: 1.0625rem; font-weight: 600; margin: 2rem 0 0.5rem; }
p { margin: 0 0 1rem; }
.math { white-space: nowrap; }
.math i { padding-right: 0.03em; }
.bar { border-top: 0.06em solid; }
sub, sup { font-size: 0.72em; line-height: 0; }
.lead { font-size: 1.1875rem; line-height: 1.5; color: var(--muted); }
.equation { margin: 0.25rem 0 1.25rem; padding-left: 1.5rem; font-size: 1.125rem; }
ul { margin: 0 0 1rem; padding-left: 1.25rem; }
a { color: var(--exact); text-decoration-thickness: 0.06em; text-underline-offset: 0.15em; }
nav ul { columns: 16rem; padding: 0; list-style: none; font-size: 0.9375rem; }
nav li { break-inside: avoid; }
.verdict { font-weight: 600; }
.verdict.finite { color: var(--finite); }
.verdict.exact { color: var(--exact); }
.verdict.limit { color: var(--limit); }
.verdict.muted { color: var(--muted); }
.judged { padding-left: 0.9rem; border-left: 3px solid var(--faint); }
li { margin-bottom: 0.4rem; }
figure { margin: 1.75rem 0 2.25rem; }
figure img { display: block; width: 100%; max-width: 37rem; height: auto; margin: 0 auto; }
figure.small img { max-width: 24rem; }
figcaption { max-width: 37rem; margin: 0.75rem auto 0; font-size: 0.9375rem; line-height: 1.5; color: var(--muted); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 0 2rem; margin: 1.25rem 0; }
dl div { display: flex; justify-content: space-between; gap: 1rem; padding: 0.4rem 0;
  border-bottom: 1px solid var(--faint); }
dt { color: var(--muted); }
dd { margin: 0; text-align: right; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; margin: 1.25rem 0 1.75rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.9375rem; line-height: 1.4;
  font-variant-numeric: tabular-nums lining-nums; }
caption { text-align: left; padding-bottom: 0.5rem; font-weight: 600; }
th, td { padding: 0.35rem 0.5rem; text-align: right; vertical-align: baseline; font-weight: 400; }
td { white-space: nowrap; }
th:first-child { text-align: left; padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--muted); border-bottom: 1px solid var(--muted); }
.words { margin: 1.25rem 0 1.75rem; }
.words th, .words td { text-align: left; white-space: normal; }
.words tbody th, .words td:nth-child(2) { min-width: 8rem; }
tbody tr + tr > * { border-top: 1px solid var(--faint); }
pre { overflow-x: auto; padding: 1rem; border: 1px solid var(--faint); border-radius: 4px; font-size: 0.8125rem;
  line-height: 1.5; }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--faint); font-size: 0.875rem;
  color: var(--muted); }
@media (max-width: 34rem) {
  body { font-size: 1rem; }
  main { padding: 2rem 1rem 3rem; }
  h1 { font-size: 1.6rem; }
  .lead { font-size: 1.0625rem; }
  .equation { padding-left: 0.5rem; font-size: 1rem; }
  table { font-size: 0.8125rem; }
  th, td { padding: 0.3rem 0.25rem; }
  .words { font-size: 0.9375rem; }
  .words thead { display: none; }
  .words tr, .words tbody th, .words td { display: block; padding: 0; border: 0; }
  .words tr + tr > * { border: 0; }
  .words tr { padding: 0.6rem 0; border-top: 1px solid var(--faint); }
}
@media print { main { max-width: none; padding: 0; } figure, tr { break-inside: avoid; } }
"""
