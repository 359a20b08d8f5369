"""Levels of a column that become others: those that a model names, and rare ones, which become one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

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
