"""Messages between sites as JSON: text, numbers, lists, and arrays with their shape. Nothing in them can run."""

import json
import math
from typing import Any, NoReturn

import numpy as np

Message = dict[str, Any]

LONGEST = 64_000_000  # bytes of one message; a d x d matrix of d = 1,000 is a third of it
_DEEPEST = 12


def encoded(message: Message) -> str:
    """One line of JSON, of ASCII alone. Floats keep every bit."""
    return json.dumps(_plain(message), separators=(",", ":"), allow_nan=False)


def decoded(text: str | bytes) -> Message:
    """The message in a line of JSON; anything else is refused."""
    if len(text) > LONGEST:
        raise ValueError(f"a message must have at most {LONGEST:,} characters; got {len(text):,}.")
    try:
        message = json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a message must be one line of JSON; got {text[:60]!r}.") from error
    if not isinstance(message, dict):
        raise ValueError(f"a message must be a JSON object; got {type(message).__name__}.")
    return {name: _restored(name, value, 0) for name, value in message.items()}


def printable(text: str) -> str:
    """Text from elsewhere that may be shown: control characters could take a terminal over, and are spelt out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"numbers must be finite; got {constant}.")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "values": value.astype(float).ravel().tolist()}
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def _restored(name: str, value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"a message may be nested {_DEEPEST} deep; {name!r} is deeper.")
    if isinstance(value, dict) and value.keys() == {"shape", "values"}:
        return _array(name, value["shape"], value["values"])
    if isinstance(value, dict):
        return {part: _restored(part, inside, depth + 1) for part, inside in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name!r} must hold finite numbers.")
    return [_restored(name, part, depth + 1) for part in value] if isinstance(value, list) else value


def _array(name: str, shape: Any, values: Any) -> Any:
    sizes = isinstance(shape, list) and all(type(size) is int and 0 <= size <= LONGEST for size in shape)
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name!r} must hold numbers.") from error
    if not sizes or array.ndim != 1 or array.size != math.prod(shape) or not np.all(np.isfinite(array)):
        raise ValueError(f"{name!r} must hold finite numbers, as many as its shape says; got {array.size} of them.")
    return array.reshape(shape)
