"""Ending a Flower run before its last round, with its results.

Flower's `start` is a loop over a fixed number of rounds, and its result is a local of that loop. The one way out is an
exception; so what the loop would have returned is noted here as it passes through the hooks.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

from fedgauss.integrations.flower.records import log

StopWhen = Callable[[int, Mapping[str, Any]], object]
Hook = Callable[..., Any]
_EVALUATE_FN = 6  # its place among the arguments of `start`


class _Enough(Exception):
    """Ends the strategy's loop; never seen outside."""


class Ending:
    """Asks a rule after every round whether to go on, and keeps what the run has so far.

    `undone` holds the rounds after which a rule forgets what it saw: the model is then an earlier one.
    """

    def __init__(self, rule: StopWhen | None, undone: Collection[int]) -> None:
        self.rule, self.undone = rule, undone
        self.result = Result()
        self.stopped: object = None
        self._changed = False  # whether the last round brought new arrays

    def run(self, start: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
        """What `start` returns, or, if the rule ends it, what it would have returned had this been the last round."""
        if self.rule is None:
            return start(*args, **kwargs)
        self._forget()
        if kwargs.get("evaluate_fn") is not None:
            kwargs["evaluate_fn"] = self._evaluating(kwargs["evaluate_fn"])
        elif len(args) > _EVALUATE_FN and args[_EVALUATE_FN] is not None:
            args = (*args[:_EVALUATE_FN], self._evaluating(args[_EVALUATE_FN]), *args[_EVALUATE_FN + 1 :])
        try:
            return start(*args, **kwargs)
        except _Enough:
            return self.result

    def around(self, hooks: Mapping[str, Hook]) -> dict[str, Hook]:
        """The hooks, with notes taken of what passes through them."""
        if self.rule is None:
            return dict(hooks)

        def configure_train(server_round: int, *args: Any, **kwargs: Any) -> Any:
            self._ask(server_round - 1)
            return hooks["configure_train"](server_round, *args, **kwargs)

        def aggregate_train(server_round: int, *args: Any, **kwargs: Any) -> Any:
            arrays, metrics = hooks["aggregate_train"](server_round, *args, **kwargs)
            self._changed = arrays is not None
            if arrays is not None:
                self.result.arrays = arrays
            if metrics is not None:
                self.result.train_metrics_clientapp[server_round] = metrics
            return arrays, metrics

        def aggregate_evaluate(server_round: int, *args: Any, **kwargs: Any) -> Any:
            metrics = hooks["aggregate_evaluate"](server_round, *args, **kwargs)
            if metrics is not None:
                self.result.evaluate_metrics_clientapp[server_round] = metrics
            return metrics

        ours = {f.__name__: f for f in (configure_train, aggregate_train, aggregate_evaluate)}
        return {**hooks, **ours}

    def _evaluating(self, evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None]) -> Hook:
        def noted(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            metrics = evaluate_fn(server_round, arrays)
            if metrics is not None:
                self.result.evaluate_metrics_serverapp[server_round] = metrics
            return metrics

        return noted

    def _ask(self, server_round: int) -> None:
        """Ask the rule about a round that is over; one that brought no new arrays says nothing about learning."""
        if server_round in self.undone:
            self._forget()
            return
        if not self._changed:
            return
        found = self.result
        metrics: dict[str, Any] = {}
        for part in (found.train_metrics_clientapp, found.evaluate_metrics_clientapp, found.evaluate_metrics_serverapp):
            metrics |= dict(part.get(server_round, {}))
        assert self.rule is not None
        if reason := self.rule(server_round, metrics):
            self.stopped = reason
            log.info("fedgauss: the run ends after round %d. %s", server_round, reason)
            raise _Enough

    def _forget(self) -> None:
        if (reset := getattr(self.rule, "reset", None)) is not None:
            reset()
