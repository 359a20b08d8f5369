"""Input checks. Every message states the rule, the value that broke it, and a fix."""

import difflib
import operator
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedgauss._types import AnyArray, ArrayLike, FloatArray


class FedgaussWarning(UserWarning):
    """The request is valid, but not covered by a theorem or a stability rule.

    Examples
    --------
    To make such warnings errors:

    >>> import warnings
    >>> import fedgauss as fg
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", fg.FedgaussWarning)
    """


def real_array(name: str, value: ArrayLike, shape: Sequence[int | None] | None = None, fix: str = "") -> FloatArray:
    """`value` as a finite float64 array of the given shape (None stands for any length)."""
    kind = "a real number" if shape == () else "an array of real numbers"
    try:
        given = np.asarray(value)
        if not _numeric(given):
            raise TypeError("NumPy would turn None into nan and text into numbers, and drop imaginary parts")
        array = np.array(given, dtype=float)  # a copy, so that later changes by the caller do not matter
    except (TypeError, ValueError, OverflowError) as error:  # a whole number may be too large for a float
        raise ValueError(_sentence(f"{name} must be {kind}; got {reprlib.repr(value)}", fix)) from error
    if shape is not None and not _fits(array.shape, shape):
        wanted = "(" + ", ".join("any" if s is None else str(s) for s in shape) + (",)" if len(shape) == 1 else ")")
        raise ValueError(_sentence(f"{name} must have shape {wanted}; got {array.shape}", fix))
    if not np.all(np.isfinite(array)):
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        at = f" at index {where}" if array.ndim else ""
        raise ValueError(_sentence(f"{name} must be finite; got {array[where]}{at}", fix))
    return array


def real(name: str, value: Any, above: float = -np.inf, fix: str = "") -> float:
    """`value` as one finite number strictly greater than `above`."""
    number = float(real_array(name, value, shape=(), fix=fix))
    if number <= above:
        raise ValueError(_sentence(f"{name} must be greater than {above:g}; got {number:g}", fix))
    return number


def probability(name: str, value: Any, fix: str = "") -> float:
    """`value` as one number strictly between 0 and 1."""
    number = real(name, value, fix=fix)
    if not 0.0 < number < 1.0:
        raise ValueError(_sentence(f"{name} must lie strictly between 0 and 1; got {number:g}", fix))
    return number


def whole(name: str, value: Any, at_least: int = 1, fix: str = "", at_most: int | None = None) -> int:
    """`value` as an integer from `at_least` to `at_most`."""
    try:
        if isinstance(value, bool):
            raise TypeError("to Python True is 1")
        number = operator.index(value)
    except TypeError:
        raise ValueError(_sentence(f"{name} must be a whole number; got {value!r}", fix)) from None
    if number < at_least:
        raise ValueError(_sentence(f"{name} must be at least {at_least}; got {number}", fix))
    if at_most is not None and number > at_most:
        raise ValueError(_sentence(f"{name} must be at most {at_most}; got {number}", fix))
    return number


def step_number(name: str, value: Any) -> int:
    """A step t = 1, 2, ..., small enough for the engine's 32-bit counter."""
    return whole(name, value, at_most=2**31 - 2, fix="Steps count from 1.")


def seed(value: Any) -> int:
    """What fixes random numbers: 0, 1, 2, ..."""
    return whole("seed", value, at_least=0)


def level(value: Any) -> float:
    """The level of intervals or sets."""
    return probability("level", value, fix="Use 0.95?")


def one_of(name: str, value: Any, choices: Iterable[str]) -> str:
    """`value` if it is one of `choices`; otherwise an error that suggests the nearest."""
    options = list(choices)
    if isinstance(value, str) and value in options:
        return value
    lower = {option.lower(): option for option in options}
    near = difflib.get_close_matches(str(value).lower(), lower, n=1)
    fix = f"Did you mean {lower[near[0]]!r}?" if near else ""
    listed = ", ".join(repr(o) for o in options)
    raise ValueError(_sentence(f"{name} must be one of {listed}; got {value!r}", fix))


def client_weights(value: ArrayLike | None, n_clients: int) -> FloatArray:
    """Client weights w_k: positive and summing to one; equal when not given."""
    if value is None:
        return np.full(n_clients, 1.0 / n_clients)
    weights = real_array("weights", value, shape=(n_clients,), fix="Give one weight for each client.")
    if np.any(weights <= 0):
        k = int(np.argmin(weights))
        raise ValueError(f"weights must be positive; client {k} has {weights[k]:g}. Drop that client instead?")
    total = float(weights.sum())
    if abs(total - 1.0) > 1e-6:
        raise ValueError(f"weights must sum to 1; they sum to {total:.6g}. Use weights / weights.sum()?")
    return weights / total


def covariance(name: str, value: ArrayLike, definite: bool = False) -> FloatArray:
    """A symmetric positive (semi-)definite matrix, or a stack of them (..., d, d)."""
    array = real_array(name, value)
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        raise ValueError(f"{name} must be square matrices (..., d, d); got shape {array.shape}.")
    scale = np.maximum(np.abs(array).max(axis=(-1, -2), initial=0.0), 1e-300)
    gap = np.abs(array - np.swapaxes(array, -1, -2)).max(axis=(-1, -2), initial=0.0)
    if np.any(gap > 1e-8 * scale):
        worst = float(gap.max())
        raise ValueError(f"{name} must be symmetric; it differs from its transpose by {worst:.3g}. Use (M + M.T) / 2?")
    smallest = np.linalg.eigvalsh(array)[..., 0]
    if np.any(smallest <= 1e-12 * scale if definite else smallest < -1e-8 * scale):
        rule = "positive definite" if definite else "positive semi-definite"
        fix = "Add a small multiple of the identity, or drop redundant columns?"
        raise ValueError(f"{name} must be {rule}; its smallest eigenvalue is {smallest.min():.3g}. {fix}")
    return array


def _numeric(array: AnyArray) -> bool:
    if array.dtype.kind == "O":
        return not any(isinstance(entry, str | bytes | None) for entry in array.flat)
    return array.dtype.kind not in "cmMSU"


def _fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    return len(shape) == len(wanted) and all(w is None or s == w for s, w in zip(shape, wanted, strict=True))


def _sentence(rule: str, fix: str) -> str:
    return f"{rule}. {fix}".rstrip()
