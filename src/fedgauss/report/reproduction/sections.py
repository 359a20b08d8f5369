"""A section for each result, whichever kind it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fedgauss.experiments.attack import attack_results
from fedgauss.experiments.beyond import beyond_results
from fedgauss.experiments.paper import Result
from fedgauss.report.reproduction.ablations import ablation_section
from fedgauss.report.reproduction.distances import distance_section
from fedgauss.report.reproduction.quantiles import quantile_section
from fedgauss.report.reproduction.section import Section
from fedgauss.sweep.cell import Row

_BY_NAME: dict[str, Callable[[Result, list[Row]], Section]] = {
    "figure3_qq": quantile_section,
    "ablation_tau": ablation_section,
    "ablation_gamma": ablation_section,
}


def section(result: Result, rows: list[Row], others: Mapping[str, list[Row]]) -> Section:
    """The section of a result; `others` are the rows of all results of the run, by name."""
    if result.name in beyond_results():
        from fedgauss.report.reproduction.beyond import beyond_section

        return beyond_section(result, rows)
    if result.name in attack_results():
        from fedgauss.report.reproduction.attack import attack_section

        return attack_section(result, rows)
    if result.name in _BY_NAME:
        return _BY_NAME[result.name](result, rows)
    return distance_section(result, rows, others)
