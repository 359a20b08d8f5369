"""The phase transition without a start bias: how the distance to the limit law scales with K and with n."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedgauss._figures import LIGHT, styled
from fedgauss._types import FloatArray
from fedgauss.paper.beyond_figures import CLIENTS, DASHED, clients_axis, draw_points, log_axis
from fedgauss.paper.budget import FIGURE_2, BeyondResult, BeyondRow, CurveCell, MomentsCell, Point, Rows, matching, runs
from fedgauss.paper.result import OtherRows, Scale, Section
from fedgauss.paper.trends import FittedSlope, fitted, known_error, log_weights, slope
from fedgauss.report.output import Drawing, key, stacked
from fedgauss.report.text import Table, number, signed, span, with_error
from fedgauss.theory.bounds import berry_esseen_limit

Axis = Literal["n", "K"]
Place = tuple[float, int]  # beta, and n or K

_NAME = "phase_map"
_BETAS = (0.75, 0.85, 0.95)
_SLIGHT = 0.25  # slopes whose intervals stay below half the printed 1/2 show no transition
_ROLES = ("simulated", "finite", "exact", "limit")


@dataclass(frozen=True)
class PhaseCell(CurveCell):
    """Runs with K clients under each of several beta, looked at after each of the listed steps, against N(0, Sigma/K).

    One run passes through every n, so that distances at two n are correlated; the slope of log distance on log n
    is therefore a row of its own, with an error that counts the correlation. Let seeds differ between values of K:
    then points at two K are independent. The beta of the curve is not used.
    """

    betas: tuple[float, ...]
    steps: tuple[int, ...]
    replicates: int
    seed: int = 0

    @property
    def cost(self) -> float:
        """In draws, of which all beta share one set."""
        shared = 0.6 + 0.4 * len(self.betas)
        return shared * max(self.steps) * self.curve.n_clients * self.replicates

    @property
    def group(self) -> str:
        """Cells of one group share a compiled program."""
        return f"phase {self.curve.n_clients} {self.replicates} {len(self.steps)} {len(self.betas)}"

    def run(self) -> list[BeyondRow]:
        """For each beta a row for each listed step, and one for the slope on log n."""
        from fedgauss.engine.observers import Average, at
        from fedgauss.engine.simulate import simulate_together
        from fedgauss.problems.linearize import linearize
        from fedgauss.theory.covariances import limit_covariance

        cells = [replace(self, curve=replace(self.curve, beta=beta)) for beta in self.betas]
        together = simulate_together(
            [cell.curve.setting([at(self.steps, Average())]) for cell in cells],
            max(self.steps),
            replicates=self.replicates,
            seed=self.seed,
            progress=False,
        )
        lin = linearize(self.curve.problem())
        scale = np.sqrt(self.steps)[:, None]
        white = np.linalg.inv(np.linalg.cholesky(limit_covariance(lin))).T
        return [
            row
            for cell, found in zip(cells, together, strict=True)
            for row in cell._rows((scale * (found.average_at.astype(float) - lin.optimum)) @ white)
        ]

    def _rows(self, z: FloatArray) -> Iterator[BeyondRow]:
        """From standardised averages (R, steps, d) at the beta of the curve."""
        from fedgauss.theory.distances import ball_distance

        dim = z.shape[2]
        base = replace(self.row("distance", replicates=self.replicates), clients=None)
        for i, n in enumerate(self.steps):
            ball = ball_distance(z[:, i], np.zeros(dim), np.eye(dim), 1.0)
            printed, corrected = _bound(n, self.curve.n_clients, self.curve.beta)
            yield replace(base.with_distance(ball), n=n, printed=printed, corrected=corrected)
        value, error = slope_on_log_n(self.steps, np.linalg.norm(z, axis=2).T)
        yield replace(base, measure="slope on log n", estimate=value, error=error)


def slope_on_log_n(n: Sequence[int] | FloatArray, lengths: FloatArray) -> tuple[float, float]:
    """The least-squares slope of log d_j on log n_j and its standard error; lengths (m, R), a row for each n.

    d_j = |F_R(x_j) - F(x_j)| at the x_j where the sup is attained, with F that of |Z|, Z ~ N(0, I_2). To first order
    d_j varies as the share of runs below x_j does, so Cov(d_i, d_j) is that of two such shares over the same runs.
    """
    count = lengths.shape[1]
    ranks = np.arange(count)
    distances, below = [], []
    for row in lengths:
        theory = 1.0 - np.exp(-(np.sort(row) ** 2) / 2)
        gaps = np.stack([(ranks + 1) / count - theory, ranks / count - theory])  # just after and just before a run
        side, where = np.unravel_index(np.argmax(np.abs(gaps)), gaps.shape)
        distances.append(abs(gaps[side, where]))
        below.append(np.sign(gaps[side, where]) * (row <= np.sort(row)[where]))
    d, weights = np.array(distances), log_weights(n)
    gradient = weights / d
    error = np.sqrt(gradient @ np.cov(np.array(below, dtype=float)) @ gradient / count)
    return float(weights @ np.log(d)), float(error)


def _cells(scale: Scale) -> list[CurveCell]:
    """Figure 2's setting from the optimum, with n and K apart."""
    steps = scale.grid((100, 200, 400, 800), (100, 200, 400))
    cells: list[CurveCell] = []
    for n_clients in scale.grid((3, 16, 80), (3, 16)):
        curve = replace(FIGURE_2, n_clients=n_clients)
        cells.append(PhaseCell(_NAME, "phase map", curve, _BETAS, steps, runs(1000, scale), seed=n_clients))
        cells += [MomentsCell(_NAME, "phase map", replace(curve, beta=beta), steps) for beta in _BETAS]
    return cells


