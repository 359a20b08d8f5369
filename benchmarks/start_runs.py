"""Runs whose clients may be bad from round 1 on, as `FromStart` and rules without a past see them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import start_settings
from federated_runs import HELD_OUT, Attack, Federation, Images, Runs, layers, scores

from fedgauss.detect.clients.root_rows import RootRows


class Round(NamedTuple):
    """Of R runs."""

    who: np.ndarray  # clients present  (R, P)
    model: np.ndarray  # that they were sent  (R, d)
    moves: np.ndarray  # (R, P, d)
    root_scores: np.ndarray  # of the root rows by the model, and by it with each move  (R, 1 + P, n, classes)


class RunsFromStart:
    """R runs of a setting.

    Parameters
    ----------
    federation, kind
        A setting of `start_settings`.
    attack
        Of the first two clients, from round 1 on.
    """

    def __init__(self, federation: Federation, kind: str, attack: Attack, n_runs: int, seed: int) -> None:
        images = _images(kind)
        self.federation, self.runs = federation, Runs(federation, attack, images, n_runs, seed)
        labels = np.asarray(images.labels[-HELD_OUT:])
        places = [np.flatnonzero(labels == c)[: start_settings.ROOT_EACH] for c in range(10)]
        rows = np.concatenate(places)
        self.root_labels = labels[rows]
        self.root_rows = jnp.asarray(images.pixels[-HELD_OUT:][rows], jnp.float32) / 255

    def rounds(self) -> Iterator[Round]:
        """All rounds of the federation, one after the other; clients in `left_out` are not in the mean."""
        for _ in range(self.federation.rounds):
            model = self.runs.model
            seen = self.runs.step(getattr(self, "left_out", None))
            root = _root_scores(self.federation.model, model, self.runs.moves, self.root_rows)
            yield Round(seen.who, *(np.asarray(x) for x in (model, self.runs.moves, root)))

    def root(self, root_scores: list[np.ndarray]) -> RootRows:
        """Root rows whose scores were computed for all runs at once, and are asked for from the last to the first."""
        return RootRows(lambda model: root_scores.pop(), self.root_labels)

    def by_layer(self, vector: np.ndarray) -> list[np.ndarray]:
        """A vector of parameters as the model's arrays."""
        return layers(self.federation.model, vector)


@cache
def _images(kind: str) -> Images:
    return start_settings.images(kind)


@partial(jax.jit, static_argnums=0)
def _root_scores(name: str, models: jax.Array, moves: jax.Array, x: jax.Array) -> jax.Array:
    def of_run(model: jax.Array, moves: jax.Array) -> jax.Array:
        return jax.vmap(lambda at: scores(name, at, x))(jnp.concatenate([model[None], model + moves]))

    return jax.vmap(of_run)(models, moves)
