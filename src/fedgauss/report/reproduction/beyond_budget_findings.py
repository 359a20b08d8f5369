"""What the rows of an error budget show, in numbers and in sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedgauss.experiments.budget_cells import STAGES
from fedgauss.report.reproduction.beyond_settings import FIGURE_1, OPTIMUM, ZERO, Setting, find
from fedgauss.report.reproduction.beyond_slopes import Slope, fitted, over_draws, slope
from fedgauss.report.words import listed, number, with_error
from fedgauss.sweep.cell import Row

_FEW = 3  # draws from which a spread over draws can be read
_MANY = 3.0  # standard errors that chance alone seldom reaches in a few comparisons


def simulated_slope(rows: Sequence[Row]) -> Slope | None:
    """Of d_c~ on log K in Figure 1 right's setting, from the optimum; over draws of the clients if there are some."""
    draws = by_draw(rows, "distance", OPTIMUM)
    if min((len(line) for line in draws), default=0) < 2:
        return None
    if len(draws) >= _FEW:
        return over_draws([slope(k, d) for k, d, _ in (zip(*line, strict=True) for line in draws)])
    k, d, errors = zip(*draws[0], strict=True)
    return fitted(k, d, errors)


def exact_slope(rows: Sequence[Row]) -> Slope:
    """The same of the Gaussian law with the exact covariance, over draws of the clients."""
    lines = by_draw(rows, "exact moments", OPTIMUM)
    return over_draws([slope(k, d) for k, d, _ in (zip(*line, strict=True) for line in lines)])


def panel_gaps(settings: Sequence[Setting]) -> dict[float, tuple[float, float]]:
    """d(r = .6) - d(r = .2) of Figure 2 from the optimum, and its standard error, by beta."""
    found = {}
    for beta in sorted({float(s.curve.split("beta=")[1]) for s in settings if s.curve.startswith("Figure 2")}):
        low, high = (find(settings, f"Figure 2, r={r} beta={beta}", OPTIMUM) for r in (0.2, 0.6))
        if low and high:
            key = ("all", "Sigma/K")
            found[beta] = (high.distance[key] - low.distance[key], float(np.hypot(high.error[key], low.error[key])))
    return found


def exact_panels(rows: Sequence[Row]) -> dict[tuple[int, float], tuple[float, float]]:
    """The same distances, at r = .2 and r = .6, of the normal laws with the exact covariances, by n and beta."""
    found: dict[tuple[int, float], dict[str, float]] = {}
    for row in rows:
        curve = str(row["curve"])
        if curve.startswith("Figure 2") and (row["measure"], row.get("covariance")) == ("exact moments", "Sigma/K"):
            place = (int(row["n"] or 0), float(row["beta"] or 0.0))
            found.setdefault(place, {})[curve.split()[2]] = float(row["estimate"] or 0.0)
    return {place: (pair["r=0.2"], pair["r=0.6"]) for place, pair in found.items() if len(pair) == 2}


def by_draw(rows: Sequence[Row], measure: str, reading: str) -> list[list[tuple[float, float, float]]]:
    """(K, distance, error) of Figure 1 right's setting, a list for each draw."""
    found: dict[object, list[tuple[float, float, float]]] = {}
    for row in rows:
        here = (row["curve"], row["measure"], row["reading"], row["term"], row.get("covariance"))
        if here == (FIGURE_1, measure, reading, "all", "Sigma_n"):
            point = (float(row["K"] or 0), float(row["estimate"] or 0.0), float(row["error"] or 0.0))
            found.setdefault(row["draw"], []).append(point)
    return [sorted(line) for line in found.values()]


def summary(settings: Sequence[Setting], exact: Slope) -> str:
    """One line."""
    first = find(settings, FIGURE_1, ZERO)
    start = ""
    if first is not None:
        whole, shifted, rest = (number(first.distance[stage, "Sigma_n"]) for stage in ("all", "without D_1", "W"))
        start = (
            f"From zero at $K$ = {first.n_clients}, {whole} falls to {shifted} without $D_1$ and to {rest} without "
            "$D_4$. "
        )
    return f"{start}From the optimum the distance changes by {number(exact.value)} per unit of $log K$."