class PhaseMap(BeyondResult):
    """Slopes on log K and on log n: printed bound, corrected bound, exact moments and simulation."""

    def section(self, rows: Rows, others: OtherRows) -> Section:
        """No transition if every slope on log K is slight."""
        on_k = slopes_on_log_k(rows)
        slight = all(one.high < _SLIGHT for one in on_k.values())
        return self.section_of(
            "no transition" if slight else "unclear",
            summary=f"From the optimum the distance grows as $K$ to a power of {_powers(rows)}, where the printed "
            "bound has 0.5.",
            findings=(_on_k(rows), _on_crossing(rows), _on_shape(rows), *_on_n(rows)),
            drawings=(_drawing(rows),),
            tables=(_table(rows, "K", on_k, 4), _table(rows, "n", slopes_on_log_n(rows), 3)),
            why=(
                "The printed bound takes $V_K$ to be of order $K^{−1/2}$; it is of order $1/K$, as $Σ/K$ is, so the "
                "gap between $Σ_n$ and $Σ/K$ relative to their size does not depend on $K$. The other term that grows "
                "with $K$ is that of client drift, $D_3$, which vanishes in this model; the corrected bound keeps it, "
                "and is loose here too. Where client Hessians differ it is real, and vanishes for $K$ of smaller order "
                "than $n$ if $β$ is close to 1.",
                "Near $β$ = 1 the gap between $Σ_n$ and $Σ/K$ closes as slowly as $n^{β−1}$, and at these $n$ it may "
                "still widen: that is a matter of $n$ and $β$, whatever $K$ is.",
            ),
        )


def slopes_on_log_k(rows: Rows) -> dict[Place, FittedSlope]:
    """Of log distance on log K, by beta and n; points at different K are independent."""
    found = {}
    for place, line in _lines(rows, "distance", "K").items():
        k, d, errors = np.array(line).T
        found[place] = fitted(k, np.log(d), errors / d)
    return found


def slopes_on_log_n(rows: Rows) -> dict[Place, FittedSlope]:
    """Of log distance on log n, by beta and K; the errors count that one run passes through every n."""
    found = {(row.beta, row.K): known_error(*row.measured) for row in matching(rows, measure="slope on log n")}
    return {place: found[place] for place in sorted(found)}


