"""What acts counts: claims of examples, and how much of them a strategy is shown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from flwr.app import Message, MetricRecord

from fedgauss import _checks
from fedgauss.integrations.flower.records import log
from fedgauss.integrations.flower.rounds import Upload

_FEWEST = 3  # claims of which a median says what is usual, whatever one of them is


class Claims:
    """The examples that clients claim, and a bound on what a claim is worth.

    A claim counts for at most `largest` times the median of all clients' last claims. Of K clients no one then has more
    than the share largest / (largest + K / 2) of a mean, from the first round on, whatever it claims: for half of the
    others claim the median at least.
    """

    def __init__(self, largest: float) -> None:
        self.largest = _checks.real("largest_claim", largest, above=0.0)
        if self.largest < 1.0:
            raise ValueError(f"largest_claim must be at least 1, the median client's own claim; got {largest!r}.")
        self.last: dict[int, float] = {}  # of every client that counts
        self._said: set[int] = set()

    def weights(self, uploads: Iterable[Upload], number: int) -> dict[int, float]:
        """What each client that acts in a round counts for, where that is less than it claims."""
        claims = {upload.client: upload.examples for upload in uploads}
        self.last |= claims
        if len(self.last) < _FEWEST:
            return {}
        usual = statistics.median(self.last.values())
        most = self.largest * usual
        for client in sorted(claims.keys() - self._said):
            if claims[client] > most:
                self._said.add(client)
                log.warning(
                    "fedgauss, round %d: client %d claims %.4g examples, the median client %.4g: from now on it counts "
                    "for at most %g times as many as the median.",
                    *(number, client, claims[client], usual, self.largest),
                )  # fmt: skip
        return {client: most for client, claim in claims.items() if claim > most}

    def forget(self, clients: Iterable[int]) -> None:
        """What clients claimed that are left out."""
        for client in clients:
            self.last.pop(client, None)


def show_weights(replies: Iterable[tuple[int, Message]], weights: Mapping[int, float], weighted_by: str) -> None:
    """Write what clients count for into their replies, in place of what they claim."""
    for client, reply in replies:
        for record in reply.content.values() if client in weights and reply.has_content() else ():
            if isinstance(record, MetricRecord) and isinstance(claimed := record.get(weighted_by), int | float):
                weight = weights[client]
                record[weighted_by] = max(int(weight), 1) if isinstance(claimed, int) else weight
