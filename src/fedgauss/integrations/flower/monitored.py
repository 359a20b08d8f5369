"""`Monitored`: any Flower strategy, watched."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.exception import InconsistentMessageReplies
from flwr.serverapp.strategy import Result, Strategy

from fedgauss import _checks
from fedgauss.detect.clients import ClientMonitor, ClientVerdict
from fedgauss.detect.clients.verdict import listed
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.trained import is_trained
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.flower.acting import Acting
from fedgauss.integrations.flower.alarmed import Alarmed
from fedgauss.integrations.flower.clients import Clients
from fedgauss.integrations.flower.ending import Ending, StopWhen
from fedgauss.integrations.flower.feed import MonitorFeed, Watcher, with_note
from fedgauss.integrations.flower.kept import KeptArrays, Memory, nested
from fedgauss.integrations.flower.records import (
    PARTITION,
    REASON,
    Views,
    ask,
    log,
    numbers,
    odd_type,
    plain,
    viewed_like,
)
from fedgauss.integrations.flower.roster import Identity, Roster, check_identity, name_reader
from fedgauss.integrations.flower.rounds import TrainingRound, of_another_layout, opened
from fedgauss.integrations.flower.standing import Standing
from fedgauss.integrations.flower.state import State
from fedgauss.integrations.sinks.base import Sink, Sinks

_PROTECTING = ("exclude", "quarantine")  # a run from those who turned bad
_HOOKS = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")


OnAlarm = Literal["stop", "go on", "exclude", "quarantine"] | Callable[[Alarmed], None]


class Monitored(Strategy):
    """Wraps a strategy, feeds a monitor the arrays of each round, and acts on its alarm.

    Parameters
    ----------
    strategy : flwr.serverapp.strategy.Strategy
        Any whose clients reply with one ArrayRecord of the arrays that were sent; it sees the messages, the replies and
        the calls that it would see alone.
    monitor : Clients, Monitor, Reported, Chained or ServerOnly
        `Clients`, a `Monitor` of all parameters, or one of those that make a monitor after a warm-up.
    on_alarm : {"stop", "go on", "exclude", "quarantine"} or callable
        "stop" raises `Alarmed` out of `start`, to be caught in the ServerApp's main; "go on" writes it to the log; a
        function is called with the `Alarmed`, once when an alarm begins and for every invalid update. It may raise it,
        or call `monitor.reset`. "exclude", with `Clients` only, goes back to before the onset and then on without the
        suspects, for good. "quarantine" does the same, but they are trained and judged on, and are back in the mean
        when they behave as before, or when you `accept` them.
    sink : callable, optional
        Called with every verdict, sink(round, verdict), before an alarm is acted on (`fedgauss.integrations.sinks`);
        one that fails is warned of once, and the run goes on.
    at_most : int, optional
        How many clients may be left out or in quarantine in all; by default fewer than half of those seen. An alarm
        that would make them more is raised, as with "stop".
    stop_when : callable, optional
        Ends the run early: called after every round that changed the model as stop_when(round, metrics), metrics being
        those of the round, from `evaluate_fn` and from clients. Anything true that it returns is the reason, and
        `start` returns what it has; `fedgauss.stopping.Plateau` is such a rule. One that has `reset` is reset after
        rounds with an exclusion.

    identity : {"node", "key", "partition"} or callable
        What a client goes by, with `Clients`. "key" is for a SuperLink that registers its nodes' keys
        (--enable-supernode-auth); "partition" what the mod `report_partition` says; a function of a reply gives a name
        that the application put into it. Those outlive a restart of a node. By default a client is its node, by the
        key or number that it has for as long as it runs.
    largest_claim : float
        How many times the median client's examples a client may count for, with `Clients`: it has at most the share
        largest_claim / (largest_claim + K / 2) of a mean of K. Who claims more counts for that, and the log says so.
    state : path, optional
        A file, with `Clients`: the monitor, who is who and who is left out, after every round. Where it is there
        already, the run goes on from it.

    Attributes
    ----------
    verdicts : dict
        Of the last `start`, by round; in a warm-up only those on invalid updates.
    participation : dict
        By round, the numbers of the clients whose replies came.
    refused : dict
        By round, what was wrong with replies that could not be used.
    excluded : dict
        By round, the numbers of the clients that were left out in it, and from then on.
    left_out : tuple of int
        All clients that are left out, in earlier `start`s too, and before a restart where there is a `state`.
    reasons : dict
        Why, by client.
    quarantined : tuple of int
        All clients in quarantine.
    stopped : object
        What `stop_when` returned to end the last `start`; None if it did not.
    nodes : dict
        The node of each client's number.
    kept : KeptArrays
        Arrays of earlier rounds, of which `Alarmed` has two: 32 to 112 copies of the model in a thousand rounds.

    Notes
    -----
    A round is refused when a reply has other arrays than were sent, numbers that are not finite or, once there is a
    monitor, not plausible by its rule (1e8 standard deviations of a gradient; before that 100 times the median upload's
    way), and when a node says that it has the partition of another. The strategy is then not called and the monitor not
    changed: the verdict is "invalid update", and the next round begins where the refused one did. So a client that
    sends nonsense can stop a run that stops on alarms, and hold up one that goes on, until its node is left out. What
    is plausible and wrong does get in, into the strategy's own momentum too: that is what the monitor is for. Refused
    rounds count no steps of the monitor's: clients whose rate falls with Flower's rounds are then ahead of it by a
    round.

    With "exclude" and "quarantine", a round with an alarm ends with the arrays of the last kept round before the onset
    interval, and the strategy is not shown it. What the strategy held in arrays then (momentum) is brought back with
    them, as far as it does not change these in place. No messages go to the nodes of those who are left out, and no
    strategy samples them: it sees a grid without them, and FedAvg's shares of the nodes grow so that as many clients
    train as before. A client whose reply cannot be used is left out likewise, without going back, or under
    "quarantine" for that round. A round that cannot be used, though no client is to blame, raises `Alarmed`.

    With `Clients`, who is new once half of the clients of a round can be judged is trained and judged, but in no mean
    before it has eight rounds of its own and moves like the others; several new names that do not are an alarm in the
    log and a note on the verdict. Where clients go by their nodes, who joins after somebody was left out may be that
    one: it waits until you `accept` it.

    `start` may be called again, as after an alarm with the arrays to go back to. When they are not those that the
    monitor saw last it begins anew there, and goes on counting rounds and steps; where the rate falls from step to step
    tell it with `monitor.reset(step=..., round=...)`.

    Another wrapper, as those for differential privacy, belongs inside: Monitored(wrapper(strategy), ...). In a
    simulation FedAvg may size its first sample before all nodes are there: give it min_train_nodes =
    min_available_nodes = the number of clients.
    """

    def __init__(
        self,
        strategy: Strategy,
        monitor: Monitor | Watcher,
        on_alarm: OnAlarm = "stop",
        sink: Sink | None = None,
        at_most: int | None = None,
        stop_when: StopWhen | None = None,
        identity: Identity = "node",
        largest_claim: float = 10.0,
        state: str | os.PathLike[str] | None = None,
    ) -> None:
        _check(strategy, monitor, on_alarm, at_most, stop_when, state)
        self.strategy = strategy
        self.watcher: Watcher = MonitorFeed(monitor) if isinstance(monitor, Monitor) else monitor
        self.on_alarm, self.sink, self.stop_when = on_alarm, sink, stop_when
        self.at_most = None if at_most is None else _checks.whole("at_most", at_most, fix="It counts clients.")
        asked = PARTITION in self.watcher.request(1)  # by the watcher, which needs partitions
        self.identity: Identity = PARTITION if asked else check_identity(identity)
        self._said = name_reader(self.identity)
        self._protected = on_alarm in _PROTECTING
        self._tell = Sinks([] if sink is None else [sink])
        self._hooks: dict[str, Callable[..., Any]] = {}  # the strategy's hooks, while ours stand in their place
        self._untrained: set[str] = set()  # names of arrays; FedAvg makes floats of integers, so they are remembered
        self._roster = Roster(keyed=self.identity == "key")
        clients = self.watcher if isinstance(self.watcher, Clients) else None
        self._acting = None if clients is None else Acting(clients, self._roster, largest_claim)
        self._standing = Standing(self._roster, self._acting, self.identity == "node", self.at_most)
        self._state = None if state is None else State(state, self._standing)
        if self._state is not None and clients is not None:
            self._state.resume(clients)
        self._begin()

    def _begin(self) -> None:
        """Forget the last run, but not who is who and who was left out."""
        self.verdicts: dict[int, Verdict] = {}
        self.participation: dict[int, tuple[int, ...]] = {}
        self.refused: dict[int, tuple[str, ...]] = {}
        self.excluded: dict[int, tuple[int, ...]] = {}
        self.kept = KeptArrays()
        self._sent: Views = {}
        self._undone: set[int] = set()  # rounds after which the model was an earlier one, or clients were left out
        self._ending = Ending(self.stop_when, self._undone)
        self._alarmed = False
        self._excused: set[int] = set()  # clients whose reason for not answering was logged

    @property
    def monitor(self) -> Monitor | ClientMonitor | None:
        """The monitor; None while one is being made."""
        return self.watcher.monitor

    @property
    def nodes(self) -> dict[int, int]:
        """The node of each client's number."""
        return self._roster.nodes

    @property
    def left_out(self) -> tuple[int, ...]:
        """The numbers of all clients that are left out."""
        return tuple(sorted(self._standing.out))

    @property
    def reasons(self) -> dict[int, str]:
        """Why each of them is left out."""
        return dict(sorted(self._standing.out.items()))

    @property
    def quarantined(self) -> tuple[int, ...]:
        """The numbers of all clients in quarantine."""
        return tuple(sorted(self._standing.set_aside))

    @property
    def stopped(self) -> Any:
        """What `stop_when` returned to end the last `start`; None if it did not."""
        return self._ending.stopped

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """The strategy's own `start`, with every call of a hook going through here."""
        self._begin()
        inner = vars(self.strategy)
        before = {name: inner[name] for name in _HOOKS if name in inner}
        self._hooks = {name: getattr(self.strategy, name) for name in _HOOKS}
        try:
            inner.update(self._ending.around({name: getattr(self, name) for name in _HOOKS}))
            return self._ending.run(self.strategy.start, *args, **kwargs)
        finally:
            for name in _HOOKS:
                inner.pop(name, None)
            inner.update(before)
            self._hooks = {}

    def _hook(self, name: str) -> Any:
        """The strategy's own; also when it is not `start` that calls ours, but a strategy around us."""
        return self._hooks.get(name) or getattr(self.strategy, name)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's messages, with a request to our mods where nodes are new or the warm-up needs one.

        Arrays keep the order in which they were first sent, whatever the order in which clients return them.
        """
        arrays = _in_order(arrays, self._sent)
        if not len(self.kept):
            self._keep(server_round - 1 if self.monitor is None else self.monitor.round, arrays)
        begins = not self._sent
        self._sent = {name: numbers(array) for name, array in arrays.items()}
        if begins:
            self._set_apart()
        self._roster.look(grid)
        configure = self._hook("configure_train")
        messages = self._standing.configure(
            self.strategy, lambda others: configure(server_round, arrays, config, others), grid
        )
        request = dict(self.watcher.request(server_round)) | ({PARTITION: 1.0} if self.identity == PARTITION else {})
        without_partition = {name: value for name, value in request.items() if name != PARTITION}
        for message in messages:
            if wanted := without_partition if message.metadata.dst_node_id in self._roster else request:
                ask(message, wanted)
        return messages

    def _set_apart(self) -> None:
        """Find out which of the arrays that a run begins with are trained, and tell the log of the others."""
        if odd := [words for name, view in self._sent.items() if (words := odd_type(name, view))]:
            raise ValueError(f"arrays must be numbers; there is {odd[0]}.")
        untrained = {name for name, view in self._sent.items() if not is_trained(name, view.dtype)}
        if not self._sent.keys() - untrained - self._untrained:
            raise ValueError("arrays must hold floating-point numbers that are trained; there are none to judge.")
        if fresh := sorted(untrained - self._untrained):
            log.info("fedgauss: whole numbers and running statistics are averaged, but not judged: %s.", listed(fresh))
        self._untrained |= untrained

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The strategy's arrays and metrics; none when the round was refused, old arrays when it was undone."""
        self._standing.skipped.clear()
        try:
            return self._taken(server_round, self._standing.replies(replies))
        finally:
            if self._state is not None:
                self._state.save(server_round)

    def _taken(self, server_round: int, replies: list[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """A round of replies, of clients that are not left out."""
        standing = self._standing
        weighted_by = self._weighted_by()
        uploads, faults, strangers = opened(replies, self._sent, self._roster, weighted_by, self._said)
        seen = TrainingRound(server_round, self._sent, uploads, self._untrained, weighted=bool(weighted_by))
        seen = standing.round(seen)
        faults = {client: words for client, words in faults.items() if client not in standing.out}
        if self._state is not None:
            self._state.note(server_round, {upload.client for upload in uploads})
        self.participation[server_round] = tuple(seen.clients)
        self._excuse(seen)
        if self._protected:
            standing.barred |= strangers.keys()
            self._warn(server_round, strangers.values())
            strangers = {}
        if seen.uploads and (self._protected or not (faults or strangers)):
            faults |= self.watcher.faults(seen)
        if strangers or (faults and not (self._protected and self._go_on_without(server_round, faults))):
            return self._refuse(server_round, (*faults.values(), *strangers.values()))
        return self._judge_and_aggregate(standing.round(seen), standing.replies(replies))

    def _judge_and_aggregate(
        self, seen: TrainingRound, replies: list[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """A round whose replies can be used."""
        early = self.watcher.judge_uploads(seen) if seen.uploads else None
        if early is not None and early.alarm and self._protected:
            self._say(seen.number, early)
            return self._go_back(seen.number, early), None
        if self._acting is not None and isinstance(early, ClientVerdict):
            early = with_note(early, self._acting.take(seen, early, self._standing.closed))
            replies = self._acting.replies(seen, replies, self._weighted_by())
            if early.returned:
                self._standing.say(seen.number, "back from quarantine", map(int, early.returned))
        if early is not None:
            self._say(seen.number, early)
        try:
            arrays, metrics = self._aggregated(seen.number, replies)
        except InconsistentMessageReplies as error:
            return self._refuse(seen.number, (f"The strategy cannot use the replies: {plain(str(error))}",))
        if arrays is None or not seen.uploads:
            return arrays, metrics  # nobody answered, or too few for the strategy
        arrays = _in_order(arrays, self._sent)
        try:
            after = viewed_like(arrays, self._sent)
        except ValueError as error:
            return self._refuse(seen.number, (f"The strategy made {error}.",))
        verdict = early
        if early is None and (verdict := self.watcher.judge(seen, after)) is not None:
            self._say(seen.number, verdict)
            if verdict.invalid:
                return None, None
        if verdict is None or not verdict.alarm:
            self._keep(seen.number if verdict is None else verdict.round, arrays)
        return arrays, metrics

    def _aggregated(self, server_round: int, replies: list[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """What the strategy makes of replies; with "exclude" without those that it cannot use beside the others."""
        aggregate = self._hook("aggregate_train")
        try:
            result: tuple[ArrayRecord | None, MetricRecord | None] = aggregate(server_round, replies)
        except InconsistentMessageReplies:
            odd = of_another_layout(replies) if self._protected else []
            faults = {k: f"Client {k} sent other records or metrics than most." for k in map(self._roster.number, odd)}
            if not faults or not self._go_on_without(server_round, faults):
                raise
            result = aggregate(server_round, self._standing.replies(replies))
        return result

    def _keep(self, number: int, arrays: ArrayRecord) -> None:
        self.kept.add(number, arrays, Memory(self.strategy) if self._protected else None)

    def _weighted_by(self) -> str:
        """The metric that the innermost strategy weights clients by; empty where there is none."""
        *_, inner = nested(self.strategy)
        return getattr(inner, "weighted_by_key", None) or ""

    def _go_back(self, server_round: int, verdict: Verdict) -> ArrayRecord:
        """The arrays from before an alarm's onset, with which the run goes on without the suspects."""
        assert isinstance(verdict, ClientVerdict)
        assert verdict.rollback is not None
        good = self.kept.back_to(verdict.rollback)
        back_to = min(good.round, verdict.rollback)
        suspects = sorted(int(client) for client in verdict.suspects)
        if self.on_alarm == "quarantine":
            self._standing.quarantine(server_round, suspects, back_to)
        else:
            self._leave_out(server_round, dict.fromkeys(suspects, str(verdict)), back_to)
        self._undone.add(server_round)
        self._alarmed = False
        self._keep(verdict.round, good.arrays)  # where the run is now, as the monitor counts
        log.warning("fedgauss, round %d: the run goes on from round %d.", server_round, good.round)
        return good.arrays

    def _go_on_without(self, server_round: int, faults: Mapping[int, str]) -> bool:
        """Go on without clients whose replies cannot be used; False when they are too many."""
        if self._standing.too_many(faults):
            return False
        self._warn(server_round, faults.values())
        self.participation[server_round] = tuple(k for k in self.participation[server_round] if k not in faults)
        self._standing.skipped |= faults.keys()
        if self.on_alarm == "exclude":
            self._leave_out(server_round, faults)
        return True

    def _leave_out(self, server_round: int, reasons: Mapping[int, str], back_to: int | None = None) -> None:
        """From now on without these clients; the monitor forgets what came after the round `back_to`, if any."""
        self._standing.leave_out(server_round, reasons, back_to)
        self._undone.add(server_round)
        self.excluded[server_round] = tuple(sorted({*self.excluded.get(server_round, ()), *reasons}))

    def accept(self, client: int) -> None:
        """Let a client act that is in quarantine, or new and waiting, on your word.

        Parameters
        ----------
        client : int
            Its number. What it does from now on is what it is compared with.
        """
        self._standing.accept(client)

    def _warn(self, server_round: int, each: Iterable[str]) -> None:
        for words in each:
            log.warning("fedgauss, round %d: %s", server_round, words)

    def _excuse(self, seen: TrainingRound) -> None:
        """Log why a client did not answer, once."""
        for upload in seen.uploads:
            reason = upload.answer.get(REASON)
            if isinstance(reason, str) and upload.client not in self._excused:
                self._excused.add(upload.client)
                log.warning("fedgauss: client %d could not answer. %s", upload.client, plain(reason))

    def _refuse(self, server_round: int, faults: tuple[str, ...]) -> tuple[None, None]:
        """An invalid update: Flower goes on with the arrays that it sent."""
        self.refused[server_round] = faults
        note = plain(" ".join(faults), 1000)
        verdict = self.watcher.refuse(server_round, self.kept.last().round, note)
        self._say(server_round, verdict)
        return None, None

    def _say(self, server_round: int, verdict: Verdict) -> None:
        self.verdicts[server_round] = verdict
        self._tell(server_round, verdict)
        invalid = verdict.invalid
        fresh = verdict.alarm and (invalid or not self._alarmed)
        self._alarmed = verdict.alarm and (not invalid or self._alarmed)
        if not fresh:
            return
        rollback = verdict.rollback if verdict.rollback is not None else verdict.round - 1
        alarm = Alarmed(verdict, server_round, self.kept.before(rollback), self.kept.last())
        log.warning("fedgauss, round %d: %s", server_round, verdict)
        if callable(self.on_alarm):
            self.on_alarm(alarm)
        elif self.on_alarm == "stop" or (self._protected and self._beyond_help(verdict)):
            raise alarm

    def _beyond_help(self, verdict: Verdict) -> bool:
        """Whether leaving out the suspects is no way on: there are none, or too many."""
        return (
            not isinstance(verdict, ClientVerdict)
            or verdict.invalid
            or not verdict.suspects
            or self._standing.too_many(map(int, verdict.suspects))
        )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's, but for clients that are left out."""
        configure = self._hook("configure_evaluate")
        return self._standing.configure(
            self.strategy, lambda others: configure(server_round, arrays, config, others), grid
        )

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The strategy's, but for clients that are left out."""
        metrics: MetricRecord | None = self._hook("aggregate_evaluate")(server_round, self._standing.replies(replies))
        return metrics

    def summary(self) -> None:
        """The strategy's."""
        self.strategy.summary()


def _check(strategy: Any, monitor: Any, on_alarm: Any, at_most: int | None, stop_when: Any, state: Any) -> None:
    """What can be wrong with the arguments of `Monitored`."""
    if not callable(on_alarm) and on_alarm not in ("stop", "go on", *_PROTECTING):
        raise ValueError(
            f"on_alarm must be 'stop', 'go on', 'exclude', 'quarantine' or a function of the alarm; got {on_alarm!r}."
        )
    if not isinstance(strategy, Strategy):
        raise ValueError(f"strategy must be a flwr.serverapp.strategy.Strategy; got {type(strategy).__name__}.")
    if isinstance(strategy, Monitored):
        raise ValueError("strategy must not be Monitored itself. Use one Monitored for each strategy.")
    if not isinstance(monitor, Clients) and (on_alarm in _PROTECTING or state is not None):
        asked = "state" if state is not None else f"on_alarm={on_alarm!r}"
        raise ValueError(
            f"{asked} needs Clients, which names clients before the strategy sees their uploads; got "
            f"{type(monitor).__name__}. Use Monitored(strategy, Clients(), ...)?"
        )
    if at_most is not None and on_alarm not in _PROTECTING:
        raise ValueError(
            "at_most must be left out unless on_alarm is 'exclude' or 'quarantine': nobody is left out otherwise."
        )
    if stop_when is not None and not callable(stop_when):
        raise ValueError(
            f"stop_when must be a function of a round's number and metrics; got {stop_when!r}. "
            "Use fedgauss.stopping.Plateau('accuracy', min_gain=0.01)?"
        )


def _in_order(arrays: ArrayRecord, like: Views) -> ArrayRecord:
    """Arrays in the order of `like`, when they are the same ones."""
    if arrays.keys() != like.keys() or list(arrays) == list(like):
        return arrays
    return ArrayRecord({name: arrays[name] for name in like})
