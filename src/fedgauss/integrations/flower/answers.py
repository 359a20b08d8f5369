"""What the server asks of our mods, and what they answer: plain lists of numbers, beside the application's own records.

A request is a MetricRecord and an answer a ConfigRecord, since of these nobody in Flower counts how many there are: its
mods for differential privacy want one ArrayRecord and one ConfigRecord in what comes, and one ArrayRecord and one
MetricRecord in what leaves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.integrations.flower.arrays import plain

RECORD = "fedgauss"
REASON = "reason"  # in an answer: why there is none
PARTITION = "partition"

Request = Mapping[str, ArrayLike]
Answer = Mapping[str, Any]  # as it came: unchecked, and only `read` looks into it

_HUGE = 1e50  # a number above it is no report; squares of smaller ones are still numbers


def ask(message: Message, request: Request) -> None:
    """Put a request into a message, and into no other: strategies give many messages one content."""
    numbers = MetricRecord({name: _listed(value) for name, value in request.items()})
    message.content = RecordDict({**message.content, RECORD: numbers})


def asked(message: Message) -> dict[str, FloatArray] | None:
    """The request, taken out of a message before the application sees it; None where there is none."""
    record = message.content.pop(RECORD, None)
    if not isinstance(record, MetricRecord):
        return None
    return {name: np.array(value, dtype=np.float64) for name, value in record.items()}


def answer(reply: Message, numbers: Request, reason: str) -> None:
    """Put numbers into a reply, and why there are not more."""
    record = ConfigRecord({name: _listed(value) for name, value in numbers.items()})
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
    if numbers.size and np.abs(numbers).max() > _HUGE:
        raise ValueError(f"{name} must be numbers of at most {_HUGE:.0e}; got {np.abs(numbers).max():.3g}.")
    return numbers


def _listed(value: ArrayLike) -> list[float]:
    numbers: list[float] = np.asarray(value, dtype=np.float64).ravel().tolist()
    return numbers
