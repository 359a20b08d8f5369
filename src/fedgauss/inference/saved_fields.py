"""Fields of a file that may come from a stranger: each is read against a rule, and refused with a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedgauss import _checks
from fedgauss._types import FloatArray


def check_keys(what: str, held: dict[str, Any], wanted: tuple[str, ...]) -> None:
    """These keys, and no others."""
    missing = [key for key in wanted if key not in held]
    surplus = [key for key in held if key not in wanted]
    if missing or surplus:
        wrong = f"{missing[0]!r} is missing" if missing else f"{surplus[0][:40]!r} does not belong there"
        raise ValueError(f"{what} must have its fields and no others; {wrong}.")


def object_of(name: str, value: Any) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object; got a {type(value).__name__}.")
    return value


def list_of(name: str, value: Any, most: int) -> list[Any]:
    """A list that is not too long."""
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"{name} must be a list of at most {most:,}.")
    return value


def truth_of(name: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false; got a {type(value).__name__}.")
    return value


def text_of(name: str, value: Any) -> str:
    """Text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text; got a {type(value).__name__}.")
    return value


def texts_of(name: str, value: Any, most: int = 100_000) -> list[str]:
    """A list of texts."""
    return [text_of(f"each of {name}", part) for part in list_of(name, value, most)]


def number_of(name: str, value: Any) -> float:
    """A number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise ValueError(f"{name} must be a number.")
    return float(value)


def numbers_of(name: str, value: Any, shape: tuple[int | None, ...], unknown: bool = False) -> FloatArray:
    """An array of this shape; with `unknown`, null stands for NaN."""
    array = np.array(_checked_list(name, value, len(shape), unknown), dtype=float)
    fits = array.ndim == len(shape) and all(w is None or w == s for w, s in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = " x ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must be {wanted} numbers; got shape {array.shape}.")
    return array


def _checked_list(name: str, value: Any, depth: int, unknown: bool) -> Any:
    """Nested lists of numbers, all of one length at each depth."""
    if depth == 0:
        return np.nan if unknown and value is None else number_of(f"each of {name}", value)
    if not isinstance(value, list):
        raise ValueError(f"{name} must be lists of numbers; got a {type(value).__name__}.")
    parts = [_checked_list(name, part, depth - 1, unknown) for part in value]
    if depth > 1 and len({len(part) for part in parts}) > 1:
        raise ValueError(f"{name} must have rows of one length.")
    return parts


def places_of(name: str, value: Any, d: int) -> tuple[int, ...]:
    """Numbers of parameters, from 0 to d - 1, each once."""
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list of whole numbers.")
    places = tuple(_checks.whole(f"each of {name}", part, at_least=0, at_most=d - 1) for part in value)
    if len(set(places)) < len(places):
        raise ValueError(f"{name} must differ.")
    return places
