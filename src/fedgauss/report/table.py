"""Tables of text, and how a terminal prints them."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich import table as rich_table
from rich.console import Console
from rich.measure import Measurement
from rich.segment import Segment

from fedgauss.report.text import plain


@dataclass(frozen=True)
class Table:
    """Text by rows and columns; the first column names the rows. Formulas stand between dollar signs."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str


def print_table(table: Table, console: Console) -> None:
    """Print a table to a terminal."""
    shown = rich_table.Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title=plain(table.caption),
        title_justify="left",
        title_style="italic",
    )
    lines = [[plain(cell) for cell in row] for row in (table.header, *table.rows)]
    for i, cells in enumerate(zip(*lines, strict=True)):
        # In a table that is too wide, cells break between words and numbers never do.
        longest = max(len(word) for cell in cells for word in ("", *cell.split()))
        shown.add_column(cells[0], justify="right" if i else "left", min_width=longest)
    for line in lines[1:]:
        shown.add_row(*line)
    print_whole(shown, console)


def print_whole(table: rich_table.Table, console: Console) -> None:
    """Print a table, in a narrow terminal wider than that: the terminal then breaks lines, and no number is cut off."""
    narrow = console.width
    console.width = max(narrow, Measurement.get(console, console.options, table).minimum)
    if any(Segment.get_line_length(line) > console.width for line in Segment.split_lines(console.render(table))):
        # rich has made the first column narrower than its longest word, and it would grow past the edge again.
        table.columns[0].width = table.columns[0].min_width
    try:
        console.print(table, crop=False)
    finally:
        console.width = narrow
