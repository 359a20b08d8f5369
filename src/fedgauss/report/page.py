"""A builder of self-contained HTML pages; their style is page.css.

Pages and figures have one palette, with a light and a dark value for each role.
"""

import base64
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from fedgauss._figures import DARK, LIGHT
from fedgauss.report.text import markup, plain


class Page:
    """Collects the pieces of a page in order; `html()` is the page, which refers to nothing outside itself.

    All text is escaped; formulas in it stand between dollar signs, as `fedgauss.report.text.markup` reads them.

    Parameters
    ----------
    title : str
        The heading of the page, and its title in the browser.
    lead : str
        The paragraph below the heading.

    Examples
    --------
    >>> page = Page("A law", "What it says.")
    >>> page.paragraph("The mean is $\\bar{Y}_n$.")
    >>> page.html().startswith("<!DOCTYPE html>")
    True
    """

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
        """A table of text: (anchor, title, verdict, the verdict's colour in the palette, line) for each section."""
        body = "".join(
            f'<tr><th scope="row"><a href="#{escape(anchor)}">{markup(title)}</a></th>'
            f'<td><span class="verdict {escape(role)}">{markup(verdict)}</span></td><td>{markup(line)}</td></tr>'
            for anchor, title, verdict, role, line in entries
        )
        self._pieces.append(f'<table class="words">{_captioned(caption, header, body)}</table>')

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

    def links(self, entries: Sequence[tuple[str, str]]) -> None:
        """A list of files beside the page, (address, name)."""
        items = "".join(f'<li><a href="{escape(address)}">{markup(name)}</a></li>' for address, name in entries)
        self._pieces.append(f"<ul>{items}</ul>")

    def code(self, text: str) -> None:
        """A program, verbatim."""
        self._pieces.append(f"<pre><code>{escape(text)}</code></pre>")

    def facts(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Names with their values."""
        rows = "".join(f"<div><dt>{markup(name)}</dt><dd>{markup(value)}</dd></div>" for name, value in pairs)
        self._pieces.append(f"<dl>{rows}</dl>")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> None:
        """A table whose first column names the rows and whose other columns are numbers."""
        body = "".join(
            f'<tr><th scope="row">{markup(first)}</th>' + "".join(f"<td>{markup(cell)}</td>" for cell in rest) + "</tr>"
            for first, *rest in rows
        )
        self._pieces.append(f'<div class="wide"><table>{_captioned(caption, header, body)}</table></div>')

    def figure(self, image: bytes, caption: str, alt: str, small: bool = False) -> None:
        """An SVG with its caption, and the text that stands for it where it cannot be seen."""
        source = f"data:image/svg+xml;base64,{base64.b64encode(image).decode()}"
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
        style = palette_css() + "\n" + files("fedgauss.report").joinpath("page.css").read_text(encoding="utf-8")
        body = "\n".join(self._pieces)
        return (
            '<!DOCTYPE html>\n<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(plain(self._title))}</title>\n<style>\n{style}</style>\n</head>\n"
            f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
        )


def _captioned(caption: str, header: Sequence[str], body: str) -> str:
    """The inside of a table."""
    head = "".join(f'<th scope="col">{markup(cell)}</th>' for cell in header)
    return f"<caption>{markup(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"


def palette_css() -> str:
    """The palette as CSS variables, --ink and so on, which follow the reader's preference for light or dark."""
    light, dark = (";".join(f"--{role}:{colour}" for role, colour in theme.items()) for theme in (LIGHT, DARK))
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
