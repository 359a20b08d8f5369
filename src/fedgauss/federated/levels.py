"""Levels of a column at a site: what it names of them, and its column with the levels of all sites.

A site names a level only where several of its rows have it, so that a name or a number that few patients have never
leaves. A level that no site has often enough to name has no column; it can be pooled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.federated.refusal import Refused
from fedgauss.inference.model_data import OTHER
from fedgauss.inference.tables import FrameColumn, coded

KINDS = {str: "text", bool: "true and false", int: "categories of numbers", float: "categories of numbers"}


def read_levels(column: FrameColumn, few: int) -> dict[str, Any] | None:
    """What a site says of a column: its kind and the levels of enough rows; None for a column of numbers."""
    if column.levels is None:
        return None
    levels = [level.item() if isinstance(level, np.generic) else level for level in column.levels]
    kinds = {KINDS.get(type(level)) for level in levels}
    if len(kinds) > 1 or None in kinds:
        raise Refused(
            "categories must all be text, numbers or true and false to be compared with other sites'; those of "
            f"{column.name!r} are not. Make them text."
        )
    counts = np.bincount(column.values.astype(int), minlength=len(levels))
    named = [level for level, count in zip(levels, counts.tolist(), strict=True) if count >= few]
    return {"kind": kinds.pop(), "named": named}


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
    return coded(column.name, labels, levels)


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
    return coded(column.name, labels, levels), named


def indicators(column: FrameColumn, levels: Sequence[Any]) -> dict[str, FloatArray]:
    """Which rows have each of these levels, and last which have another, by a name for each, (n,) each."""
    place = {level: i for i, level in enumerate(levels)}
    codes = np.array([place.get(label, len(levels)) for label in column.labels])
    names = [*(f"{column.name} == {level!r}" for level in levels), f"another {column.name}"]
    return {name: (codes == i).astype(float) for i, name in enumerate(names)}
