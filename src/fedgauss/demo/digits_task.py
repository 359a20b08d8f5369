"""What the clients of the demonstration learn: a small network reads digits, with images that no two clients share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fedgauss._types import FloatArray, IntArray
from fedgauss.data.digits import SIDE, drawn

CLIENTS = ("Aarhus", "Bergen", "Cork", "Delft", "Evora", "Ghent", "Halle", "Izmir", "Jena", "Kiel")
_IMAGES, _TEST = 200, 1_000  # for each client on average, and to measure accuracy with
_VARIETY = 0.5
_DIRICHLET = 0.5  # how unlike clients' digits are; 100 would be alike
_INPUTS, _HIDDEN = (SIDE // 2) ** 2, 32
_STEPS, _BATCH, _RATE, _MOMENTUM = 10, 32, 0.03, 0.9  # of a client in a round


class DigitsTask:
    """Ten clients, their images, and one network of 6,634 parameters, as a flat vector.

    Parameters
    ----------
    seed : int
        Fixes images, who has which, the first weights and all batches.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        rng = np.random.default_rng((seed, 0))
        n = _IMAGES * len(CLIENTS)
        self._labels = np.arange(n + _TEST) % 10
        halves = drawn(self._labels, seed, _VARIETY).reshape(-1, SIDE // 2, 2, SIDE // 2, 2).mean(axis=(2, 4))
        self._pixels = (halves.reshape(-1, _INPUTS) / 255).astype(np.float32)
        self._owned = _dealt(self._labels[:n], rng)
        weights = {
            "hidden": rng.normal(scale=(2 / _INPUTS) ** 0.5, size=(_INPUTS, _HIDDEN)),
            "hidden bias": np.zeros(_HIDDEN),
            "output": rng.normal(scale=(1 / _HIDDEN) ** 0.5, size=(_HIDDEN, 10)),
            "output bias": np.zeros(10),
        }
        flat, shaped = ravel_pytree(jax.tree.map(jnp.float32, weights))
        self.start: FloatArray = np.asarray(flat)

        def scores(network: Any, x: Any) -> Any:
            w = shaped(network)
            return jax.nn.relu(x @ w["hidden"] + w["hidden bias"]) @ w["output"] + w["output bias"]

        def loss(network: Any, x: Any, y: Any) -> Any:
            log_chance = jax.nn.log_softmax(scores(network, x))
            return -jnp.take_along_axis(log_chance, y[:, None], axis=1).mean()

        def step(state: Any, batch: Any) -> Any:
            network, pace = state
            pace = _MOMENTUM * pace + jax.grad(loss)(network, *batch)
            return (network - _RATE * pace, pace), None

        def train(network: Any, x: Any, y: Any) -> Any:
            (trained, _), _ = jax.lax.scan(step, (network, jnp.zeros_like(network)), (x, y))
            return trained - network

        self._train = jax.jit(jax.vmap(train, in_axes=(None, 0, 0)))
        self._scores = jax.jit(scores)

    def moves(self, network: FloatArray, number: int) -> dict[str, FloatArray]:
        """What each client would change in round `number`: ten steps of SGD with momentum on its own images."""
        rng = np.random.default_rng((self._seed, number))
        chosen = np.stack([rng.choice(owned, (_STEPS, _BATCH)) for owned in self._owned])
        moves = np.asarray(self._train(network, self._pixels[chosen], self._labels[chosen]))
        return dict(zip(CLIENTS, moves, strict=True))

    def accuracy(self, network: FloatArray) -> float:
        """The share of 1,000 other images that the network reads rightly."""
        read = np.asarray(self._scores(network, self._pixels[-_TEST:])).argmax(axis=1)
        return float(np.mean(read == self._labels[-_TEST:]))


def _dealt(labels: IntArray, rng: np.random.Generator) -> list[IntArray]:
    """Which images each client has: of every digit, Dirichlet shares."""
    owned: list[list[IntArray]] = [[] for _ in CLIENTS]
    for digit in range(10):
        places = rng.permutation(np.flatnonzero(labels == digit))
        shares = rng.dirichlet(np.full(len(CLIENTS), _DIRICHLET))
        for client, part in zip(owned, np.split(places, _cuts(shares, len(places))), strict=True):
            client.append(part)
    return [np.concatenate(parts) for parts in owned]


def _cuts(shares: FloatArray, count: int) -> IntArray:
    """Where to cut a row of `count` into these shares."""
    return (np.cumsum(shares)[:-1] * count).round().astype(int)
