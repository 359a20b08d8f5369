"""A reproduction in a terminal: for each result its tables and verdict, and at the end one table of verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich import table as rich_table
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from fedgauss.experiments.paper import Result
from fedgauss.report.formula import plain
from fedgauss.report.reproduction.section import Section, Table

_COLOURS = {"finite": "green", "exact": "blue", "limit": "red", "muted": ""}


def print_reproduction(sections: Sequence[Section], console: Console) -> None:
    """Everything but the figures."""
    for section in sections:
        console.print(Text(f"{section.title} ({section.where})", style="bold"))
        console.print(Text(f"Claim: {plain(section.claim)}."))
        for table in section.tables:
            console.print()
            _print_whole(_table(table), console)
        console.print(_verdict(section))
        console.print()
    console.print(Text("In short", style="bold"))
    _print_whole(_short(sections), console)


def print_list(results: Iterable[Result], console: Console) -> None:
    """Names, where they stand in the paper, and what they claim."""
    for result in results:
        console.print(Text.assemble((result.name, "bold"), f"  {result.title} ({result.where})"), soft_wrap=True)
        console.print(Padding(Text(plain(result.claim)), (0, 0, 0, 4)))


def _print_whole(table: rich_table.Table, console: Console) -> None:
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


def _table(table: Table) -> rich_table.Table:
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
    return shown


def _verdict(section: Section) -> Text:
    return Text.assemble(
        (section.verdict[:1].upper() + section.verdict[1:], f"bold {_COLOURS[section.role]}"),
        f". {plain(section.summary)}",
    )


def _short(sections: Sequence[Section]) -> rich_table.Table:
    shown = rich_table.Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    shown.add_column("result", no_wrap=True)
    shown.add_column("verdict")
    for section in sections:
        shown.add_row(section.name, Text(section.verdict, style=_COLOURS[section.role]))
    return shown
