"""Which clients are behind an alarm, and since when."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgauss.detect.clients.surprise import LEAST_PAST, before, surprise, t2_of_mean
from fedgauss.detect.clients.watch import ClientWatch

_LONGEST = 20  # rounds that an onset may lie back
_DROP = 16.0  # of T^2, down to which a round may still be the onset
_CLIP = 10.0  # deviations, beyond which a round counts as this far


class Named(NamedTuple):
    """Who, and since when."""

    clients: tuple[int, ...]  # the most surprising first
    p_values: tuple[float, ...]  # of each, the others named left out
    onset: int  # the most likely first bad round
    earliest: int  # that it may have been
    latest: int


def named(watch: ClientWatch, run: int, rate: float) -> Named | None:
    """Clients of the last round that stand out, one after the other; None where nobody does.

    The most surprising client is named, and the others are judged again as if it had never been there: next to it
    honest clients look strange. Holm's rule ends that: with m clients left, when the smallest p exceeds rate / m, or
    when half of them are named. Then each one named is judged once more, beside those who are not: who only looked
    strange for the company it kept is acquitted.
    """
    clients: list[int] = []
    first = watch.without(run, ())
    most = (len(first.present) - 1) // 2
    while len(clients) < most:
        past = watch.without(run, clients)
        p = np.nan_to_num(surprise(past.values[past.present][None], watch.pool[run, None]).p[0], nan=1.0)
        if p.min() * len(p) > rate:
            break
        clients.append(int(past.present[p.argmin()]))
    if not clients:
        return None
    again = {client: _alone(watch, run, clients, client) for client in clients}
    guilty = [c for c in clients if again[c][0] * (len(first.present) - len(clients) + 1) <= rate] or clients[:1]
    onsets = [again[c][1] for c in guilty]
    return Named(
        tuple(guilty),
        tuple(again[c][0] for c in guilty),
        *(min(of_each) for of_each in zip(*onsets, strict=True)),
    )


def _alone(watch: ClientWatch, run: int, clients: list[int], client: int) -> tuple[float, tuple[int, int, int]]:
    """The p-value and the onset of one client, the others named left out."""
    past = watch.without(run, [c for c in clients if c != client])
    place = int(np.flatnonzero(past.present == client)[0])
    histories = past.values[past.present][None]
    numbers = past.numbers[client]
    longest = max(1, min(_LONGEST, int((numbers > 0).sum()) - LEAST_PAST))
    t2 = np.array([t2_of_mean(histories, before(histories, w), w, _CLIP)[0, place] for w in range(1, longest + 1)])
    t2 = np.nan_to_num(t2, nan=0.0)
    possible = np.flatnonzero(t2 >= t2.max() - _DROP) + 1  # rounds back
    back = (int(t2.argmax()) + 1, int(possible[-1]), int(possible[0]))
    p = surprise(histories, watch.pool[run, None]).p[0, place]
    onset, earliest, latest = (int(numbers[-rounds]) for rounds in back)
    return float(p), (onset, earliest, latest)
