"""Which clients are behind an alarm, and since when."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgauss._types import BoolArray, IntArray
from fedgauss.detect.clients.features import together
from fedgauss.detect.clients.groups import Group, group_of, groups, judged_lately
from fedgauss.detect.clients.surprise import LEAST_PAST, Past, before, t2_of_mean
from fedgauss.detect.clients.watch import ClientWatch

_LONGEST = 20  # rounds that an onset may lie back
_DROP = 16.0  # of T^2, down to which a round may still be the onset
_CLIP = 10.0  # deviations, beyond which a round counts as this far


class Named(NamedTuple):
    """Who, and since when."""

    clients: tuple[int, ...]  # the most surprising first
    p_values: tuple[float, ...]  # of each, beside those who are not named
    onset: int  # the most likely first bad round
    earliest: int  # that it may have been
    latest: int


def named(watch: ClientWatch, run: int, rate: float) -> Named | None:
    """Clients that stand out lately; None where nobody does.

    Of the groups that stand out, the largest in which everyone does, by Holm's rule: with m clients outside it, each
    p-value is at most rate / (m + 1). Beside each group there is the one without its least surprising client: who only
    kept bad company does not stand out once the others are gone. Clients that sent the same as one of the group are
    judged with it, at the level `rate`: copies stand out, but who was copied, once they are gone, does not.
    """
    only = np.array([run])
    judged, _ = judged_lately(watch, only)
    found: Group | None = None
    for group in groups(watch, only):
        fewer = [group_of(watch, only, judged, group.clients[:, :-1])[0]] if group.p.size > 1 else []
        for each in (*fewer, group):
            everyone = 2 * each.p.size < judged.sum() and each.p[0, -1] * (judged.sum() - each.p.size + 1) <= rate
            if everyone and (found is None or (each.p.size, -each.chance[0]) > (found.p.size, -found.chance[0])):
                found = each
    if found is None:
        return None
    found = _with_copies(watch, only, judged, found, rate)
    clients = found.clients[0]
    accused = np.isin(np.arange(judged.shape[1]), clients)[None]
    past = watch.beside(only, accused)
    onsets = [_onset(watch, past, judged & ~accused, client) for client in clients]
    first = (min(of_each) for of_each in zip(*onsets, strict=True))
    return Named(tuple(clients.tolist()), tuple(found.p[0].tolist()), *first)


def _with_copies(watch: ClientWatch, only: IntArray, judged: BoolArray, found: Group, rate: float) -> Group:
    """The group with those who sent the same as one of it, but without the one that was copied."""
    same = watch.same_as(int(only[0]), found.clients[0]) & judged[0]
    all_of_them = same | np.isin(np.arange(len(same)), found.clients[0])
    if not same.any() or 2 * all_of_them.sum() >= judged.sum():
        return found
    together, p = group_of(watch, only, judged, np.flatnonzero(all_of_them)[None])
    guilty = together.clients[:, ~same[together.clients[0]] | (p[0, together.clients[0]] <= rate)]
    return group_of(watch, only, judged, guilty)[0] if guilty.size else found


def _onset(watch: ClientWatch, past: Past, kept: BoolArray, client: int) -> tuple[int, int, int]:
    """The most likely round, the earliest and the latest, of one client beside those kept."""
    numbers = past.numbers[0, client]
    longest = max(1, min(_LONGEST, int((numbers > 0).sum()) - LEAST_PAST))
    windows = range(1, longest + 1)
    histories = [past.of(each) for each in together(watch.features)]
    each = [[t2_of_mean(own, before(own, w, kept), w, _CLIP)[0, client] for w in windows] for own in histories]
    t2 = np.nan_to_num(each, nan=0.0).max(axis=0)  # of whatever is judged, what changed most
    possible = np.flatnonzero(t2 >= t2.max() - _DROP) + 1  # rounds back
    back = (int(t2.argmax()) + 1, int(possible[-1]), int(possible[0]))
    onset, earliest, latest = (int(numbers[-rounds]) for rounds in back)
    return onset, earliest, latest
