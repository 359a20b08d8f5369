"""Levels of a column that become others: those that a model names, and rare ones, which become one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

import numpy as np

from fedgauss.inference.tables import FrameColumn, coded

OTHER = "other"
Level = TypeVar("Level", bound=Hashable)


def rare_levels(counts: Mapping[Level, float], fewest: float) -> list[Level]:
    """The levels that fewer rows have than this, and that are pooled."""
    return [level for level, rows in counts.items() if rows < fewest]


def relabelled(column: FrameColumn, mapping: Mapping[str, str]) -> FrameColumn:
    """The column with some of its levels become others. Levels keep their order, and new ones come last."""
    if not mapping:
        return column
    if column.levels is None:
        raise ValueError(
            f"levels must be those of a column of text or categories to be merged; {column.name!r} holds numbers."
        )
    labels = [mapping.get(label, label) for label in column.labels]
    order = dict.fromkeys([*(level for level in column.levels if level not in mapping), *mapping.values()])
    present = set(labels)
    return coded(column.name, labels, [level for level in order if level in present])


def pooled(
    columns: Mapping[str, FrameColumn], names: Iterable[str], fewest: int
) -> tuple[dict[str, FrameColumn], dict[str, dict[str, str]]]:
    """The columns with rare levels of text, of those that are named, pooled; and what became of them, by column."""
    made, renamed = dict(columns), {}
    for name in names:
        levels = columns[name].levels
        if levels and isinstance(levels[0], str):
            counts = np.bincount(columns[name].values.astype(int), minlength=len(levels))
            rare = rare_levels(dict(zip(levels, counts.tolist(), strict=True)), fewest)
            renamed[name] = {level: OTHER for level in rare if level != OTHER}
            made[name] = relabelled(columns[name], renamed[name])
    return made, renamed


def one_after_another(
    first: Mapping[str, Mapping[str, str]], then: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """What becomes of levels, by column, of which some became others before."""
    return {
        name: {old: then.get(name, {}).get(now, now) for old, now in first.get(name, {}).items()}
        | {old: now for old, now in then.get(name, {}).items() if old not in first.get(name, {})}
        for name in {**first, **then}
    }
