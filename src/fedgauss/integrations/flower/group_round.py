"""A round under `GroupSums`: what clients were told, what came, and the sum of each group."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedgauss._types import BoolArray
from fedgauss.detect.clients.verdict import listed
from fedgauss.detect.trained import is_trained
from fedgauss.federated.group_sums import (
    Directions,
    Summed,
    Upload,
    disputes,
    fault,
    liars,
    random_directions,
    scalars,
    statement,
    summed,
    transcript_of,
)
from fedgauss.federated.keys import verify
from fedgauss.federated.masks import ShortWords
from fedgauss.federated.wire import decode
from fedgauss.integrations.flower.group_sums_mod import (
    RECORD,
    WORDS,
    digest_of_config,
    order_record,
    round_directions,
    round_told,
    sent_views,
)
from fedgauss.integrations.flower.records import Views, numbers, plain

FAR = 100.0  # times the usual length of a group's mean: neither a group nor a client's own number goes so far
_FAR_AT_RANDOM = 30.0  # the same for numbers along random directions, of a client whose group went too far
_LOOKS = 8  # of them
_WAIT = 300.0  # seconds for an answer; processes of their own need 12, and 30 on a busy machine


class Group(NamedTuple):
    """Clients whose sums are read together, by the numbers of their nodes."""

    nodes: tuple[int, ...]
    digest: str  # of the roster by which they agreed
    tags: Mapping[str, Mapping[str, str]]
    keys: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """Nodes as the roster has them."""
        return [str(node) for node in self.nodes]


class Reply(NamedTuple):
    """One client's, of which nothing is checked but that it has the parts of an upload."""

    upload: Upload
    layout: dict[str, str]
    metrics: list[str]
    message: Message

    @property
    def form(self) -> str:
        """What all clients have in common."""
        return repr((sorted(self.layout.items()), self.metrics))


class Faulty(ValueError):
    """A group's sum cannot be used. `why` says what is wrong with each client that broke a rule."""

    def __init__(self, words: str, why: Mapping[int, str] | None = None) -> None:
        super().__init__(words)
        self.why = dict(why or {})


@dataclass(frozen=True)
class GroupRound:
    """One round of training.

    Parameters
    ----------
    number : int
        Flower's.
    views : mapping of str to numpy.ndarray
        The arrays that were sent to all.
    config : str
        The digest of what they were told beside.
    grid : Grid
        By which clients can be asked again.
    """

    number: int
    views: Views
    config: str
    grid: Grid

    @classmethod
    def of(cls, number: int, sent: Message, grid: Grid) -> GroupRound:
        """That of a message to any of the clients: all are told the same."""
        return cls(number, sent_views(sent), digest_of_config(sent), grid)

    @cached_property
    def directions(self) -> Directions:
        """Along which a number of each client is known."""
        return round_directions(self.views)

    @cached_property
    def trained(self) -> BoolArray:
        """Which numbers are judged."""
        return np.concatenate([np.full(view.size, is_trained(name, view.dtype)) for name, view in self.views.items()])

    def transcript(self, group: Group, reply: Reply) -> bytes:
        """What the words of a group depend on in this round."""
        told = round_told(self.views, self.config, reply.layout, reply.metrics)
        return transcript_of(group.digest, group.names, self.number, told)

    def sum_of(self, group: Group, replies: Mapping[int, Message], form: str) -> tuple[Summed, Reply]:
        """The sum of a group, and one of its replies; `form` is what most clients' replies have in common."""
        silent = [node for node in group.nodes if node not in replies or not replies[node].has_content()]
        if silent:
            raise Faulty(f"{listed(silent)} did not answer, and without all of a group there is nothing but noise.")
        opened = {node: read(replies[node]) for node in group.nodes}
        wrong = {node: words for node, reply in opened.items() if (words := self._fault(group, node, reply, form))}
        if wrong:
            raise Faulty("an upload cannot be used.", wrong)
        uploads = {str(node): reply.upload for node, reply in opened.items() if reply is not None}
        first = next(reply for reply in opened.values() if reply is not None)
        if pairs := disputes({name: upload.shared for name, upload in uploads.items()}, group.names):
            raise Faulty("two of them disagree on what they share.", self._liars(group, pairs, uploads, first))
        return summed(uploads, self.directions), first

    def _fault(self, group: Group, node: int, reply: Reply | None, form: str) -> str:
        if reply is None:
            return "its upload cannot be read"
        if reply.form != form:
            return "its upload has other records or metrics than most"
        if words := fault(reply.upload, str(node), group.names, len(self.trained), len(reply.metrics)):
            return f"of its upload {words}"
        signed = statement(reply.upload.claim(), self.transcript(group, reply).hex())
        if not verify(group.keys[str(node)], signed, reply.upload.signature):
            return "its upload is not signed by its key for this round"
        return ""

    def _liars(
        self, group: Group, pairs: list[tuple[str, str]], uploads: Mapping[str, Upload], reply: Reply
    ) -> dict[int, str]:
        """Who lied about words that two share, by the key that each shows to whoever has what the other one signed."""
        found: dict[int, str] = {}
        shared = {name: upload.shared for name, upload in uploads.items()}
        for pair in pairs:
            orders = {
                int(one): {"other": other, "claim": uploads[other].claim(), "signature": uploads[other].signature}
                for one, other in (pair, pair[::-1])
            }
            shown = ask(self.grid, "show", orders)
            keys = {str(node): str(content.get("key", "")) for node, content in shown.items()}
            size, transcript = len(self.trained), self.transcript(group, reply)
            for name in liars(pair, keys, group.tags, group.digest, transcript, size, self.directions, shared):
                lied = "it lied about the words that it shares with another client"
                found[int(name)] = lied if keys.get(name) else "it did not show a key where two disagree"
        return found

    def length(self, total: Summed) -> float:
        """Of the mean of a group, in what is trained."""
        return float(np.linalg.norm(total.change[self.trained])) / total.examples

    def check_near(self, group: Group, total: Summed, replies: Mapping[int, Message], usual: float) -> None:
        """Refuse a sum that is far from what is usual in this round, and find out whose part it is."""
        wild = [name for name, pair in total.scalars.items() if np.abs(pair).max() > FAR * usual]
        if not wild and self.length(total) > FAR * usual:
            wild = self._look(group, replies, usual)
        elif not wild:
            return
        why = {int(name): "its change is far longer than is usual" for name in wild}
        raise Faulty(f"its mean is {self.length(total):.3g} long where {usual:.3g} is usual.", why)

    def _look(self, group: Group, replies: Mapping[int, Message], usual: float) -> list[str]:
        """Who goes too far along directions that are drawn now."""
        size, seed = len(self.trained), secrets.token_hex(16)
        order = {"round": self.number, "seed": seed, "size": size}
        answers = ask(self.grid, "look", dict.fromkeys(group.nodes, order))
        names, shared = group.names, dict[str, Mapping[str, ShortWords]]()
        for node in group.nodes:
            told = answers.get(node, {}).get("shared")
            if not _is_shared(told, set(names) - {str(node)}):
                return []
            shared[str(node)] = cast("Mapping[str, ShortWords]", told)
        if disputes(shared, names):
            return []
        uploads = {str(node): reply.upload for node in group.nodes if (reply := read(replies[node])) is not None}
        found = scalars(uploads, shared, random_directions(seed, size))
        return [name for name, each in found.items() if np.abs(each).max() > _FAR_AT_RANDOM * usual]

    def as_one(self, total: Summed, reply: Reply, weighted_by: str) -> Message:
        """The mean of a group as the reply of one client."""
        arrays, start = {}, 0
        mean = total.change / total.examples
        for name, view in self.views.items():
            after = view + mean[start : start + view.size].reshape(view.shape)
            arrays[name] = Array(after.astype(view.dtype) if view.dtype.kind == "f" else after)
            start += view.size
        metrics: dict[str, Any] = dict(zip(reply.metrics, (total.metrics / total.examples).tolist(), strict=True))
        metrics[weighted_by] = total.examples
        layout = reply.layout
        reply.message.content = RecordDict(
            {layout["arrays"]: ArrayRecord(arrays), layout["metrics"]: MetricRecord(metrics)}
        )
        return reply.message


