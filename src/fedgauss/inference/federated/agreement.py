"""What sites must agree on before a run: columns and their order, levels and their order, and so a name for each
parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

import numpy as np

from fedgauss.inference.design import asked_terms, covariates_of, intercept_name, response_of
from fedgauss.inference.federated.messages import Message, printable
from fedgauss.inference.formula import Formula
from fedgauss.inference.frames import Column, Frame, listed
from fedgauss.problems.families import Family

Levels = Mapping[str, list[Any] | None]  # None for a column of numbers


def agreed_levels(told: Sequence[Levels], sites: Sequence[str]) -> dict[str, list[Any] | None]:
    """The levels of all sites together, columns in the order of the first site."""
    first = told[0]
    for site, levels in zip(sites, told, strict=True):
        if levels.keys() != first.keys():
            apart = sorted(levels.keys() ^ first.keys())
            raise ValueError(f"sites must have the same columns; {site!r} and {sites[0]!r} differ in {listed(apart)}.")
    return {name: _joined(name, [levels[name] for levels in told], sites) for name in first}


def terms_in_order(model: Message, levels: Levels) -> Formula:
    """What is on the right-hand side; columns that nobody named come in the order of the levels."""
    features, formula = model["features"], model["formula"]
    return asked_terms(Frame(levels), model["target"], None, features, formula, model["intercept"])


def parameters(
    model: Message, levels: Levels, total: int
) -> tuple[tuple[str, ...], str | None, Family, tuple[Any, ...]]:
    """Names of the covariates, that of the intercept, the family and its classes: a design without rows."""
    terms = terms_in_order(model, levels)
    columns = {name: Column(name, np.empty(0), None if own is None else tuple(own)) for name, own in levels.items()}
    _, names = covariates_of(terms, columns, total)
    _, classes, family = response_of(columns[model["target"]], model["family"])
    return names, intercept_name(terms, model["formula"], names), family, classes


def _joined(name: str, told: Sequence[list[Any] | None], sites: Sequence[str]) -> list[Any] | None:
    """The levels of all sites: in the one order that keeps that of every site, if there is one; else sorted."""
    where: dict[str, list[str]] = {}
    for site, own in zip(sites, told, strict=True):
        where.setdefault(_kind(own), []).append(site)
    if len(where) > 1:
        found = ", ".join(f"{kind} at {listed(at)}" for kind, at in where.items())
        raise ValueError(f"column {name!r} must be of one kind; it holds {found}. Make it the same everywhere.")
    every = [own for own in told if own is not None]
    if not every:
        return None
    levels = _only_order(every) or sorted({level for own in every for level in own})
    if _kind(levels) != "categories of numbers":
        return levels
    whole = all(level == int(level) for level in levels)
    return [int(level) if whole else float(level) for level in levels]


def _kind(levels: list[Any] | None) -> str:
    if levels is None:
        return "numbers"
    kinds = {str: "text", bool: "true and false", int: "categories of numbers", float: "categories of numbers"}
    return kinds[type(levels[0])]


def _only_order(lists: Sequence[list[Any]]) -> list[Any]:
    """All levels such that those of each list come in its order; none if lists contradict, or leave it open."""
    order: TopologicalSorter[Any] = TopologicalSorter()
    for levels in lists:
        for level in levels:
            order.add(level)
        for before, after in pairwise(levels):
            order.add(after, before)
    found: list[Any] = []
    try:
        order.prepare()
    except CycleError:
        return []
    while order.is_active():
        ready = order.get_ready()
        if len(ready) > 1:
            return []
        found += ready
        order.done(*ready)
    return found


def shown(label: Any) -> Any:
    """A class as it may be printed."""
    return printable(label) if isinstance(label, str) else label
