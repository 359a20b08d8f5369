"""Who is left out of a run and why: nobody sends them messages, or uses what they send; and who is in quarantine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedgauss.detect.clients import ClientMonitor
from fedgauss.integrations.flower.acting import Acting
from fedgauss.integrations.flower.records import log
from fedgauss.integrations.flower.roster import Roster
from fedgauss.integrations.flower.rounds import TrainingRound
from fedgauss.integrations.flower.sampling import OthersGrid, as_many

_ESCAPABLE = (
    "fedgauss, round %d: nodes go by numbers, or by keys that they make afresh at each start, so that who is left out "
    "can come back by a restart. Those who join from now on are in no mean until accept() lets them in. Use "
    "identity='key', identity='partition' or a function of the reply."
)


class Standing:
    """Clients that are left out and why, those whose reply is of no use in this round, and nodes without a name.

    Where there are clients to watch, `acting` knows their monitor. Names are `escapable` that do not outlive a restart.
    """

    def __init__(self, roster: Roster, acting: Acting | None, escapable: bool, at_most: int | None) -> None:
        self.roster, self.acting, self.escapable, self.at_most = roster, acting, escapable, at_most
        self.out: dict[int, str] = {}  # why, by client
        self.skipped: set[int] = set()  # clients, in this round
        self.barred: set[int] = set()  # nodes that say that they are another

    @property
    def monitor(self) -> ClientMonitor:
        """Of clients."""
        assert self.acting is not None
        return self.acting.monitor

    @property
    def set_aside(self) -> set[int]:
        """Clients in quarantine."""
        return set() if self.acting is None else {int(client) for client in self.monitor.quarantined}

    @property
    def closed(self) -> bool:
        """Whether those who come now may be one that was left out."""
        return self.escapable and bool(self.out or self.set_aside)

    def too_many(self, clients: Iterable[int]) -> bool:
        """Whether too many would be out with these: by default half of those seen, but for newcomers who wait."""
        known = set(self.roster.names)
        if self.acting is not None:
            known -= self.acting.newcomers.waiting(known)
        most = (len(known) - 1) // 2 if self.at_most is None else self.at_most
        return len({*self.out, *clients, *self.set_aside}) > most

    def leave_out(self, number: int, reasons: Mapping[int, str], back_to: int | None = None) -> None:
        """From now on without these clients; the monitor forgets what came after the round `back_to`, if any."""
        if not self.out and self.escapable:
            log.warning(_ESCAPABLE, number)
        self.say(number, "left out from now on", reasons)
        self.out.update(reasons)
        if self.acting is not None:
            self.acting.claims.forget(reasons)
        known = reasons.keys() & set(self.monitor.clients)
        if known and (back_to is not None or self.monitor.alarm is None):  # an alarm is not over for a fault
            self.monitor.exclude(sorted(known), back_to=self.monitor.round if back_to is None else back_to)

    def quarantine(self, number: int, suspects: Iterable[int], back_to: int) -> None:
        """Out of every mean, but trained and judged."""
        suspects = sorted(suspects)
        self.monitor.quarantine(suspects, back_to=back_to)
        self.say(number, "in quarantine, trained and judged but in no mean", suspects)

    def accept(self, client: int) -> None:
        """Let a client act that is in quarantine, or new and waiting."""
        newcomers = None if self.acting is None else self.acting.newcomers
        if client in self.set_aside:
            self.monitor.accept(client)
        elif newcomers is None or client in self.out or not newcomers.waiting({client} & self.roster.names.keys()):
            raise ValueError(f"client must be in quarantine, or new and waiting; client {client!r} is neither.")
        if newcomers is not None:
            newcomers.establish([client])
        log.info("fedgauss: accepted: %s.", self.roster.label(client))

    def say(self, number: int, words: str, clients: Iterable[int]) -> None:
        """Tell the log what becomes of clients."""
        log.warning("fedgauss, round %d: %s: %s.", number, words, ", ".join(map(self.roster.label, sorted(clients))))

    def nodes(self, clients: Iterable[int]) -> set[int]:
        """Of these clients, as far as they are known, and those that are barred."""
        return self.barred | {node for client in clients if (node := self.roster.node(client)) is not None}

    def configure(
        self, strategy: Strategy, hook: Callable[[Grid | OthersGrid], Iterable[Message]], grid: Grid
    ) -> list[Message]:
        """Messages to the others alone, as many as a strategy would send to all."""
        out = self.nodes(self.out)
        if not out:
            return list(hook(grid))
        others = OthersGrid(grid, out)
        present = list(others.get_node_ids())
        with as_many(strategy, len(present), len(list(grid.get_node_ids())) - len(present)):
            return [message for message in hook(others) if message.metadata.dst_node_id not in out]

    def replies(self, replies: Iterable[Message]) -> list[Message]:
        """Replies of the others."""
        out = self.nodes(self.out.keys() | self.skipped)
        return [reply for reply in replies if reply.metadata.src_node_id not in out]

    def round(self, seen: TrainingRound) -> TrainingRound:
        """A round without them; the same where none of them took part."""
        kept = tuple(upload for upload in seen.uploads if upload.client not in self.out.keys() | self.skipped)
        return seen if len(kept) == len(seen.uploads) else replace(seen, uploads=kept)
