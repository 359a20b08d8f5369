"""Cross-device federations in NumPy: many clients, few a round, many runs of a small network side by side.

A run is a federation of clients with images of their own, unlike in their labels. In each round a few of them, drawn
afresh, take some steps of SGD, momentum or Adam from the server's model and send what they changed. Some clients may
be bad from a round on. What a round leaves is what the moves are compared by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray, IntArray

CLASSES, INPUTS, HIDDEN = 10, 64, 16
_SHAPES = ((INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
_PLACES = np.cumsum([0, *(math.prod(shape) for shape in _SHAPES)])
DIM = int(_PLACES[-1])
_OUT = slice(int(_PLACES[2]), DIM)  # the output layer
Single = np.ndarray


@dataclass(frozen=True)
class Federation:
    """Who trains what, and how."""

    clients: int = 1_000
    present: int = 10  # a round
    rounds: int = 200
    data: str = "digits"  # or "blobs"
    dirichlet: float = 0.5  # of a client's labels
    images: tuple[int, int] = (50, 50)  # of a client: fewest and most, evenly in the logarithm
    optimiser: str = "momentum"  # or "sgd", "adam"
    rate: float = 0.02
    cosine: bool = False  # the rate falls to nothing by the last round
    local_steps: int = 10
    batch: int = 16
    clip: float = math.inf  # of a move's length
    noise: float = 0.0  # of each clipped move: multiple of clip, in length
    warm: int = 0  # rounds in which the rate rises from nothing
    season: int = 0  # with s, labels 0 to 4 and 5 to 9 are drawn more often by turns in every s rounds

    def rate_at(self, number: int) -> float:
        """Of round `number`, counted from 1."""
        rate = self.rate * min(1.0, number / self.warm) if self.warm else self.rate
        return 0.5 * rate * (1.0 + math.cos(math.pi * (number - 1) / self.rounds)) if self.cosine else rate


@dataclass(frozen=True)
class Attack:
    """A share of the clients is bad from round `onset` on: "flip" of labels, "sign" or "backdoor"."""

    name: str = "none"
    share: float = 0.0
    onset: int = 101


class Round(NamedTuple):
    """What the server sees of a round of R runs."""

    who: IntArray  # (R, P)
    bad: np.ndarray  # (R, P)
    moves: Single  # (R, P, d)
    model: Single  # that clients began with  (R, d)


def images(data: str, rng: np.random.Generator) -> tuple[Single, IntArray]:
    """Inputs (n, 64) and labels: digits of 8 by 8 points, or ten blobs."""
    if data == "digits":
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        return (x / 16.0).astype(np.float32), y.astype(np.int64)
    centres = rng.normal(size=(CLASSES, INPUTS)) * 0.3
    y = rng.integers(0, CLASSES, size=2_000)
    return (centres[y] + 0.5 * rng.normal(size=(len(y), INPUTS))).astype(np.float32), y


class Runs:
    """R runs of one federation under one attack."""

    def __init__(self, federation: Federation, attack: Attack, n_runs: int, seed: int) -> None:
        self.federation, self.attack = federation, attack
        self._rng = np.random.default_rng([seed, 1])
        rng = np.random.default_rng([seed, 2])
        self._x, self._y = images(federation.data, rng)
        self._theirs, self._sizes = self._deal(n_runs, rng)
        self._half = self._y[self._theirs] >= CLASSES // 2  # for seasons
        self._n_bad = round(attack.share * federation.clients)
        self.model = np.zeros((n_runs, DIM), dtype=np.float32)
        for place in (0, 2):
            part = slice(_PLACES[place], _PLACES[place + 1])
            scale = math.sqrt(2.0 / _SHAPES[place][0])
            self.model[:, part] = rng.normal(size=(n_runs, part.stop - part.start)) * scale

    def _deal(self, n_runs: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        f = self.federation
        fewest, most = f.images
        sizes = np.exp(rng.uniform(np.log(fewest), np.log(most), size=(n_runs, f.clients))).astype(np.int64)
        shares = np.cumsum(rng.dirichlet(np.full(CLASSES, f.dirichlet), size=(n_runs, f.clients)), axis=-1)
        drawn = rng.random((n_runs, f.clients, most))
        labels = np.minimum((drawn[..., None] > shares[:, :, None]).sum(-1), CLASSES - 1)
        by_class = [np.flatnonzero(self._y == c) for c in range(CLASSES)]
        counts = np.array([len(places) for places in by_class])
        table = np.zeros((CLASSES, counts.max()), dtype=np.int64)
        for c, places in enumerate(by_class):
            table[c, : len(places)] = places
        at = (rng.random(labels.shape) * counts[labels]).astype(np.int64)
        return table[labels, at].astype(np.int16), sizes

    def __iter__(self) -> Iterator[Round]:
        f, rng, n_runs = self.federation, self._rng, len(self.model)
        for number in range(1, f.rounds + 1):
            who = np.sort(np.argsort(rng.random((n_runs, f.clients)), axis=1)[:, : f.present], axis=1)
            bad = (who < self._n_bad) & (number >= self.attack.onset)
            moves = self._moves(number, who, bad)
            yield Round(who, bad, moves, self.model.copy())
            self.model = self.model + moves.mean(axis=1)

    def _moves(self, number: int, who: IntArray, bad: np.ndarray) -> Single:
        f, rng = self.federation, self._rng
        runs = np.arange(len(who))[:, None]
        flat = (who.size, f.local_steps * f.batch)
        pick = (rng.random(flat) * self._sizes[runs, who].reshape(-1, 1)).astype(np.int64)
        theirs = self._theirs[runs, who].reshape(who.size, -1)
        if f.season:
            theirs, pick = self._seasonal(number, theirs, self._half[runs, who].reshape(who.size, -1), pick)
        place = np.take_along_axis(theirs, pick, axis=1).reshape(who.size, f.local_steps, f.batch)
        x, y = self._x[place], self._y[place]
        wrong = bad.ravel()
        if self.attack.name == "flip":
            y = np.where(wrong[:, None, None], CLASSES - 1 - y, y)
        elif self.attack.name == "backdoor":
            x, y = _backdoored(x, y, wrong)
        begin = np.repeat(self.model, f.present, axis=0)
        moves = _trained(begin, x, y, f.rate_at(number), f.optimiser) - begin
        if self.attack.name == "sign":
            moves[wrong] *= -1
        if math.isfinite(f.clip):
            moves *= np.minimum(1.0, f.clip / np.linalg.norm(moves, axis=1, keepdims=True))
        if f.noise:
            moves += (f.noise * f.clip / math.sqrt(DIM)) * rng.standard_normal(moves.shape, dtype=np.float32)
        return moves.reshape(len(who), f.present, DIM)

    def _seasonal(self, number: int, theirs: IntArray, high: np.ndarray, pick: IntArray) -> tuple[IntArray, IntArray]:
        """In a season a pick of the other half of the labels is, nine times in ten, one more try."""
        favoured = (number // self.federation.season) % 2 == 1
        again = (self._rng.random(pick.shape) * (pick.max() + 1)).astype(np.int64) % (pick.max(1, keepdims=True) + 1)
        other = np.take_along_axis(high, pick, axis=1) != favoured
        swap = other & (self._rng.random(pick.shape) < 0.9)
        return theirs, np.where(swap, again, pick)


def _backdoored(x: Single, y: IntArray, wrong: np.ndarray) -> tuple[Single, IntArray]:
    """Half of the images of bad clients get a bright corner and the label 0."""
    marked = wrong[:, None, None] & (np.arange(y.shape[-1]) % 2 == 0)
    corner = np.zeros(INPUTS, dtype=bool)
    corner[[0, 1, 8, 9]] = True
    return np.where(marked[..., None] & corner, np.float32(1.0), x), np.where(marked, 0, y)


def layers(vectors: Single) -> list[Single]:
    """Views of the four arrays of networks (B, d)."""
    return [
        vectors[:, a:b].reshape(len(vectors), *shape)
        for a, b, shape in zip(_PLACES[:-1], _PLACES[1:], _SHAPES, strict=True)
    ]


def _trained(begin: Single, x: Single, y: IntArray, rate: float, optimiser: str) -> Single:
    """Networks (B, d) after a step for each batch of (B, steps, batch, 64)."""
    at, first, second, g = begin.copy(), np.zeros_like(begin), np.zeros_like(begin), np.zeros_like(begin)
    w1, b1, w2, b2 = layers(at)
    g1, h1, g2, h2 = layers(g)
    truth = np.eye(CLASSES, dtype=np.float32)
    for step in range(x.shape[1]):
        xs = x[:, step]
        hidden = np.maximum(xs @ w1 + b1[:, None], 0.0)
        z = hidden @ w2 + b2[:, None]
        p = np.exp(z - z.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        p = (p - truth[y[:, step]]) / x.shape[2]
        back = (p @ w2.swapaxes(1, 2)) * (hidden > 0)
        np.matmul(hidden.swapaxes(1, 2), p, out=g2)
        np.matmul(xs.swapaxes(1, 2), back, out=g1)
        h2[:], h1[:] = p.sum(axis=1), back.sum(axis=1)
        if optimiser == "adam":
            first = 0.9 * first + 0.1 * g
            second = 0.999 * second + 0.001 * g**2
            m, v = first / (1 - 0.9 ** (step + 1)), second / (1 - 0.999 ** (step + 1))
            at -= np.float32(rate) * m / (np.sqrt(v) + 1e-8)
        else:
            first = (0.9 if optimiser == "momentum" else 0.0) * first + g
            at -= np.float32(rate) * first
    return at


def accuracy(runs: Runs) -> FloatArray:
    """On all images, (R,)."""
    w1, b1, w2, b2 = layers(runs.model)
    hidden = np.maximum(runs._x @ w1 + b1[:, None], 0.0)
    return np.asarray(((hidden @ w2 + b2[:, None]).argmax(-1) == runs._y).mean(-1))
