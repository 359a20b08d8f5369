"""A cell is the unit of work of a sweep: plain values that say what to compute, and the rows it returns."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
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
