"""Who is left out of a run: nobody sends them messages, and what still comes from them is dropped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedgauss.integrations.flower.roster import Roster
from fedgauss.integrations.flower.rounds import TrainingRound
from fedgauss.integrations.flower.sampling import OthersGrid, as_many


class Standing:
    """Clients that are left out and why, those whose reply is of no use in this round, and nodes without a name."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.out: dict[int, str] = {}  # why, by client
        self.skipped: set[int] = set()  # clients, in this round
        self.barred: set[int] = set()  # nodes that say that they are another

    def nodes(self) -> set[int]:
        """Of those that are left out, as far as they are known."""
        nodes = self.roster.nodes
        return self.barred | {nodes[client] for client in self.out if client in nodes}

    def configured(
        self, strategy: Strategy, configure: Callable[[Grid | OthersGrid], Iterable[Message]], grid: Grid
    ) -> list[Message]:
        """Messages to the others alone, as many as a strategy would send to all."""
        out = self.nodes()
        if not out:
            return list(configure(grid))
        others = OthersGrid(grid, out)
        present = list(others.get_node_ids())
        with as_many(strategy, len(present), len(list(grid.get_node_ids())) - len(present)):
            return [message for message in configure(others) if message.metadata.dst_node_id not in out]

    def replies(self, replies: Iterable[Message]) -> list[Message]:
        """Replies of the others."""
        nodes = self.roster.nodes
        out = self.nodes() | {nodes[client] for client in self.skipped if client in nodes}
        return [reply for reply in replies if reply.metadata.src_node_id not in out]

    def round(self, seen: TrainingRound) -> TrainingRound:
        """A round without them; the same where none of them took part."""
        kept = tuple(upload for upload in seen.uploads if upload.client not in self.out.keys() | self.skipped)
        return seen if len(kept) == len(seen.uploads) else replace(seen, uploads=kept)

    def too_many(self, clients: Iterable[int], set_aside: Collection[int], at_most: int | None) -> bool:
        """Whether too many would be out with these and those who are set aside: by default half of those seen."""
        most = (len(self.roster) - 1) // 2 if at_most is None else at_most
        return len({*self.out, *clients, *set_aside}) > most
