"""What the laboratory leaves in its folder: rows, figures, and a page with tables."""

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from fedgauss import __version__
from fedgauss._figures import LIGHT, WIDTH, styled, titled_figure
from fedgauss._files import write_whole
from fedgauss._progress import Tick
from fedgauss.coverage.cells import LEVEL, METHODS, CoverageRow
from fedgauss.coverage.results import CoverageResults, FederationResult, Found, common, label, shown, varying
from fedgauss.report.output import Drawing, log_ticks, rows_csv, save
from fedgauss.report.page import Page
from fedgauss.report.text import Table, number, span

_COLUMNS = {"n_clients": "$K$", "sync_every": "$τ$", "beta": "$β$", "dim": "$d$", "n_steps": "$n$"}
_SHORT = {
    "plugin": "plug-in",
    "plugin, average": "average",
    "plugin, drift subtracted": "less drift",
    "plugin, last iterate": "last iterate",
    "bootstrap": "bootstrap",
    "random_scaling": "random scaling",
    "batch_means": "batch means",
}
_EXPLAINED = (
    "Plug-in, the default: clients sum gradients, their squares and Hessians over all rows; the estimate is where the "
    "mean gradient vanishes, by Newton steps, and its covariance the sandwich.",
    "Average: that of the iterates after the burn-in, with its covariance by the recursion of Theorem 2.1, from sums "
    "over every seventh step.",
    "Less drift: the same, with the estimated bias from clients drifting apart between mixings subtracted.",
    "Last iterate: the interval about $Y_n$ instead of the average (Theorem 2.2).",
    "Bootstrap: 200 chains on the same data with random multipliers, each with its own iterate in its gradient.",
    "Random scaling and batch means: from the path of the clients’ mean, which must be known after every step.",
)
# The methods that are drawn, each with its colour in the palette and its dashes.
_LINES = {
    "plugin": ("finite", "-"),
    "bootstrap": ("exact", "-"),
    "random_scaling": ("limit", "--"),
    "batch_means": ("simulated", ":"),
}
_MOST_PANELS = 6
_CLOSE = 0.02  # of the level: what counts as covering in a title


def write_coverage(
    results: CoverageResults, folder: Path, tick: Tick = lambda what, done, total: None
) -> tuple[list[Table], Path]:
    """Write rows, then figures, and last the page, of everything in the folder.

    Parameters
    ----------
    results : CoverageResults
        What `measure` found.
    folder : Path
        Where the files go.
    tick : callable
        Called as tick(what, done, total) to report progress.

    Returns
    -------
    tables : list of Table
        Those that a terminal has room for, of what was requested: coverage, and the default in detail.
    page : Path
        The page.
    """
    every = results.by_federation
    write_whole(folder / "coverage.csv", rows_csv(results.rows), public=True)
    drawings = _drawings(every)
    total = len(drawings) + 1
    count = "one federation" if len(every) == 1 else f"{len(every)} federations"
    page = Page(
        f"Do {100 * LEVEL:g} % intervals cover?",
        f"Intervals for the optimum of {count}, over repeated runs of local SGD from a start at zero with whitened "
        "steps, with Monte Carlo errors.",
    )
    page.section("The federations")
    page.paragraph(
        "Covariates are normal; clients’ coefficients vary about a common centre with the standard deviation called "
        "“offsets”. The optimum of all clients together is computed by quadrature, or in closed form. All share: "
        f"{common(every)}."
    )
    page.section("Results")
    for done, drawing in enumerate(drawings):
        tick("drawing", done, total)
        page.figure(save(drawing, folder), drawing.caption, drawing.alt, small=drawing.small)
    for table in _tables(every):
        page.table(table.header, table.rows, table.caption)
    page.section("The methods")
    page.items(_EXPLAINED)
    page.section("Run it again")
    page.paragraph(
        "Finished federations are kept in coverage.sqlite beside this page; another command with the same output "
        "folder adds to them. Rows are in coverage.csv."
    )
    page.code(results.command)
    page.footer(f"fedgauss {__version__}, {len(results.rows)} rows.")
    write_whole(folder / "coverage.html", page.html().encode(), public=True)
    tick("drawing", total, total)
    coverage, _, default = _tables(results.requested)
    return [coverage, default], folder / "coverage.html"


def _tables(results: Found) -> tuple[Table, Table, Table]:
    """Coverage of every method, width of every method, and the default in detail."""
    rows = [row for result in results for row in result.rows.values()]
    runs = sorted({row.runs for row in rows})
    count = f"{runs[0]:,} runs" if len(runs) == 1 else f"{runs[0]:,} to {runs[-1]:,} runs"
    methods = [m for m in METHODS if any(m in result.rows for result in results)]
    short = [_SHORT[m] for m in methods]

    def of_methods(cell: Callable[[CoverageRow], str]) -> Callable[[FederationResult], list[str]]:
        return lambda result: [cell(result.rows[m]) if m in result.rows else "" for m in methods]

    def of_default(result: FederationResult) -> list[str]:
        row, average = result.rows["plugin"], result.rows.get("plugin, average", result.rows["plugin"])
        own = [_number(value) for value in (row.coverage, row.lowest, row.highest, row.joint)]
        return [*own, _number(average.coverage), _number(average.predicted), _number(average.bias, 2)]

    return (
        _table(
            results,
            short,
            of_methods(lambda row: number(row.coverage)),
            f"Coverage of nominal {100 * LEVEL:g} % intervals, mean over coordinates; {count}, Monte Carlo errors of "
            f"{span(row.error for row in rows)}",
        ),
        _table(
            results,
            short,
            of_methods(lambda row: number(row.width, 2)),
            "Width of the intervals relative to those of an efficient estimate from all rows",
        ),
        _table(
            [result for result in results if "plugin" in result.rows],
            ["coverage", "lowest", "highest", "ellipsoid", "average", "predicted", "bias"],
            of_default,
            "The default, the plug-in: its coverage, the lowest and the highest coverage of a coordinate, coverage of "
            "the ellipsoid; beside it that of the average, what its diagnostic predicts, and the largest bias of a "
            "coordinate that the diagnostic finds, in standard errors",
        ),
    )


