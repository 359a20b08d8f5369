"""Messages between parties, a line of JSON each: text, numbers, lists, arrays with shapes. Nothing in them can run.

A message has one text: names are sorted and floats keep every bit, so that a digest of the text is one of the message.

An array is an object with the one name "$array", and any other name that begins with $ gets a second one: columns may
have any names, and none of them is taken for an array.

Unsigned 64-bit integers, which masked numbers are made of, travel as base64: JSON's numbers are floats to many readers.
A site behind a pair of pipes reads orders and writes replies, and a log of both.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import IO, Any, NoReturn

import numpy as np

Message = dict[str, Any]

LONGEST = 64_000_000  # bytes of one message; a d x d matrix of d = 1,000 is a third of it
_MOST_PARTS = 4_000_000  # commas and brackets of one message, each of which may cost 100 bytes of memory
_DEEPEST = 12
_ARRAY, _WORDS = "$array", "$words"  # of a shape and numbers
_SHOWN = 60  # characters of what is no message, in words about it
_NUMBERS = {int, float}
_AS_IT_IS = {str, int, bool, type(None)}


class _Encoder(json.JSONEncoder):
    """Writes arrays as objects with one name, and counts them."""

    arrays = 0

    def default(self, value: Any) -> Any:
        """What stands for a value that JSON has no words for."""
        if isinstance(value, np.ndarray):
            self.arrays += 1
            if value.dtype == np.uint64:
                return {_WORDS: [value.shape, base64.b64encode(value.astype("<u8", copy=False).tobytes()).decode()]}
            return {_ARRAY: [value.shape, value.astype(float).ravel().tolist()]}
        return value.item() if isinstance(value, np.generic) else super().default(value)


_encoder = partial(_Encoder, separators=(",", ":"), allow_nan=False, check_circular=False, sort_keys=True)


def encode(message: Message) -> str:
    """The one line of JSON for a message, of ASCII alone."""
    encoder = _encoder()
    text = encoder.encode(message)
    return text if text.count('"$') == encoder.arrays else _encoder().encode(_escaped(message))


def digest(message: Message) -> str:
    """SHA-256 of a message, in hexadecimal digits."""
    return hashlib.sha256(encode(message).encode()).hexdigest()


def decode(text: str | bytes) -> Message:
    """The message in a line of JSON; anything else is refused."""
    if len(text) > LONGEST:
        raise ValueError(f"a message must have at most {LONGEST:,} characters; got {len(text):,}.")
    text = text.decode(errors="replace") if isinstance(text, bytes) else text
    if sum(map(text.count, ",[{")) > _MOST_PARTS:
        raise ValueError(f"a message must have at most {_MOST_PARTS:,} parts; this one has more.")
    try:
        message = _read(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a message must be one line of JSON; got {text[:_SHOWN]!r}.") from error
    if not isinstance(message, dict):
        raise ValueError(f"a message must be a JSON object; got {type(message).__name__}.")
    return _restore_parts(message, 0)


def printable(text: str) -> str:
    """Text from elsewhere that may be shown: control characters could take a terminal over, and are spelt out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"numbers must be finite; got {constant}.")


_read = json.JSONDecoder(parse_constant=_refused).decode


def _escaped(value: Any) -> Any:
    """With a second $ before names that begin with one."""
    if isinstance(value, dict):
        return {f"${name}" if str(name).startswith("$") else name: _escaped(part) for name, part in value.items()}
    return [_escaped(part) for part in value] if isinstance(value, list | tuple) else value


def _restore(name: str, value: Any, depth: int) -> Any:
    if type(value) in _AS_IT_IS:
        return value
    if depth + isinstance(value, dict) > _DEEPEST:
        raise ValueError(f"a message may be nested {_DEEPEST} deep; {name!r} is deeper.")
    if isinstance(value, dict):
        if len(value) == 1 and (tag := next(iter(value))) in _TAGS:
            pair = value[tag]
            return _TAGS[tag](name, *(pair if isinstance(pair, list) and len(pair) == 2 else (None, None)))
        return _restore_parts(value, depth + 1)
    if isinstance(value, list):
        return [part if type(part) in _AS_IT_IS else _restore(name, part, depth + 1) for part in value]
    if not math.isfinite(value):
        raise ValueError(f"{name!r} must hold finite numbers.")
    return value


def _restore_parts(value: Message, depth: int) -> Message:
    parts = {}
    for name, part in value.items():
        if name.startswith("$") and not name.startswith("$$"):
            raise ValueError(f"a name that begins with $ must begin with two; got {name[:_SHOWN]!r}.")
        parts[name.removeprefix("$")] = part if type(part) in _AS_IT_IS else _restore(name[:_SHOWN], part, depth)
    return parts


def _array(name: str, shape: Any, values: Any) -> Any:
    right = isinstance(values, list) and set(map(type, values)) <= _NUMBERS
    if not right or not _is_shape(shape) or len(values) != math.prod(shape):
        raise ValueError(f"{name!r} must hold numbers, as many as its shape says.")
    try:
        array = np.array(values, dtype=float)
    except OverflowError:  # of an integer
        array = np.array([np.inf])
    if not np.isfinite(array).all():
        raise ValueError(f"{name!r} must hold finite numbers.")
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


_TAGS = {_ARRAY: _array, _WORDS: _words}


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


def serve_lines(
    answer: Callable[[str, Message], Message], orders: Iterable[str], replies: IO[str], log: IO[str] | None = None
) -> None:
    """Answer orders, a line of JSON each, until there are no more.

    A line that cannot be read is answered with an error and changes nothing. One that does not end is the last.

    Parameters
    ----------
    answer : callable
        `Site.answer`.
    orders : iterable of str
        Such as `lines_of` standard input.
    replies : file
        Such as standard output.
    log : file, optional
        Where every order and its reply are written before the reply leaves.
    """

    def send(order: str, asked: Message | None, reply: Message) -> None:
        text = encode(reply)
        if log is not None:
            write_down(log, order, reply, asked)
        replies.write(text + "\n")
        replies.flush()

    try:
        for line in orders:
            try:
                order, content = read_order(line)
            except ValueError as error:
                send("unreadable", None, {"error": str(error)})
            else:
                send(order, content, answer(order, content))
    except EndlessLine as error:
        send("unreadable", None, {"error": str(error)})


def read_order(line: str) -> tuple[str, Message]:
    """The name of an order and what goes with it."""
    told = decode(line)
    order, content = told.get("order"), told.get("content")
    if not isinstance(order, str) or not isinstance(content, dict):
        raise ValueError("an order must have a name and its content.")
    return order, content


def write_down(log: IO[str], order: str, reply: Message, asked: Message | None = None) -> None:
    """A line of the log, written before the reply leaves: the log has at least as much as was sent."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    log.write(encode({"time": now, "order": order, "asked": asked, "sent": reply}) + "\n")
    log.flush()


def order_line(order: str, content: Message) -> str:
    """What `serve_lines` reads."""
    return encode({"order": order, "content": content}) + "\n"
