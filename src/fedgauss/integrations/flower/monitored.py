"""`Monitored`: any Flower strategy, watched; and what its alarm hands over."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.exception import InconsistentMessageReplies
from flwr.serverapp.strategy import Result, Strategy

from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.flower.feed import MonitorFeed, Watcher
from fedgauss.integrations.flower.records import PARTITION, REASON, Views, ask, log, numbers, plain, viewed_like
from fedgauss.integrations.flower.rounds import NodeNumbers, TrainingRound, opened
from fedgauss.integrations.sinks.base import Sink, Sinks

_HOOKS = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")
_DENSE = 32  # rounds behind the last that are all kept; twice as far back every second is, and so on


class GoodRound(NamedTuple):
    """Arrays of a round without an alarm. Rounds are counted as the monitor does, without refused ones."""

    round: int
    arrays: ArrayRecord


class Alarmed(Exception):
    """The monitor's alarm; `Monitored` raises it, or gives it to a callback.

    Attributes
    ----------
    verdict : Verdict
        What the monitor said.
    server_round : int
        Flower's round in which it did.
    rollback : GoodRound
        The last arrays kept from before the onset.
    last : GoodRound
        The last arrays from before the alarm, which include what happened between onset and alarm.
    """

    def __init__(self, verdict: Verdict, server_round: int, rollback: GoodRound, last: GoodRound) -> None:
        super().__init__(str(verdict))
        self.verdict, self.server_round = verdict, server_round
        self.rollback, self.last = rollback, last


class KeptArrays:
    """Arrays of O(log t) earlier rounds, the denser the nearer.

    A round r is kept at round t when 2^i divides it, with i the smallest such that t - r < 32 * 2^i. So the nearest
    kept round before any other lies within 1/16 of its distance from the last.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, dict[str, Array]] = {}

    def add(self, number: int, arrays: Mapping[str, Array]) -> None:
        """Keep the arrays of a round, and drop those that are no longer needed."""
        self._arrays[number] = dict(arrays.items())
        spacing = {r: 1 << ((number - r) // _DENSE).bit_length() for r in self._arrays}
        self._arrays = {r: held for r, held in self._arrays.items() if r % spacing[r] == 0}

    def last(self) -> GoodRound:
        """The newest."""
        return self.before(max(self._arrays))

    def before(self, number: int) -> GoodRound:
        """The newest that are not from after this round; the oldest when there is none."""
        earlier = [r for r in self._arrays if r <= number] or [min(self._arrays)]
        return GoodRound(max(earlier), ArrayRecord(dict(self._arrays[max(earlier)])))

    def __len__(self) -> int:
        return len(self._arrays)


OnAlarm = Literal["stop", "go on"] | Callable[[Alarmed], None]


class Monitored(Strategy):
    """Wraps a strategy, feeds a monitor the arrays of each round, and acts on its alarm.

    Parameters
    ----------
    strategy : flwr.serverapp.strategy.Strategy
        Any whose clients reply with one ArrayRecord of the arrays that were sent; it sees the messages, the replies and
        the calls that it would see alone.
    monitor : Monitor, Reported, Chained or ServerOnly
        A `Monitor` of all parameters, or one of those that make a monitor after a warm-up.
    on_alarm : {"stop", "go on"} or callable
        "stop" raises `Alarmed` out of `start`, to be caught in the ServerApp's main; "go on" writes it to the log; a
        function is called with the `Alarmed`, once when an alarm begins and for every invalid update. It may raise it,
        or call `monitor.reset`.
    sink : callable, optional
        Called with every verdict, sink(round, verdict), before an alarm is acted on (`fedgauss.integrations.sinks`);
        one that fails is warned of once, and the run goes on.

    Attributes
    ----------
    verdicts : dict
        Of the last `start`, by round; in a warm-up only those on invalid updates.
    participation : dict
        By round, the numbers of the clients whose replies came.
    refused : dict
        By round, what was wrong with replies that could not be used.
    kept : KeptArrays
        Arrays of earlier rounds, of which `Alarmed` has two: 32 to 112 copies of the model in a thousand rounds.

    Notes
    -----
    A round is refused when a reply has other arrays than were sent, numbers that are not finite or, once there is a
    monitor, not plausible by its rule (1e8 standard deviations of a gradient; 1e100 before that). The strategy is then
    not called and the monitor not changed: the verdict is "invalid update", and the next round begins where the refused
    one did. So a client that sends nonsense can stop a run that stops on alarms, and hold up one that goes on, until
    its node is left out. What is plausible and wrong does get in, into the strategy's own momentum too: that is what
    the monitor is for. Refused rounds count no steps of the monitor's: clients whose rate falls with Flower's rounds
    are then ahead of it by a round.

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
    ) -> None:
        if not callable(on_alarm) and on_alarm not in ("stop", "go on"):
            raise ValueError(f"on_alarm must be 'stop', 'go on' or a function of the alarm; got {on_alarm!r}.")
        if not isinstance(strategy, Strategy):
            raise ValueError(f"strategy must be a flwr.serverapp.strategy.Strategy; got {type(strategy).__name__}.")
        if isinstance(strategy, Monitored):
            raise ValueError("strategy must not be Monitored itself. Use one Monitored for each strategy.")
        self.strategy = strategy
        self.watcher: Watcher = MonitorFeed(monitor) if isinstance(monitor, Monitor) else monitor
        self.on_alarm, self.sink = on_alarm, sink
        self._tell = Sinks([] if sink is None else [sink])
        self._hooks: dict[str, Callable[..., Any]] = {}  # the strategy's hooks, while ours stand in their place
        self._begin()

    def _begin(self) -> None:
        """Forget the last run."""
        self.verdicts: dict[int, Verdict] = {}
        self.participation: dict[int, tuple[int, ...]] = {}
        self.refused: dict[int, tuple[str, ...]] = {}
        self.kept = KeptArrays()
        self._roster = NodeNumbers()
        self._sent: Views = {}
        self._alarmed = False
        self._excused: set[int] = set()  # clients whose reason for not answering was logged

    @property
    def monitor(self) -> Monitor | None:
        """The monitor; None while one is being made."""
        return self.watcher.monitor

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """The strategy's own `start`, with every call of a hook going through here."""
        self._begin()
        inner = vars(self.strategy)
        before = {name: inner[name] for name in _HOOKS if name in inner}
        self._hooks = {name: getattr(self.strategy, name) for name in _HOOKS}
        try:
            inner.update({name: getattr(self, name) for name in _HOOKS})
            return self.strategy.start(*args, **kwargs)
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
            self.kept.add(server_round - 1 if self.monitor is None else self.monitor.round, arrays)
        self._sent = {name: numbers(array) for name, array in arrays.items()}
        messages = list(self._hook("configure_train")(server_round, arrays, config, grid))
        request = dict(self.watcher.request(server_round))
        without_partition = {name: value for name, value in request.items() if name != PARTITION}
        for message in messages:
            if wanted := without_partition if message.metadata.dst_node_id in self._roster else request:
                ask(message, wanted)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The strategy's arrays and metrics; none when the round was refused."""
        replies = list(replies)
        uploads, faults = opened(replies, self._sent, self._roster, self._weighted_by())
        self.participation[server_round] = tuple(upload.client for upload in uploads)
        seen = TrainingRound(server_round, self._sent, uploads)
        self._excuse(seen)
        if uploads and not faults:
            faults = self.watcher.faults(seen)
        if faults:
            return self._refuse(server_round, faults)
        try:
            arrays, metrics = self._hook("aggregate_train")(server_round, replies)
        except InconsistentMessageReplies as error:
            return self._refuse(server_round, (f"The strategy cannot use the replies: {plain(str(error))}",))
        if arrays is None or not uploads:
            return arrays, metrics  # nobody answered, or too few for the strategy
        arrays = _in_order(arrays, self._sent)
        try:
            after = viewed_like(arrays, self._sent)
        except ValueError as error:
            return self._refuse(server_round, (f"The strategy made {error}.",))
        verdict = self.watcher.judge(seen, after)
        if verdict is not None:
            self._say(server_round, verdict)
            if verdict.invalid:
                return None, None
        if verdict is None or not verdict.alarm:
            self.kept.add(server_round if verdict is None else verdict.round, arrays)
        return arrays, metrics

    def _weighted_by(self) -> str:
        """The metric that the innermost strategy weights clients by; empty where there is none."""
        inner = self.strategy
        while isinstance(wrapped := getattr(inner, "strategy", None), Strategy):
            inner = wrapped
        return getattr(inner, "weighted_by_key", None) or ""

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
        if self.monitor is not None:
            verdict = replace(self.monitor.update(np.full(self.monitor.lin.dim, np.nan)), note=note)
        else:
            step, last = server_round * self.watcher.sync_every, self.kept.last().round
            alpha = self.watcher.alpha
            verdict = Verdict(True, math.inf, 0.0, "invalid update", server_round, step, None, last, alpha, note=note)
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
        elif self.on_alarm == "stop":
            raise alarm

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's."""
        messages: Iterable[Message] = self._hook("configure_evaluate")(server_round, arrays, config, grid)
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The strategy's."""
        metrics: MetricRecord | None = self._hook("aggregate_evaluate")(server_round, replies)
        return metrics

    def summary(self) -> None:
        """The strategy's."""
        self.strategy.summary()


def _in_order(arrays: ArrayRecord, like: Views) -> ArrayRecord:
    """Arrays in the order of `like`, when they are the same ones."""
    if arrays.keys() != like.keys() or list(arrays) == list(like):
        return arrays
    return ArrayRecord({name: arrays[name] for name in like})
