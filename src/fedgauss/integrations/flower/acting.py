"""Who acts in a round, and with which weight: the others are trained and judged, but no strategy sees them."""

from __future__ import annotations

from collections.abc import Iterable
from logging import INFO, WARNING
from typing import Any

from flwr.app import Message

from fedgauss.detect.clients import ClientMonitor, ClientVerdict
from fedgauss.detect.clients.verdict import listed
from fedgauss.integrations.flower.clients import Clients
from fedgauss.integrations.flower.newcomers import Newcomers
from fedgauss.integrations.flower.records import log
from fedgauss.integrations.flower.roster import Roster
from fedgauss.integrations.flower.rounds import TrainingRound
from fedgauss.integrations.flower.weights import Claims, show_weights


class Acting:
    """The clients whose uploads a strategy sees.

    Out are those in quarantine, and newcomers until they are established. What the others claim counts up to a bound.
    """

    def __init__(self, watcher: Clients, roster: Roster, largest_claim: float) -> None:
        self.watcher, self.roster = watcher, roster
        self.claims, self.newcomers = Claims(largest_claim), Newcomers()
        # What the log has said, and says once.
        self._odd: set[int] = set()
        self._crowd: set[int] = set()
        self._alone = False

    @property
    def monitor(self) -> ClientMonitor:
        """The watcher's, which may be another one after a restart."""
        return self.watcher.monitor

    def take(self, seen: TrainingRound, verdict: ClientVerdict, closed: bool) -> str:
        """Take in a round without an alarm that is acted on; what to say of it.

        It is `closed` to new names where one of them may have been left out.
        """
        if verdict.invalid or self.monitor.compared is None:
            return ""
        admission = self.newcomers.take(self.monitor.compared, set(map(int, self.monitor.quarantined)), closed)
        why = "until accept() lets it in, since it may have been left out before" if closed else "before it has a past"
        for client in sorted(admission.new):
            self._log(INFO, seen, f"{self._who(client)} is new. It is judged, but in no mean {why}.")
        for client in sorted(admission.established):
            self._log(INFO, seen, f"{self._who(client)} has a past and moves like the others: it is in the mean.")
        for client in sorted(admission.odd - self._odd):
            self._log(
                WARNING,
                seen,
                f"{self._who(client)} has a past, but does not move like the others: it is in no mean until accept() "
                "lets it in.",
            )
        self._odd |= admission.odd
        crowd = set(self.newcomers.crowd())
        if not crowd - self._crowd:
            return ""
        self._crowd |= crowd
        words = (
            f"ALARM: new names move unlike the others, and were in no mean: clients {listed(sorted(crowd))}. "
            "Somebody may take one name after the other."
        )
        self._log(WARNING, seen, words)
        return words

    def replies(self, seen: TrainingRound, replies: Iterable[Message], weighted_by: str) -> list[Message]:
        """What the strategy is shown of a round."""
        numbered = [
            (-1 if reply.has_error() else self.roster.number(reply.metadata.src_node_id), reply) for reply in replies
        ]
        here = set(seen.clients) - set(map(int, self.monitor.quarantined))
        acting = here - self.newcomers.waiting(here)
        if here and not acting:
            acting = here
            if not self._alone:
                self._log(WARNING, seen, "nobody is there but clients without a past: they are in the mean.")
            self._alone = True
        shown = [(client, reply) for client, reply in numbered if client in acting or reply.has_error()]
        if weighted_by:
            uploads = [upload for upload in seen.uploads if upload.client in acting]
            show_weights(shown, self.claims.weights(uploads, seen.number), weighted_by)
        return [reply for _, reply in shown]

    def state(self) -> dict[str, Any]:
        """Everything but the monitor and the roster, as JSON can hold it."""
        return {"claims": [*self.claims.last.items()], "newcomers": self.newcomers.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        self.claims.last = {int(client): float(claim) for client, claim in state["claims"]}
        self.newcomers.restore(state["newcomers"])

    def _who(self, client: int) -> str:
        return self.roster.label(client)

    def _log(self, level: int, seen: TrainingRound, words: str) -> None:
        log.log(level, "fedgauss, round %d: %s", seen.number, words)
