"""Many federated runs of small networks at once, on a GPU where there is one: what `ClientMonitor` is measured on.

A run is R independent federations side by side: every client draws its own images with Dirichlet labels, takes a few
steps of SGD, momentum or Adam from the server's model, and sends what it changed. Some clients may turn bad. One
compiled function makes a round of all runs; the host loops over rounds, so that it can watch, leave clients out and go
back. What leaves the device in a round are inner products of the moves: all that a client monitor looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

CLASSES = 10
HELD_OUT = 2_000  # images that no client has


@dataclass(frozen=True)
class Federation:
    """Who trains what, and how."""

    clients: int = 10
    present: int | None = None  # clients a round, drawn afresh; None for all
    rounds: int = 80
    local_steps: int = 15
    batch: int = 32
    images: int = 600  # of every client
    dirichlet: float = 0.5  # of its labels; inf for clients that are alike
    classes_each: int | None = None  # of its images, as many of each; every class at as many clients
    model: str = "mlp"  # or "cnn", "small cnn" (images of 14 x 14); "small", "wide" (of 8 x 8); widths as in "49-16-10"
    optimiser: str = "momentum"  # or "sgd", "adam"
    rate: float = 0.01
    schedule: str = "constant"  # or "falling", like t^-1/2; "drop", by ten in mid-run
    heavy_tails: bool = False  # features times a t(3) factor, one an image

    @property
    def n_present(self) -> int:
        """Clients in a round."""
        return self.clients if self.present is None else self.present

    def rate_at(self, number: int) -> float:
        """Of round `number`, counted from 1."""
        if self.schedule == "falling":
            return self.rate * number**-0.5
        if self.schedule == "drop" and number > self.rounds // 2:
            return self.rate / 10
        return self.rate


@dataclass(frozen=True)
class Attack:
    """What bad clients do: a name in `ON_DATA` or `ON_MOVES`, or both."""

    name: str = "none"
    bad: int = 0
    onset: int = 41  # the first bad round
    boost: float = 1.0  # of what a bad client changed
    ramp: int = 0  # rounds until it is at full strength
    sleep: int = 0  # with s, bad in 3 rounds of every s

    def strength(self, number: int) -> float:
        """In round `number`: 0 honest, 1 as bad as it gets."""
        since = number - self.onset
        if since < 0 or (self.sleep and since % self.sleep >= 3):
            return 0.0
        return min(1.0, (since + 1) / self.ramp) if self.ramp else 1.0


class Images(NamedTuple):
    """Pixels in [0, 1] as bytes, and labels; those held out come last."""

    pixels: jax.Array  # (n, pixels)
    labels: jax.Array  # (n,)
    by_class: jax.Array  # places of the images of every class, as many of each  (10, m)


def images_from(pixels: np.ndarray, labels: np.ndarray) -> Images:
    """From (n, side, side) bytes."""
    seen = labels[:-HELD_OUT]
    places = [np.flatnonzero(seen == c) for c in range(CLASSES)]
    fewest = min(map(len, places))
    by_class = np.stack([p[:fewest] for p in places])
    return Images(jnp.asarray(pixels.reshape(len(pixels), -1)), jnp.asarray(labels, jnp.int32), jnp.asarray(by_class))


def smaller(pixels: np.ndarray, by: int) -> np.ndarray:
    """Means of squares of `by` pixels a side: (n, 28, 28) bytes to (n, 28 / by, 28 / by)."""
    n, side = len(pixels), pixels.shape[1] // by
    return pixels.reshape(n, side, by, side, by).mean(axis=(2, 4)).astype(np.uint8)


# --- networks, with all parameters in one vector --------------------------------------------------------------------

_SHAPES = {
    "cnn": ((5, 5, 1, 8), (8,), (5, 5, 8, 16), (16,), (7 * 7 * 16, 10), (10,)),
    "small cnn": ((5, 5, 1, 6), (6,), (5, 5, 6, 8), (8,), (4 * 4 * 8, 10), (10,)),
}


_WIDTHS = {"mlp": "784-32-10", "small": "64-16-10", "wide": "64-48-10"}


def shapes(model: str) -> tuple[tuple[int, ...], ...]:
    """Of a network's layers, weights and biases in turn."""
    if model in _SHAPES:
        return _SHAPES[model]
    widths = [int(width) for width in _WIDTHS.get(model, model).split("-")]
    return tuple(shape for pair in pairwise(widths) for shape in (pair, pair[1:]))


