"""Tables of text, and how a terminal shows them."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich import table as rich_table
from rich.console import Console
from rich.measure import Measurement
from rich.segment import Segment

from fedgauss.report.formula import plain


@dataclass(frozen=True)
class Table:
    """Text by rows and columns; the first column names the rows. Formulas may stand between dollar signs."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str


def print_table(table: Table, console: Console) -> None:
    """In a terminal."""
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
        # Too wide a table breaks cells between words, and never a number.
        longest = max(len(word) for cell in cells for word in ("", *cell.split()))
        shown.add_column(cells[0], justify="right" if i else "left", min_width=longest)
    for line in lines[1:]:
        shown.add_row(*line)
    print_whole(shown, console)


def print_whole(table: rich_table.Table, console: Console) -> None:
    """In a terminal too narrow for it, as wide as it must be: the terminal breaks lines, and no number is cut off."""
    narrow = console.width
    console.width = max(narrow, Measurement.get(console, console.options, table).minimum)
    if any(Segment.get_line_length(line) > console.width for line in Segment.split_lines(console.render(table))):
        # A first column that rich has made narrower than its longest word grows again, past the edge: fix it.
        table.columns[0].width = table.columns[0].min_width
    try:
        console.print(table, crop=False)
    finally:
        console.width = narrow