def _table(
    results: Found,
    header: Sequence[str],
    cells: Callable[[FederationResult], Sequence[str]],
    caption: str,
) -> Table:
    """A row for each federation, which begins with the fields that vary."""
    names = varying(results)
    rows = [(*(shown(result.federation, name) for name in names), *cells(result)) for result in results]
    return Table((*(_COLUMNS.get(name, name) for name in names), *header), tuple(rows), f"{caption}; {common(results)}")


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else number(value, digits)


def _drawings(results: Found) -> list[Drawing]:
    """The figures that these federations can fill."""
    series = [list(group) for _, group in groupby(results, key=lambda result: result.without_n)]
    # Where there are many, those with the most points.
    panels = sorted((one for one in series if len(one) > 1), key=len, reverse=True)[:_MOST_PANELS]
    rows = [row for result in results if (row := result.rows.get("plugin, average")) and row.predicted is not None]
    return ([_coverage_against_n(panels)] if panels else []) + ([_coverage_predicted(rows)] if len(rows) > 2 else [])


@styled
def _coverage_against_n(panels: Sequence[Found]) -> Drawing:
    """A panel for each federation, a line for each method."""
    results = [result for panel in panels for result in panel]
    close = [_SHORT[m] for m in _LINES if _covers(results, m)]
    title = f"No method is within {_CLOSE:g} of the level at every $n$"
    if close:
        title = f"Within {_CLOSE:g} of the level at every $n$: {', '.join(close)}"
    columns = min(2, len(panels))
    rows_of_panels = -(-len(panels) // columns)
    figure = titled_figure(title, 0.9 + 1.9 * rows_of_panels, width=WIDTH * (0.75 + 0.45 * (columns - 1)))
    grid = figure.subplots(rows_of_panels, columns, sharex=True, sharey=True, squeeze=False).ravel()
    names = [name for name in varying(results) if name != "n_steps"]
    for axes, panel in zip(grid, panels, strict=False):
        axes.axhline(LEVEL, color=LIGHT["ink"], lw=0.8, ls=(0, (4, 3)))
        for method, (role, dashes) in _LINES.items():
            rows = [result.rows[method] for result in panel if method in result.rows]
            if rows:
                style = {"color": LIGHT[role], "ls": dashes, "ms": 3.0, "capsize": 0, "label": _SHORT[method]}
                _errorbars(axes, [row.n_steps for row in rows], rows, **style)
        steps = [result.federation.n_steps for result in panel]
        log_ticks(axes, "x", steps, ",")
        axes.tick_params(axis="x", labelsize=8.5)
        axes.set_title(label(panel[0].federation, names), fontsize=10.5, color=LIGHT["muted"])
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes in grid[max(0, len(panels) - columns) : len(panels)]:
        axes.set_xlabel("steps of a client, $n$")
        axes.tick_params(axis="x", labelbottom=True)
    for axes in grid[: len(panels) : columns]:
        axes.set_ylabel("coverage")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return Drawing(
        "coverage_steps",
        figure,
        f"Coverage of nominal {100 * LEVEL:g} % intervals, mean over coordinates, with two Monte Carlo errors to "
        f"either side; {common(results)}.",
        "Coverage against the number of steps, a panel for each federation and a line for each method.",
    )


def _covers(results: Found, method: str) -> bool:
    found = [result.rows[method].coverage for result in results if method in result.rows]
    return bool(found) and max(abs(value - LEVEL) for value in found) <= _CLOSE


@styled
def _coverage_predicted(rows: Sequence[CoverageRow]) -> Drawing:
    """Coverage against predicted coverage, of the average."""
    predicted = [row.predicted for row in rows if row.predicted is not None]
    largest = max(abs(row.coverage - said) for row, said in zip(rows, predicted, strict=True))
    title = f"The diagnostic is never off by more than {number(largest)}"
    figure = titled_figure(title, WIDTH * 0.75, width=WIDTH * 0.8)
    axes = figure.subplots()
    axes.axline((LEVEL, LEVEL), slope=1.0, color=LIGHT["faint"], lw=1.0)
    _errorbars(axes, predicted, rows, color=LIGHT["finite"], ls="", ms=3.5, lw=0.9)
    axes.set(xlabel="coverage that the diagnostic predicts", ylabel="coverage")
    return Drawing(
        "coverage_predicted",
        figure,
        "What the diagnostic of bias predicts for the average of the iterates, mean over runs and coordinates, and "
        f"how often its intervals cover; a point for each of {len(rows)} federations, with two Monte Carlo errors.",
        "A scatter of coverage against predicted coverage about the diagonal.",
        small=True,
    )


def _errorbars(axes: Axes, x: Sequence[float], rows: Sequence[CoverageRow], **style: Any) -> None:
    """Coverage with two Monte Carlo errors to either side."""
    axes.errorbar(x, [row.coverage for row in rows], [2 * row.error for row in rows], marker="o", **style)
