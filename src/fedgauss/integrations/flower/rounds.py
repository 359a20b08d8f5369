"""A round as the server saw it: who sent what, and what is wrong with it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from fedgauss._types import FloatArray
from fedgauss.integrations.flower.records import PARTITION, Answer, Views, answered, plain, read, vector, viewed_like

_MOST = 1e15  # examples of a client


@dataclass(frozen=True)
class Upload:
    """What one client sent.

    client    its number, as `NodeNumbers` has it
    examples  its weight in the strategy's average; 1 where it gave none
    answer    what a mod of ours added
    """

    client: int
    arrays: Views
    examples: float
    answer: Answer


@dataclass(frozen=True)
class TrainingRound:
    """One round of training: its number, the arrays that were sent out, and uploads that fit them."""

    number: int
    before: Views
    uploads: tuple[Upload, ...]

    @cached_property
    def origin(self) -> FloatArray:
        """What was sent out, as one vector: (d,)."""
        return vector(self.before, self.before)

    @cached_property
    def each(self) -> FloatArray:
        """What clients sent, a row each."""
        return np.stack([vector(upload.arrays, self.before) for upload in self.uploads])

    @cached_property
    def examples(self) -> FloatArray:
        """The clients' weights in the strategy's average."""
        return np.array([upload.examples for upload in self.uploads])

    @cached_property
    def clients(self) -> list[int]:
        """Their numbers."""
        return [upload.client for upload in self.uploads]


class NodeNumbers:
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
    replies: Sequence[Message], before: Views, roster: NodeNumbers, weighted_by: str
) -> tuple[tuple[Upload, ...], tuple[str, ...]]:
    """Uploads and faults of a round; our own record is taken out of every reply, as if it had never been there.

    A reply that is an error is nobody's fault: that client took no part.
    """
    uploads: dict[int, Upload] = {}
    nodes: dict[int, int] = {}
    faults = []
    good = sorted((m for m in replies if not m.has_error()), key=lambda reply: reply.metadata.src_node_id)
    answers = [answered(reply) for reply in good]
    for reply, answer in zip(good, answers, strict=True):  # those who say who they are come first
        if (partition := _partition(answer)) is not None:
            roster.number(reply.metadata.src_node_id, partition)
    for reply, answer in zip(good, answers, strict=True):
        node = reply.metadata.src_node_id
        client = roster.number(node)
        try:
            arrays, examples = _contents(reply, before, weighted_by)
        except ValueError as error:
            faults.append(f"Client {client} sent {error}.")
            continue
        if client in uploads:
            faults.append(f"Two nodes say that they are client {client}: {nodes[client]} and {node}.")
        else:
            uploads[client], nodes[client] = Upload(client, arrays, examples, answer), node
    in_order = tuple(uploads[k] for k in sorted(uploads))
    return in_order, tuple(faults) or _other_types(in_order)


def _contents(reply: Message, before: Views, weighted_by: str) -> tuple[Views, float]:
    """Arrays and the number of examples, or a ValueError that says what there is instead."""
    records = list(reply.content.values())
    sent = [record for record in records if isinstance(record, ArrayRecord)]
    if len(sent) != 1:
        raise ValueError(f"{len(sent)} records of arrays in place of one")
    arrays = viewed_like(dict(sent[0].items()), before)
    values = [record[weighted_by] for record in records if isinstance(record, MetricRecord) and weighted_by in record]
    if not values:
        return arrays, 1.0  # a strategy that needs it says so itself
    value = values[0] if len(values) == 1 else values
    if not (isinstance(value, int | float) and 0 < value <= _MOST):
        raise ValueError(f"{weighted_by} = {plain(repr(value), 40)} in place of one number in (0, {_MOST:.0e}]")
    return arrays, float(value)


def _partition(answer: Answer) -> int | None:
    """What a client says; None where it says nothing that could be a partition."""
    try:
        value = float(read(answer, PARTITION, (1,))[0])
    except ValueError:
        return None
    return int(value) if 0.0 <= value < 1e9 and value == int(value) else None


def _other_types(uploads: tuple[Upload, ...]) -> tuple[str, ...]:
    """Clients whose arrays are of other types than most clients': the mean would be of one or the other.

    Not of other types than were sent, since FedAvg makes floats of the integers that clients send again and again.
    """
    each = [{name: view.dtype for name, view in upload.arrays.items()} for upload in uploads]
    if all(types == each[0] for types in each):
        return ()
    usual = {name: Counter(types[name] for types in each).most_common(1)[0][0] for name in each[0]}
    return tuple(
        f"Client {upload.client} sent an array {name!r} of type {types[name]}; most sent {usual[name]}."
        for upload, types in zip(uploads, each, strict=True)
        for name in usual
        if types[name] != usual[name]
    )
