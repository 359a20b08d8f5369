"""A round as the server saw it: who sent what, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from flwr.app import Array, ArrayRecord, Message, MetricRecord

from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.flower.arrays import finite, mismatch, taken


@dataclass(frozen=True)
class Upload:
    """What one client sent.

    client    its number, as `Roster` has it
    examples  its weight in the strategy's average; None where it gave none
    answer    what a mod of ours added
    """

    client: int
    arrays: Mapping[str, Array]
    examples: float | None
    answer: ArrayRecord | None


@dataclass(frozen=True)
class Round:
    """One round of training: arrays sent out, arrays after it (None when the strategy made none), and uploads."""

    number: int
    before: ArrayRecord
    after: ArrayRecord | None
    uploads: tuple[Upload, ...]
    faults: tuple[str, ...]

    @cached_property
    def sound(self) -> bool:
        """Whether nothing is wrong with it: no faults, and arrays of the right shapes, all finite."""
        if self.faults or self.after is None:
            return False
        return not mismatch(self.after, self.before) and finite(self.after)


class Watcher(Protocol):
    """What `Monitored` asks after every round; `monitor` is None until there is one."""

    @property
    def monitor(self) -> Monitor | None:
        """The monitor behind it."""

    def request(self, server_round: int) -> ArrayRecord | None:
        """What clients are asked for in this round, beside training; None for nothing."""

    def judge(self, seen: Round) -> Verdict | None:
        """The verdict; None while warming up."""


class Roster:
    """The number of each node: the partition that it said it has when first seen, else the first that is free."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def __contains__(self, node: int) -> bool:
        return node in self._numbers

    def number(self, node: int, partition: int | None = None) -> int:
        """Of a node that says this of itself; a node that is known keeps its number whatever it says."""
        if node not in self._numbers:
            used = set(self._numbers.values())
            free = next(k for k in range(len(used) + 1) if k not in used)
            self._numbers[node] = free if partition is None else partition
        return self._numbers[node]


def opened(
    replies: Sequence[Message], before: ArrayRecord, roster: Roster, weighted_by: str | None
) -> tuple[tuple[Upload, ...], tuple[str, ...]]:
    """Uploads and faults of a round; our own record is taken out of every reply, as if it had never been there.

    A reply that is an error is nobody's fault: that client took no part.
    """
    uploads: dict[int, Upload] = {}
    faults = []
    good = sorted((m for m in replies if not m.has_error()), key=lambda reply: reply.metadata.src_node_id)
    answers = [taken(reply) for reply in good]
    for reply, answer in zip(good, answers, strict=True):  # those who say who they are come first
        if (partition := _partition(answer)) is not None:
            roster.number(reply.metadata.src_node_id, partition)
    for reply, answer in zip(good, answers, strict=True):
        client = roster.number(reply.metadata.src_node_id)
        sent = [record for record in reply.content.values() if isinstance(record, ArrayRecord)]
        if len(sent) != 1:
            faults.append(f"Client {client} sent {len(sent)} records of arrays in place of one.")
            continue
        wrong = mismatch(sent[0], before)
        examples = _examples(reply, weighted_by)
        if wrong:
            faults.append(f"Client {client} sent {wrong}.")
        elif examples is not None and not 0.0 <= examples < math.inf:
            faults.append(f"Client {client} says that it has {examples} examples.")
        elif client in uploads:
            faults.append(f"Two nodes say that they are client {client}.")
        else:
            uploads[client] = Upload(client, dict(sent[0].items()), examples, answer)
    return tuple(uploads[k] for k in sorted(uploads)), tuple(faults)


def _partition(answer: ArrayRecord | None) -> int | None:
    """What a client says; None where it says nothing that could be a partition."""
    if answer is None or "partition" not in answer:
        return None
    try:
        value = float(answer["partition"].numpy())
    except (TypeError, ValueError, EOFError, OSError):
        return None
    return int(value) if 0.0 <= value < 1e9 and value == int(value) else None


def _examples(reply: Message, weighted_by: str | None) -> float | None:
    if weighted_by is None:
        return None
    records = [record for record in reply.content.values() if isinstance(record, MetricRecord)]
    found = [record[weighted_by] for record in records if weighted_by in record]
    return float(found[0]) if len(found) == 1 and isinstance(found[0], int | float) else None
