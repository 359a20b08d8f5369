"""`GroupSums`: any Flower strategy on sums of groups of clients, whose uploads the server cannot read, and a watch."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedgauss import _checks
from fedgauss._types import BoolArray
from fedgauss.detect.clients.verdict import ClientVerdict, listed
from fedgauss.detect.group_sums import GroupMonitor
from fedgauss.detect.trained import is_trained
from fedgauss.federated.group_sums import (
    FEWEST,
    MOST_MEMBERS,
    Directions,
    Summed,
    Upload,
    determined,
    disputes,
    fault,
    liars,
    random_directions,
    scalars,
    summed,
    transcript_of,
    untagged,
)
from fedgauss.federated.keys import verify
from fedgauss.federated.refusal import Refused
from fedgauss.federated.roster import Entry, Roster
from fedgauss.federated.wire import decode, encode
from fedgauss.integrations.flower.alarmed import Alarmed
from fedgauss.integrations.flower.group_sums_mod import (
    RECORD,
    WORDS,
    digest_of_config,
    round_directions,
    round_told,
    sent_arrays,
)
from fedgauss.integrations.flower.kept import KeptArrays, Memory, nested
from fedgauss.integrations.flower.records import Views, log, numbers, plain
from fedgauss.integrations.sinks.base import Sink, Sinks

_PATIENCE = 3  # rounds without an answer, after which the others of a group go on without that client
_FAR = 100.0  # times the usual length of a group's mean: one group that far off is not used
_FAR_ALONE = 30.0  # the same for one client's own number, which is at most its length


class _Group(NamedTuple):
    """Clients whose sums are read together."""

    nodes: tuple[int, ...]
    digest: str  # of the roster by which they agreed
    tags: Mapping[str, Mapping[str, str]]
    keys: Mapping[str, str]


class _Sent(NamedTuple):
    """What the clients of a round were told."""

    views: Views
    config: str
    directions: Directions
    trained: BoolArray  # which of all numbers are judged  (d,)


class _Reply(NamedTuple):
    upload: Upload
    layout: dict[str, str]
    names: list[str]
    message: Message


class GroupSums(Strategy):
    """Wraps a strategy, which sees the mean of each group of clients as if it were one client.

    Parameters
    ----------
    strategy : flwr.serverapp.strategy.Strategy
        Any that asks every client in every round and sends all of them the same. Their ClientApp has `group_sums_mod`.
    size : int
        The fewest clients of a group; no sum of fewer is ever read.
    alpha, horizon
        As in `Clients`.
    on_alarm : {"stop", "go on", "exclude"}
        As in `Monitored`. Who broke the rules of the sum is left out in any case.
    sink : callable, optional
        As in `Monitored`.
    seed : int, optional
        Of the draw of the groups.

    Attributes
    ----------
    verdicts : dict
        By round. Clients have the numbers of their nodes.
    groups : tuple of tuple of int
        The nodes of each group.
    void : dict
        By round, why sums of groups could not be used.
    left_out : dict
        By node, why it is left out.
    told : numpy.ndarray
        For each client that was ever in a group, how far the groups so far determine its own mean change, as a cosine
        (`fedgauss.federated.group_sums.determined`).

    Notes
    -----
    A group whose clients do not all answer is void in that round: what came is noise. After three rounds without a
    client the others of its group are put into other groups. Groups change for nothing else but clients that are left
    out, since sums over other groups give each client's own mean away; the log says how far.
    """

    def __init__(
        self,
        strategy: Strategy,
        size: int = 4,
        alpha: float = 0.05,
        horizon: int | None = None,
        on_alarm: Literal["stop", "go on", "exclude"] = "stop",
        sink: Sink | None = None,
        seed: int | None = None,
    ) -> None:
        if not isinstance(strategy, Strategy):
            raise ValueError(f"strategy must be a flwr.serverapp.strategy.Strategy; got {type(strategy).__name__}.")
        if on_alarm not in ("stop", "go on", "exclude"):
            raise ValueError(f"on_alarm must be 'stop', 'go on' or 'exclude'; got {on_alarm!r}.")
        self.size = _checks.whole("size", size, at_least=FEWEST, fix="Of two clients each would know the other's part.")
        if 2 * self.size > MOST_MEMBERS:
            raise ValueError(f"size must be at most {MOST_MEMBERS // 2}; got {size}.")
        self.strategy, self.on_alarm = strategy, on_alarm
        self.monitor = GroupMonitor(alpha, horizon)
        self.verdicts: dict[int, ClientVerdict] = {}
        self.void: dict[int, tuple[str, ...]] = {}
        self.left_out: dict[int, str] = {}
        self.kept = KeptArrays()
        self._rng = random.Random(seed)  # noqa: S311 - who is with whom is no secret
        self._tell = Sinks([] if sink is None else [sink])
        self._groups: list[_Group] = []
        self._ever: list[tuple[int, ...]] = []  # groups that there have been
        self._missed: Counter[int] = Counter()  # rounds without an answer, one after the other
        self._sent: _Sent | None = None
        self._asked: list[_Group] = []
        self._grid: Grid | None = None
        self._alarmed = False

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The nodes of each group."""
        return tuple(group.nodes for group in self._groups)

    @property
    def told(self) -> dict[int, float]:
        """By node, how far the groups so far determine a client's own mean change."""
        nodes = sorted({node for group in self._ever for node in group})
        rows = np.array([[node in group for node in nodes] for group in self._ever], dtype=np.float64)
        return dict(zip(nodes, determined(rows).tolist(), strict=True)) if nodes else {}

    # ---- hooks

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's messages to clients whose whole group can answer."""
        messages = {
            message.metadata.dst_node_id: message
            for message in self.strategy.configure_train(server_round, arrays, config, grid)
        }
        self._grid = grid
        self._regroup(messages.keys())
        if not len(self.kept):
            self._keep(server_round - 1, arrays)
        self._asked = [group for group in self._groups if messages.keys() >= set(group.nodes)]
        asked = [messages[node] for group in self._asked for node in group.nodes]
        if not asked:
            raise ValueError(
                f"a group of {self.size} clients or more must be there; there is none. GroupSums needs fraction_train=1 "
                f"and min_train_nodes = min_available_nodes of at least {self.size}."
            )
        first = sent_arrays(asked[0])
        views = {name: numbers(array) for name, array in first.items()}
        trained = [np.full(view.size, is_trained(name, view.dtype)) for name, view in views.items()]
        directions = round_directions(views)
        self._sent = _Sent(views, digest_of_config(asked[0]), directions, np.concatenate(trained))
        weighted_by = self._weighted_by()
        for message in asked:
            order = {"round": server_round, "weighted by": weighted_by}
            message.content = RecordDict({**message.content, RECORD: _order("train", order)})
        return asked

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """What the strategy makes of the means of groups."""
        replies = {reply.metadata.src_node_id: reply for reply in replies}
        found, void = self._summed(server_round, replies)
        if void:
            self.void[server_round] = tuple(void)
            for words in void:
                log.warning("fedgauss, round %d: %s", server_round, words)
        if not found:
            return None, None
        verdict = self._judge(server_round, [summed for _, summed, _ in found])
        if verdict.alarm and self.on_alarm == "exclude" and verdict.suspects:
            return self._go_back(server_round, verdict), None
        arrays, metrics = self.strategy.aggregate_train(server_round, [self._as_one(*each) for each in found])
        if arrays is not None and not verdict.alarm:
            self._keep(verdict.round, arrays)
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's, but for clients that are left out. Replies are not masked."""
        messages = self.strategy.configure_evaluate(server_round, arrays, config, grid)
        return [message for message in messages if message.metadata.dst_node_id not in self.left_out]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The strategy's."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """The strategy's."""
        self.strategy.summary()

    # ---- groups

    def _regroup(self, here: Iterable[int]) -> None:
        """Groups for those who have none: who is new, and who was left behind when a client went."""
        assert self._grid is not None
        lost = {node for node, rounds in self._missed.items() if rounds >= _PATIENCE}
        gone = lost | self.left_out.keys()
        broken = [group for group in self._groups if gone & set(group.nodes)]
        self._groups = [group for group in self._groups if group not in broken]
        grouped = {node for group in self._groups for node in group.nodes}
        free = [node for node in here if node not in grouped | gone]
        if broken and 0 < len(free) < self.size and self._groups:
            smallest = min(self._groups, key=lambda group: len(group.nodes))
            self._groups.remove(smallest)
            free += [node for node in smallest.nodes if node in set(here)]
        if len(free) < self.size:
            if free:
                log.warning("fedgauss: too few clients for a group of %d are waiting: %s.", self.size, listed(free))
            return
        self._form(sorted(free))

    def _form(self, nodes: Sequence[int]) -> None:
        """Draw groups, and let each agree on its keys."""
        session = secrets.token_hex(16)
        said = self._ask("introduce", {node: {"session": session} for node in nodes})
        entries = {node: content["entry"] for node, content in said.items() if "entry" in content}
        roster = _roster(session, entries)
        drawn = sorted(int(name) for name in roster.names)
        self._rng.shuffle(drawn)
        count = len(drawn) // self.size
        fresh = [tuple(sorted(drawn[i::count])) for i in range(count)]
        wire = roster.to_wire()
        answers = self._ask(
            "agree",
            {node: {"roster": wire, "group": [str(one) for one in group]} for group in fresh for node in group},
        )
        for group in fresh:
            names = [str(node) for node in group]
            tags = {str(node): _texts(answers.get(node, {}).get("tags")) for node in group}
            if apart := untagged(tags, names):
                why = listed(sorted({plain(str(answers.get(int(a), {}).get("refused", ""))) for a in names} - {""}))
                pairs = Counter(name for pair in apart for name in pair)
                log.warning("fedgauss: clients %s did not agree on keys. %s", listed(sorted(pairs)), why)
                self._missed.update(int(name) for name, count in pairs.items() if 2 * count > len(group) - 1)
                continue
            self._groups.append(_Group(group, roster.digest, tags, {name: roster.keys[name] for name in names}))
            if group not in self._ever:
                self._ever.append(group)
        told = np.array(list(self.told.values()))
        if told.size:
            log.info(
                "fedgauss: %d groups of %d clients or more. Sums over all groups so far can give a client's own mean "
                "change away up to a cosine of %.2f at most and %.2f on average, once many rounds are averaged.",
                len(self._groups), self.size, told.max(), told.mean(),
            )  # fmt: skip

    def _ask(self, order: str, contents: Mapping[int, Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
        """An order to clients' mods, and what they answer; nothing from those who do not."""
        assert self._grid is not None
        messages = [
            Message(RecordDict({RECORD: _order(order, content)}), node, MessageType.TRAIN)
            for node, content in contents.items()
        ]
        return {
            reply.metadata.src_node_id: content
            for reply in self._grid.send_and_receive(messages)
            if reply.has_content() and (content := _content(reply)) is not None
        }

    # ---- sums

    def _summed(
        self, server_round: int, replies: Mapping[int, Message]
    ) -> tuple[list[tuple[_Group, Summed, _Reply]], list[str]]:
        """The sums of all groups that can be used, and why others cannot."""
        assert self._sent is not None
        found, void = [], []
        for group in self._asked:
            usable, words = self._of_group(group, server_round, replies)
            if usable is None:
                void.append(f"the sum of clients {listed(group.nodes)} is not used: {words}")
            else:
                found.append((group, *usable))
        usual = float(np.median([self._length(each[1]) for each in found])) if found else 0.0
        kept = []
        for group, total, reply in found:
            if words := self._far_off(group, total, replies, server_round, usual) if len(found) > 1 else "":
                void.append(f"the sum of clients {listed(group.nodes)} is not used: {words}")
            else:
                kept.append((group, total, reply))
        return kept, void

    def _of_group(
        self, group: _Group, server_round: int, replies: Mapping[int, Message]
    ) -> tuple[tuple[Summed, _Reply] | None, str]:
        """The sum of one group, or why there is none; who broke the rules is left out."""
        assert self._sent is not None
        directions, names = self._sent.directions, [str(node) for node in group.nodes]
        opened, silent = {}, []
        for node in group.nodes:
            reply = replies.get(node)
            if reply is None or not reply.has_content():
                why = "" if reply is None else f" ({plain(str(reply.error.reason))})"
                silent.append(f"{node}{why}")
                self._missed[node] += 1
            else:
                self._missed[node] = 0
                opened[node] = _read(reply)
        if silent:
            return None, f"{listed(silent)} did not answer, and without all of a group there is nothing but noise."
        first = next((one for one in opened.values() if one is not None), None)
        layouts = Counter(repr((one.layout, one.names)) for one in opened.values() if one is not None)
        most = layouts.most_common(1)[0][0] if layouts else ""
        transcript = b""
        for node, one in opened.items():
            words = "it cannot be read"
            if one is not None and repr((one.layout, one.names)) != most:
                words = "it has other records or metrics than most"
            elif one is not None and first is not None:
                told = round_told(self._sent.views, self._sent.config, one.layout, one.names)
                transcript = transcript_of(group.digest, names, server_round, told)
                words = fault(one.upload, str(node), names, directions.shape[1], len(one.names))
                if not words and not verify(
                    group.keys[str(node)], one.upload.statement(transcript), one.upload.signature
                ):
                    words = "it is not signed by its key for this round"
            if words:
                self._leave_out(server_round, node, f"its upload cannot be used: {words}")
        usable = {str(node): one for node, one in opened.items() if one is not None and node not in self.left_out}
        if len(usable) < len(group.nodes):
            return None, "of one of them nothing could be used."
        uploads = {name: one.upload for name, one in usable.items()}
        shared = {name: upload.shared for name, upload in uploads.items()}
        if self._settle(group, server_round, shared, transcript, directions):
            return None, "some do not agree on the words that they share, or one of them lied."
        return (summed(uploads, directions), next(iter(usable.values()))), ""

    def _settle(
        self, group: _Group, server_round: int, shared: Mapping[str, Mapping[str, Any]], transcript: bytes,
        directions: Directions,
    ) -> bool:  # fmt: skip
        """Find out who lied where two of a group say different things of the words that they share."""
        pairs = disputes(shared, list(shared))
        for pair in pairs:
            if any(int(name) in self.left_out for name in pair):
                continue  # the group is void all the same, and one key of a client is enough
            shown = self._ask("show", {int(one): {"other": other} for one, other in (pair, pair[::-1])})
            keys = {str(node): str(content.get("key", "")) for node, content in shown.items()}
            size = directions.shape[1]
            for name in liars(pair, keys, group.tags, group.digest, transcript, size, directions, shared):
                self._leave_out(server_round, int(name), "it lied about the words that it shares with another client")
        return bool(pairs)

    def _far_off(
        self, group: _Group, total: Summed, replies: Mapping[int, Message], server_round: int, usual: float
    ) -> str:
        """Why the sum of a group is not used, though all of it came; empty where it is."""
        assert self._sent is not None
        wild = [name for name, pair in total.scalars.items() if np.abs(pair).max() > _FAR_ALONE * usual]
        if not wild and self._length(total) > _FAR * usual:
            wild = self._look(group, replies, server_round, usual)
            if not wild:
                return f"its mean is {self._length(total):.3g} long, more than {_FAR:g} times the usual {usual:.3g}."
        for name in wild:
            self._leave_out(server_round, int(name), f"its change is more than {_FAR_ALONE:g} times as long as usual")
        return "one of them changed by far more than is usual." if wild else ""

    def _look(self, group: _Group, replies: Mapping[int, Message], server_round: int, usual: float) -> list[str]:
        """Who is behind a sum that is far off: each client's numbers along directions that are drawn now."""
        assert self._sent is not None
        size, seed = self._sent.directions.shape[1], secrets.token_hex(16)
        asked = self._ask("look", {node: {"round": server_round, "seed": seed, "size": size} for node in group.nodes})
        shared = {str(node): content.get("shared") for node, content in asked.items()}
        names = [str(node) for node in group.nodes]
        silent = [name for name in names if not _is_shared(shared.get(name), set(names) - {name})]
        if silent or disputes(shared, names):
            return []
        uploads = {str(node): one.upload for node in group.nodes if (one := _read(replies[node])) is not None}
        found = scalars(uploads, shared, random_directions(seed, size))
        return [name for name, one in found.items() if np.abs(one).max() > _FAR_ALONE * usual]

    def _length(self, total: Summed) -> float:
        """Of the mean of a group, in what is trained."""
        assert self._sent is not None
        return float(np.linalg.norm(total.change[self._sent.trained])) / total.examples

    def _as_one(self, group: _Group, total: Summed, reply: _Reply) -> Message:
        """The mean of a group as the reply of one client."""
        assert self._sent is not None
        arrays, start = {}, 0
        mean = total.change / total.examples
        for name, view in self._sent.views.items():
            way = mean[start : start + view.size].reshape(view.shape)
            after = view + way
            arrays[name] = Array(after.astype(view.dtype) if view.dtype.kind == "f" else after)
            start += view.size
        metrics: dict[str, Any] = dict(zip(reply.names, (total.metrics / total.examples).tolist(), strict=True))
        metrics[self._weighted_by()] = total.examples
        reply.message.content = RecordDict(
            {reply.layout["arrays"]: ArrayRecord(arrays), reply.layout["metrics"]: MetricRecord(metrics)}
        )
        return reply.message

    def _weighted_by(self) -> str:
        """The metric that the innermost strategy weights clients by."""
        *_, inner = nested(self.strategy)
        return getattr(inner, "weighted_by_key", None) or "num-examples"

    # ---- verdicts

    def _judge(self, server_round: int, sums: Sequence[Summed]) -> ClientVerdict:
        """The monitor's verdict on the clients of groups whose sums were used."""
        usual = float(np.median([self._length(total) for total in sums]))
        rows = {int(name): pair for total in sums for name, pair in total.scalars.items()}
        verdict = self.monitor.update({k: v / usual if usual > 0 else 0.0 * v for k, v in rows.items()})
        self.verdicts[server_round] = verdict
        self._tell(server_round, verdict)
        fresh, self._alarmed = verdict.alarm and not self._alarmed, verdict.alarm
        if fresh:
            log.warning("fedgauss, round %d: %s", server_round, verdict)
            beyond = self.on_alarm == "exclude" and not verdict.suspects
            if self.on_alarm == "stop" or beyond:
                assert verdict.rollback is not None
                raise Alarmed(verdict, server_round, self.kept.before(verdict.rollback), self.kept.last())
        return verdict

    def _go_back(self, server_round: int, verdict: ClientVerdict) -> ArrayRecord:
        """The arrays from before an alarm's onset, with which the run goes on without the suspects."""
        assert verdict.rollback is not None
        good = self.kept.back_to(verdict.rollback)
        for node in verdict.suspects:
            self._leave_out(server_round, int(node), "it no longer moves like the others, or like its own past")
        self.monitor.exclude(verdict.suspects, back_to=good.round)
        self._alarmed = False
        self._keep(verdict.round, good.arrays)
        log.warning("fedgauss, round %d: the run goes on from round %d.", server_round, good.round)
        return good.arrays

    def _leave_out(self, server_round: int, node: int, why: str) -> None:
        if node not in self.left_out:
            self.left_out[node] = f"round {server_round}: {why}"
            self.monitor.exclude([node])
            log.warning("fedgauss, round %d: client %d is left out from now on, since %s.", server_round, node, why)

    def _keep(self, number: int, arrays: ArrayRecord) -> None:
        self.kept.add(number, arrays, Memory(self.strategy) if self.on_alarm == "exclude" else None)


