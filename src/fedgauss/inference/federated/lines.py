"""Messages between sites, a line of JSON each: text, numbers, lists, arrays with their shape. Nothing in them can run.

An array is an object with the one name "$array", and any other name that begins with $ gets a second one: columns may
have any names, and none of them is taken for an array.

Unsigned 64-bit integers, which masked numbers are made of, travel as base64: JSON's numbers are floats to many readers.
A site behind a pair of pipes reads orders and writes replies, and a log of both.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, NoReturn

import numpy as np

if TYPE_CHECKING:
    from fedgauss.inference.federated.site import Site

Message = dict[str, Any]

LONGEST = 64_000_000  # bytes of one message; a d x d matrix of d = 1,000 is a third of it
_DEEPEST = 12
_ARRAY, _WORDS = "$array", "$words"  # of a shape and numbers
_SHOWN = 60  # characters of what is no message, in words about it


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
        raise ValueError(f"a message must be one line of JSON; got {text[:_SHOWN]!r}.") from error
    if not isinstance(message, dict):
        raise ValueError(f"a message must be a JSON object; got {type(message).__name__}.")
    return _restored_parts(message, 0)


def printable(text: str) -> str:
    """Text from elsewhere that may be shown: control characters could take a terminal over, and are spelt out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"numbers must be finite; got {constant}.")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype == np.uint64:
        return {_WORDS: [list(value.shape), base64.b64encode(value.astype("<u8").tobytes()).decode()]}
    if isinstance(value, np.ndarray):
        return {_ARRAY: [list(value.shape), value.astype(float).ravel().tolist()]}
    if isinstance(value, dict):
        return {f"${name}" if str(name).startswith("$") else name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def _restored(name: str, value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"a message may be nested {_DEEPEST} deep; {name!r} is deeper.")
    if isinstance(value, dict):
        for tag, read in ((_ARRAY, _array), (_WORDS, _words)):
            if value.keys() == {tag}:
                pair = value[tag]
                return read(name, *(pair if isinstance(pair, list) and len(pair) == 2 else (None, None)))
        return _restored_parts(value, depth + 1)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name!r} must hold finite numbers.")
    return [_restored(name, part, depth + 1) for part in value] if isinstance(value, list) else value


def _restored_parts(value: Message, depth: int) -> Message:
    parts = {}
    for name, part in value.items():
        if name.startswith("$") and not name.startswith("$$"):
            raise ValueError(f"a name that begins with $ must begin with two; got {name[:_SHOWN]!r}.")
        parts[name.removeprefix("$")] = _restored(name[:_SHOWN], part, depth)
    return parts


def _array(name: str, shape: Any, values: Any) -> Any:
    try:
        array = np.array(values, dtype=float)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name!r} must hold numbers.") from error
    if not _is_shape(shape) or array.ndim != 1 or array.size != math.prod(shape) or not np.all(np.isfinite(array)):
        raise ValueError(f"{name!r} must hold finite numbers, as many as its shape says; got {array.size} of them.")
    return array.reshape(shape)


def _words(name: str, shape: Any, text: Any) -> Any:
    """Unsigned 64-bit integers; there is one text for each array, and any other is refused."""
    try:
        held = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
        same = base64.b64encode(held).decode() == text
    except ValueError:
        same = False
    if not same or not _is_shape(shape) or len(held) != 8 * math.prod(shape):
        raise ValueError(f"{name!r} must hold 64-bit words in base64, as many as its shape says.")
    return np.frombuffer(held, "<u8").astype(np.uint64).reshape(shape)


def _is_shape(shape: Any) -> bool:
    short = isinstance(shape, list) and len(shape) <= _DEEPEST
    return short and all(type(size) is int and 0 <= size <= LONGEST for size in shape)


class EndlessLine(ValueError):
    """A line that is longer than any message. What is left of it cannot be told from the next one."""


def lines_of(file: IO[bytes], longest: int = LONGEST) -> Iterator[str]:
    """The lines of a stream, none of which takes more memory than the longest message does."""
    while line := file.readline(longest):
        if len(line) == longest and not line.endswith(b"\n"):
            raise EndlessLine(f"a message must be a line of at most {longest:,} bytes; this one goes on.")
        yield line.decode(errors="replace")


def serve_lines(site: Site, orders: Iterable[str], replies: IO[str], log: IO[str] | None = None) -> None:
    """Answer orders, a line of JSON each, until there are no more.

    Lines that cannot be read are answered with an error, and change nothing. One that does not end is the last.

    Parameters
    ----------
    site : Site
    orders : iterable of str
        Such as `lines_of` standard input.
    replies : file
        Such as standard output.
    log : file, optional
        Where every order and its reply are logged before the reply leaves.
    """

    def send(order: str, asked: Message | None, reply: Message) -> None:
        text = encoded(reply)
        if log is not None:
            write_down(log, order, reply, asked)
        replies.write(text + "\n")
        replies.flush()

    try:
        for line in orders:
            send(*_answered(site, line))
    except EndlessLine as error:
        send("unreadable", None, {"error": str(error)})


def write_down(log: IO[str], order: str, reply: Message, asked: Message | None = None) -> None:
    """A line of the log, written before the reply leaves: the log has at least as much as was sent."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    log.write(encoded({"time": now, "order": order, "asked": asked, "sent": reply}) + "\n")
    log.flush()


def _answered(site: Site, line: str) -> tuple[str, Message | None, Message]:
    """The order, what came with it, and the reply."""
    try:
        told = decoded(line)
        order, content = told.get("order"), told.get("content")
        if not isinstance(order, str) or not isinstance(content, dict):
            raise ValueError("an order must have a name and its content.")
    except ValueError as error:
        return "unreadable", None, {"error": str(error)}
    return order, content, site.answer(order, content)


def order_line(order: str, content: Any) -> str:
    """What `serve_lines` reads."""
    return encoded({"order": order, "content": content}) + "\n"
