"""New names: trained and judged, but in no mean before they have a past and move like the others.

A client is watched by its own past. Who takes a new name has none, and could act under each name for as long as nobody
can judge it. So a run has founders, those who had come five times when half of the clients of a round could be judged,
and newcomers, who act only once they are established.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.clients import Compared
from fedgauss.detect.clients.surprise import LEAST_PAST
from fedgauss.detect.clients.watch import FEWEST, LEFT_OUT_FIRST, RECENT

_FOUNDED = LEFT_OUT_FIRST + LEAST_PAST  # rounds of its own after which a client is judged
_SEEN = 5  # rounds after which a name that stands out counts as one of a crowd
_CROWD = 3  # new names that all stand out


class Admission(NamedTuple):
    """What a round changes for newcomers."""

    established: set[int]  # who acts from now on
    new: set[int]  # who was seen for the first time
    odd: set[int]  # who has a past, but does not move like the others


class Newcomers:
    """Who acts in a run, and who waits.

    In each round a client has two numbers, the median of its cosines to the established clients and log |u|, each less
    their median over these. A newcomer moves like the others if, over its rounds, its mean cosine is not below those of
    the established clients, and its mean size not above them, by more than these are apart. That does not tell
    everybody who is bad from the first round on (docs/limits.md).
    """

    def __init__(self) -> None:
        self.rounds: Counter[int] = Counter()
        self.founded = False
        self.established: set[int] = set()
        self.held: set[int] = set()  # until somebody says who they are
        self._trials: dict[int, Trial] = {}
        self._clock = 0  # rounds since the run was founded

    def waiting(self, clients: Iterable[int]) -> set[int]:
        """Which of these are not established."""
        return {client for client in clients if client not in self.established} if self.founded else set()

    def take(self, compared: Compared, out: Collection[int], closed: bool) -> Admission:
        """Take in a round that was judged.

        Parameters
        ----------
        compared : Compared
        out : collection of int
            Clients that are left out, or in quarantine.
        closed : bool
            Whether those who come now are held, since one of them may be somebody who was left out.
        """
        present = [int(name) for name in compared.clients]
        new = {client for client in present if client not in self.rounds} if self.founded else set()
        self.held |= new if closed else set()
        self.rounds.update(present)
        if not self.founded:
            often = sum(self.rounds[client] >= _FOUNDED for client in present)
            self.founded = often >= FEWEST and 2 * often >= len(present)
            if self.founded:
                self.established.update(client for client, count in self.rounds.items() if 2 * count >= _FOUNDED)
            return Admission(set(), new, set())
        self._clock += 1
        self._forget_the_gone()
        known = [client for client in present if client in self.established and client not in out]
        if len(known) >= FEWEST:
            self._compare(present, known, _numbers(compared, np.isin(present, known)))
        ready = {
            client
            for client in self.waiting(present)
            if client not in out and client not in self.held and self.rounds[client] > LEAST_PAST
        }
        odd = {client for client in ready if not self.like_the_others(client)}
        self.establish(ready - odd)
        return Admission(ready - odd, new, odd)

    def establish(self, clients: Iterable[int]) -> None:
        """Let clients act, whatever is known of them."""
        for client in clients:
            self.established.add(client)
            self.held.discard(client)
            self._trials.pop(client, None)

    def like_the_others(self, client: int) -> bool:
        """Whether a newcomer moves like the established clients; so does one who was never beside four of them."""
        return client not in self._trials or self._trials[client].inside()

    def crowd(self) -> list[int]:
        """New names that stand out, if they are several: one who takes a new name now and then looks like this."""
        odd = [k for k, trial in self._trials.items() if trial.rounds >= _SEEN and not trial.inside()]
        return odd if len(odd) >= _CROWD else []

    def _compare(self, present: list[int], known: list[int], numbers: FloatArray) -> None:
        at = {client: numbers[place] for place, client in enumerate(present)}
        for client in present:
            if client not in self.established:
                self._trials.setdefault(client, Trial()).add(at[client], {k: at[k] for k in known}, self._clock)

    def _forget_the_gone(self) -> None:
        """Drop newcomers who were not seen for long; should they come back, they begin anew."""
        for client in [k for k, trial in self._trials.items() if self._clock - trial.last > RECENT]:
            del self._trials[client]
            self.rounds[client] = 0

    def state(self) -> dict[str, Any]:
        """Everything but trials, which begin anew after a restart, as JSON can hold it."""
        return {
            "founded": self.founded,
            "rounds": [*self.rounds.items()],
            "established": sorted(self.established),
            "held": sorted(self.held),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""
        self.founded = state["founded"] is True
        self.established, self.held = ({int(client) for client in state[name]} for name in ("established", "held"))
        on_trial = self.waiting(int(client) for client, _ in state["rounds"])
        self.rounds = Counter({int(k): 0 if int(k) in on_trial else int(count) for k, count in state["rounds"]})


class Trial:
    """The rounds of a newcomer: sums of (1, cosine, log size), its own and those of the clients beside it."""

    def __init__(self) -> None:
        self._own = np.zeros(3)
        self._others: dict[int, FloatArray] = {}
        self.last = 0  # round

    @property
    def rounds(self) -> int:
        """Of the newcomer, beside the established."""
        return int(self._own[0])

    def add(self, own: FloatArray, others: Mapping[int, FloatArray], last: int = 0) -> None:
        """A round, and its number."""
        self.last = last
        self._own += np.array([1.0, *own])
        for client, numbers in others.items():
            self._others[client] = self._others.get(client, np.zeros(3)) + np.array([1.0, *numbers])

    def inside(self) -> bool:
        """Whether the newcomer points where the others do and is no longer, give or take what they are apart."""
        often = [sums for sums in self._others.values() if 2 * sums[0] >= self._own[0]]
        if len(often) < FEWEST:
            return True
        means = np.array([sums[1:] / sums[0] for sums in often])
        low, high = means.min(axis=0), means.max(axis=0)
        own = self._own[1:] / self._own[0]
        apart = high - low
        return bool(own[0] >= low[0] - apart[0] and own[1] <= high[1] + apart[1])


def _numbers(compared: Compared, known: BoolArray) -> FloatArray:
    """The median cosine to those who are known, and log |u|, each less its median over these: (P, 2)."""
    size = np.sqrt(np.maximum(np.diagonal(compared.products), np.finfo(np.float64).tiny))
    cosines = compared.products / (size[:, None] * size)
    others = known & ~np.eye(len(size), dtype=np.bool_)
    middle = np.array([np.median(row[beside]) for row, beside in zip(cosines, others, strict=True)])
    numbers = np.column_stack([middle, np.log(size)])
    return np.asarray(numbers - np.median(numbers[known], axis=0))
