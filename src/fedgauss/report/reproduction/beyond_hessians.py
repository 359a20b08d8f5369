"""The section on clients that differ in Hessian: whether the bias of client drift grows with K."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.experiments.beyond import HESSIANS
from fedgauss.experiments.paper import Result
from fedgauss.report.drawing import Drawing
from fedgauss.report.reproduction.beyond_pictures import drift_figure
from fedgauss.report.reproduction.beyond_settings import Setting, settings_of
from fedgauss.report.reproduction.beyond_slopes import Slope, over_draws, slope
from fedgauss.report.reproduction.section import Section
from fedgauss.report.table import Table
from fedgauss.report.words import listed, number, with_error
from fedgauss.sweep.cell import Row

_FOLLOW, _PERMUTED = HESSIANS
_NEAR = 0.1  # an exponent within this of 1/2 counts as 1/2: few clients bend the line a little


def hessian_section(result: Result, rows: list[Row]) -> Section:
    """The exponent of growth of the exact bias, and the distances that go with it."""
    follow, permuted = exponents(rows)
    settings = settings_of(rows)
    upheld = follow.low > 0.0 and abs(follow.value - 0.5) < _NEAR and permuted.high < 0.5
    return Section(
        result.name,
        result.title,
        result.where,
        result.claim,
        "upheld" if upheld else "unclear",
        f"The bias grows as K to the power {with_error(follow.value, follow.error, 2)} when Hessians follow the "
        f"offsets, {with_error(permuted.value, permuted.error, 2)} when they do not.",
        (
            _growth(_FOLLOW, follow, rows),
            _growth(_PERMUTED, permuted, rows),
            *_distances(settings),
        ),
        (_drawing(rows, follow, permuted),),
        (_mean_table(rows), *_distance_tables(settings)),
        (
            "Between mixings client $k$ moves towards its own optimum at a rate set by its Hessian, and $D_3$ adds up "
            "Hessian times displacement over clients. If the two go together the sum has a mean of the same size for "
            "every $K$, and standardisation multiplies it by $√K$; if not, the mean itself is of order $K^{−1/2}$.",
        ),
    )


def exponents(rows: Sequence[Row]) -> tuple[Slope, Slope]:
    """Of the exact standardised mean in K, when Hessians follow the offsets and when they are permuted; over draws."""
    found = []
    for clients in HESSIANS:
        table = np.array(_means(rows, clients))
        found.append(over_draws([slope(draw[:, 0], np.log(draw[:, 1])) for draw in table]))
    return found[0], found[1]


def _means(rows: Sequence[Row], clients: str) -> list[list[tuple[float, float, float]]]:
    """(K, standardised mean, 0), a list for each draw."""
    found: dict[object, list[tuple[float, float, float]]] = {}
    for row in rows:
        if (row["measure"], row["clients"]) == ("exact mean", clients):
            found.setdefault(row["draw"], []).append((float(row["K"] or 0), float(row["estimate"] or 0.0), 0.0))
    return [sorted(line) for line in found.values()]


def _growth(clients: str, exponent: Slope, rows: Sequence[Row]) -> str:
    table = np.array(_means(rows, clients))
    values = listed([number(float(value), 2) for value in table[:, :, 1].mean(axis=0)])
    at = listed([f"{k:g}" for k in table[0, :, 0]])
    return (
        f"{clients}: the exact standardised mean of the average is {values} at $K$ = {at}, on average over "
        f"{len(table)} draws of the clients. Its exponent in $K$ is {with_error(exponent.value, exponent.error)}, with "
        f"a 99 % interval of {exponent.interval(2)}."
    )


def _distances(settings: Sequence[Setting]) -> list[str]:
    texts = []
    for clients in HESSIANS:
        own = [s for s in settings if s.clients == clients]
        if own:
            at = listed([str(s.n_clients) for s in own])
            whole, rest = (
                listed([number(s.distance[stage, "Sigma_n"], 2) for s in own]) for stage in ("all", "without D_1, D_3")
            )
            texts.append(
                f"{clients}, simulated at $K$ = {at} for one draw of the clients: the distance over balls is {whole}, "
                f"and {rest} with $D_3$ taken out."
            )
    return texts


def _drawing(rows: Sequence[Row], follow: Slope, permuted: Slope) -> Drawing:
    title = (
        f"The bias grows as $K^{{{follow.value:.2f}}}$ when Hessians follow the offsets, "
        f"and as $K^{{{permuted.value:.2f}}}$ when not"
    )
    return Drawing(
        "unequal_hessians",
        drift_figure(
            title,
            {clients: _means(rows, clients) for clients in HESSIANS},
            dict(zip(HESSIANS, ("limit", "finite"), strict=True)),
        ),
        "The length of the exact mean of $√n (Σ/K)^{−1/2} (\\bar{Y}_n − θ^*)$ from the optimum. Dots: draws of the "
        "clients. Lines: root mean square over draws. No simulation enters.",
        "Two lines against the number of clients on logarithmic axes: one rises along the square root, one is flat.",
    )


def _mean_table(rows: Sequence[Row]) -> Table:
    tables = [np.array(_means(rows, clients))[:, :, 1] for clients in HESSIANS]
    sizes = [k for k, _, _ in _means(rows, _FOLLOW)[0]]
    return Table(
        ("", *HESSIANS),
        tuple((f"$K$={k:g}", *(_over_draws(table[:, i]) for table in tables)) for i, k in enumerate(sizes)),
        "Exact standardised mean of the average from the optimum, with its error over draws of the clients",
    )


def _over_draws(values: FloatArray) -> str:
    return with_error(float(values.mean()), float(values.std(ddof=1)) / len(values) ** 0.5, 2)


def _distance_tables(settings: Sequence[Setting]) -> list[Table]:
    if not settings:
        return []
    return [
        Table(
            ("", "balls", "half-spaces", "balls, no $D_3$", "half-spaces, no $D_3$"),
            tuple(
                (
                    f"{'follow' if setting.clients == _FOLLOW else 'permuted'}, $K$={setting.n_clients}",
                    with_error(setting.distance["all", "Sigma_n"], setting.error["all", "Sigma_n"]),
                    number(setting.half_spaces["all"]),
                    number(setting.distance["without D_1, D_3", "Sigma_n"]),
                    number(setting.half_spaces["without D_1, D_3"]),
                )
                for setting in settings
            ),
            "Distances to $N(0, Σ_n)$ for one draw of the clients, simulated, with all terms (Monte-Carlo error in "
            "brackets) and without $D_3$",
        )
    ]
