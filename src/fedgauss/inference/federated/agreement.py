"""What sites must agree on before a run: columns, levels and their order, and so a name for each parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauss.inference.federated.messages import printable
from fedgauss.inference.frames import Frame, FrameColumn, listed
from fedgauss.inference.model_data import ModelData, ModelSpec, Response, covariates_of, intercept_name, right_hand_side

Levels = Mapping[str, Sequence[Any] | None]  # None for a column of numbers


def agreed_levels(told: Sequence[Levels], sites: Sequence[str]) -> dict[str, list[Any] | None]:
    """The levels of all sites together, columns in the order of the first site."""
    first = told[0]
    for site, levels in zip(sites, told, strict=True):
        if levels.keys() != first.keys():
            apart = sorted(levels.keys() ^ first.keys())
            raise ValueError(f"sites must have the same columns; {site!r} and {sites[0]!r} differ in {listed(apart)}.")
    return {name: _joined(name, [levels[name] for levels in told], sites) for name in first}


def agreed_model(
    spec: ModelSpec,
    columns: dict[str, FrameColumn],
    response: Response,
    clients: Sequence[str],
    counts: npt.ArrayLike,
    total: int,
) -> ModelData:
    """The model on the rows of these columns, of which there may be none; names are the same at every site.

    Columns that nobody named come in the order of `columns`.
    """
    terms = right_hand_side(Frame(columns), spec)
    covariates, names = covariates_of(terms, columns, total)
    constant, (values, classes, family) = intercept_name(terms, spec, names), response
    return ModelData(
        covariates, names, constant, values, spec.target, classes, family, tuple(clients), np.asarray(counts)
    )


def _joined(name: str, told: Sequence[Sequence[Any] | None], sites: Sequence[str]) -> list[Any] | None:
    """The levels of all sites: in the one order that keeps that of every site, if there is one; else sorted."""
    where: dict[str, list[str]] = {}
    for site, levels in zip(sites, told, strict=True):
        where.setdefault(_kind(levels), []).append(site)
    if len(where) > 1:
        kinds = ", ".join(f"{kind} at {listed(at)}" for kind, at in where.items())
        raise ValueError(f"column {name!r} must be of one kind; it holds {kinds}. Make it the same everywhere.")
    lists = [levels for levels in told if levels is not None]
    if not lists:
        return None
    joined = _only_order(lists) or sorted({level for levels in lists for level in levels})
    if _kind(joined) != "categories of numbers":
        return joined
    integers = all(level == int(level) for level in joined)
    return [int(level) if integers else float(level) for level in joined]


def _kind(levels: Sequence[Any] | None) -> str:
    if levels is None:
        return "numbers"
    kinds = {str: "text", bool: "true and false", int: "categories of numbers", float: "categories of numbers"}
    return kinds[type(levels[0])]


def _only_order(lists: Sequence[Sequence[Any]]) -> list[Any]:
    """The only order of all levels that keeps the order of each list; empty if there is none, or more than one."""
    order: TopologicalSorter[Any] = TopologicalSorter()
    for levels in lists:
        for level in levels:
            order.add(level)
        for before, after in pairwise(levels):
            order.add(after, before)
    in_order: list[Any] = []
    try:
        order.prepare()
    except CycleError:
        return []
    while order.is_active():
        ready = order.get_ready()
        if len(ready) > 1:
            return []
        in_order += ready
        order.done(*ready)
    return in_order


def shown(label: Any) -> Any:
    """A class as it may be printed."""
    return printable(label) if isinstance(label, str) else label
