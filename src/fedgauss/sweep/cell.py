"""A cell is the unit of work of a sweep: plain values that say what to compute, and the rows it returns.

A plan says which cell runs next, and a summary how far the sweep is.
"""

import hashlib
import json
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Protocol

# Raise it when a cell with the same fields begins to give other rows: stores of the old ones are then refused.
SPEC_VERSION = 2


class Row(Protocol):
    """A dataclass of plain values (numbers, strings, None); None stands for a value that is missing."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class Cell(Protocol):
    """A frozen dataclass of plain values (numbers, strings, None, tuples, frozen dataclasses) that can run.

    The fields are its identity: the same fields give the same rows, in any process and in any order. A field declared
    with `field(compare=False)` is left out of it. What else a cell may have, as fields or properties:

    experiment   the name its rows are filed under; the class's name if there is none
    seed         kept in the store beside the rows
    cost         how long it takes, in any unit shared by all cells of a sweep; long cells start first
    group        cells of one group share compiled programs, and stay with one worker where that costs nothing

    `str(cell)` names it in messages. A cell prints nothing: the sweep has a bar of its own.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def run(self) -> Sequence[Row]:
        """The rows of this cell."""
        ...


def cell_json(cell: Cell) -> str:
    """The class's name and the fields, in the one way to write them: sorted names, floats in full, tuples as lists."""
    return json.dumps(_plain(type(cell).__name__, cell), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def cell_key(cell: Cell) -> str:
    """What a store knows the cell by: a hash of `cell_json` and of the version of the specs."""
    return hashlib.blake2b(f"{SPEC_VERSION} {cell_json(cell)}".encode(), digest_size=16).hexdigest()


def _plain(name: str, value: Any) -> Any:
    """`value` as JSON has it. `name` is where it stands, for the message."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [_plain(f"{name}[{i}]", item) for i, item in enumerate(value)]
    if is_dataclass(value) and not isinstance(value, type):
        if not value.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise ValueError(f"{name} must not change, for it names rows. Use @dataclass(frozen=True).")
        # No field can have the name "class".
        parts = {f.name: _plain(f"{name}.{f.name}", getattr(value, f.name)) for f in fields(value) if f.compare}
        return {"class": type(value).__name__, **parts}
    raise ValueError(
        f"{name} must be a number, a string, None, a tuple or a frozen dataclass of these; "
        f"got {type(value).__name__}. Use float(), int() or tuple()?"
    )


class Plan:
    """Which cell a free worker takes next: long ones first, and groups kept together while there are enough of them.

    A worker stays with the groups it has begun, then begins the longest that nobody has, then helps with the longest.
    It leaves the last cell of a group to those who have begun it: compiling what they have would take longer.
    """

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._groups: dict[Hashable, list[Cell]] = {}
        for cell in cells:
            self._groups.setdefault(getattr(cell, "group", None), []).append(cell)
        self._left = {group: sum(map(cost, members)) for group, members in self._groups.items()}
        self._begun: dict[Hashable, set[int]] = {group: set() for group in self._groups}
        for members in self._groups.values():
            members.sort(key=cost)  # the longest is taken off the end

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    @property
    def cost(self) -> float:
        """Of all cells that are not taken."""
        return sum(self._left.values())

    def take(self, worker: int) -> Cell | None:
        """The next cell for this worker; None when all are taken, or left to others."""

        def preference(group: Hashable) -> tuple[bool, bool, float]:
            return worker in self._begun[group], not self._begun[group], self._left[group]

        def wanted(group: Hashable) -> bool:
            begun = self._begun[group]
            return group is None or not begun or worker in begun or len(self._groups[group]) > 1

        groups = [group for group in self._groups if wanted(group)]
        if not groups:
            return None
        group = max(groups, key=preference)
        cell = self._groups[group].pop()
        self._begun[group].add(worker)
        self._left[group] -= cost(cell)
        if not self._groups[group]:
            del self._groups[group]
        return cell


def cost(cell: Cell) -> float:
    """How long a cell takes beside the others of its sweep; 1 where it does not say."""
    return float(getattr(cell, "cost", 1.0))


@dataclass(frozen=True)
class Summary:
    """How far a sweep is: cells asked for, found in the store, and run; and the seconds that went by."""

    total: int
    found: int
    run: int
    seconds: float

    @property
    def done(self) -> int:
        """Cells that are finished, now or before."""
        return self.found + self.run

    @property
    def left(self) -> int:
        """Cells that are not."""
        return self.total - self.done

    def __str__(self) -> str:
        return f"{self.done} of {self.total} cells finished, {self.run} of them in these {self.seconds:.1f} s"