def _order(order: str, content: Mapping[str, Any]) -> ConfigRecord:
    return ConfigRecord({"order": order, "content": encode(dict(content))})


def _content(reply: Message) -> dict[str, Any] | None:
    """What a mod answered; None where that is nothing to read."""
    try:
        return decode(str(reply.content[RECORD]["content"]))
    except (KeyError, ValueError, TypeError):
        return None


def _read(reply: Message) -> _Reply | None:
    """An upload as it came, of which nothing is checked but that it can be one."""
    content = _content(reply)
    try:
        words = numbers(reply.content[WORDS]["words"])
        assert content is not None
        upload = Upload(words, content["shared"], content["examples"], content["metrics"], str(content["signature"]))
        names, layout = content["names"], content["layout"]
    except Exception:  # whatever a hostile file makes NumPy's reader raise
        return None
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    if not texts or set(_texts(layout)) != {"arrays", "metrics"} or layout["arrays"] == layout["metrics"]:
        return None
    return _Reply(upload, dict(layout), names, reply)


def _texts(value: Any) -> dict[str, str]:
    right = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    return dict(value) if right else {}


def _is_shared(value: Any, peers: set[str]) -> bool:
    right = isinstance(value, dict) and value.keys() == peers
    return right and all(isinstance(p, np.ndarray) and p.dtype == np.uint64 and p.shape == (8,) for p in value.values())


def _roster(session: str, entries: Mapping[int, Any]) -> Roster:
    """The roster of those who introduced themselves under the number of their node."""
    right: dict[str, Entry] = {}  # by what two may not have in common
    for node, told in entries.items():
        try:
            (entry,) = Roster.from_wire(session, [told], verify).entries
        except Refused as refusal:
            log.warning("fedgauss: what client %d said of itself cannot be used. %s", node, plain(str(refusal)))
            continue
        if entry.name == str(node) and not right.keys() & {entry.key, entry.run_key}:
            right |= {entry.key: entry, entry.run_key: entry}
    return Roster(session, list({entry.name: entry for entry in right.values()}.values()), verify)
