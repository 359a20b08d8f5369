"""Clients out of what counts that are still judged, and let back when they behave like the others again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedgauss import _checks
from fedgauss._types import FloatArray, IntArray
from fedgauss.detect.clients.changes import Change, changes
from fedgauss.detect.clients.features import rows_of
from fedgauss.detect.clients.surprise import WINDOWS
from fedgauss.detect.clients.watch import ORDINARY, ClientWatch
from fedgauss.detect.spending import spent

LET_BACK = 0.01  # the chance that a client is ever let back that goes on as it did, or half as far
WAIT = WINDOWS[-1]  # ordinary rounds in a row before a client is back, so that every window saw it; doubled each time
_LONGEST_WAIT = 4096
_TEMPER = 0.5  # of the evidence of a round: what it says stays true if rounds vary by twice their estimated variance
_MOST = 2.0  # log of what one round may say for a client: no single leap lets it back


class Held(NamedTuple):
    """One client in quarantine.

    since      the round after which it was put there
    wait       ordinary rounds in a row that it must show
    quiet      those that it has shown
    evidence   for its having gone back, over its going on as it did
    origin     where its features were before, each less the clients' median; 0 where one is not known   (F,)
    way        V^-1 delta, with delta its change and V the covariance of a round; all 0 without a change  (F,)
    size       lambda = delta' V^-1 delta
    """

    since: int
    wait: int
    quiet: int
    evidence: float
    origin: tuple[float, ...]
    way: tuple[float, ...]
    size: float

    def after(self, row: FloatArray, p: float, tries: int) -> Held:
        """The same after one more round, the `tries`-th, with its features and its p-value beside the others.

        With z = delta' V^-1 (x - origin), N(0, lambda) if it is as before and N(s lambda, lambda) if it is s times as
        far as when it was named, the round says for it

            l = exp((lambda / 8 - z / 2) / 2),    the root of the likelihood ratio of s = 0 to s = 1 / 2,

        and the evidence A becomes (A + w) l, with w the share of round `tries` in 1: an average over the rounds in
        which it may have gone back. Where s is at least 1 / 2, A is on average at most 1 at any time, so by Ville's
        inequality it ever reaches 1 / LET_BACK with a chance of at most LET_BACK.
        """
        evidence = self.evidence
        if np.isfinite(row[np.array(self.way) != 0]).all():
            z = float(np.nan_to_num(row - self.origin) @ self.way)
            says = math.exp(min(_TEMPER * (self.size / 8.0 - z / 2.0), _MOST))
            evidence = min((evidence + spent(1.0, None, tries)) * says, 1e300)
        quiet = self.quiet if math.isnan(p) else self.quiet + 1 if p > ORDINARY else 0
        return self._replace(evidence=evidence, quiet=quiet)

    @property
    def back(self) -> bool:
        """Whether it behaves like the others again."""
        return self.quiet >= self.wait and (not any(self.way) or self.evidence >= 1.0 / LET_BACK)


def held(watch: ClientWatch, clients: Sequence[int], onset: int, times: Sequence[int]) -> list[Held]:
    """Clients as they go into quarantine after `times` earlier ones, changed since `onset`; of a watch of one run."""
    return [
        _held(watch, min(WAIT * 2**often, _LONGEST_WAIT), change)
        for often, change in zip(times, changes(watch, 0, clients, onset), strict=True)
    ]


def _held(watch: ClientWatch, wait: int, change: Change | None) -> Held:
    if change is None:
        nothing = (0.0,) * len(watch.features)
        return Held(watch.round, wait, 0, 0.0, nothing, nothing, 0.0)
    way = np.linalg.solve(change.covariance, change.moved)
    size = float(way @ change.moved)
    return Held(watch.round, wait, 0, 0.0, tuple(change.origin.tolist()), tuple(way.tolist()), size)


def after_round(watch: ClientWatch, each: dict[int, Held], p: dict[int, float]) -> dict[int, Held]:
    """All in quarantine after the last round, in which those with a p-value took part."""
    if not any(client in p for client in each):
        return each
    moves = watch.recent[-1][1]
    rows = rows_of(moves, ~watch.left_out[0, moves.who], watch.features).rows[0]
    place = {int(client): i for i, client in enumerate(moves.who[0])}
    return {
        client: one.after(rows[place[client]], p[client], watch.round - one.since) if client in p else one
        for client, one in each.items()
    }


def words_of(each: dict[int, Held]) -> list[Any]:
    """For a file."""
    return [[client, *one] for client, one in each.items()]


def from_words(told: Any, clients: IntArray, n_features: int, last: int) -> dict[int, Held]:
    """What `words_of` took apart, of these clients; a ValueError where it cannot be that."""
    each = {}
    for client, since, wait, quiet, evidence, origin, way, size in told:
        for name, vector in (("origin", origin), ("way", way)):
            if not isinstance(vector, list) or len(vector) != n_features:
                raise ValueError(f"the {name} of a client in quarantine must have {n_features} numbers")
        each[_checks.whole("client", client, at_least=0)] = Held(
            _checks.whole("since", since, at_least=0, at_most=last),
            _checks.whole("wait", wait, at_most=_LONGEST_WAIT),
            _checks.whole("quiet", quiet, at_least=0, at_most=last),
            max(_checks.real("evidence", evidence), 0.0),
            tuple(_checks.real("origin", x) for x in origin),
            tuple(_checks.real("way", x) for x in way),
            max(_checks.real("size", size), 0.0),
        )
    if sorted(each) != sorted(clients.tolist()):
        raise ValueError("clients in quarantine must be those that are held")
    return each
