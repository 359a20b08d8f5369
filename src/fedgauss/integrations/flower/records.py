"""What Flower's messages carry: arrays as vectors, what the server asks of our mods, and what they answer.

A request is a MetricRecord and an answer a ConfigRecord, plain lists of numbers beside the application's own records,
since of these nobody in Flower counts how many there are: its mods for differential privacy want one ArrayRecord and
one ConfigRecord in what comes, and one ArrayRecord and one MetricRecord in what leaves.
"""

import logging
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
import numpy.lib.format as npformat
import numpy.typing as npt
from flwr.app import Array, ConfigRecord, Message, MetricRecord, RecordDict

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray

RECORD = "fedgauss"
REASON = "reason"  # in an answer: why there is none
PARTITION = "partition"

Views = Mapping[str, npt.NDArray[Any]]  # arrays by name, on the bytes that came: nothing is copied
Request = Mapping[str, ArrayLike]
Answer = Mapping[str, Any]  # as it came: unchecked, and only `read` looks into it

_MAGIC = npformat.magic(1, 0)  # 8 bytes; then 2 for the length of the header, then the header, then the numbers
_FIXED = 10
_BFLOAT16 = "|V2"  # what NumPy's files make of it
_NUMPY = Array(np.zeros(0)).stype
_HUGE = 1e100  # what a monitor that knows nothing yet refuses, too
_LARGEST_ANSWER = 1e50  # a number above it is no report; squares of smaller ones are still numbers

log = logging.getLogger("flwr")  # where Flower's users look


def plain(text: str, longest: int = 200) -> str:
    """Text that came from elsewhere as it may stand in a log: without control characters, and cut."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[:longest])
    return shown if len(text) <= longest else f"{shown} ..."


def vector(views: Views, like: Iterable[str]) -> FloatArray:
    """All arrays end to end, in the order of `like`: (d,)."""
    return np.concatenate([views[name].ravel() for name in like], dtype=np.float64)


def viewed_like(arrays: Mapping[str, Array], like: Views) -> Views:
    """Arrays with the names and shapes of `like`, all numbers; or a ValueError that says what there is instead.

    Shapes are those of the arrays themselves: what a record says of them is only a claim.
    """
    if arrays.keys() != like.keys():
        raise ValueError(f"arrays {plain(str(sorted(arrays)))} in place of {plain(str(sorted(like)))}")
    views = {}
    for name, expected in like.items():
        try:
            views[name] = view = numbers(arrays[name])
        except Exception as error:  # whatever a hostile file makes NumPy's reader raise
            raise ValueError(f"an array {name!r} that cannot be read ({type(error).__name__})") from error
        if words := odd_type(name, view):
            raise ValueError(words)
        if view.shape != expected.shape:
            raise ValueError(f"an array {name!r} of shape {plain(str(view.shape), 40)} in place of {expected.shape}")
        if view.size and not (float(view.min()) >= -_HUGE and float(view.max()) <= _HUGE):  # NaN is neither
            raise ValueError(f"an array {name!r} with numbers that are not finite, or above {_HUGE:.0e}")
    return views


def odd_type(name: str, view: npt.NDArray[Any]) -> str:
    """What there is in place of numbers; empty where there are numbers."""
    hint = "; bfloat16 must be sent as float32" if view.dtype.str == _BFLOAT16 else ""
    return "" if view.dtype.kind in "iufb" else f"an array {name!r} of type {plain(str(view.dtype), 40)}{hint}"


def numbers(array: Array) -> npt.NDArray[Any]:
    """The array itself, read-only: `array.numpy()`, where headers that came before are not parsed again.

    Small models spend most of their reading on headers, and in a run these are all alike.
    """
    data = array.data
    head = _FIXED + int.from_bytes(data[8:_FIXED], "little")
    if array.stype != _NUMPY or data[:8] != _MAGIC:
        return array.numpy()  # for its error, or its reading of a newer version
    shape, fortran, dtype = _header(data[:head])
    flat = np.frombuffer(data, dtype, count=math.prod(shape), offset=head)
    return flat.reshape(shape, order="F" if fortran else "C")


@lru_cache(maxsize=64)
def _header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type that a NumPy file of version 1.0 begins with; no Python objects, which would be pickles."""
    shape, fortran, dtype = npformat.read_array_header_1_0(BytesIO(head[8:]))
    if min(shape, default=0) < 0:
        raise ValueError("A length is negative, which NumPy would take for any.")
    if dtype.hasobject:
        raise ValueError("Arrays of Python objects are not read.")
    return shape, fortran, dtype


def ask(message: Message, request: Request) -> None:
    """Put a request into a message, and into no other: strategies give many messages one content."""
    message.content = RecordDict({**message.content, RECORD: MetricRecord(_listed(request))})


def asked(message: Message) -> dict[str, FloatArray] | None:
    """The request, taken out of a message before the application sees it; None where there is none."""
    record = message.content.pop(RECORD, None)
    if not isinstance(record, MetricRecord):
        return None
    return {name: np.array(value, dtype=np.float64) for name, value in record.items()}


def answer(reply: Message, numbers: Request, reason: str) -> None:
    """Put numbers into a reply, and why there are not more."""
    record = ConfigRecord(_listed(numbers))
    if reason:
        record[REASON] = plain(reason)
    reply.content[RECORD] = record


def answered(reply: Message) -> Answer:
    """A client's answer, taken out of its reply before the strategy sees it; empty where there is none."""
    record = reply.content.pop(RECORD, None)
    return dict(record.items()) if isinstance(record, ConfigRecord) else {}


def read(given: Answer, name: str, shape: tuple[int, ...] = ()) -> FloatArray:
    """Numbers of that name and shape, or a ValueError: whatever comes from a client is checked here."""
    listed, count = given.get(name), math.prod(shape)
    if not isinstance(listed, list) or len(listed) != count or not {type(x) for x in listed} <= {int, float}:
        got = f"{len(listed)} values" if isinstance(listed, list) else type(listed).__name__
        raise ValueError(f"{name} must be a list of {count} numbers; got {got}.")
    numbers = _checks.real_array(name, listed).reshape(shape)
    if numbers.size and np.abs(numbers).max() > _LARGEST_ANSWER:
        raise ValueError(f"{name} must be numbers of at most {_LARGEST_ANSWER:.0e}; got {np.abs(numbers).max():.3g}.")
    return numbers


def _listed(numbers: Request) -> dict[str, Any]:
    """Every value as a list, which records can hold."""
    return {name: np.asarray(value, dtype=np.float64).ravel().tolist() for name, value in numbers.items()}
