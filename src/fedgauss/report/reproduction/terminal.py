"""A reproduction in a terminal: for each result its tables and verdict, and at the end one table of verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich import table as rich_table
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from fedgauss.experiments.paper import Result
from fedgauss.report.reproduction.section import Section
from fedgauss.report.table import print_table, print_whole
from fedgauss.report.text import plain

_COLOURS = {"finite": "green", "exact": "blue", "limit": "red", "muted": ""}


def print_reproduction(sections: Sequence[Section], console: Console) -> None:
    """Everything but the figures."""
    for section in sections:
        console.print(Text(f"{section.title} ({section.where})", style="bold"))
        console.print(Text(f"Claim: {plain(section.claim)}."))
        for table in section.tables:
            console.print()
            print_table(table, console)
        console.print(_verdict(section))
        console.print()
    console.print(Text("In short", style="bold"))
    print_whole(_short(sections), console)


def print_list(results: Iterable[Result], console: Console) -> None:
    """Names, where they stand in the paper, and what they claim."""
    for result in results:
        console.print(Text.assemble((result.name, "bold"), f"  {result.title} ({result.where})"), soft_wrap=True)
        console.print(Padding(Text(plain(result.claim)), (0, 0, 0, 4)))


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
