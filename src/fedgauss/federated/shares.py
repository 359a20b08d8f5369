"""How many numbers fits tell of rows that share a level, beside the values of these rows.

Products of a column that is zero but on some rows S, with all others, are sums over S: equations for the values of the
rows in S. So are the part of the score that this column stands for, at each parameter of a path, and the products with
weights where it ends. With as many of them as there are values, whoever knows the parameters solves for all, though no
combination of columns rests on few rows.

Sums first. Let a model have the functions f_1, ..., f_m of some columns T, such as powers, splines and products, and
let S be the rows in which columns g_1, ..., g_c alone are not zero, each a level times one of these functions or times
one. The products tell sums of g h over S for

    c (1 + m) - c (c - 1) / 2

pairs of functions g and h, and S has |S| |T| values of these columns. There must be at most three quarters as many sums
as values, of any T: with functions that are the columns themselves two rows are enough, and 36 functions of three
columns ask for 16 rows. All rows of a table are such rows, too: each column without a commonest value is one of them.

Then the numbers of paths, which come on top. One honest fit is allowed of the fewest rows; what it tells of three,
limits.md says.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from fedgauss._types import AnyArray, FloatArray
from fedgauss.families import Family
from fedgauss.families.rows import Ask

_PATH = 12  # parameters of an honest fit, but for the longest in benchmarks/rounds.py
_KINDS = 2  # of matrices at its end
_ALL = 0.5  # of the rows: a column in which fewer have the commonest value is one of all of them
_MOST = 0.75  # numbers told of rows, by the values that they have
ONE = ""  # the function of a column that is a level

Functions = Mapping[str, frozenset[str]]  # of numbers, by name, and the columns that each is of


class Share(NamedTuple):
    """Rows that have another value of a column than the commonest.

    Attributes
    ----------
    name : str
        Of the first such column.
    functions : tuple of str
        By which the level of these rows is multiplied in the columns that are zero elsewhere.
    rows : int
        How many there are.
    values : int
        How many columns of the table vary among them.
    columns : int
        How many columns of the model do.
    levels : int
        How many of these are levels.
    outputs : int
        Of the family: a score has so many parts for each column. None of them where the level is one of the response.
    """

    name: str
    functions: tuple[str, ...]
    rows: int
    values: int
    columns: int
    levels: int
    outputs: int = 1

    @property
    def most(self) -> int:
        """Numbers that the paths of all fits together may tell."""
        own, honest = len(self.functions), min(self.columns, self.levels + self.values)
        one_fit = own * (_PATH * self.outputs + _KINDS * (honest + 1))
        return max(int(_MOST * self.rows * self.values) - own * self.columns, one_fit)

    def numbers(self, ask: Ask, step: float | None, family: Family) -> int:
        """That an answer tells beyond sums of columns: these are all where a step of the path is none."""
        if ask.kind == "final":
            parts = [part for part in ask.parts if part.startswith("squares") or not family.quadratic]
            return len(self.functions) * len(parts) * (self.columns + 1) * (self.outputs > 0)
        return len(self.functions) * self.outputs * bool(step) * (ask.kind in ("score", "sums"))


def rows_needed(functions: Functions, of_level: Collection[str] = (ONE,)) -> int:
    """How many rows a level must have that is multiplied by some of these functions, for sums to leave them unknown.

    The columns T of which most is told are looked for by leaving out, one after the other, the one with the fewest
    functions.
    """
    columns, most = frozenset[str]().union(*functions.values()), 0.0
    while columns:
        inside = [of for of in functions.values() if of <= columns]
        own = sum(name == ONE or functions[name] <= columns for name in of_level)
        sums = own * (1 + len(inside)) - own * (own - 1) // 2 - (ONE in of_level)  # how many rows there are is no value
        most = max(most, sums / len(columns))
        often = Counter(column for of in inside for column in of)
        columns -= {min(columns, key=lambda column: (often[column], column))}
    return math.ceil(most / _MOST)


def shares_of(
    columns: Mapping[str, tuple[str, FloatArray]], response: Mapping[str, tuple[str, FloatArray]],
    table: FloatArray, rows: AnyArray, outputs: int,
) -> dict[str, Share]:  # fmt: skip
    """The shares of a model's columns and of its response, by a digest of their rows.

    Parameters
    ----------
    columns : mapping of str to (str, ndarray)
        Of each column its function of numbers, and its values, (n,).
    response : mapping of str to (str, ndarray)
        The same of the response, or of zeros and ones for each of its classes.
    table : ndarray, shape (n, c)
        The columns that all of them are made of.
    rows : ndarray, shape (n,)
        Numbers of the rows.
    outputs : int
        Of the family.
    """
    everywhere = np.ones(len(rows), dtype=bool)
    supports = [("1", ONE, everywhere, outputs)]
    supports += [(name, function, _apart(column), outputs) for name, (function, column) in columns.items()]
    supports += [(name, function, _apart(column), 0) for name, (function, column) in response.items()]
    design = np.column_stack([column for _, column in columns.values()]) if columns else np.zeros((len(rows), 0))
    are_levels = np.all((design == 0.0) | (design == 1.0), axis=0)
    found: dict[str, Share] = {}
    for name, function, apart, outputs_of in supports:
        digest = hashlib.sha256(np.sort(rows[apart]).astype("<u8").tobytes()).hexdigest()[:32]
        if digest in found:
            one = found[digest]
            found[digest] = one._replace(
                functions=(*one.functions, function), outputs=max(one.outputs, outputs_of)
            )  # fmt: skip
        elif apart.any():
            varying = np.ptp(design[apart], axis=0) > 0.0
            of_table = int(np.sum(np.ptp(table[apart], axis=0) > 0.0))
            levels = int(np.sum(varying & are_levels))
            found[digest] = Share(name, (function,), int(apart.sum()), of_table, int(varying.sum()), levels, outputs_of)
    return found


def _apart(column: FloatArray) -> AnyArray:
    """Which rows have another value than the commonest; all of them, unless more than half have that one."""
    apart = column != np.partition(column, len(column) // 2)[len(column) // 2]
    return apart if np.mean(apart) < _ALL else np.ones_like(apart)
