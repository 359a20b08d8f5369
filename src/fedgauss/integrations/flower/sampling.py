"""Clients that are left out are not sampled: strategies see a grid without their nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedgauss.integrations.flower.kept import nested

_ROUNDING = 1e-9  # what a share of the nodes may lack of a whole number: strategies cut it off


class OthersGrid:
    """A grid as it would be without some of its nodes."""

    def __init__(self, grid: Grid, without: Collection[int]) -> None:
        self._grid, self._without = grid, without

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def get_node_ids(self) -> Iterable[int]:
        """Of the other nodes."""
        return [node for node in self._grid.get_node_ids() if node not in self._without]

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The other nodes."""
        return [node for node in self._grid.get_nodes() if node.node_id not in self._without]


@contextmanager
def as_many(strategy: Strategy, others: int, out: int) -> Iterator[None]:
    """Let a strategy sample as many clients from the others as it would from all, and wait for no more than these.

    With `out` nodes left out of others + out, FedAvg's shares of the nodes grow by (others + out) / others, and what it
    waits for does not count them; both as they were afterwards.
    """
    changed: list[tuple[dict[str, Any], str, Any]] = []
    for part in nested(strategy) if out and others else ():
        held = vars(part)
        for name in ("fraction_train", "fraction_evaluate"):
            if isinstance(share := held.get(name), int | float):
                changed.append((held, name, share))
                held[name] = min(share * (others + out) / others + (_ROUNDING if share else 0.0), 1.0)
        for name in ("min_train_nodes", "min_evaluate_nodes", "min_available_nodes"):
            if isinstance(least := held.get(name), int):
                changed.append((held, name, least))
                held[name] = min(least, max(others, least - out))
    try:
        yield
    finally:
        for held, name, before in changed:
            held[name] = before
