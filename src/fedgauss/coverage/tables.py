"""Coverage and width of every method, a row for each federation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedgauss.coverage.cells import LEVEL, METHODS
from fedgauss.coverage.lines import Line, cells, common, headings, number_of, varying
from fedgauss.report.table import Table
from fedgauss.report.words import number
from fedgauss.sweep.cell import Row

_SHORT = {
    "plugin": "plug-in",
    "plugin, drift subtracted": "less drift",
    "plugin, last iterate": "last iterate",
    "bootstrap": "bootstrap",
    "random_scaling": "random scaling",
    "batch_means": "batch means",
}


def coverage_tables(lines: Sequence[Line]) -> list[Table]:
    """Coverage, the worst coordinate and the ellipsoid of the default, widths, and what the diagnostic said."""
    shared = common(lines)
    runs = sorted({int(number_of(row, "runs")) for line in lines for row in line.methods.values()})
    errors = sorted(number_of(row, "error") for line in lines for row in line.methods.values())
    of = f"{runs[0]:,} runs" if len(runs) == 1 else f"{runs[0]:,} to {runs[-1]:,} runs"
    tables = [
        _by_method(
            lines,
            lambda row: number(number_of(row, "coverage")),
            f"Coverage of nominal {100 * LEVEL:g} % intervals, mean over coordinates; {of}, Monte-Carlo errors of "
            f"{number(errors[0])} to {number(errors[-1])}; {shared}",
        ),
        _by_method(
            lines,
            lambda row: number(number_of(row, "width"), 2),
            f"Width of the intervals over that of an efficient estimate from all rows; {shared}",
        ),
    ]
    return [*tables, _default(lines, shared)]


def _by_method(lines: Sequence[Line], shown: Callable[[Row], str], caption: str) -> Table:
    names, methods = varying(lines), [m for m in METHODS if any(m in line.methods for line in lines)]
    return Table(
        (*headings(names), *(_SHORT[method] for method in methods)),
        tuple(
            (*cells(line.federation, names), *(shown(line.methods[m]) if m in line.methods else "" for m in methods))
            for line in lines
        ),
        caption,
    )


def _default(lines: Sequence[Line], shared: str) -> Table:
    names = varying(lines)
    rows = []
    for line in lines:
        row = line.methods.get("plugin")
        if row is not None:
            columns = ("coverage", "predicted", "lowest", "highest", "joint")
            found = [number(number_of(row, name)) for name in columns]
            rows.append((*cells(line.federation, names), *found, number(number_of(row, "bias"), 2)))
    return Table(
        (*headings(names), "coverage", "predicted", "lowest", "highest", "ellipsoid", "bias"),
        tuple(rows),
        "The default, the plug-in: its coverage and what its own diagnostic predicts, the lowest and the highest "
        "coverage of a coordinate, coverage of the ellipsoid, and the largest bias of a coordinate that the diagnostic "
        f"sees, in standard errors; {shared}",
    )
