"""The section of the phase map: how the distance to the limit law scales with K and with n."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.experiments.paper import Result
from fedgauss.report.drawing import Drawing
from fedgauss.report.reproduction.beyond_pictures import Lines, phase_figure
from fedgauss.report.reproduction.beyond_slopes import Slope, fitted, known_error, slope
from fedgauss.report.reproduction.section import Section
from fedgauss.report.table import Table
from fedgauss.report.words import number, signed, with_error
from fedgauss.sweep.cell import Row
from fedgauss.theory.rates import berry_esseen_limit

_SLIGHT = 0.25  # slopes whose intervals stay below half the printed 1/2 show no transition
_ROLES = ("simulated", "finite", "exact", "limit")
_HEADER = ("", "simulated", "99 % interval", "exact", "printed", "corrected")
_COLUMNS = "exact is that of the normal law with the same covariance, and the last two are those of the bounds"
Grid = dict[float, dict[int, dict[int, Row]]]  # by beta, n and K


def phase_section(result: Result, rows: list[Row]) -> Section:
    """Slopes on log K and on log n: printed bound, corrected bound, exact moments and simulation."""
    simulated, exact = _grid(rows, "distance"), _grid(rows, "exact moments")
    on_k = slopes_on_log_k(simulated)
    printed = [one for one in on_k.values() if one.covers(0.5)]
    steepest = max((abs(_exact_on_k(exact, *key)) for key in on_k), default=0.0)
    covered = sum(one.covers(0.0) for one in on_k.values())
    return Section(
        result.name,
        result.title,
        result.where,
        result.claim,
        "no transition" if max(one.high for one in on_k.values()) < _SLIGHT else "unclear",
        f"From the optimum the distance grows as $K$ to a power of {_powers(on_k)}, where the printed bound has 0.5.",
        (
            f"Slopes of the log distance on $log K$, for each $n$ and $β$, are {_powers(on_k)}: {covered} of "
            f"{len(on_k)} have a 99 % interval that covers 0, and {len(printed)} one that covers 1/2, the slope of the "
            "printed bound. Of the normal laws with the exact covariances, which have no Monte-Carlo error, the "
            f"steepest is {number(steepest, 4)} in size.",
            _crossing(simulated),
            _shape(simulated, exact),
            *_on_n(rows, exact),
        ),
        (_drawing(simulated, exact),),
        (_table_on_k(on_k, exact), _table_on_n(rows, exact)),
        (
            "The printed bound takes $V_K$ to be of order $K^{−1/2}$; it is of order $1/K$, as $Σ/K$ is, so the gap "
            "between $Σ_n$ and $Σ/K$ relative to their size does not depend on $K$. The other term that grows with "
            "$K$ is that of client drift, $D_3$, which vanishes in this model; the corrected bound keeps it, and is "
            "loose here too. Where client Hessians differ it is real, and vanishes for $K$ of smaller order than $n$ "
            "if $β$ is close to 1.",
            "Near $β$ = 1 the gap between $Σ_n$ and $Σ/K$ closes as slowly as $n^{β−1}$, and at these $n$ it may still "
            "widen: that is a matter of $n$ and $β$, whatever $K$ is.",
        ),
    )


def slopes_on_log_k(simulated: Grid) -> dict[tuple[float, int], Slope]:
    """Of log distance on log K, by beta and n; points at different K are independent."""
    found = {}
    for beta, by_n in simulated.items():
        for n, by_k in by_n.items():
            d = np.array([_number(row, "estimate") for row in by_k.values()])
            errors = np.array([_number(row, "error") for row in by_k.values()])
            found[beta, n] = fitted(list(by_k), np.log(d), errors / d)
    return found


def slopes_on_log_n(rows: Sequence[Row]) -> dict[tuple[float, int], Slope]:
    """Of log distance on log n, by beta and K; the errors count that one run passes through every n."""
    return {
        (_number(row, "beta"), int(_number(row, "K"))): known_error(_number(row, "estimate"), _number(row, "error"))
        for row in rows
        if row["measure"] == "slope on log n"
    }


def _grid(rows: Sequence[Row], measure: str) -> Grid:
    found: Grid = {}
    for row in rows:
        if row["measure"] == measure and row.get("covariance") in (None, "Sigma/K"):
            n, k = int(_number(row, "n")), int(_number(row, "K"))
            found.setdefault(_number(row, "beta"), {}).setdefault(n, {})[k] = row
    return {
        beta: {n: dict(sorted(by_k.items())) for n, by_k in sorted(by_n.items())}
        for beta, by_n in sorted(found.items())
    }


def _number(row: Row, column: str) -> float:
    return float(row[column] or 0.0)


def _with_error(row: Row) -> str:
    return with_error(_number(row, "estimate"), _number(row, "error"))


def _exact_on_k(exact: Grid, beta: float, n: int) -> float:
    by_k = exact[beta][n]
    return slope(list(by_k), [float(np.log(_number(row, "estimate"))) for row in by_k.values()])


def _exact_on_n(exact: Grid, beta: float, k: int) -> float:
    by_n = exact[beta]
    return slope(list(by_n), [float(np.log(_number(by_k[k], "estimate"))) for by_k in by_n.values()])


def _crossing(simulated: Grid) -> str:
    """Distances at the least and the largest K at an n where sqrt(n) lies between them."""
    beta = sorted(simulated)[len(simulated) // 2]
    n, by_k = list(simulated[beta].items())[-1]
    (low, first), *_, (high, last) = by_k.items()
    return (
        f"At $β$ = {beta:g} and $n$ = {n}, where $√n$ is {n**0.5:.0f}, the distance is "
        f"{_with_error(first)} with $K$ = {low} and {_with_error(last)} with $K$ = {high}; the printed bound is "
        f"{_number(last, 'printed') / _number(first, 'printed'):.1f} times as large, the corrected "
        f"{_number(last, 'corrected') / _number(first, 'corrected'):.1f} times."
    )


def _powers(found: Mapping[tuple[float, int], Slope]) -> str:
    values = sorted(one.value for one in found.values())
    return f"{number(values[0], 2)} to {number(values[-1], 2)}"


def _shape(simulated: Grid, exact: Grid) -> str:
    """How far runs are from the normal law with their own covariance, for the fewest and the most clients."""
    gaps: dict[int, list[float]] = {}
    for beta, by_n in simulated.items():
        for n, by_k in by_n.items():
            for k, row in by_k.items():
                gaps.setdefault(k, []).append(_number(row, "estimate") - _number(exact[beta][n][k], "estimate"))
    (few, first), *_, (many, last) = sorted(gaps.items())
    return (
        "Runs less the normal law with the same covariance, on average over $n$ and $β$: "
        f"{signed(float(np.mean(first)))} at $K$ = {few} and {signed(float(np.mean(last)))} at $K$ = {many}. What is "
        "not noise in this comes from averages over few clients, which are not quite normal."
    )


def _on_n(rows: Sequence[Row], exact: Grid) -> list[str]:
    found = slopes_on_log_n(rows)
    texts = []
    for beta in sorted({beta for beta, _ in found}):
        own = {k: one for (b, k), one in found.items() if b == beta}
        values = sorted(one.value for one in own.values())
        ours = sorted(_exact_on_n(exact, beta, k) for k in own)
        texts.append(
            f"Slopes on $log n$ at $β$ = {beta:g}, over $K$: {number(values[0], 2)} to {number(values[-1], 2)} "
            f"simulated, {number(ours[0])} to {number(ours[-1])} from exact moments; $n^{{β−1}}$ would have "
            f"{number(beta - 1.0, 2)}."
        )
    return texts


def _drawing(simulated: Grid, exact: Grid) -> Drawing:
    steps = list(next(iter(simulated.values())))
    roles = dict(zip(steps, _ROLES[-len(steps) :], strict=True))
    panels = {
        beta: {n: Lines(f"$n$ = {n}", roles[n], _line(simulated[beta][n]), [_line(exact[beta][n])]) for n in steps}
        for beta in simulated
    }
    powers = _powers(slopes_on_log_k(simulated))
    title = f"The distance grows as $K$ to a power of {powers}; the printed bound has 0.5"
    return Drawing(
        "phase_map",
        phase_figure(title, panels, _bounds(simulated, steps[-1]), steps[-1] ** 0.5),
        "The distance of the average to $N(0, Σ/K)$ from the optimum, on logarithmic axes. Points: simulated, with two "
        "Monte-Carlo errors to either side. Lines: the normal law with the same covariance, exactly. Broken lines: how "
        f"the printed and the corrected bound grow with $K$ at $n$ = {steps[-1]}, made to start where the exact line "
        "does, since bounds come without constants; the upright line is $√n$ there.",
        "Three panels of flat lines against the number of clients, and two broken lines that rise.",
    )


def _line(by_k: Mapping[int, Row]) -> list[tuple[float, float, float]]:
    return [(float(k), _number(row, "estimate"), _number(row, "error")) for k, row in by_k.items()]


def _bounds(simulated: Grid, n: int) -> dict[float, FloatArray]:
    """Rows (K, printed, corrected) on a fine grid of K, for each beta."""
    found = {}
    for beta, by_n in simulated.items():
        k = np.unique(np.geomspace(min(by_n[n]), max(by_n[n]), 20).round().astype(int))
        table = [
            (size, *(berry_esseen_limit(n, int(size), beta, reading).total for reading in ("printed", "corrected")))
            for size in k
        ]
        found[beta] = np.array(table, dtype=float)
    return found


def _table_on_k(found: Mapping[tuple[float, int], Slope], exact: Grid) -> Table:
    rows = []
    for (beta, n), one in found.items():
        clients = list(exact[beta][n])
        bounds = [
            slope(clients, [float(np.log(berry_esseen_limit(n, k, beta, reading).total)) for k in clients])
            for reading in ("printed", "corrected")
        ]
        rows.append(
            (
                f"$β$={beta:g}, $n$={n}",
                number(one.value),
                one.interval(),
                number(_exact_on_k(exact, beta, n), 4),
                *(number(bound, 2) for bound in bounds),
            )
        )
    return Table(
        _HEADER,
        tuple(rows),
        f"Slope of the log distance on $log K$, from the optimum; {_COLUMNS}",
    )


def _table_on_n(rows: Sequence[Row], exact: Grid) -> Table:
    lines = []
    for (beta, k), one in sorted(slopes_on_log_n(rows).items()):
        steps = list(exact[beta])
        bounds = [
            slope(steps, [float(np.log(berry_esseen_limit(n, k, beta, reading).total)) for n in steps])
            for reading in ("printed", "corrected")
        ]
        lines.append(
            (
                f"$β$={beta:g}, $K$={k}",
                number(one.value),
                one.interval(),
                number(_exact_on_n(exact, beta, k)),
                *(number(bound, 2) for bound in bounds),
            )
        )
    return Table(
        _HEADER,
        tuple(lines),
        f"Slope of the log distance on $log n$, from the optimum; {_COLUMNS}",
    )
