"""Many small federations at once in NumPy: what clients send, round by round, through compression, clipping and noise.

R federations side by side share one setting. Each client has digits of its own with Dirichlet labels, takes a few
steps from the server's model, and sends what it changed through a wire: clipped, compressed or noisy. Some clients may
turn bad, in their data or in what they send. A round gives uploads, so that whatever a watch looks at is in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss.data.digits import drawn

Single = npt.NDArray[np.float32]
Whole = npt.NDArray[np.int64]

CLASSES, SIDE, HIDDEN = 10, 8, 16
PIXELS = SIDE * SIDE
DIGITS = 4_000  # drawn once for all runs
DIGITS_SEED = 2029
COLUMNS = 20  # of a table, for the regression


@dataclass(frozen=True)
class Federation:
    """Who trains what, and how."""

    clients: int = 10
    present: int | None = None  # clients a round, drawn afresh; None for all
    rounds: int = 80
    local_steps: int = 8
    batch: int | None = 16  # None for all rows of a client
    rows: int = 150  # of every client
    dirichlet: float = 0.5  # of its labels; inf for clients that are alike
    model: str = "network"  # 64-16-10; or "normalised", with BatchNorm; "softmax"; "regression"; "directions"
    rate: float = 0.1
    schedule: str = "constant"  # or "cosine", to 0 at the end; "falling", like t^-1/2; "drop", by ten in mid-run
    momentum: float = 0.9
    adam: bool = False
    heavy_tails: bool = False  # rows times a t(3) factor
    noise: float = 0.01  # of "directions", which are own and common vectors with noise and no training
    examples: str = "equal"  # or "1:100", constant; "random", 20 % about that
    buffers: bool = False  # whether running statistics are among what is sent

    @property
    def n_present(self) -> int:
        """Clients in a round."""
        return self.clients if self.present is None else self.present

    def rate_at(self, number: int) -> float:
        """Of round `number`, counted from 1."""
        if self.schedule == "cosine":
            return self.rate * 0.5 * (1.0 + float(np.cos(np.pi * (number - 1) / self.rounds)))
        if self.schedule == "falling":
            return self.rate * number**-0.5
        return self.rate / 10 if self.schedule == "drop" and number > self.rounds // 2 else self.rate


@dataclass(frozen=True)
class Wire:
    """What happens to a move before the server has it, and to the mean."""

    clip: float = np.inf  # the longest upload, as flwr's `compute_clip_model_update` does it
    adaptive: bool = False  # the clip follows the median length, as flwr's adaptive mods do it
    local_noise: float = 0.0  # deviation of each coordinate, over the clip, added by the client
    central_noise: float = 0.0  # the same, of the sum, added by the server
    code: str = "floats"  # or "signs", "top", "bytes", "float16"
    share: float = 1.0  # of the coordinates that "top" sends
    feedback: bool = False  # what was not sent is added to the next move
    step: float = 0.02  # of every coordinate under "signs"


@dataclass(frozen=True)
class Attack:
    """What the first `bad` clients do from round `onset` on."""

    name: str = "none"
    bad: int = 0
    onset: int = 41
    strength: float = 1.0


class Round(NamedTuple):
    """What the server has of a round of R runs."""

    who: Whole  # clients present  (R, P)
    uploads: Single  # (R, P, d)
    examples: Single  # that each claims  (R, P)


@cache
def digits() -> tuple[Single, Whole]:
    """Rows of 64 pixels in [0, 1], and labels; as many of each class, in order of class."""
    labels = np.repeat(np.arange(CLASSES), DIGITS // CLASSES)
    images = (
        drawn(labels, DIGITS_SEED)[:, 2:26, 2:26].reshape(-1, SIDE, 3, SIDE, 3).mean(axis=(2, 4)).reshape(-1, PIXELS)
    )
    return (images / max(float(images.max()), 1.0)).astype(np.float32), labels


# --- models: a loss and its gradient, for vectors of parameters (R, P, d) ---------------------------------------------

_LAYERS = {
    "network": ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)),
    "normalised": ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)),
    "softmax": ((PIXELS, CLASSES), (CLASSES,)),
    "regression": ((COLUMNS, 1), (1,)),
    "directions": ((200,),),
}


def shapes_of(model: str) -> tuple[tuple[int, ...], ...]:
    """Of the layers, in the order in which they lie in a vector."""
    return _LAYERS[model]


def n_parameters(model: str) -> int:
    """Of a model."""
    return sum(int(np.prod(shape)) for shape in _LAYERS[model])


def _layers(model: str, vector: Single) -> list[Single]:
    found, at = [], 0
    for shape in _LAYERS[model]:
        size = int(np.prod(shape))
        part = vector[..., at : at + size]
        found.append(part.reshape(*vector.shape[:-1], *shape) if len(shape) > 1 else part[..., None, :])
        at += size
    return found


def _flat(parts: list[Single]) -> Single:
    return np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=-1)


def _blame(scores: Single, labels: Whole) -> Single:
    """Softmax less the label, over the rows."""
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    np.put_along_axis(scores, labels[..., None], np.take_along_axis(scores, labels[..., None], -1) - 1.0, -1)
    return scores / scores.shape[-2]


def _sum(rows: Single) -> Single:
    return rows.sum(axis=-2)


def gradient(model: str, vector: Single, x: Single, y: Whole | Single) -> tuple[Single, tuple[Single, ...]]:
    """Of the mean loss over rows (R, P, b, columns), (R, P, d), and the moments that a normalisation saw."""
    parts, across = _layers(model, vector), np.swapaxes(x, -1, -2)
    if model == "regression":
        off = (x @ parts[0] + parts[1] - y[..., None]) / x.shape[-2]
        return _flat([across @ off, _sum(off)]), ()
    if model == "softmax":
        off = _blame(x @ parts[0] + parts[1], y)
        return _flat([across @ off, _sum(off)]), ()
    if model == "network":
        hidden = np.maximum(x @ parts[0] + parts[1], 0.0)
        off = _blame(hidden @ parts[2] + parts[3], y)
        back = (off @ np.swapaxes(parts[2], -1, -2)) * (hidden > 0)
        return _flat([across @ back, _sum(back), np.swapaxes(hidden, -1, -2) @ off, _sum(off)]), ()
    raw = x @ parts[0]
    mean, spread = raw.mean(axis=-2, keepdims=True), np.sqrt(raw.var(axis=-2, keepdims=True) + 1e-5)
    unit = (raw - mean) / spread
    hidden = np.maximum(unit * parts[1] + parts[2], 0.0)
    off = _blame(hidden @ parts[3] + parts[4], y)
    back = (off @ np.swapaxes(parts[3], -1, -2)) * (hidden > 0)
    inner = back * parts[1]
    less = inner - inner.mean(axis=-2, keepdims=True) - unit * (inner * unit).mean(axis=-2, keepdims=True)
    gradients = [across @ (less / spread), _sum(back * unit), _sum(back), np.swapaxes(hidden, -1, -2) @ off, _sum(off)]
    return _flat(gradients), (mean[..., 0, :], spread[..., 0, :] ** 2)


def start(model: str, n_runs: int, rng: np.random.Generator) -> Single:
    """He's initial weights, (R, d); ones for the gains of a normalisation."""
    parts = []
    for place, shape in enumerate(_LAYERS[model]):
        if len(shape) > 1 and model in ("network", "normalised"):
            part = rng.normal(size=(n_runs, int(np.prod(shape)))) * np.sqrt(2.0 / shape[0])
        else:
            gains = model == "normalised" and place == 1
            part = np.full((n_runs, int(np.prod(shape))), float(gains))
        parts.append(part)
    return np.concatenate(parts, axis=1).astype(np.float32)