def ask(grid: Grid, order: str, contents: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """An order to clients' mods, and what they answer; nothing from those who do not."""
    messages = [
        Message(RecordDict({RECORD: order_record(order, content)}), node, MessageType.TRAIN)
        for node, content in contents.items()
    ]
    replies = grid.send_and_receive(messages, timeout=_WAIT)
    return {reply.metadata.src_node_id: found for reply in replies if (found := _content(reply)) is not None}


def usual_form(replies: Iterable[Message]) -> str:
    """What the replies of most clients have in common."""
    forms = Counter(found.form for reply in replies if reply.has_content() and (found := read(reply)) is not None)
    return forms.most_common(1)[0][0] if forms else ""


def read(reply: Message) -> Reply | None:
    """A client's reply; None where it is no upload."""
    content = _content(reply)
    try:
        words = reply.content[WORDS]["words"]
        assert content is not None
        assert isinstance(words, Array)
        upload = Upload(
            numbers(words), content["shared"], content["examples"], content["metrics"], str(content["signature"])
        )
        metrics, layout = content["names"], texts(content["layout"])
    except Exception:  # whatever a hostile file makes NumPy's reader raise
        return None
    named = isinstance(metrics, list) and all(isinstance(name, str) for name in metrics)
    if not named or len(set(metrics)) != len(metrics) or len(set(layout.values())) != 2:
        return None
    return Reply(upload, layout, metrics, reply) if layout.keys() == {"arrays", "metrics"} else None


def texts(value: Any) -> dict[str, str]:
    """A dictionary of texts; empty where it is none."""
    right = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    return dict(value) if right else {}


def refusals(answers: Iterable[Mapping[str, Any]]) -> str:
    """Why clients would not do what they were asked, in words for a log."""
    return " ".join(sorted({plain(str(answer["refused"])) for answer in answers if "refused" in answer}))


def _content(reply: Message) -> dict[str, Any] | None:
    try:
        return decode(str(reply.content[RECORD]["content"])) if reply.has_content() else None
    except (KeyError, ValueError, TypeError):
        return None


def _is_shared(value: Any, peers: set[str]) -> bool:
    right = isinstance(value, dict) and value.keys() == peers
    return right and all(
        isinstance(p, np.ndarray) and p.dtype == np.uint64 and p.shape == (_LOOKS,) for p in value.values()
    )