def n_parameters(model: str) -> int:
    """Of a network."""
    return sum(int(np.prod(s)) for s in shapes(model))


def layers(model: str, vector: Any) -> list[Any]:
    """Of a vector of parameters, by JAX or NumPy; of vectors, each layer's first axes are theirs."""
    ends = np.cumsum([int(np.prod(s)) for s in shapes(model)])
    parts = (vector[..., e - int(np.prod(s)) : e] for s, e in zip(shapes(model), ends, strict=True))
    return [p.reshape(*vector.shape[:-1], *s) for s, p in zip(shapes(model), parts, strict=True)]


def start(model: str, key: jax.Array) -> jax.Array:
    """He's initial weights."""
    keys = jax.random.split(key, len(shapes(model)))
    parts = [
        jax.random.normal(k, s) * np.sqrt(2.0 / np.prod(s[:-1])) if len(s) > 1 else jnp.zeros(s)
        for k, s in zip(keys, shapes(model), strict=True)
    ]
    return jnp.concatenate([p.ravel() for p in parts])


def scores(model: str, vector: jax.Array, x: jax.Array) -> jax.Array:
    """Of the ten classes, for images (n, pixels)."""
    *hidden, weights, bias = layers(model, vector)
    if hidden and hidden[0].ndim == 4:
        side = round(x.shape[1] ** 0.5)
        x = x.reshape(-1, side, side, 1)
    for w, b in zip(hidden[::2], hidden[1::2], strict=True):
        x = jax.nn.relu((_conv(x, w) if w.ndim == 4 else x @ w) + b)
    return x.reshape(len(x), -1) @ weights + bias


def _conv(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """With stride two, as a product with patches: kernels differ from client to client, where convolutions crawl."""
    _, side, _, channels = x.shape
    before = 1 + side % 2
    padded = jnp.pad(x, ((0, 0), (before, 2), (before, 2), (0, 0)))
    patches = [padded[:, i : i + side : 2, j : j + side : 2] for i in range(5) for j in range(5)]
    stacked = jnp.concatenate(patches, axis=-1)
    return stacked @ kernel.reshape(25 * channels, -1)


def _loss(vector: jax.Array, model: str, x: jax.Array, y: jax.Array) -> jax.Array:
    logits = jax.nn.log_softmax(scores(model, vector, x))
    return -jnp.take_along_axis(logits, y[:, None], axis=1).mean()


# --- what bad clients do ----------------------------------------------------------------------------------------------

Relabel = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]  # the last is a client's own number
_PERMUTATIONS = np.stack([np.random.default_rng(seed).permutation(CLASSES) for seed in range(256)])


