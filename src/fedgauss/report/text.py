"""How formulas, numbers, lists and tables are written on pages and in terminals.

A formula stands between dollar signs: `$\\bar{Y}_n$` is a Y with a bar and a subscript n.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

_FORMULA = re.compile(r"\$([^$]*)\$")
# In order: a barred letter, a subscript or superscript (a character or a group), a letter that is set in italics.
_TOKEN = re.compile(
    r"\\bar\{(?P<bar>[^{}]*)\}|(?P<mark>[_^])(?:\{(?P<group>[^{}]*)\}|(?P<one>[^\s{}]))"
    r"|(?P<entity>&[#\w]+;)|(?P<letter>[A-Za-zα-ω])"
)


def markup(text: str) -> str:
    """Text as HTML, with its formulas set in italics, subscripts and superscripts.

    Everything is escaped first, so no text, hostile or not, can add markup of its own.
    """
    return _FORMULA.sub(lambda found: f'<span class="math">{_set(found[1])}</span>', escape(text))


def plain(text: str) -> str:
    """Text without formula signs, for places that take no markup, such as a title."""
    return _FORMULA.sub(lambda found: re.sub(r"\\bar|[{}]", "", found[1]), text)


def number(value: float, digits: int = 3) -> str:
    """A rounded number, with a true minus sign and without a negative zero."""
    text = f"{value:.{digits}f}"
    return (text[1:] if float(text) == 0.0 and text.startswith("-") else text).replace("-", "−")


def signed(value: float, digits: int = 3) -> str:
    """A rounded number with its sign; zero has a plus."""
    text = number(value, digits)
    return text if text.startswith("−") else f"+{text}"


def with_error(value: float, error: float, digits: int = 3) -> str:
    """A number with its standard error in brackets, as 0.123 (0.004)."""
    return f"{number(value, digits)} ({number(error, digits)})"


def listed(parts: Sequence[str], last: str = "and") -> str:
    """An enumeration, as in a, b and c."""
    return f" {last} ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def numbers(values: Iterable[float], digits: int = 3) -> str:
    """Rounded numbers, as 0.1, 0.2 and 0.3."""
    return listed([number(float(value), digits) for value in values])


def span(values: Iterable[float], digits: int = 3) -> str:
    """The smallest and the largest, as 0.1 to 0.3."""
    ordered = sorted(values)
    return f"{number(ordered[0], digits)} to {number(ordered[-1], digits)}"


def sentence(text: str) -> str:
    """Text with a capital first letter."""
    return text[:1].upper() + text[1:]


@dataclass(frozen=True)
class Table:
    """Text by rows and columns; the first column names the rows. Formulas stand between dollar signs."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str


def print_table(table: Table, console: Console) -> None:
    """Print a table to a terminal."""
    shown = terminal_table(plain(table.caption), "italic")
    lines = [[plain(cell) for cell in row] for row in (table.header, *table.rows)]
    for i, cells in enumerate(zip(*lines, strict=True)):
        # In a table that is too wide, cells break between words and numbers never do.
        longest = max(len(word) for cell in cells for word in ("", *cell.split()))
        shown.add_column(cells[0], justify="right" if i else "left", min_width=longest)
    for line in lines[1:]:
        shown.add_row(*line)
    print_whole(shown, console)


def terminal_table(title: str | None = None, style: str = "bold") -> RichTable:
    """An empty table for a terminal, under a title in this style."""
    from rich import box
    from rich.table import Table

    return Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title=title,
        title_justify="left",
        title_style=style,
    )


def print_whole(table: RichTable, console: Console) -> None:
    """Print a table, in a narrow terminal wider than that: the terminal then breaks lines, and no number is cut off."""
    from rich.measure import Measurement
    from rich.segment import Segment

    narrow = console.width
    console.width = max(narrow, Measurement.get(console, console.options, table).minimum)
    if any(Segment.get_line_length(line) > console.width for line in Segment.split_lines(console.render(table))):
        # rich has made the first column narrower than its longest word, and it would grow past the edge again.
        table.columns[0].width = table.columns[0].min_width
    try:
        console.print(table, crop=False)
    finally:
        console.width = narrow


def _set(formula: str) -> str:
    """The inside of a formula as HTML."""
    return _TOKEN.sub(_set_one, formula)


def _set_one(token: re.Match[str]) -> str:
    """One token of a formula as HTML."""
    if token["bar"] is not None:
        return f'<span class="bar">{_set(token["bar"])}</span>'
    if token["mark"]:
        tag = "sub" if token["mark"] == "_" else "sup"
        return f"<{tag}>{_set(token['group'] or token['one'] or '')}</{tag}>"
    return token["entity"] or f"<i>{token['letter']}</i>"
