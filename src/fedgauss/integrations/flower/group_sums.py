"""`GroupSums`: any Flower strategy on sums of groups of clients, whose uploads the server cannot read, and a watch."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedgauss import _checks
from fedgauss.detect.clients.verdict import ClientVerdict, listed
from fedgauss.detect.group_sums import GroupMonitor
from fedgauss.federated.group_sums import FEWEST, MOST_MEMBERS, Summed, determined, untagged
from fedgauss.federated.keys import verify
from fedgauss.federated.refusal import Refused
from fedgauss.federated.roster import Entry, Roster
from fedgauss.integrations.flower.alarmed import Alarmed
from fedgauss.integrations.flower.group_round import Faulty, Group, GroupRound, Reply, ask, refusals, texts, usual_form
from fedgauss.integrations.flower.group_sums_mod import RECORD, order_record
from fedgauss.integrations.flower.kept import KeptArrays, Memory, nested
from fedgauss.integrations.flower.records import log, plain
from fedgauss.integrations.sinks.base import Sink, Sinks

_TRIES = 3  # to agree on keys, after which the others go on without a client that does not


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
    patience : int, optional
        Rounds in a row without a client, after which the others of its group are put into other groups. That gives the
        lost client's own mean change away; without it its group waits for it.
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
    A group whose clients do not all answer is void in that round: what came is noise. Groups change for nothing but
    clients that are left out, or lost with `patience`, since sums over other groups give clients' own mean changes
    away, that of who left first of all; the log says how far.
    """

    def __init__(
        self,
        strategy: Strategy,
        size: int = 4,
        alpha: float = 0.05,
        horizon: int | None = None,
        on_alarm: Literal["stop", "go on", "exclude"] = "stop",
        sink: Sink | None = None,
        patience: int | None = None,
        seed: int | None = None,
    ) -> None:
        if not isinstance(strategy, Strategy):
            raise ValueError(f"strategy must be a flwr.serverapp.strategy.Strategy; got {type(strategy).__name__}.")
        if on_alarm not in ("stop", "go on", "exclude"):
            raise ValueError(f"on_alarm must be 'stop', 'go on' or 'exclude'; got {on_alarm!r}.")
        why = "Of two clients each would know the other's part."
        self.size = _checks.whole("size", size, at_least=FEWEST, fix=why, at_most=MOST_MEMBERS // 2)
        self.patience = None if patience is None else _checks.whole("patience", patience, fix="It counts rounds.")
        self.strategy, self.on_alarm = strategy, on_alarm
        self.monitor = GroupMonitor(alpha, horizon)
        self.verdicts: dict[int, ClientVerdict] = {}
        self.void: dict[int, tuple[str, ...]] = {}
        self.left_out: dict[int, str] = {}
        self.kept = KeptArrays()
        self._rng = random.Random(seed)  # noqa: S311 - who is with whom is no secret
        self._tell = Sinks([] if sink is None else [sink])
        self._groups: list[Group] = []
        self._ever: list[tuple[int, ...]] = []  # groups that there have been
        self._missed: Counter[int] = Counter()  # rounds without an answer, one after the other
        self._apart: Counter[int] = Counter()  # tries of a client to agree on keys
        self._round: GroupRound | None = None
        self._asked: list[Group] = []
        self._alarmed = False

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The nodes of each group."""
        return tuple(group.nodes for group in self._groups)

    @property
    def told(self) -> dict[int, float]:
        """By node, how far the groups so far determine a client's own mean change, as a cosine."""
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
        self._regroup(messages.keys(), grid)
        if not len(self.kept):
            self._keep(server_round - 1, arrays)
        self._asked = [group for group in self._groups if messages.keys() >= set(group.nodes)]
        asked = [messages[node] for group in self._asked for node in group.nodes]
        if not asked:
            raise ValueError(
                f"a group of {self.size} clients or more must be there; there is none. GroupSums needs "
                f"fraction_train=1 and min_train_nodes = min_available_nodes of at least {self.size}."
            )
        self._round = GroupRound.of(server_round, asked[0], grid)
        for message in asked:
            message.content = RecordDict({**message.content, RECORD: order_record("train", {"round": server_round})})
        return asked

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """What the strategy makes of the means of groups."""
        found = self._summed({reply.metadata.src_node_id: reply for reply in replies})
        if not found:
            return None, None
        verdict = self._judge(server_round, [total for total, _ in found])
        if verdict.alarm and self.on_alarm == "exclude":
            return self._go_back(server_round, verdict), None
        assert self._round is not None
        weighted_by = getattr([*nested(self.strategy)][-1], "weighted_by_key", None) or "num-examples"
        means = [self._round.as_one(total, reply, weighted_by) for total, reply in found]
        arrays, metrics = self.strategy.aggregate_train(server_round, means)
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

    def _regroup(self, here: Iterable[int], grid: Grid) -> None:
        """Groups for those who have none: who is new, and who was left behind when a client went."""
        lost = {node for node, rounds in self._missed.items() if self.patience and rounds >= self.patience}
        gone = lost | {node for node, tries in self._apart.items() if tries >= _TRIES} | self.left_out.keys()
        broken = [group for group in self._groups if gone & set(group.nodes)]
        self._groups = [group for group in self._groups if group not in broken]
        grouped = {node for group in self._groups for node in group.nodes}
        free = [node for node in here if node not in grouped | gone]
        if broken and 0 < len(free) < self.size and self._groups:
            smallest = min(self._groups, key=lambda group: len(group.nodes))
            self._groups.remove(smallest)
            free += [node for node in smallest.nodes if node in set(here)]
        if len(free) >= self.size:
            self._form(sorted(free), grid)
        elif free:
            log.warning("fedgauss: too few clients for a group of %d are waiting: %s.", self.size, listed(free))

    def _form(self, nodes: Sequence[int], grid: Grid) -> None:
        """Draw groups, and let each agree on its keys."""
        session = secrets.token_hex(16)
        roster = _roster(session, ask(grid, "introduce", {node: {"session": session} for node in nodes}))
        drawn = sorted(int(name) for name in roster.names)
        self._rng.shuffle(drawn)
        count = len(drawn) // self.size
        groups = [tuple(sorted(drawn[i::count])) for i in range(count)]
        wire = roster.to_wire()
        orders = {node: {"roster": wire, "group": [str(one) for one in group]} for group in groups for node in group}
        answers = ask(grid, "agree", orders)
        for nodes_of_group in groups:
            tags = {str(node): texts(answers.get(node, {}).get("tags")) for node in nodes_of_group}
            keys = {name: roster.keys[name] for name in tags}
            if apart := untagged(tags, list(tags)):
                pairs = Counter(name for pair in apart for name in pair)
                why = refusals(answers.get(node, {}) for node in nodes_of_group)
                log.warning("fedgauss: clients %s did not agree on keys. %s", listed(sorted(pairs)), why)
                self._apart.update(int(name) for name, n in pairs.items() if 2 * n >= len(nodes_of_group))
                continue
            self._groups.append(Group(nodes_of_group, roster.digest, tags, keys))
            if nodes_of_group not in self._ever:
                self._ever.append(nodes_of_group)
        if self._ever:
            told = np.array(list(self.told.values()))
            log.info(
                "fedgauss: %d groups of %d clients or more. Sums over all groups so far can give a client's own mean "
                "change away up to a cosine of %.2f at most and %.2f on average, once many rounds are averaged.",
                len(self._groups), self.size, told.max(), told.mean(),
            )  # fmt: skip

    # ---- sums

    def _summed(self, replies: Mapping[int, Message]) -> list[tuple[Summed, Reply]]:
        """The sums of all groups that can be used; who broke a rule is left out."""
        seen = self._round
        assert seen is not None
        for node in (node for group in self._asked for node in group.nodes):
            answered = node in replies and replies[node].has_content()
            self._missed[node] = 0 if answered else self._missed[node] + 1
            if node in replies and not answered:
                log.warning("fedgauss: client %d could not answer. %s", node, plain(str(replies[node].error.reason)))
        form, void = usual_form(replies.values()), []
        found: list[tuple[Group, Summed, Reply]] = []
        for group in self._asked:
            try:
                found.append((group, *seen.sum_of(group, replies, form)))
            except Faulty as fault:
                void.append(self._refuse(group, fault))
        lengths = sorted(seen.length(total) for _, total, _ in found)
        usual = lengths[(len(lengths) - 1) // 2] if lengths else 0.0
        near = []
        for group, total, reply in found:
            try:
                if len(found) > 1 and usual > 0.0:  # of one group nobody knows what is usual
                    seen.check_near(group, total, replies, usual)
                near.append((total, reply))
            except Faulty as fault:
                void.append(self._refuse(group, fault))
        if void:
            self.void[seen.number] = tuple(void)
        return near

    def _refuse(self, group: Group, fault: Faulty) -> str:
        assert self._round is not None
        words = f"The sum of clients {listed(group.nodes)} is not used: {fault}"
        log.warning("fedgauss, round %d: %s", self._round.number, words)
        for node, why in fault.why.items():
            self._leave_out(self._round.number, node, why)
        return words

    # ---- verdicts

    def _judge(self, server_round: int, sums: Sequence[Summed]) -> ClientVerdict:
        """The monitor's verdict on the clients of groups whose sums were used."""
        assert self._round is not None
        usual = float(np.median([self._round.length(total) for total in sums])) or 1.0
        verdict = self.monitor.update({int(name): pair / usual for each in sums for name, pair in each.scalars.items()})
        self.verdicts[server_round] = verdict
        self._tell(server_round, verdict)
        fresh, self._alarmed = verdict.alarm and not self._alarmed, verdict.alarm
        if fresh:
            log.warning("fedgauss, round %d: %s", server_round, verdict)
            out = self.left_out.keys() | set(verdict.suspects)
            known = {node for group in self._ever for node in group}
            if self.on_alarm == "stop" or (self.on_alarm == "exclude" and 2 * len(out) >= len(known)):
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
            log.warning("fedgauss, round %d: client %d is left out from now on: %s.", server_round, node, why)

    def _keep(self, number: int, arrays: ArrayRecord) -> None:
        self.kept.add(number, arrays, Memory(self.strategy) if self.on_alarm == "exclude" else None)


def _roster(session: str, answers: Mapping[int, Mapping[str, Any]]) -> Roster:
    """The roster of those who introduced themselves under the number of their node."""
    right: dict[str, Entry] = {}  # by what two may not have in common
    for node, answer in answers.items():
        try:
            (entry,) = Roster.from_wire(session, [answer.get("entry")], verify).entries
        except Refused as refusal:
            log.warning("fedgauss: what client %d said of itself cannot be used. %s", node, plain(str(refusal)))
            continue
        if entry.name == str(node) and not right.keys() & {entry.key, entry.run_key}:
            right |= {entry.key: entry, entry.run_key: entry}
    return Roster(session, list({entry.name: entry for entry in right.values()}.values()), verify)
