"""`Monitored`: any Flower strategy, watched."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.flower.alarm import Alarmed
from fedgauss.integrations.flower.arrays import RECORD, copied
from fedgauss.integrations.flower.kept import KeptArrays
from fedgauss.integrations.flower.rounds import Roster, Round, Watcher, opened
from fedgauss.integrations.flower.whole import Whole

OnAlarm = Literal["stop", "go on"] | Callable[[Alarmed], None]

_log = logging.getLogger("flwr")  # where Flower's users look


class Monitored(Strategy):
    """Wraps a strategy, feeds a monitor the arrays of each round, and acts on its alarm.

    strategy  any: it sees the messages, the replies and the calls that it would see alone
    monitor   a `Monitor` of all parameters, or `Reported`, `Chained` or `ServerOnly`, which make one after a warm-up
    on_alarm  "stop" raises `Alarmed` out of `start`, to be caught in the ServerApp's main; "go on" writes it to the
              log; a function is given the `Alarmed`, once when an alarm begins and for every invalid update. It may
              raise it, or call `monitor.reset`
    sink      told of every verdict, sink(round, verdict), before an alarm is acted on (`fedgauss.integrations.sinks`)

    What it knows afterwards:

    verdicts       by round; none during a warm-up
    participation  by round: the numbers of the clients whose replies came
    refused        by round: what was wrong with replies that could not be used
    kept           arrays of earlier rounds, of which `Alarmed` has two

    A round is refused when a reply has other arrays than were sent, or numbers that are not finite or not plausible.
    The monitor then stays as it was and says "invalid update", and the strategy's arrays are not taken: the next round
    begins where the refused one did. So a client that sends nonsense can stop a run that stops on alarms, and hold up
    one that goes on, until its node is left out; it cannot get its numbers in. Refused rounds count no steps of the
    monitor's: clients whose rate falls with Flower's rounds are then ahead of it by a round.

    In a simulation FedAvg may size its first sample before all nodes are there: give it min_train_nodes =
    min_available_nodes = the number of clients.
    """

    def __init__(
        self,
        strategy: Strategy,
        monitor: Monitor | Watcher,
        on_alarm: OnAlarm = "stop",
        sink: Callable[[int, Verdict], None] | None = None,
    ) -> None:
        if not callable(on_alarm) and on_alarm not in ("stop", "go on"):
            raise ValueError(f"on_alarm must be 'stop', 'go on' or a function of the alarm; got {on_alarm!r}.")
        if not isinstance(strategy, Strategy):
            raise ValueError(f"strategy must be a flwr.serverapp.strategy.Strategy; got {type(strategy).__name__}.")
        self.strategy = strategy
        self.watcher: Watcher = Whole(monitor) if isinstance(monitor, Monitor) else monitor
        self.on_alarm, self.sink = on_alarm, sink
        self.verdicts: dict[int, Verdict] = {}
        self.participation: dict[int, tuple[int, ...]] = {}
        self.refused: dict[int, tuple[str, ...]] = {}
        self.kept = KeptArrays()
        self._roster = Roster()
        self._sent = ArrayRecord()
        self._alarmed = False

    @property
    def monitor(self) -> Monitor | None:
        """The monitor; None while one is being made."""
        return self.watcher.monitor

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's messages, with a request to our mods where nodes are new or the warm-up needs one."""
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._sent = copied(arrays)
        if not len(self.kept):
            self.kept.add(server_round - 1, self._sent)
        request = self.watcher.request(server_round) or ArrayRecord()
        if any(message.metadata.dst_node_id not in self._roster for message in messages):
            request["partition"] = Array(np.array(1.0))
        if len(request):
            for message in messages:
                message.content[RECORD] = request
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The strategy's arrays and metrics; no arrays when the round was refused."""
        replies = list(replies)
        weighted_by = getattr(self.strategy, "weighted_by_key", None)
        uploads, faults = opened(replies, self._sent, self._roster, weighted_by)
        self.participation[server_round] = tuple(upload.client for upload in uploads)
        arrays, metrics = None, None
        try:
            arrays, metrics = self.strategy.aggregate_train(server_round, replies)
        except Exception as error:
            if not faults:  # the strategy's own affair
                raise
            faults = (*faults, f"The strategy could not use the replies: {error}")
        if arrays is None and not faults:
            return arrays, metrics  # nobody answered
        seen = Round(server_round, self._sent, None if arrays is None else copied(arrays), uploads, faults)
        if not (seen.sound or faults):
            faults = ("The strategy's arrays are not finite, or not of the shapes that were sent.",)
        if faults:
            self.refused[server_round] = faults
            _log.warning("fedgauss, round %d: %s", server_round, " ".join(faults))
        verdict = self.watcher.judge(seen)
        if verdict is not None:
            self.verdicts[server_round] = verdict
            if self.sink is not None:
                self.sink(server_round, verdict)
            self._act(server_round, verdict)
        if faults or seen.after is None or (verdict is not None and verdict.channel == "invalid update"):
            return None, metrics  # Flower then goes on with the arrays that it sent
        if verdict is None or not verdict.alarm:
            self.kept.add(server_round if verdict is None else verdict.round, seen.after)
        return arrays, metrics

    def _act(self, server_round: int, verdict: Verdict) -> None:
        invalid = verdict.channel == "invalid update"
        fresh = verdict.alarm and (invalid or not self._alarmed)
        self._alarmed = verdict.alarm and (not invalid or self._alarmed)
        if not fresh:
            return
        rollback = verdict.rollback if verdict.rollback is not None else verdict.round - 1
        alarm = Alarmed(verdict, server_round, self.kept.before(rollback), self.kept.last())
        _log.warning("fedgauss, round %d: %s", server_round, verdict)
        if callable(self.on_alarm):
            self.on_alarm(alarm)
        elif self.on_alarm == "stop":
            raise alarm

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The strategy's."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The strategy's."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """The strategy's."""
        self.strategy.summary()

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """The strategy's own loop, with every call of a hook going through here."""
        return type(self.strategy).start(self, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Whatever else its loop asks for."""
        if name == "strategy":  # not there yet: half-made, or being copied
            raise AttributeError(name)
        return getattr(self.strategy, name)