# --- what bad clients train on, and send ------------------------------------------------------------------------------

ON_DATA = ("flip", "seven to one", "backdoor")


def _poisoned(name: str, x: Single, y: Whole, part: npt.NDArray[np.bool_]) -> tuple[Single, Whole]:
    """Rows of clients in `part` (R, P), changed."""
    where = part[..., None]
    if name == "flip":
        return x, np.where(where, CLASSES - 1 - y, y)
    if name == "seven to one":
        return x, np.where(where & (y == 7), 1, y)
    marked = where & (np.arange(y.shape[-1]) % 2 == 0)
    x = x.copy()
    x[..., [0, 1, SIDE, SIDE + 1]] = np.where(marked[..., None], 1.0, x[..., [0, 1, SIDE, SIDE + 1]])
    return x, np.where(marked, 0, y)


def _length(u: Single) -> Single:
    return np.linalg.norm(u, axis=-1, keepdims=True)


def _least_apart(honest: Single, direction: Single, furthest: bool) -> Single:
    """Min-Max and Min-Sum: the mean plus as much of a direction as keeps distances within those of honest moves."""
    mean = honest.mean(axis=1, keepdims=True)
    products = honest @ np.swapaxes(honest, 1, 2)
    square = np.diagonal(products, axis1=1, axis2=2)
    apart = square[:, :, None] + square[:, None, :] - 2 * products
    most = apart.max(axis=(1, 2)) if furthest else apart.sum(axis=2).max(axis=1)
    low, high = np.zeros(len(honest)), np.full(len(honest), 50.0)
    for _ in range(25):
        middle = 0.5 * (low + high)
        away = ((mean + middle[:, None, None] * direction - honest) ** 2).sum(axis=2)
        fits = (away.max(axis=1) if furthest else away.sum(axis=1)) <= most
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return (mean + low[:, None, None] * direction).astype(np.float32)


