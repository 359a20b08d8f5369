"""What a monitor would see now: the rounds it has just seen once more, with some clients made bad."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss._shown import ShownInSentences
from fedgauss._types import BoolArray, FloatArray, IntArray
from fedgauss.detect.clients.features import Moves
from fedgauss.detect.clients.groups import chance
from fedgauss.detect.clients.watch import FEWEST, ClientWatch
from fedgauss.detect.spending import spent

ROUNDS = 5  # that are seen once more
DRAWS = 8  # of who is bad, for each chance: its standard error is at most .18, and that of a mean over runs far less
_NUMBERS = 8_000_000  # products of pairs that are held at a time: 64 MB
_BLIND = 0.5  # the chance below which nothing would more likely be seen than not
_ALIKE = 0.01  # of log lengths: when they differ by less, something makes them alike, such as a clip
_ASTRAY = 0.05  # the median cosine below which uploads have hardly any direction in common

Chances = Mapping[int, float | None]


class Sending(NamedTuple):
    """What becomes of a move before it is sent, as far as the monitor was told.

    clip   the length that it is cut to; None for none
    noise  deviation of what is added to each of its parameters then
    dim    the number of parameters; 0 where it is not known
    """

    clip: float | None = None
    noise: float = 0.0
    dim: int = 0

    def scale(self, length: FloatArray, factor: float) -> FloatArray:
        """How much longer an upload would be, had the move been `factor` times as long.

        With L the length of what was sent, N^2 = d noise^2 and a = L^2 - N^2, which the move left of it,

            ((min(f^2 a, max(C^2, a)) + N^2) / L^2)^1/2.
        """
        noise = self.dim * self.noise**2
        square = np.maximum(length**2, np.finfo(np.float64).tiny)
        own = np.maximum(square - noise, 0.0)
        most = np.inf if self.clip is None else np.maximum(self.clip**2, own)
        longer = (np.minimum(factor**2 * own, most) + np.minimum(noise, square)) / square
        return np.asarray(np.sqrt(longer))


@dataclass(frozen=True, repr=False)
class WouldSee(ShownInSentences):
    """What a monitor would see if clients turned bad now. Printed, it says so in words.

    The latest five rounds, which are taken for honest, are seen once more with random clients made bad: they send the
    opposite of what they sent, or twice as much. That is exact for what is done to an upload after everything else;
    that the model would answer to bad clients is left out. What label flips and other changes of data would do cannot
    be had from honest rounds.

    Attributes
    ----------
    round : int
        After which it was asked.
    sign_flip, doubling : dict
        By the number of bad clients (one, two, a third): the chance that an alarm would be raised within five rounds;
        None where it is not known. Doubled are moves before the clip and the noise that the monitor was told of.
    clients : int
        Those who count and were seen in the last rounds.
    why : str
        What stands in the way, or why a chance is not known.
    helps : str
        What would help.
    """

    round: int = 0
    sign_flip: Chances = field(default_factory=dict, hash=False)
    doubling: Chances = field(default_factory=dict, hash=False)
    clients: int = 0
    why: str = ""
    helps: str = ""

    @property
    def label_flip(self) -> None:
        """Unknown: honest rounds do not tell what a client would learn from other labels."""
        return None

    @property
    def known(self) -> bool:
        """Whether any chance is known."""
        return any(x is not None for x in (*self.sign_flip.values(), *self.doubling.values()))

    @property
    def blind(self) -> bool:
        """Whether each chance that is known is below one half, and there is one."""
        chances = [x for x in (*self.sign_flip.values(), *self.doubling.values()) if x is not None]
        return bool(chances) and max(chances) < _BLIND

    def __str__(self) -> str:
        after = f"After round {self.round}"
        if not self.known:
            return f"{after} it is not known what would be seen. {self.why}".rstrip()
        flips = f"a sign flip by {_listed(self.sign_flip)} of {self.clients} clients"
        words = (
            f"{after}, {flips} would be seen within {ROUNDS} rounds, and a doubling by {_listed(self.doubling)}; "
            "label flips: unknown."
        )
        return " ".join(filter(None, [words, "BLIND." if self.blind else "", self.why, self.helps]))


def _listed(chances: Chances) -> str:
    """As 1 (.95) or 2 (1.00)."""
    each = [f"{bad} ({'unknown' if x is None else format(x, '.2f')})" for bad, x in chances.items()]
    return " or ".join([", ".join(each[:-1]), each[-1]]) if len(each) > 1 else "".join(each)


class Level(NamedTuple):
    """When a monitor raises an alarm: as its own attributes say."""

    alpha: float
    horizon: int | None


class Question:
    """What would be seen after a round: answered when it is asked, and once; not once the run has gone on.

    An answer takes the watch as it was, which is too large to be kept with each verdict.
    """

    def __init__(self, watch: ClientWatch, round: int, level: Level, sending: Sending) -> None:
        self._round = round
        self._asked: tuple[ClientWatch, Level, Sending] | None = (watch, level, sending)
        self._answer: WouldSee | None = None

    def close(self) -> None:
        """The run goes on."""
        self._asked = None

    def answer(self) -> WouldSee:
        """What would be seen."""
        if self._answer is None:
            if (asked := self._asked) is None:
                return WouldSee(self._round, why="The run has gone on: ask in the round itself, or the next verdict.")
            self._answer = would_see(*asked, self._round)
        return self._answer

    def __getstate__(self) -> tuple[int, WouldSee | None]:  # of copies, too
        return self._round, self._answer

    def __setstate__(self, state: tuple[int, WouldSee | None]) -> None:
        self._round, self._answer = state
        self._asked = None


def would_see(watch: ClientWatch, level: Level, sending: Sending, round: int, draws: int = DRAWS) -> WouldSee:
    """What would be seen after round `round`, by a watch of one run that is left as it is."""
    rounds = list(watch.recent)[-ROUNDS:]
    counts = ~watch.left_out[0]
    seen = np.zeros_like(counts)
    for _, moves in watch.recent:
        seen[moves.who[0]] = True
    clients = np.flatnonzero(seen & counts)
    present = min(((counts[moves.who[0]]).sum() for _, moves in rounds), default=0)
    if len(rounds) < ROUNDS or present < FEWEST:
        return WouldSee(round, clients=len(clients), why=f"Only {len(rounds)} rounds with {FEWEST} clients were seen.")
    bads = sorted({bad for bad in (1, 2, len(clients) // 3) if 0 < 2 * bad < len(clients)})
    alike = _alike(rounds, counts)
    doubled = None if (alike and sending.clip is None) or (sending.noise and not sending.dim) else 2.0
    flips, doubles = (
        {
            bad: None if factor is None else _share_seen(watch, level, sending, rounds, clients, bad, factor, draws)
            for bad in bads
        }
        for factor in (-1.0, doubled)
    )
    why, helps = _in_the_way(watch, level, sending, round, rounds, counts, alike)
    found = WouldSee(round, flips, doubles, len(clients), why)
    return WouldSee(round, flips, doubles, len(clients), why, helps if _weak(found) else "")


def _weak(found: WouldSee) -> bool:
    """Whether advice is worth its words."""
    return any(x is not None and x < _BLIND for x in (*found.sign_flip.values(), *found.doubling.values()))


def _share_seen(
    watch: ClientWatch, level: Level, sending: Sending, rounds: list[tuple[int, Moves]], clients: IntArray, bad: int,
    factor: float, draws: int,
) -> float:  # fmt: skip
    """The share of draws of so many bad clients in which there is an alarm."""
    rng = np.random.default_rng((rounds[-1][0], bad, int(factor > 0)))  # a gauge that is asked again says the same
    who = np.zeros((draws, watch.left_out.shape[1]), dtype=np.bool_)
    for draw in who:
        draw[rng.choice(clients, bad, replace=False)] = True
    pairs = sum(moves.products[0].size for _, moves in watch.recent)
    at_once = max(1, _NUMBERS // max(pairs, 1))
    parts = [who[first : first + at_once] for first in range(0, draws, at_once)]
    return float(np.concatenate([_alarms(watch, level, sending, rounds, part, factor) for part in parts]).mean())


def _alarms(
    watch: ClientWatch, level: Level, sending: Sending, rounds: list[tuple[int, Moves]], who: BoolArray, factor: float
) -> BoolArray:
    """In which draws (D, K) of bad clients there is an alarm while the rounds are seen once more."""
    again = watch.repeated(len(who), back_to=rounds[0][0] - 1)
    alarm = np.zeros(len(who), dtype=np.bool_)
    before = np.zeros(who.shape)
    for number, moves in rounds:
        again.round = number - 1
        p, jumped = again.update(_acted(watch, moves, who, before, sending, factor))
        before[:, moves.who[0]] += who[:, moves.who[0]]
        p[:, again.left_out[0, moves.who[0]]] = np.nan
        allowed = spent(level.alpha, level.horizon, number - rounds[0][0] + 1 + watch.round)
        smallest = chance(again, np.where(alarm[:, None], np.nan, p))
        alarm |= smallest <= allowed  # that somebody is then named, too, follows at any usual alpha
        again.forget(jumped & ~alarm)
        if alarm.all():
            break
    return alarm


def _acted(
    watch: ClientWatch, moves: Moves, who: BoolArray, before: FloatArray, sending: Sending, factor: float
) -> Moves:
    """A round of one run, once for each draw (D, K) of clients who send `factor` times their move."""
    here = moves.who[0]
    length = np.sqrt(np.maximum(np.diagonal(moves.products[0]), 0.0))
    scales = np.where(who[:, here], factor if factor < 0 else sending.scale(length, factor), 1.0)
    often = np.where(who, before, 0.0)[:, here]
    fields = {
        feature.field: feature.scaled(np.broadcast_to(moves.fields[feature.field], scales.shape), scales, often)
        for feature in watch.features
        if feature.field
    }
    products = moves.products * scales[:, :, None] * scales[:, None, :]
    return Moves(np.broadcast_to(moves.who, scales.shape), products, fields)


def _in_the_way(
    watch: ClientWatch, level: Level, sending: Sending, round: int, rounds: list[tuple[int, Moves]], counts: BoolArray,
    alike: bool,
) -> tuple[str, str]:  # fmt: skip
    """Why little would be seen, or not be known, and what would help."""
    if level.horizon is not None and round + ROUNDS > level.horizon:
        return f"The horizon of {level.horizon} rounds is nearly over.", "A longer horizon would help."
    who = rounds[-1][1].who[0]
    who = who[counts[who]]
    judged = watch.has_past(0, who)
    if 2 * judged.sum() < len(who):
        why = f"{int(judged.sum())} of {len(who)} clients of the last round have a past to be judged by."
        return why, "More rounds would help, or more clients in each of them."
    middle = _middle_cosine(rounds, counts)
    if sending.noise or middle < _ASTRAY:
        why = f"Uploads have a median cosine of {middle:.2f} to each other."
        return why, "Less noise, a larger clip, more local steps or more clients would help."
    if alike:
        told = "" if sending.clip is not None else " Give the monitor clip= to know what a doubling before it would do."
        return f"All lengths are alike, as a clip makes them.{told}", "A larger clip would help."
    return "", "More clients, and rounds with more local steps or larger batches, would help."


def _alike(rounds: list[tuple[int, Moves]], counts: BoolArray) -> bool:
    """Whether lengths hardly differ within rounds."""
    spreads = []
    for _, moves in rounds:
        length = np.log(np.maximum(np.diagonal(moves.products[0])[counts[moves.who[0]]], 1e-300)) / 2.0
        spreads.append(np.median(np.abs(length - np.median(length))))
    return float(np.median(spreads)) < _ALIKE


def _middle_cosine(rounds: list[tuple[int, Moves]], counts: BoolArray) -> float:
    """The median cosine of two clients."""
    found: list[npt.NDArray[np.float64]] = []
    for _, moves in rounds:
        kept = counts[moves.who[0]]
        products = moves.products[0][np.ix_(kept, kept)]
        length = np.sqrt(np.maximum(np.diagonal(products), 1e-300))
        found.append((products / length / length[:, None])[np.triu_indices(len(length), 1)])
    return float(np.median(np.concatenate(found)))
