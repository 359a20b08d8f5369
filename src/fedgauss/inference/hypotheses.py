"""Linear combinations of parameters in words: "age - 2*dose", "age = dose", "age = 0, dose = 1".

The grammar is closed, and nothing in a text is ever evaluated:

    hypotheses := hypothesis ("," hypothesis)*
    hypothesis := sum ("=" sum)*
    sum        := ["+" | "-"] term (("+" | "-") term)*
    term       := number ["*" name] | name [("*" | "/") number]
    name       := the name of a parameter as it stands, or the same between backticks

Names are read first and the longest first, so that 'ward[T.north]', 'log(age)' or 'age:dose' need no quotes. A name
that looks like a number does.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.inference.coefficient_table import no_such_name

# One combination in words or as weights by name, several of them, or the matrix itself.
Combinations = str | Mapping[str, float] | Sequence[str | Mapping[str, float]] | ArrayLike

_LONGEST = 10_000  # characters
_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"


class Linear(NamedTuple):
    """weights @ theta + constant."""

    weights: FloatArray  # (d,)
    constant: float

    def plus(self, other: Linear, sign: float = 1.0) -> Linear:
        """The sum, or the difference where `sign` is -1."""
        return Linear(self.weights + sign * other.weights, self.constant + sign * other.constant)


class Hypotheses(NamedTuple):
    """matrix @ theta = value, with a name for each row; `equated` if a text had a right-hand side."""

    matrix: FloatArray  # (q, d)
    value: FloatArray  # (q,)
    labels: tuple[str, ...]
    equated: bool


def read_combinations(given: Combinations, names: Sequence[str]) -> tuple[FloatArray, tuple[str, ...]]:
    """Rows of a matrix, (q, d), and a name for each: what `contrast` takes.

    Parameters
    ----------
    given : str, mapping, sequence of these, or (q, d) array_like
        Combinations in words, as weights by name, or as rows.
    names : sequence of str
        Of the d parameters.

    Returns
    -------
    matrix : (q, d) ndarray
    labels : tuple of str

    Raises
    ------
    ValueError
        If a text is not in the grammar, or names no parameter.

    Examples
    --------
    >>> matrix, labels = read_combinations("age - 2*dose", ["const", "age", "dose"])
    >>> matrix
    array([[ 0.,  1., -2.]])
    >>> labels
    ('age - 2*dose',)
    """
    read = read_hypotheses(given, names)
    if read.equated:
        raise ValueError(f"a contrast is a combination and no equation; got {given!r}. Use wald for a hypothesis.")
    if read.value.any():
        raise ValueError(f"a contrast has no constant term; got {given!r}. Leave the number out.")
    return read.matrix, read.labels


def read_hypotheses(given: Combinations, names: Sequence[str]) -> Hypotheses:
    """Rows and right-hand sides: what `wald` takes. A combination without "=" is said to be zero.

    Parameters
    ----------
    given : str, mapping, sequence of these, or (q, d) array_like
        Hypotheses in words, as weights by name, or as rows.
    names : sequence of str
        Of the d parameters.

    Returns
    -------
    Hypotheses

    Raises
    ------
    ValueError
        If a text is not in the grammar, or names no parameter.

    Examples
    --------
    >>> read = read_hypotheses("age = dose, 2*dose = 1", ["age", "dose"])
    >>> read.matrix
    array([[ 1., -1.],
           [ 0.,  2.]])
    >>> read.value
    array([0., 1.])
    """
    parts: Sequence[Any] = [given] if isinstance(given, str | Mapping) else _sequence(given)
    if not parts or not any(isinstance(part, str | Mapping) for part in parts):
        matrix = np.atleast_2d(_checks.real_array("matrix", given))  # type: ignore[arg-type]
        return Hypotheses(matrix, np.zeros(len(matrix)), tuple(f"contrast {i + 1}" for i in range(len(matrix))), False)
    rows: list[Linear] = []
    labels: list[str] = []
    equated = False
    for part in parts:
        if isinstance(part, str):
            reader = _Reader(part, names)
            found, words = reader.hypotheses()
            rows, labels = rows + found, labels + words
            equated |= reader.equated
        elif isinstance(part, Mapping):
            rows.append(_from_mapping(part, names))
            labels.append(_written(part))
        else:
            raise ValueError(f"combinations must be all text or weights by name, or all rows of numbers; got {part!r}.")
    matrix = np.array([row.weights for row in rows])
    return Hypotheses(matrix, 0.0 - np.array([row.constant for row in rows]), tuple(labels), equated)


class _Token(NamedTuple):
    """`kind` is quoted, sign, name, number, word or end."""

    kind: str
    text: str
    start: int
    end: int


def _tokens_of(text: str, names: Sequence[str]) -> list[_Token]:
    """The tokens of a text. Signs come before names, and of these the longest first."""
    known = [re.escape(name) for name in names if name[:1].strip() and not re.fullmatch(_NUMBER, name)]
    kinds = {
        "quoted": "`[^`]*`?", "sign": "[-+*/=,]", "name": "|".join(sorted(known, key=len, reverse=True)) or "(?!)",
        "number": _NUMBER, "word": r"[^\s+*/=,-]+",
    }  # fmt: skip
    ends = dict.fromkeys(("name", "number"), r"(?=\s|[-+*/=,]|$)")
    pattern = "|".join(f"(?P<{kind}>{one}){ends.get(kind, '')}" for kind, one in kinds.items())
    found = [_Token(str(one.lastgroup), one[0], one.start(), one.end()) for one in re.finditer(pattern, text)]
    return [*found, _Token("end", "", len(text), len(text))]


class _Reader:
    """Reads a text from left to right."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        if len(text) > _LONGEST:
            raise ValueError(f"a text of combinations must have at most {_LONGEST:,} characters; got {len(text):,}.")
        self.equated = False
        self._text, self._names = text, names
        self._tokens, self._at = _tokens_of(text, names), 0

    def hypotheses(self) -> tuple[list[Linear], list[str]]:
        """All of the text: a combination for each thing that is said to be zero, and the words for it."""
        rows: list[Linear] = []
        labels: list[str] = []
        while True:
            begin, sides = self._next.start, [self._sum()]
            while self._take("="):
                sides.append(self._sum())
            words = self._text[begin : self._tokens[self._at - 1].end]
            if len(sides) == 1:
                rows, labels = [*rows, sides[0]], [*labels, words]
            for i, (left, right) in enumerate(pairwise(sides)):
                rows.append(left.plus(right, -1.0))
                labels.append(words if len(sides) == 2 else f"{words} ({i + 1})")
            self.equated |= len(sides) > 1
            if not self._take(","):
                break
        if self._next.kind != "end":
            raise self._error("an operator or the end")
        return rows, labels

    def _sum(self) -> Linear:
        total, sign = Linear(np.zeros(len(self._names)), 0.0), self._take("-", "+") or "+"
        while sign:
            total = total.plus(self._term(), 1.0 if sign == "+" else -1.0)
            sign = self._take("+", "-")
        return total

    def _term(self) -> Linear:
        unit = self._name()
        if unit is not None:
            sign = self._take("*", "/")
            factor = self._number() if sign else 1.0
            if sign == "/" and factor == 0.0:
                raise ValueError(f"a parameter cannot be divided by 0; got {self._text!r}.")
            return Linear(unit / factor if sign == "/" else unit * factor, 0.0)
        number = self._number()
        if not self._take("*"):
            return Linear(np.zeros(len(self._names)), number)
        unit = self._name()
        if unit is None:
            raise self._error("a parameter's name after '*'")
        return Linear(unit * number, 0.0)

    def _name(self) -> FloatArray | None:
        """The unit vector of the name that comes next, if one does."""
        kind, text, _, _ = self._next
        if kind not in ("quoted", "name"):
            return None
        name = text.strip("`") if kind == "quoted" else text
        if name not in self._names or (kind == "quoted" and text != f"`{name}`"):
            raise ValueError(no_such_name(name, self._names))
        self._at += 1
        unit = np.zeros(len(self._names))
        unit[self._names.index(name)] = 1.0
        return unit

    def _number(self) -> float:
        if self._next.kind != "number":
            raise self._error("a number or a parameter's name")
        text = self._next.text
        if not np.isfinite(float(text)):
            raise ValueError(f"numbers in a combination must be finite; got {text} in {reprlib.repr(self._text)}.")
        self._at += 1
        return float(text)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *signs: str) -> str:
        """Step over one of these operators, if it is the next thing."""
        here = self._next.text if self._next.kind == "sign" and self._next.text in signs else ""
        self._at += bool(here)
        return here

    def _error(self, wanted: str) -> ValueError:
        text, shown = reprlib.repr(self._text), self._next.text
        if not shown:
            return ValueError(f"a combination such as 'age - 2*dose' must be complete; {text} ends too early.")
        if re.match(r"[^\W\d]", shown) and shown not in self._names:
            return ValueError(no_such_name(shown, self._names))
        return ValueError(f"a combination must be like 'age - 2*dose'; {text} has {shown!r} where {wanted} must stand.")


def _sequence(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else []


def _from_mapping(given: Mapping[str, float], names: Sequence[str]) -> Linear:
    """From weights by name."""
    weights = np.zeros(len(names))
    for name, weight in given.items():
        if name not in names:
            raise ValueError(no_such_name(name, names))
        weights[list(names).index(name)] = _checks.real(f"the weight of {name!r}", weight)
    return Linear(weights, 0.0)


def _written(given: Mapping[str, float]) -> str:
    """The combination in words."""
    text = ""
    for name, weight in given.items():
        size = "" if abs(weight) == 1 else f"{abs(weight):g}*"
        sign = ("-" if weight < 0 else "") if not text else (" - " if weight < 0 else " + ")
        text += f"{sign}{size}{name}"
    return text
