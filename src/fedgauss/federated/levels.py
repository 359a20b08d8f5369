"""Levels of a column at several sites: what a site names, the levels of all together, and how often each occurs.

A site names a level only where several of its rows have it, so that a name or a number that few patients have never
leaves. A level that no site has often enough to name has no column; it can be pooled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.federated.refusal import Refused
from fedgauss.inference.model import Model
from fedgauss.inference.pooled_levels import OTHER
from fedgauss.inference.tables import FrameColumn, coded, listed

_MOST_LEVELS = 10_000
_KINDS = {str: "text", bool: "true and false", int: "categories of numbers", float: "categories of numbers"}


def read_levels(column: FrameColumn, few: int) -> dict[str, Any] | None:
    """What a site says of a column: its kind and the levels of enough rows; None for a column of numbers."""
    if column.levels is None:
        return None
    levels = [level.item() if isinstance(level, np.generic) else level for level in column.levels]
    kinds = {_KINDS.get(type(level)) for level in levels}
    if len(kinds) > 1 or None in kinds:
        raise Refused(
            "categories must all be text, numbers or true and false to be compared with other sites'; those of "
            f"{column.name!r} are not. Make them text."
        )
    counts = np.bincount(column.values.astype(int), minlength=len(levels))
    named = [level for level, count in zip(levels, counts.tolist(), strict=True) if count >= few]
    return {"kind": kinds.pop(), "named": named}


def check_levels(told: Any) -> None:
    """Refuse what no site can have said of its columns."""
    if not isinstance(told, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in told):
        raise ValueError("columns must be told as pairs of a name and its levels.")
    for name, levels in told:
        if not isinstance(name, str) or not (levels is None or _is_told(levels)):
            raise ValueError(
                f"the levels of a column must be of one kind, each there once; those of {str(name)[:60]!r} are not."
            )


def _is_told(levels: Any) -> bool:
    if not isinstance(levels, dict) or levels.keys() != {"kind", "named"} or levels["kind"] not in _KINDS.values():
        return False
    named = levels["named"]
    if not isinstance(named, list) or len(named) > _MOST_LEVELS:
        return False
    return all(_KINDS.get(type(level)) == levels["kind"] for level in named) and len(set(named)) == len(named)


def agree(told: Mapping[str, Sequence[Any]]) -> dict[str, list[Any] | None]:
    """The levels that all sites together name, columns in the order of the first site."""
    by_site = {site: dict(pairs) for site, pairs in told.items()}
    first_site, first = next(iter(by_site.items()))
    for site, columns in by_site.items():
        if columns.keys() != first.keys():
            apart = sorted(columns.keys() ^ first.keys())
            raise ValueError(
                f"sites must have the same columns; {site!r} and {first_site!r} differ in {listed(apart)}."
            )
    return {name: _joined(name, {site: columns[name] for site, columns in by_site.items()}) for name in first}


def is_poolable(model: Model, name: str, levels: Sequence[Any] | None) -> bool:
    """Whether rare levels of a column are pooled."""
    return bool(model.pool_rare and name != model.target and levels and isinstance(levels[0], str))


def recode(column: FrameColumn, levels: Sequence[Any] | None, renamed: Mapping[str, str]) -> FrameColumn:
    """The column with the levels of all sites; some of its own have become others, or `OTHER` if no site names them."""
    if levels is None and column.levels is None:
        return column
    if levels is None or column.levels is None:
        raise Refused(f"the column {column.name!r} must be of one kind everywhere.")
    known = set(levels)
    labels = [renamed.get(label, label) for label in column.labels]
    labels = [label if label in known else OTHER for label in labels]
    if OTHER in labels and OTHER not in known:
        raise Refused(
            f"levels of {column.name!r} must have enough rows at some site to be named; some here have not. Pool rare "
            "levels (pool_rare=5), merge them, or leave the column out."
        )
    return coded(column.name, labels, list(levels))


def named_alone(column: FrameColumn, levels: Sequence[Any] | None) -> tuple[FrameColumn, BoolArray]:
    """The column with its first level where some site names no other, and which rows have one that is named."""
    if levels is None or column.levels is None:
        return column, np.ones(len(column.values), dtype=bool)
    if not levels:
        raise Refused(
            f"no level of {column.name!r} has enough rows at any site to be named. Merge levels, or leave it out."
        )
    known = set(levels)
    named = np.array([label in known for label in column.labels], dtype=bool)
    labels = [label if there else levels[0] for label, there in zip(column.labels, named, strict=True)]
    return coded(column.name, labels, list(levels)), named


def indicators(column: FrameColumn, levels: Sequence[Any]) -> dict[str, FloatArray]:
    """Which rows have each of these levels, and last which have another, by a name for each, (n,) each."""
    place = {level: i for i, level in enumerate(levels)}
    codes = np.array([place.get(label, len(levels)) for label in column.labels])
    names = [*(f"{column.name} == {level!r}" for level in levels), f"another {column.name}"]
    return {name: (codes == i).astype(float) for i, name in enumerate(names)}


def _joined(name: str, told: Mapping[str, Any]) -> list[Any] | None:
    """The levels of all sites: in the one order that keeps that of every site, if there is one; else sorted."""
    where: dict[str, list[str]] = {}
    for site, levels in told.items():
        where.setdefault("numbers" if levels is None else levels["kind"], []).append(site)
    if len(where) > 1:
        kinds = ", ".join(f"{kind} at {listed(at)}" for kind, at in where.items())
        raise ValueError(f"column {name!r} must be of one kind; it holds {kinds}. Make it the same everywhere.")
    lists = [levels["named"] for levels in told.values() if levels is not None]
    if not lists:
        return None
    joined = _only_order(lists) or sorted({level for levels in lists for level in levels})
    if "categories of numbers" not in where:
        return joined
    integers = all(level == int(level) for level in joined)
    return [int(level) if integers else float(level) for level in joined]


def _only_order(lists: Sequence[Sequence[Any]]) -> list[Any]:
    """The only order of all levels that keeps the order of each list; empty if there is none, or more than one."""
    pairs = {pair for levels in lists for pair in pairwise(levels)}
    order: TopologicalSorter[Any] = TopologicalSorter({level: () for levels in lists for level in levels})
    for before, after in pairs:
        order.add(after, before)
    try:
        in_order = list(order.static_order())
    except CycleError:
        return []
    return in_order if pairs.issuperset(pairwise(in_order)) else []
