"""The fields of orders and replies, in one table: kinds, shapes and ranges.

A site checks orders, and its own replies before they leave; the coordinator checks replies again. A letter in a shape
stands for a size that both know: p covariates, d parameters, C outputs, s planes that might separate rows, m means that
a formula needs, q terms that a family starts from, and t, the height of a triangular factor.
"""

import numbers
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedgauss.inference.federated.lines import Message
from fedgauss.inference.model import Model
from fedgauss.inference.tables import listed

Sizes = Mapping[str, int]

_LARGEST = 1e150  # whose square is still a number
_SINGLE = 3e38  # the largest float of single precision, in which runs are
_ROUNDING = 1e-3  # of the largest eigenvalue: sums of squares in single precision
_MOST_ROWS = 10**8


class Field(NamedTuple):
    """A rule in words, and whether a value keeps it."""

    rule: str
    fits: Callable[[Any, Sizes], bool]


Fields = Mapping[str, Field]


def check_fields(fields: Fields, message: Message, sizes: Sizes) -> None:
    """Refuse a message that has other fields than these, or a value of another kind, shape or range."""
    missing, surplus = [name for name in fields if name not in message], [n for n in message if n not in fields]
    if missing:
        raise ValueError(f"{listed(missing)} must be there; it is missing.")
    if surplus:
        raise ValueError(f"{listed(surplus)} must not be there.")
    for name, field in fields.items():
        value = message[name]
        if not field.fits(value, sizes):
            shown = ", ".join(f"{letter} = {size}" for letter, size in sizes.items() if letter in field.rule.split())
            rule = field.rule + (f" ({shown})" if shown else "")
            array = isinstance(value, np.ndarray)  # of a value that may be a row's, its kind alone is told
            kind = f"an array of shape {value.shape}" if array else f"a value of type {type(value).__name__}"
            raise ValueError(f"{name!r} must be {rule}; got {kind}.")


def _array(*shape: str | int, least: float = -np.inf, above: float = -np.inf, most: float = _LARGEST) -> Field:
    def fits(value: Any, sizes: Sizes) -> bool:
        wanted = tuple(size if isinstance(size, int) else sizes[size] for size in shape)
        if not isinstance(value, np.ndarray) or value.shape != wanted or value.dtype.kind not in "fi":
            return False
        return bool(np.all(np.abs(value) <= most) and np.all(value >= least) and np.all(value > above))

    return Field(f"an array of {' x '.join(map(str, shape))} numbers {_range(least, above, most)}", fits)


def _definite(size: str) -> Field:
    """A sum of squares: symmetric, and no eigenvalue below zero."""
    square = _array(size, size, most=_SINGLE)

    def fits(value: Any, sizes: Sizes) -> bool:
        if not square.fits(value, sizes):
            return False
        slack = _ROUNDING * float(np.abs(value).max(initial=0.0))
        both = (value + value.T) / 2
        return bool(np.abs(value - both).max(initial=0.0) <= slack and np.all(np.linalg.eigvalsh(both) >= -slack))

    return Field(f"a symmetric matrix of {size} x {size} numbers without negative eigenvalues", fits)


def _number(least: float = -np.inf, above: float = -np.inf) -> Field:
    def fits(value: Any, sizes: Sizes) -> bool:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return real and bool(abs(value) <= _LARGEST and value >= least and value > above)

    return Field(f"a number {_range(least, above, _LARGEST)}", fits)


def _range(least: float, above: float, most: float) -> str:
    return f"above 0, to {most:g}" if above == 0.0 else f"from {0 if least == 0.0 else -most:g} to {most:g}"


def _whole(least: int, most: int = 2**31 - 2) -> Field:
    def fits(value: Any, sizes: Sizes) -> bool:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool) and least <= int(value) <= most

    return Field(f"a whole number from {least} to {most:,}", fits)


def _none_or(field: Field) -> Field:
    return Field(f"null or {field.rule}", lambda value, sizes: value is None or field.fits(value, sizes))


def _all(kind: type, value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, kind) for part in value)


def _are_levels(value: Any) -> bool:
    """None for a column of numbers; else all text, all numbers or all truths, each once."""
    if value is None:
        return True
    if not isinstance(value, list) or not value:
        return False
    one_kind = any(_all(kind, value) for kind in (str, bool)) or all(_number().fits(level, {}) for level in value)
    return one_kind and len(set(value)) == len(value)


_TEXT = Field("text", lambda value, sizes: isinstance(value, str))
_TEXTS = Field("a list of texts", lambda value, sizes: _all(str, value))
_TRUTH = Field("true or false", lambda value, sizes: isinstance(value, bool))
_TRUTHS = Field(
    "a list of s truths, true or false", lambda value, sizes: _all(bool, value) and len(value) == sizes["s"]
)
_LEVELS = Field(
    "the levels of every column, all text, all numbers or all truths, each once; null for a column of numbers",
    lambda value, sizes: isinstance(value, dict) and all(map(_are_levels, value.values())),
)

_PUBLICS = Field(
    "public keys by site, all text",
    lambda value, sizes: isinstance(value, dict) and all(isinstance(key, str) for key in value.values()),
)

