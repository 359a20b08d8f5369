"""A round as the server saw it: who sent what, and what is wrong with it."""

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from fedgauss._types import FloatArray
from fedgauss.detect.clients.sketch import Single
from fedgauss.integrations.flower.records import Answer, Views, answered, plain, vector, viewed_like
from fedgauss.integrations.flower.roster import Roster

_MOST = 1e15  # examples of a client


@dataclass(frozen=True)
class Upload:
    """What one client sent.

    client    its number, as the `Roster` has it
    examples  its weight in the strategy's average; 1 where it gave none
    answer    what a mod of ours added
    """

    client: int
    arrays: Views
    examples: float
    answer: Answer


@dataclass(frozen=True)
class TrainingRound:
    """One round of training: its number, the arrays that were sent out, and uploads that fit them.

    Vectors have the arrays that are trained, end to end; `untrained` are the names of the others. It is `weighted`
    where the strategy's average is, by clients' examples.
    """

    number: int
    before: Views
    uploads: tuple[Upload, ...]
    untrained: Set[str] = frozenset()
    weighted: bool = False

    def vector(self, arrays: Views) -> FloatArray:
        """What is judged of arrays with the names of those that were sent: (d,)."""
        return vector(arrays, [name for name in self.before if name not in self.untrained])

    @cached_property
    def moves(self) -> FloatArray | Single:
        """What each client changed, a row each, in the precision in which clients sent it; float32 at least."""
        names = [name for name in self.before if name not in self.untrained]
        ends = np.cumsum([0, *(self.before[name].size for name in names)])
        sent = [upload.arrays for upload in self.uploads]
        kind = np.result_type(np.float32, *(arrays[name].dtype for arrays in sent[:1] for name in names))
        table = np.empty((len(sent), ends[-1]), dtype=kind)
        with np.errstate(over="ignore"):  # what is infinite is a fault
            for row, arrays in zip(table, sent, strict=True):
                for name, first, last in zip(names, ends[:-1], ends[1:], strict=True):
                    sent_out = self.before[name].ravel()
                    loop = np.result_type(kind, sent_out.dtype)
                    np.subtract(arrays[name].ravel(), sent_out, row[first:last], dtype=loop, casting="same_kind")
        return table

    @cached_property
    def origin(self) -> FloatArray:
        """What was sent out, as one vector: (d,)."""
        return self.vector(self.before)

    @cached_property
    def each(self) -> FloatArray:
        """What clients sent, a row each."""
        return np.stack([self.vector(upload.arrays) for upload in self.uploads])

    @cached_property
    def examples(self) -> FloatArray:
        """The clients' weights in the strategy's average."""
        return np.array([upload.examples for upload in self.uploads])

    @cached_property
    def clients(self) -> list[int]:
        """Their numbers."""
        return [upload.client for upload in self.uploads]


class Opened(NamedTuple):
    """The replies of a round."""

    uploads: tuple[Upload, ...]  # those that can be used
    faults: dict[int, str]  # what is wrong with the others, by client
    strangers: dict[int, str]  # what is wrong with nodes that have no number, since they say that they are another


def opened(
    replies: Sequence[Message],
    before: Views,
    roster: Roster,
    weighted_by: str,
    said: Callable[[Message, Answer], str | int | None],
) -> Opened:
    """Uploads and faults of a round; our own record is taken out of every reply, as if it had never been there.

    A reply that is an error is nobody's fault: that client took no part. `said` reads who sent a reply: nothing that
    clients say of themselves counts but that.
    """
    uploads: dict[int, Upload] = {}
    faults: dict[int, str] = {}
    strangers: dict[int, str] = {}  # by node
    good = sorted((m for m in replies if not m.has_error()), key=lambda reply: reply.metadata.src_node_id)
    answers = [answered(reply) for reply in good]
    for reply, answer in zip(good, answers, strict=True):  # those who say who they are come first
        node = reply.metadata.src_node_id
        try:
            if node not in roster and (name := said(reply, answer)) is not None:
                roster.number(node, name)
        except ValueError as error:
            strangers[node] = str(error)
    for reply, answer in zip(good, answers, strict=True):
        node = reply.metadata.src_node_id
        if node in strangers:
            continue
        client = roster.number(node)
        if client in uploads:
            faults[client] = f"Client {client} sent more than one reply."
            continue
        try:
            arrays, examples = _contents(reply, before, weighted_by)
        except ValueError as error:
            faults[client] = f"Client {client} sent {error}."
        else:
            uploads[client] = Upload(client, arrays, examples, answer)
    faults |= _other_types([upload for client, upload in uploads.items() if client not in faults])
    usable = tuple(uploads[k] for k in sorted(uploads) if k not in faults)
    return Opened(usable, faults, strangers)


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


def _other_types(uploads: Sequence[Upload]) -> dict[int, str]:
    """Clients whose arrays are of other types than most clients': the mean would be of one or the other.

    Not of other types than were sent, since FedAvg makes floats of the integers that clients send again and again.
    """
    each = [{name: view.dtype for name, view in upload.arrays.items()} for upload in uploads]
    if all(types == each[0] for types in each):
        return {}
    usual = {name: Counter(types[name] for types in each).most_common(1)[0][0] for name in each[0]}
    return {
        upload.client: f"Client {upload.client} sent an array {name!r} of type {types[name]}; most sent {usual[name]}."
        for upload, types in zip(uploads, each, strict=True)
        for name in usual
        if types[name] != usual[name]
    }


def of_another_layout(replies: Sequence[Message]) -> list[int]:
    """Nodes whose replies have other records or metrics than most, which strategies do not average."""
    layouts = {
        reply.metadata.src_node_id: tuple(
            (name, tuple(sorted((key, np.shape(value)) for key, value in record.items())))
            if isinstance(record, MetricRecord)
            else (name, type(record).__name__)
            for name, record in sorted(reply.content.items())
        )
        for reply in replies
        if not reply.has_error()
    }
    if not layouts:
        return []
    ((usual, _),) = Counter(layouts.values()).most_common(1)
    return [node for node, layout in layouts.items() if layout != usual]