def _sent_by_the_bad(attack: Attack, sent: Single, last: Single, rng: np.random.Generator) -> Single:
    """What replaces the first `bad` of all that is sent, (R, bad, d); they know what everybody sends."""
    own, honest = sent[:, : attack.bad], sent[:, attack.bad :]
    mean, spread = honest.mean(axis=1, keepdims=True), honest.std(axis=1, keepdims=True)
    name = attack.name
    if name == "sign":
        return -own
    if name == "scale":
        return attack.strength * own
    if name == "lie":
        return np.broadcast_to(mean - attack.strength * spread, own.shape)
    if name in ("min-max", "min-sum"):
        return np.broadcast_to(_least_apart(honest, -spread, name == "min-max"), own.shape)
    if name == "fang":  # against a trimmed mean: beyond the furthest honest value, on the side where the mean is not
        least, most = honest.min(axis=1, keepdims=True), honest.max(axis=1, keepdims=True)
        factor = 1.0 + rng.random(own.shape, dtype=np.float32)
        below = np.where(least > 0, least / factor, least * factor)
        above = np.where(most > 0, most * factor, most / factor)
        return np.where(mean > 0, below, above)
    if name == "idle":
        return np.zeros_like(own)
    if name == "last":
        return np.broadcast_to(last[:, None], own.shape)
    if name == "noise":
        noise = rng.normal(size=own.shape).astype(np.float32)
        return noise * _length(last[:, None]) / _length(noise)
    if name.startswith("tied"):  # bad data, and lengths that the bad agree on
        return own * (
            attack.strength * np.median(_length(honest), axis=1, keepdims=True) / np.maximum(_length(own), 1e-30)
        )
    return own


# --- runs -------------------------------------------------------------------------------------------------------------