def _lines(rows: Rows, measure: str, across: Axis, column: str = "estimate") -> dict[Place, list[Point]]:
    """A column against K for each beta and n, or against n for each beta and K."""
    by = "n" if across == "K" else "K"
    found: dict[Place, list[Point]] = {}
    for row in matching(rows, measure=measure):
        if row.covariance != "Sigma_n":
            point = (getattr(row, across), getattr(row, column), row.measured[1])
            found.setdefault((row.beta, getattr(row, by)), []).append(point)
    return {place: sorted(found[place]) for place in sorted(found)}


def _slopes(rows: Rows, measure: str, across: Axis, column: str = "estimate") -> dict[Place, float]:
    """Of the logarithm of a column, which has no Monte-Carlo error."""
    lines = _lines(rows, measure, across, column)
    return {place: slope([x for x, _, _ in line], np.log([y for _, y, _ in line])) for place, line in lines.items()}


def _powers(rows: Rows) -> str:
    return span((one.value for one in slopes_on_log_k(rows).values()), 2)


def _on_k(rows: Rows) -> str:
    slopes, exact = slopes_on_log_k(rows), _slopes(rows, "exact moments", "K")
    flat, printed = (sum(one.covers(power) for one in slopes.values()) for power in (0.0, 0.5))
    return (
        f"Slopes of the log distance on $log K$, for each $n$ and $β$, are {_powers(rows)}: {flat} of {len(slopes)} "
        f"have a 99 % interval that covers 0, and {printed} one that covers 1/2, the slope of the printed bound. Of "
        "the normal laws with the exact covariances, which have no Monte-Carlo error, the steepest is "
        f"{number(max(map(abs, exact.values())), 4)} in size."
    )


