"""Everything the laboratory leaves in its folder: rows, figures and the page."""

from __future__ import annotations

from pathlib import Path

from fedgauss import __version__
from fedgauss._progress import Tick
from fedgauss.coverage.cells import LEVEL
from fedgauss.coverage.lines import common
from fedgauss.coverage.pictures import coverage_drawings
from fedgauss.coverage.sweep import Measured
from fedgauss.coverage.tables import coverage_tables
from fedgauss.report.drawing import save
from fedgauss.report.output import rows_csv, write_whole
from fedgauss.report.page import Page
from fedgauss.report.table import Table

PAGE, ROWS = "coverage.html", "coverage.csv"
_METHODS = (
    "Plug-in, the default: clients add up gradients, their squares and Hessians over every seventh step; the "
    "covariance of the average follows from these by the recursion of Theorem 2.1.",
    "Less drift: the same, with the estimated bias of clients that move apart between mixings subtracted.",
    "Last iterate: the interval about $Y_n$ in place of the average (Theorem 2.2).",
    "Bootstrap: 200 chains on the same data with random multipliers, each with its own iterate in its gradient.",
    "Random scaling and batch means: from the path of the clients’ mean, which must then be known after every step.",
)


def write_coverage(
    measured: Measured, folder: Path, tick: Tick = lambda what, done, total: None
) -> tuple[list[Table], Path]:
    """Rows first, then figures, and last the page, of all that is in the folder.

    Gives the tables that a terminal has room for, of what was asked: coverage, and the default in detail.
    """
    write_whole(folder / ROWS, rows_csv(measured.rows))
    tables, drawings = coverage_tables(measured.lines), coverage_drawings(measured.lines)
    total = len(drawings) + 1
    page = Page(
        f"Do {100 * LEVEL:g} % intervals cover?",
        f"Intervals for the optimum of {_count(measured)}, over repeated runs of local SGD from a start at zero with "
        "whitened steps, with Monte-Carlo errors.",
    )
    page.section("The federations")
    page.paragraph(
        "Covariates are normal; clients’ coefficients lie about a common centre with the standard deviation named "
        "“offsets”. The optimum of all clients together is computed by quadrature, or in closed form. All share: "
        f"{common(measured.lines)}."
    )
    page.section("What was found")
    for done, drawing in enumerate(drawings):
        tick("drawing", done, total)
        page.figure(save(drawing, folder), drawing.caption, drawing.alt, small=drawing.small)
    for table in tables:
        page.table(table.header, table.rows, table.caption)
    page.section("The methods")
    page.items(_METHODS)
    page.section("Run it again")
    page.paragraph(
        "Finished federations are kept in coverage.sqlite beside this page; another command with the same output "
        "folder adds to them. Rows are in coverage.csv."
    )
    page.code(measured.command)
    page.footer(f"fedgauss {__version__}, {len(measured.rows)} rows.")
    write_whole(folder / PAGE, page.html().encode())
    tick("drawing", total, total)
    asked = coverage_tables(measured.asked)
    return [asked[0], asked[-1]], folder / PAGE


def _count(measured: Measured) -> str:
    count = len(measured.lines)
    return "one federation" if count == 1 else f"{count} federations"
