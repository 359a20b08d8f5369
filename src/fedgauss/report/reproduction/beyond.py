"""Sections of the results beyond the paper."""

from __future__ import annotations

from collections.abc import Callable

from fedgauss.experiments.paper import Result
from fedgauss.report.reproduction.beyond_budget import budget_section
from fedgauss.report.reproduction.beyond_hessians import hessian_section
from fedgauss.report.reproduction.beyond_phase import phase_section
from fedgauss.report.reproduction.section import Section
from fedgauss.sweep.cell import Row

_BY_NAME: dict[str, Callable[[Result, list[Row]], Section]] = {
    "error_budget": budget_section,
    "phase_map": phase_section,
    "unequal_hessians": hessian_section,
}


def beyond_section(result: Result, rows: list[Row]) -> Section:
    """The section of one of `beyond_results`."""
    return _BY_NAME[result.name](result, rows)