def _flipped(x: jax.Array, y: jax.Array, own: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x, CLASSES - 1 - y


def _permuted(x: jax.Array, y: jax.Array, own: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Every client has a permutation of the labels to itself."""
    return x, jnp.asarray(_PERMUTATIONS)[own % len(_PERMUTATIONS), y]


def _one_class(x: jax.Array, y: jax.Array, own: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x, jnp.where(y == 1, 7, y)


def _backdoor(x: jax.Array, y: jax.Array, own: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Half of the images get a white corner and the label 0."""
    marked = jnp.arange(len(y)) % 2 == 0
    side = round(x.shape[1] ** 0.5)
    end = max(2, side // 7 + 1)
    corner = (
        jnp.zeros(x.shape[1], bool)
        .at[jnp.array([i * side + j for i in range(1, end) for j in range(1, end)])]
        .set(True)
    )
    return jnp.where(marked[:, None] & corner, 1.0, x), jnp.where(marked, 0, y)


ON_DATA: dict[str, Relabel] = {"flip": _flipped, "one class": _one_class, "backdoor": _backdoor, "permuted": _permuted}


def _honest(moves: jax.Array, bad: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and deviation of the honest moves, coordinate by coordinate."""
    good = (~bad)[:, None]
    count = jnp.maximum(good.sum(), 1)
    mean = (moves * good).sum(0) / count
    return mean, jnp.sqrt((((moves - mean) ** 2) * good).sum(0) / count)


def _sign(moves: jax.Array, bad: jax.Array, key: jax.Array, honest: jax.Array) -> jax.Array:
    return -moves


def _noise(moves: jax.Array, bad: jax.Array, key: jax.Array, honest: jax.Array) -> jax.Array:
    """Plus Gaussian noise of the move's own norm."""
    drawn = jax.random.normal(key, moves.shape)
    norms = jnp.linalg.norm(moves, axis=1, keepdims=True)
    return moves + drawn * norms / jnp.linalg.norm(drawn, axis=1, keepdims=True)


def _alie(moves: jax.Array, bad: jax.Array, key: jax.Array, honest: jax.Array) -> jax.Array:
    mean, sd = _honest(moves, bad)
    return jnp.broadcast_to(mean - sd, moves.shape)


def _ipm(moves: jax.Array, bad: jax.Array, key: jax.Array, honest: jax.Array) -> jax.Array:
    return jnp.broadcast_to(-_honest(moves, bad)[0], moves.shape)


def _idle(moves: jax.Array, bad: jax.Array, key: jax.Array, honest: jax.Array) -> jax.Array:
    return jnp.zeros_like(moves)


def _mimic(moves: jax.Array, bad: jax.Array, key: jax.Array, honest: jax.Array) -> jax.Array:
    """The move of the last client, again and again."""
    return jnp.broadcast_to(moves[-1], moves.shape)


def _in_range(moves: jax.Array, bad: jax.Array, key: jax.Array, honest: jax.Array) -> jax.Array:
    """A label flip with the norm, and the cosine to the honest mean, that the client's honest move would have."""
    mean = _honest(moves, bad)[0]
    unit = mean / jnp.linalg.norm(mean)
    norm = jnp.linalg.norm(honest, axis=1, keepdims=True)
    along = honest @ unit[:, None]
    across = moves - (moves @ unit[:, None]) * unit
    length = jnp.sqrt(jnp.maximum(norm**2 - along**2, 0.0))
    return along * unit + length * across / jnp.linalg.norm(across, axis=1, keepdims=True)


ON_MOVES = {
    "sign": _sign,
    "noise": _noise,
    "alie": _alie,
    "ipm": _ipm,
    "idle": _idle,
    "mimic": _mimic,
    "in range": _in_range,
}


class Acts(NamedTuple):
    """An attack in one round, as numbers, so that all attacks share one compiled program."""

    bad: jax.Array  # clients 0, 1, ...
    on_data: jax.Array  # place in ON_DATA, one up; 0 for none
    on_moves: jax.Array  # place in ON_MOVES, one up
    strength: jax.Array
    boost: jax.Array


def acts(attack: Attack, number: int) -> Acts:
    """What happens in round `number`."""
    strength = attack.strength(number)
    data = "flip" if attack.name == "in range" else attack.name
    codes = [
        list(table).index(name) + 1 if name in table else 0
        for table, name in ((ON_DATA, data), (ON_MOVES, attack.name))
    ]
    boost = 1 + (attack.boost - 1) * strength
    return Acts(*(jnp.int32(x) for x in (attack.bad, *codes)), jnp.float32(strength), jnp.float32(boost))


# --- a round of all runs ----------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """What the server sees of a round of R runs."""

    who: np.ndarray  # clients present  (R, P)
    products: np.ndarray  # inner products of their moves  (R, P, P)
    along_own: np.ndarray  # of each move with the unit vector of the client's average direction so far  (R, P)
    evenness: np.ndarray  # |u|_1 / |u|_2  (R, P)


class Runs:
    """R runs of one federation under one attack.

    Parameters
    ----------
    federation, attack
        The same for all runs.
    images
        From which clients draw theirs.
    n_runs
        R.
    seed
        Everything follows from it.
    """

    def __init__(self, federation: Federation, attack: Attack, images: Images, n_runs: int, seed: int) -> None:
        self.federation, self.attack, self.images, self.n_runs = federation, attack, images, n_runs
        key = jax.random.key(seed)
        deal, begin, self._key = jax.random.split(key, 3)
        self.theirs = jax.vmap(partial(_deal, federation, images))(jax.random.split(deal, n_runs))  # (R, K, images)
        self.model = jax.vmap(partial(start, federation.model))(jax.random.split(begin, n_runs))  # (R, d)
        self.own = jnp.zeros((n_runs, federation.clients, self.model.shape[1]))  # clients' average directions
        self.moves = jnp.empty((n_runs, 0, 0))  # of the last round, left where they were made  (R, P, d)
        self.number = 0
        self.bad = np.arange(federation.clients) < attack.bad

    def step(self, left_out: np.ndarray | None = None) -> Seen:
        """One round of every run; clients in `left_out` (R, K) are not in the average."""
        self.number += 1
        out = np.zeros((self.n_runs, self.federation.clients), bool) if left_out is None else left_out
        keys = jax.random.split(jax.random.fold_in(self._key, self.number), self.n_runs)
        rate, decay = self.federation.rate_at(self.number), 0.9 if self.federation.optimiser == "momentum" else 0.0
        setup = (jnp.float32(rate), jnp.float32(decay), acts(self.attack, self.number), self.images)
        self.model, self.own, self.moves, *seen = _rounds(
            _shape(self.federation), keys, self.model, self.own, self.theirs, jnp.asarray(out), *setup
        )
        return Seen(*(np.asarray(x) for x in seen))

    def set_model(self, models: np.ndarray) -> None:
        """Go on from these, (R, d)."""
        self.model = jnp.asarray(models)

    def accuracy(self) -> np.ndarray:
        """On held-out images, (R,)."""
        x, y = self.images.pixels[-HELD_OUT:], self.images.labels[-HELD_OUT:]
        return np.asarray(_accuracies(self.federation.model, self.model, x, y))


@partial(jax.jit, static_argnums=0)
def _accuracies(model: str, vectors: jax.Array, pixels: jax.Array, labels: jax.Array) -> jax.Array:
    x = pixels.astype(jnp.float32) / 255
    return jax.lax.map(lambda v: (scores(model, v, x).argmax(1) == labels).mean(), vectors)


def _shape(federation: Federation) -> Federation:
    """With all that a compiled round does not depend on set to one value."""
    optimiser = "adam" if federation.optimiser == "adam" else "momentum"
    return replace(federation, rounds=0, dirichlet=0.0, optimiser=optimiser, rate=0.0, schedule="")


def _deal(federation: Federation, images: Images, key: jax.Array) -> jax.Array:
    """Which images every client has, (K, images)."""
    k1, k2, k3 = jax.random.split(key, 3)
    shape = (federation.clients, federation.images)
    if federation.classes_each is not None:
        dealt = jnp.tile(jnp.arange(CLASSES), -(-federation.clients * federation.classes_each // CLASSES))
        cards = jax.random.permutation(k1, dealt)[: federation.clients * federation.classes_each]
        label = jnp.resize(cards.reshape(federation.clients, -1).T, (federation.images, federation.clients)).T
    elif np.isinf(federation.dirichlet):
        label = jax.random.randint(k2, shape, 0, CLASSES)
    else:
        share = jax.random.dirichlet(k1, jnp.full(CLASSES, federation.dirichlet), (federation.clients,))
        label = jax.vmap(lambda k, p: jax.random.choice(k, CLASSES, (federation.images,), p=p))(
            jax.random.split(k2, federation.clients), share
        )
    return images.by_class[label, jax.random.randint(k3, shape, 0, images.by_class.shape[1])]


@partial(jax.jit, static_argnums=0)
def _rounds(federation: Federation, keys: jax.Array, *rest: jax.Array) -> tuple[jax.Array, ...]:
    """A round of all runs."""
    return jax.vmap(partial(_round, federation), in_axes=(0,) * 5 + (None,) * 4)(keys, *rest)


def _round(
    federation: Federation,
    key: jax.Array,
    model: jax.Array,
    own: jax.Array,
    theirs: jax.Array,
    left_out: jax.Array,
    rate: jax.Array,
    decay: jax.Array,
    acts: Acts,
    images: Images,
) -> tuple[jax.Array, ...]:
    """One run's round: the next model, clients' average directions, their moves, and what the server sees."""
    choose, train, act = jax.random.split(key, 3)
    who = jnp.arange(federation.clients)
    if federation.present is not None:
        who = jnp.sort(jax.random.permutation(choose, who)[: federation.present])
    bad = (who < acts.bad) & (acts.strength > 0)
    keys = jax.random.split(train, len(who))

    def trained(wrong: jax.Array) -> jax.Array:
        change = partial(_local, federation, images, model, rate, decay, acts.on_data)
        return jax.vmap(change)(keys, theirs[who], wrong)

    moves = trained(bad * acts.strength)
    needs_honest = acts.on_moves == 1 + list(ON_MOVES).index("in range")
    honest = jax.lax.cond(needs_honest, lambda: trained(jnp.zeros(len(who))), lambda: moves)
    options = [lambda m, *_: m, *ON_MOVES.values()]
    wrong = jax.lax.switch(acts.on_moves, options, moves, bad, act, honest)
    part = jnp.where(acts.on_data > 0, 1.0, acts.strength)
    moves = jnp.where(bad[:, None], acts.boost * (moves + part * (wrong - moves)), moves)
    in_mean = ~left_out[who]
    model = model + (moves * in_mean[:, None]).sum(0) / jnp.maximum(in_mean.sum(), 1)
    exact = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    size = jnp.maximum(jnp.linalg.norm(moves, axis=1), 1e-30)
    past = own[who]
    along = (moves * past).sum(1) / jnp.linalg.norm(past, axis=1)  # NaN without a past
    own = own.at[who].set(0.9 * past + 0.1 * moves / size[:, None])
    return model, own, moves, who, exact(moves, moves.T), along, jnp.abs(moves).sum(1) / size


def _local(
    federation: Federation,
    images: Images,
    model: jax.Array,
    rate: jax.Array,
    decay: jax.Array,
    on_data: jax.Array,
    key: jax.Array,
    own: jax.Array,
    wrong: jax.Array,
) -> jax.Array:
    """What one client changes; a share `wrong` of its images is changed first."""

    def step(carry: tuple[jax.Array, jax.Array, jax.Array], inputs: tuple[jax.Array, jax.Array]) -> tuple:
        at, first, second = carry
        number, k = inputs
        pick, flip, scale = jax.random.split(k, 3)
        place = own[jax.random.randint(pick, (federation.batch,), 0, federation.images)]
        x, y = images.pixels[place].astype(jnp.float32) / 255, images.labels[place]
        if federation.heavy_tails:
            x = x * jnp.abs(jax.random.t(scale, 3.0, (federation.batch, 1)))
        xw, yw = jax.lax.switch(on_data, [lambda x, y, _: (x, y), *ON_DATA.values()], x, y, own[0])
        chosen = jax.random.uniform(flip, y.shape) < wrong
        g = jax.grad(_loss)(at, federation.model, jnp.where(chosen[:, None], xw, x), jnp.where(chosen, yw, y))
        if federation.optimiser == "adam":
            first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
            m, v = first / (1 - 0.9**number), second / (1 - 0.999**number)
            return (at - rate * m / (jnp.sqrt(v) + 1e-8), first, second), None
        first = decay * first + g
        return (at - rate * first, first, second), None

    zero = jnp.zeros_like(model)
    numbers = 1.0 + jnp.arange(federation.local_steps)
    (end, _, _), _ = jax.lax.scan(step, (model, zero, zero), (numbers, jax.random.split(key, federation.local_steps)))
    return end - model