ASKED: dict[str, Fields] = {
    "keys": {"name": _TEXT},
    "meet": {"run": _TEXT, "publics": _PUBLICS},
    "describe": {
        **{name: Field("an option of a model", lambda value, sizes: True) for name in Model.__dataclass_fields__},
        "sites": _TEXTS, "name": _TEXT,
    },
    "levels": {"levels": _LEVELS, "total": _whole(1, 10**12)},
    "spread": {"means": _array("m")},
    "design": {"means": _array("m"), "sds": _array("m", above=0.0)},
    "squares": {"means": _array("p"), "response": _number()},
    "shape": {"means": _array("p"), "scales": _array("p", above=0.0)},
    "begin": {
        "means": _array("p"), "scales": _array("p", above=0.0), "about": _none_or(_array(2)),
        "n_steps": _whole(1), "sync_every": _whole(1), "seed": _whole(0, 2**63), "number": _whole(0),
        "share": _number(above=0.0), "start": _array("d", most=_SINGLE), "warm": _whole(1),
    },
    # parameters come after a synchronisation only, the matrix at the start and after the burn-in
    "advance": {
        "until": _whole(1), "theta": _array("d", most=_SINGLE), "matrix": _array("d", "d", most=_SINGLE),
    },
    "report": {},
    # an exact fit
    "units": {"means": _array("p"), "scales": _array("p", above=0.0)},
    "sums": {"theta": _array("d")},
    "final": {"theta": _array("d")},
    "goodness": {"theta": _array("d"), "dispersion": _number(above=0.0)},
    "own": {"theta": _array("d")},
}  # fmt: skip

_HESSIAN: Fields = {"hessian_sum": _definite("d")}
_GOODNESS: Fields = {
    "goodness.log_likelihood": _number(), "goodness.deviance": _number(), "goodness.pearson": _number(least=0.0)
}  # fmt: skip
REPLIES: dict[str, Fields] = {
    "keys": {"public": _TEXT},
    "meet": {},
    "describe": {"rows": _whole(1, _MOST_ROWS), "dropped": _whole(0, _MOST_ROWS), "levels": _LEVELS},
    "levels": {"needed": _array("m")},
    "spread": {"needed": _array("m", least=0.0)},
    "design": {"names": _TEXTS, "sums": _array("p"), "response": _number(), "marks": _array("q")},
    "squares": {"squares": _array("p", least=0.0), "response": _number(least=0.0)},
    "shape": {"triangle": _array("t", "p"), "overlaps": _TRUTHS},
    "begin": {"hessian": _definite("d")},
    "advance": {"theta": _array("d", most=_SINGLE)},  # at a synchronisation; elsewhere nothing
    "first report": _HESSIAN,  # after the burn-in
    "report": {
        "gradient_sum": _array("d", most=_SINGLE), "square_sum": _definite("d"), **_HESSIAN,
        "average": _array("d", most=_SINGLE),
    },
    "units": {},
    "sums": {"log_likelihood": _number(), "score": _array("d"), "information": _array("d", "d")},
    "final": {
        "observed": _array("d", "d"),
        "squares.rows": _definite("d"), "squares.clusters": _definite("d"), "squares.sites": _definite("d"),
        "squares.n_clusters": _number(least=0.0), **_GOODNESS,
        "apart.square": _number(least=0.0), "apart.pull": _array("d"), "apart.weight": _definite("d"),
        "apart.sites": _number(least=0.0),
    },
    "goodness": {name.partition(".")[2]: field for name, field in _GOODNESS.items()},
    "own": {"theta": _none_or(_array("d")), "cov": _none_or(_definite("d"))},
}  # fmt: skip

# What is summed over sites, with its shape: all that is masked in a masked run.
SUMMED: dict[str, dict[str, tuple[str, ...]]] = {
    "levels": {"needed": ("m",)},
    "spread": {"needed": ("m",)},
    "design": {"sums": ("p",), "response": (), "marks": ("q",)},
    "squares": {"squares": ("p",), "response": ()},
    "sums": {"log_likelihood": (), "score": ("d",), "information": ("d", "d")},
    "final": {
        "observed": ("d", "d"), "squares.rows": ("d", "d"), "squares.clusters": ("d", "d"), "squares.sites": ("d", "d"),
        "squares.n_clusters": (), "goodness.log_likelihood": (), "goodness.deviance": (), "goodness.pearson": (),
        "apart.square": (), "apart.pull": ("d",), "apart.weight": ("d", "d"), "apart.sites": (),
    },
    "goodness": {"log_likelihood": (), "deviance": (), "pearson": ()},
}  # fmt: skip
# What an order for sums has besides in a masked run, and what takes their place in the reply.
MASKING_ASKED: Fields = {"round": _whole(1), "attempt": _whole(0), "sites": _TEXTS}
MASKING: Fields = {"masked": Field("masked numbers by name", lambda value, sizes: isinstance(value, dict))}


def shapes_of(summed: Mapping[str, tuple[str, ...]], sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """Shapes with their letters filled in."""
    return {name: tuple(sizes[letter] for letter in shape) for name, shape in summed.items()}