def _on_crossing(rows: Rows) -> str:
    """Distances at the least and the largest K at an n where sqrt(n) lies between them."""
    lines = _lines(rows, "distance", "K")
    betas, steps = (sorted(set(values)) for values in zip(*lines, strict=True))
    beta, n = place = betas[len(betas) // 2], steps[-1]
    (few, d, error), *_, (many, last, last_error) = lines[place]
    printed, corrected = (_lines(rows, "distance", "K", column)[place] for column in ("printed", "corrected"))
    return (
        f"At $β$ = {beta:g} and $n$ = {n}, where $√n$ is {n**0.5:.0f}, the distance is {with_error(d, error)} with "
        f"$K$ = {few} and {with_error(last, last_error)} with $K$ = {many}; the printed bound is "
        f"{printed[-1][1] / printed[0][1]:.1f} times as large, the corrected "
        f"{corrected[-1][1] / corrected[0][1]:.1f} times."
    )


def _on_shape(rows: Rows) -> str:
    """How far runs are from the normal law with their own covariance, for the fewest and the most clients."""
    exact = _lines(rows, "exact moments", "n")
    gaps: dict[int, list[float]] = {}
    for (beta, k), line in _lines(rows, "distance", "n").items():
        gaps.setdefault(k, []).extend(d - e for (_, d, _), (_, e, _) in zip(line, exact[beta, k], strict=True))
    (few, first), *_, (many, last) = sorted(gaps.items())
    return (
        "Runs less the normal law with the same covariance, on average over $n$ and $β$: "
        f"{signed(float(np.mean(first)))} at $K$ = {few} and {signed(float(np.mean(last)))} at $K$ = {many}. What is "
        "not noise in this comes from averages over few clients, which are not quite normal."
    )


def _on_n(rows: Rows) -> Iterator[str]:
    slopes, exact = slopes_on_log_n(rows), _slopes(rows, "exact moments", "n")
    for beta in dict.fromkeys(beta for beta, _ in slopes):
        own = [place for place in slopes if place[0] == beta]
        yield (
            f"Slopes on $log n$ at $β$ = {beta:g}, over $K$: {span((slopes[place].value for place in own), 2)} "
            f"simulated, {span(exact[place] for place in own)} from exact moments; $n^{{β−1}}$ would have "
            f"{number(beta - 1.0, 2)}."
        )


@styled
def _drawing(rows: Rows) -> Drawing:
    """A panel for each beta: distance against K for each n, with both bounds through the first point of the last n."""
    simulated, exact = _lines(rows, "distance", "K"), _lines(rows, "exact moments", "K")
    betas, steps = (sorted(set(values)) for values in zip(*simulated, strict=True))
    last, roles = steps[-1], dict(zip(steps, _ROLES[-len(steps) :], strict=True))
    title = f"The distance grows as $K$ to a power of {_powers(rows)}; the printed bound has 0.5"
    legend = [key(f"$n$ = {n}", role, marker="o", ms=4) for n, role in roles.items()]
    legend += [key("bound, printed", lw=1.0, ls=DASHED), key("bound, corrected", lw=1.0, ls=":")]
    figure, grid = stacked(title, len(betas), legend, height=1.45, head=0.28)
    for beta, (axes,) in zip(betas, grid, strict=True):
        for n, role in roles.items():
            x, y, _ = zip(*exact[beta, n], strict=True)
            axes.plot(x, y, color=LIGHT[role], lw=1.0)
            draw_points(axes, simulated[beta, n], LIGHT[role])
        fine = np.unique(np.geomspace(min(x), max(x), 20).round().astype(int))
        bounds = np.array([_bound(last, int(k), beta) for k in fine]).T
        for bound, line in zip(bounds, (DASHED, ":"), strict=True):
            axes.plot(fine, y[0] * bound / bound[0], color=LIGHT["ink"], lw=1.0, ls=line)
        axes.axvline(last**0.5, color=LIGHT["faint"], lw=1.0, zorder=0)
        clients_axis(axes, x)
        log_axis(axes, (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0))
        axes.set_title(f"$\\beta$ = {beta:g}", fontsize=10.5, color=LIGHT["muted"], pad=4)
        axes.set_ylabel(r"$d_c^\dagger$")
    grid[-1][0].set_xlabel(CLIENTS)
    return Drawing(
        _NAME,
        figure,
        "The distance of the average to $N(0, Σ/K)$ from the optimum, on logarithmic axes. Points: simulated, with two "
        "Monte-Carlo errors to either side. Lines: the normal law with the same covariance, exactly. Broken lines: how "
        f"the printed and the corrected bound grow with $K$ at $n$ = {last}, made to start where the exact line does, "
        "since bounds come without constants; the upright line is $√n$ there.",
        "Three panels of flat lines against the number of clients, and two broken lines that rise.",
    )


def _bound(n: int, k: int, beta: float) -> tuple[float, float]:
    """Of the distance, as printed and corrected."""
    return berry_esseen_limit(n, k, beta, "printed").total, berry_esseen_limit(n, k, beta, "corrected").total


def _table(rows: Rows, across: Axis, slopes: Mapping[Place, FittedSlope], digits: int) -> Table:
    by = "n" if across == "K" else "K"
    exact = _slopes(rows, "exact moments", across)
    printed, corrected = (_slopes(rows, "distance", across, column) for column in ("printed", "corrected"))
    return Table(
        ("", "simulated", "99 % interval", "exact", "printed", "corrected"),
        tuple(
            (
                f"$β$={place[0]:g}, ${by}$={place[1]}",
                number(found.value),
                found.interval(),
                number(exact[place], digits),
                number(printed[place], 2),
                number(corrected[place], 2),
            )
            for place, found in slopes.items()
        ),
        f"Slope of the log distance on $log {across}$, from the optimum; exact is that of the normal law with the same "
        "covariance, and the last two are those of the bounds",
    )


RESULT = PhaseMap(
    name=_NAME,
    title="The phase transition without a start bias",
    where="beyond the paper; Section 4.2 and Theorem 2.3",
    claim="once K is of order √n or more, no β makes the distance to N(0, Σ/K) vanish",
    cells=_cells,
)