def figure_1(settings: Sequence[Setting]) -> list[str]:
    """What the start does in Figure 1, right."""
    zero = [s for s in settings if (s.curve, s.reading) == (FIGURE_1, ZERO)]
    if not zero:
        return []
    clients = listed([str(s.n_clients) for s in zero])
    whole, shifted, rest = (_distances(zero, stage) for stage in ("all", "without D_1", "W"))
    near = find(settings, FIGURE_1, OPTIMUM, zero[0].n_clients)
    noise = f" and {number(near.rms('D_4'), 2)} from the optimum" if near else ""
    return [
        f"Figure 1, right, from zero, $K$ = {clients}: the distance is {whole}; without $D_1$ it is {shifted}; without "
        f"$D_4$ as well it is {rest}, where {number(zero[0].floor)} is the noise floor. The start acts twice: it "
        "shifts the average ($D_1$), and on the way from there gradients are noisier than at the optimum ($D_4$, whose "
        f"root mean square is {number(zero[0].rms('D_4'), 2)} from zero{noise} at $K$ = {zero[0].n_clients})."
    ]


def slopes(simulated: Slope | None, exact: Slope, rows: Sequence[Row]) -> list[str]:
    """Whether the distance depends on K once runs start at the optimum."""
    texts = []
    if simulated is not None:
        draws = len(by_draw(rows, "distance", OPTIMUM))
        source = f"{draws} draws of the clients" if draws >= _FEW else "Monte-Carlo error, for one draw of the clients"
        texts.append(
            f"From the optimum the simulated slope of the distance on $log K$ is {number(simulated.value, 4)} (99 % "
            f"interval {simulated.interval(4)}, from {source}); {_covers(simulated)}."
        )
    lines, (zero,) = by_draw(rows, "exact moments", OPTIMUM), by_draw(rows, "exact moments", ZERO)
    means = listed([number(float(d)) for d in np.array(lines)[:, :, 1].mean(axis=0)])
    texts.append(
        f"Without Monte-Carlo error, from exact means and covariances over {len(lines)} draws of the clients, the "
        f"slope is {number(exact.value, 4)} (99 % interval {exact.interval(4)}); {_covers(exact)}. The mean distance "
        f"is {means} at $K$ = {listed([f'{k:g}' for k, _, _ in zero])}; from zero, for one draw, it is "
        f"{listed([number(d) for _, d, _ in zero])}."
    )
    return texts


def table_over_tau(settings: Sequence[Setting]) -> list[str]:
    """Which term makes the distance grow with tau."""
    table = [s for s in settings if s.curve.startswith("Table over tau")]
    if not table:
        return []
    taus = listed([s.curve.split("=")[1] for s in table])
    whole, shifted, rest = (_distances(table, stage) for stage in ("all", "without D_1", "W"))
    return [
        f"The table over $τ$ as coded, $τ$ = {taus}: the distance is {whole}; without $D_1$ {shifted}; without $D_4$ "
        f"as well {rest}. Clients that have drifted towards their own optima have less gradient noise than $Σ_n$ "
        "counts. Against $Σ/K$, which is smaller than $Σ_n$, the same runs are at "
        f"{_distances(table, 'all', 'Sigma/K')}."
    ]


