"""Rows by federation: a line holds what every method did there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from fedgauss.coverage.cells import METHODS
from fedgauss.coverage.federation import Federation
from fedgauss.sweep.cell import Row

_WORDS = {
    "family": "{}",
    "offsets": "offsets {}",
    "condition": "condition {}",
    "n_clients": "K = {}",
    "sync_every": "tau = {}",
    "network": "{}",
    "beta": "beta = {}",
    "dim": "d = {}",
    "draw": "draw {}",
    "n_steps": "n = {}",
}
_COLUMNS = {"n_clients": "$K$", "sync_every": "$τ$", "beta": "$β$", "dim": "$d$", "n_steps": "$n$"}


@dataclass(frozen=True)
class Line:
    """A federation with the rows of the methods that were tried there, in the order of `METHODS`."""

    federation: Federation
    methods: dict[str, Row]

    @property
    def without_n(self) -> tuple[object, ...]:
        """What tells it from others, but for n."""
        return tuple(getattr(self.federation, name) for name in _WORDS if name != "n_steps")


def lines_of(rows: Sequence[Row]) -> list[Line]:
    """A line for each federation, sorted; of rows that say the same, those with the most runs."""
    names = [field.name for field in fields(Federation)]
    found: dict[Federation, dict[str, Row]] = {}
    for row in rows:
        methods = found.setdefault(Federation(**{name: row[name] for name in names}), {})  # type: ignore[arg-type]
        method = str(row["method"])
        if method not in methods or number_of(row, "runs") > number_of(methods[method], "runs"):
            methods[method] = row
    lines = [Line(f, {m: methods[m] for m in METHODS if m in methods}) for f, methods in found.items()]
    return sorted(lines, key=lambda line: (*line.without_n, line.federation.n_steps))


def number_of(row: Row, column: str) -> float:
    """A number in a row."""
    value = row[column]
    assert isinstance(value, int | float)
    return float(value)


def varying(lines: Sequence[Line]) -> list[str]:
    """Fields in which these federations differ, n last."""
    return [name for name in _WORDS if len({getattr(line.federation, name) for line in lines}) > 1]


def headings(names: Sequence[str]) -> tuple[str, ...]:
    """The fields as columns of a table; n alone, where nothing varies."""
    return tuple(_COLUMNS.get(name, name) for name in names or ["n_steps"])


def cells(federation: Federation, names: Sequence[str]) -> tuple[str, ...]:
    """What stands in these columns."""
    values = [getattr(federation, name) for name in names or ["n_steps"]]
    return tuple(v if isinstance(v, str) else f"{v:,}" if isinstance(v, int) else f"{v:g}" for v in values)


def label(federation: Federation, names: Sequence[str]) -> str:
    """What tells a federation from the others, in words."""
    return ", ".join(_word(federation, name) for name in names) or _word(federation, "n_steps")


def common(lines: Sequence[Line]) -> str:
    """What all of them share, in words."""
    apart = varying(lines)
    return ", ".join(_word(lines[0].federation, name) for name in _WORDS if name not in (*apart, "draw"))


def _word(federation: Federation, name: str) -> str:
    value = getattr(federation, name)
    if name == "n_steps":
        return f"n = {value:,}"
    if name == "network" and value[0] in "0.":
        return f"rho = {value}"
    return _WORDS[name].format(f"{value:g}" if isinstance(value, float) else value)
