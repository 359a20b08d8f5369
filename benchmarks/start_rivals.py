"""Rules that score the clients of one round, the higher the more suspect, for R runs at once: without a past.

Krum (Blanchard et al. 2017), DnC (Shejwalkar and Houmansadr 2021), FLTrust (Cao et al. 2021) and FLAME's clusters
(Nguyen et al. 2022), written from what their papers describe, and the median cosine. Each is a mean or a choice in its
paper; here their scores are averaged over rounds, and alarm beyond what few honest runs of the same setting exceed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from federated_runs import Federation, Runs, scores
from rival_rounds import cosines, outside_the_majority
from robust_means import multi_krum
from start_runs import Round, RunsFromStart

Scores = Callable[
    [np.ndarray, np.ndarray, np.ndarray], np.ndarray
]  # moves (R, K, d), root's (R, d), products (R, K, K)
BAD = 2  # that Krum is told
FIRST = 3  # round that is scored, as for `FromStart`
ROOT_STEPS, ROOT_RATE = 10, 0.1  # of FLTrust's own training on all root rows


def krum(moves: np.ndarray, root: np.ndarray, products: np.ndarray) -> np.ndarray:
    """Squared distances to the K - f - 2 nearest, over the clients' median."""
    squares = np.diagonal(products, axis1=1, axis2=2)
    apart = np.sort(squares[:, :, None] + squares[:, None] - 2 * products, axis=2)
    near = apart[:, :, 1 : max(1, moves.shape[1] - BAD - 2) + 1].sum(axis=2)
    return near / np.median(near, axis=1, keepdims=True)


def median_cosine(moves: np.ndarray, root: np.ndarray, products: np.ndarray) -> np.ndarray:
    """One less the median cosine to the other clients."""
    k = moves.shape[1]
    others = np.where(np.eye(k, dtype=bool), np.nan, cosines(products))
    return 1 - np.nanmedian(others, axis=2)


def dnc(moves: np.ndarray, root: np.ndarray, products: np.ndarray) -> np.ndarray:
    """Squared part along the first principal direction of the clients, over its mean."""
    k = moves.shape[1]
    centre = np.eye(k) - 1 / k
    values, vectors = np.linalg.eigh(centre @ products @ centre)
    along = values[:, -1:] * vectors[:, :, -1] ** 2
    return along / np.maximum(along.mean(axis=1, keepdims=True), 1e-30)


def fltrust(moves: np.ndarray, root: np.ndarray, products: np.ndarray) -> np.ndarray:
    """One less the cosine to what training on the root rows changed."""
    sizes = np.linalg.norm(moves, axis=2) * np.linalg.norm(root, axis=1)[:, None]
    return 1 - np.einsum("rkd,rd->rk", moves, root) / np.maximum(sizes, 1e-30)


def flame(moves: np.ndarray, root: np.ndarray, products: np.ndarray) -> np.ndarray:
    """Whether FLAME's clustering drops the client."""
    return outside_the_majority(1 - cosines(products)).astype(float)


RIVALS: dict[str, Scores] = {
    "Krum": krum,
    "median cosine": median_cosine,
    "DnC": dnc,
    "FLAME": flame,
    "FLTrust, 50 rows": fltrust,
}


class Scorer:
    """Mean scores of clients over the rounds of R runs."""

    def __init__(self, federation: Federation, runs: RunsFromStart) -> None:
        self.model, self.runs, self.round = federation.model, runs, 0
        shape = (runs.runs.n_runs, federation.clients)
        self.sums, self.counts = {name: np.zeros(shape) for name in RIVALS}, np.zeros(shape)

    def add(self, seen: Round) -> None:
        """Score a round."""
        self.round += 1
        if self.round < FIRST:
            return
        root = np.asarray(_root_moves(self.model, seen.model, self.runs.root_rows, self.runs.root_labels))
        moves = seen.moves.astype(float)
        products = np.einsum("rkd,rld->rkl", moves, moves)
        place = (np.arange(len(moves))[:, None], seen.who)
        self.counts[place] += 1
        for name, rule in RIVALS.items():
            self.sums[name][place] += rule(moves, root, products)

    def of(self, name: str) -> np.ndarray:
        """Of a rule, (R, K)."""
        return self.sums[name] / np.maximum(self.counts, 1)


@partial(jax.jit, static_argnums=0)
def _root_moves(name: str, models: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    def loss(at: jax.Array) -> jax.Array:
        return -jnp.take_along_axis(jax.nn.log_softmax(scores(name, at, x)), y[:, None], axis=1).mean()

    def of_run(model: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, ROOT_STEPS, lambda _, at: at - ROOT_RATE * jax.grad(loss)(at), model) - model

    return jax.vmap(of_run)(models)


def multi_krum_round(runs: Runs, f: int) -> None:
    """A round in which MultiKrum, which is told that f are bad, makes the mean."""
    before = runs.model
    runs.step()
    runs.model = before + jax.vmap(lambda moves: multi_krum(moves, f))(runs.moves)