def figure_2(settings: Sequence[Setting], rows: Sequence[Row]) -> list[str]:
    """Whether the two panels of Figure 2 differ once runs start at the optimum."""
    texts = []
    gaps, exact = panel_gaps(settings), exact_panels(rows)
    if gaps:
        beta, (gap, error) = max(gaps.items(), key=lambda item: abs(item[1][0] / item[1][1]))
        own = [s for r in (0.2, 0.6) if (s := find(settings, f"Figure 2, r={r} beta={beta}", OPTIMUM))]
        beyond = " That is more than chance: averages over few clients are not quite normal."
        texts.append(
            f"Figure 2 from the optimum at $n$ = 500: over {len(gaps)} values of $β$ the largest difference between "
            f"the panels $r$ = 0.6 and $r$ = 0.2 is {with_error(gap, error)}, {number(abs(gap / error), 1)} "
            f"Monte-Carlo standard errors, at $β$ = {beta:g}. There runs with $r$ = 0.2 and 0.6 are at "
            f"{_distances(own, 'all', 'Sigma/K')}, and normal laws with their exact covariances at "
            f"{listed([number(d) for d in exact[500, beta]])}.{beyond if abs(gap) > _MANY * error else ''}"
        )
    if exact:
        worst = max((many - few for few, many in exact.values()), key=abs)
        texts.append(
            f"Over {len(exact)} pairs of $n$ and $β$ the panels of those normal laws, which have no Monte-Carlo error, "
            f"differ by at most {number(abs(worst), 4)}; there the one with more clients is "
            f"{'nearer to' if worst < 0 else 'further from'} the limit law."
        )
    pair = [s for r in (0.2, 0.6) if (s := find(settings, f"Figure 2, r={r} beta=0.85", ZERO))]
    if len(pair) == 2:
        rises, falls = (pair[0].distance[stage, "Sigma/K"] < pair[1].distance[stage, "Sigma/K"] for stage in STAGES[:2])
        texts.append(
            "From zero, at $β$ = 0.85, the panels $r$ = 0.2 and $r$ = 0.6 are at "
            f"{_distances(pair, 'all', 'Sigma/K', 2)}; without $D_1$ they are at "
            f"{_distances(pair, 'without D_1', 'Sigma/K', 2)}."
            + (" Their order turns round." if rises and not falls else "")
        )
    return texts


def other_clients(settings: Sequence[Setting]) -> list[str]:
    """Settings in which D_2 and D_3 are not zero."""
    texts = []
    unequal = find(settings, "Hessians follow offsets", OPTIMUM)
    if unequal is not None:
        mean, size = unequal.lengths["D_3"]
        whole, rest = (number(unequal.distance[stage, "Sigma_n"], 2) for stage in ("all", "without D_1, D_3"))
        texts.append(
            f"With client Hessians that follow the offsets, $D_3$ has a root mean square of {number(size, 2)} and a "
            f"mean of length {number(mean, 2)}; taking it out brings the distance from {whole} to {rest}."
        )
    for reading in (OPTIMUM, ZERO):
        logistic = find(settings, "Logistic", reading)
        if logistic is not None:
            steps = [number(logistic.distance[stage, "Sigma_n"], 2) for stage in STAGES]
            opposed = " Here $D_1$ had cancelled part of the others." if steps[1] > steps[0] else ""
            texts.append(
                f"Logistic clients {reading}: {steps[0]} with all terms, then {listed(steps[1:])} as $D_1$, $D_3$, "
                f"$D_2$ and $D_4$ are taken out.{opposed}"
            )
    return texts


def covariances(settings: Sequence[Setting]) -> list[str]:
    """What it costs to use Sigma/K for Sigma_n."""
    own = [s for s in settings if s.clients == "random effects" and "beta=0.9" not in s.curve]
    limit = [s.distance["W", "Sigma/K"] for s in own]
    finite = [s.distance["all", "Sigma_n"] for s in own if s.reading == OPTIMUM]
    return [
        "In all these settings with the paper’s clients the linear part $W$ alone is "
        f"{number(min(limit), 2)} to {number(max(limit), 2)} from $N(0, Σ/K)$. From the optimum, all terms together "
        f"are {number(min(finite), 2)} to {number(max(finite), 2)} from $N(0, Σ_n)$."
    ]


def _distances(settings: Sequence[Setting], stage: str, covariance: str = "Sigma_n", digits: int = 3) -> str:
    return listed([number(setting.distance[stage, covariance], digits) for setting in settings])


def _covers(found: Slope) -> str:
    return f"the interval {'covers' if found.covers(0.0) else 'does not cover'} 0"