class Runs:
    """R runs of one setting; everything follows from the seed."""

    def __init__(self, federation: Federation, wire: Wire, attack: Attack, n_runs: int, seed: int | list[int]) -> None:
        self.federation, self.wire, self.attack, self.n_runs = federation, wire, attack, n_runs
        self._rng = np.random.default_rng(seed)
        self.model = start(federation.model, n_runs, self._rng)
        self.number = 0
        dim = self.model.shape[1]
        self._left = np.zeros((n_runs, federation.clients, dim if wire.feedback else 0), dtype=np.float32)
        self._last = np.zeros((n_runs, dim), dtype=np.float32)
        self._clip = np.full((n_runs, 1, 1), wire.clip, dtype=np.float32)
        self._running = np.zeros((n_runs, 2 * HIDDEN if federation.buffers else 0), dtype=np.float32)
        self._x, self._y = self._deal()
        shape = (n_runs, federation.clients)
        spread = 100.0 ** self._rng.random(shape) if federation.examples != "equal" else np.ones(shape)
        self._examples = np.round(100 * spread).astype(np.float32)

    @property
    def layers(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of what is sent."""
        own = shapes_of(self.federation.model)
        return (*own, (HIDDEN,), (HIDDEN,)) if self.federation.buffers else own

    def __iter__(self) -> Iterator[Round]:
        while self.number < self.federation.rounds:
            yield self.step()

    def _deal(self) -> tuple[Single, Whole | Single]:
        """Rows of all clients: (R, K, rows, columns) and what belongs to them."""
        f, rng = self.federation, self._rng
        shape = (self.n_runs, f.clients, f.rows)
        if f.model == "directions":
            own = rng.normal(size=(self.n_runs, f.clients, 1, self.model.shape[1]))
            return (own + 2.0 * rng.normal(size=(self.n_runs, 1, 1, own.shape[-1]))).astype(np.float32), np.zeros(shape)
        if f.model == "regression":
            x = rng.normal(size=(*shape, COLUMNS)) + 0.5 * rng.normal(size=(*shape[:2], 1, COLUMNS))
            beta = rng.normal(size=(self.n_runs, 1, COLUMNS, 1)) + 0.3 * rng.normal(size=(*shape[:2], COLUMNS, 1))
            return x.astype(np.float32), ((x @ beta)[..., 0] + rng.normal(size=shape)).astype(np.float32)
        images, _ = digits()
        alike = np.isinf(f.dirichlet)
        share = rng.dirichlet(np.full(CLASSES, 1e6 if alike else f.dirichlet), shape[:2])
        label = (rng.random(shape)[..., None] > np.cumsum(share, axis=-1)[:, :, None, :-1]).sum(axis=-1)
        place = label * (DIGITS // CLASSES) + rng.integers(0, DIGITS // CLASSES, shape)
        x = images[place]
        if f.heavy_tails:
            x = (x * np.abs(rng.standard_t(3.0, (*shape, 1)))).astype(np.float32)
        return x, label

    def step(self) -> Round:
        """One round of every run."""
        f, attack, rng = self.federation, self.attack, self._rng
        self.number += 1
        everybody = np.tile(np.arange(f.clients), (self.n_runs, 1))
        who = everybody
        if f.present is not None:
            who = np.sort(np.argsort(rng.random(everybody.shape), axis=1)[:, : f.present], axis=1)
        acts = self.number >= attack.onset
        bad = (who < attack.bad) & acts
        sent = self._wired(who, self._trained(who, bad))
        if acts and attack.bad and attack.name not in (*ON_DATA, "claim", "none"):
            full = sent if f.present is None else np.zeros((self.n_runs, f.clients, sent.shape[-1]), np.float32)
            if f.present is not None:  # the absent are as the mean of those present, for who knows everybody
                full[:] = sent.mean(axis=1, keepdims=True)
                np.put_along_axis(full, who[..., None], sent, axis=1)
            full = full.copy()
            full[:, : attack.bad] = _sent_by_the_bad(attack, full, self._last_sent(sent), rng)
            sent = np.take_along_axis(full, who[..., None], axis=1)
        examples = np.take_along_axis(self._examples, who, axis=1)
        if f.examples == "random":
            examples = np.round(examples * rng.uniform(0.8, 1.2, examples.shape)).astype(np.float32)
        if attack.name == "claim":
            examples = np.where(bad, attack.strength * examples, examples)
        self._average(sent, examples)
        return Round(who, sent, examples)

    def _last_sent(self, sent: Single) -> Single:
        short = sent.shape[-1] - self._last.shape[-1]
        return np.pad(self._last, ((0, 0), (0, short)))

    def _average(self, sent: Single, examples: Single) -> None:
        dim = self.model.shape[1]
        share = examples / examples.sum(axis=1, keepdims=True)
        step = np.einsum("rp,rpd->rd", share, sent)
        if self.wire.central_noise:
            noise = self._rng.normal(size=step.shape) * self.wire.central_noise * self._clip[:, 0] / sent.shape[1]
            step = (step + noise).astype(np.float32)
        self._last = step[:, :dim]
        self.model = self.model + self._last
        self._running = self._running + step[:, dim:]

    def _trained(self, who: Whole, bad: npt.NDArray[np.bool_]) -> Single:
        """What clients change, (R, P, d)."""
        f, rng = self.federation, self._rng
        runs = np.arange(self.n_runs)[:, None]
        if f.model == "directions":
            noise = rng.normal(size=(*who.shape, self.model.shape[1])).astype(np.float32)
            return self._x[runs, who, 0] + np.float32(f.noise) * noise
        rate = np.float32(f.rate_at(self.number))
        begin = np.repeat(self.model[:, None], who.shape[1], axis=1)
        at, first, second = begin, np.zeros_like(begin), np.zeros_like(begin)
        moments: list[tuple[Single, ...]] = []
        for step in range(1, f.local_steps + 1):
            if f.batch is None:
                x, y = self._x[runs, who], self._y[runs, who]
            else:
                rows = rng.integers(0, f.rows, (*who.shape, f.batch))
                place = (runs[..., None], who[..., None], rows)
                x, y = self._x[place], self._y[place]
            if self.attack.name.split(", ")[-1] in ON_DATA and bad.any():
                x, y = _poisoned(self.attack.name.split(", ")[-1], x, y, bad)
            g, seen = gradient(f.model, at, x, y)
            moments.append(seen)
            if f.adam:
                first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
                at = at - rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
            else:
                first = f.momentum * first + g
                at = at - rate * first
        moved = (at - begin).astype(np.float32)
        if f.buffers:
            seen = np.concatenate([np.mean([m[i] for m in moments], axis=0) for i in (0, 1)], axis=-1)
            moved = np.concatenate([moved, 0.5 * (seen - self._running[:, None])], axis=-1).astype(np.float32)
        return moved

    def _wired(self, who: Whole, u: Single) -> Single:
        """What is sent of what clients changed."""
        w, rng, runs = self.wire, self._rng, np.arange(self.n_runs)[:, None]
        if w.feedback:
            u = u + self._left[runs, who]
        whole = u
        if np.isfinite(w.clip):
            length = _length(u)
            u = u * np.minimum(1.0, self._clip / np.maximum(length, 1e-30)).astype(np.float32)
            if w.adaptive:  # Andrew et al. with quantile .5 and rate .2, the defaults of flwr
                below = (length <= self._clip).mean(axis=1, keepdims=True)
                self._clip = (self._clip * np.exp(-0.2 * (below - 0.5))).astype(np.float32)
            if w.local_noise:
                u = (u + w.local_noise * w.clip * rng.normal(size=u.shape)).astype(np.float32)
        if w.code == "signs":
            u = np.float32(w.step) * np.sign(u)
        elif w.code == "top":
            count = max(1, round(w.share * u.shape[-1]))
            least = np.partition(np.abs(u), -count, axis=-1)[..., -count, None]
            u = np.where(np.abs(u) >= least, u, np.float32(0.0))
        elif w.code == "bytes":
            step = np.maximum(np.abs(u).max(axis=-1, keepdims=True), 1e-30) / 127
            u = np.round(u / step) * step
        elif w.code == "float16":
            u = u.astype(np.float16).astype(np.float32)
        if w.feedback:
            self._left[runs, who] = whole - u
        return u

    def accuracy(self) -> npt.NDArray[np.float64]:
        """On all digits, (R,); NaN for what has no classes."""
        f = self.federation
        if f.model not in ("network", "softmax", "normalised"):
            return np.full(self.n_runs, np.nan)
        x, y = digits()
        parts = _layers(f.model, self.model[:, None])
        hidden = x[None, None]
        for weight, shift in ((0, 1), (2, 3)) if f.model == "network" else ((0, 1),) if f.model == "softmax" else ():
            hidden = hidden @ parts[weight] + parts[shift]
            hidden = np.maximum(hidden, 0.0) if weight + 2 < len(parts) else hidden
        if f.model == "normalised":
            raw = hidden @ parts[0]
            unit = (raw - raw.mean(axis=-2, keepdims=True)) / np.sqrt(raw.var(axis=-2, keepdims=True) + 1e-5)
            hidden = np.maximum(unit * parts[1] + parts[2], 0.0) @ parts[3] + parts[4]
        return (hidden.argmax(axis=-1)[:, 0] == y).mean(axis=1)
