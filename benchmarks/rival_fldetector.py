"""FLDetector (Zhang, Cao, Jia and Gong, KDD 2022), written from the paper, for R runs at once.

Each client's move is predicted as its last one plus a Hessian, L-BFGS's of the last N rounds, times what the model
moved. How far off the prediction is, as a share of all clients' and averaged over N rounds, is a client's score. The
gap statistic says each round whether the scores fall into more than one cluster; if so, the upper one of two is named.
N = 10, up to 7 clusters and 10 reference samples are those of the published code. k-means on a line is solved exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

WINDOW = 10
MOST_CLUSTERS, REFERENCES = 7, 10


class FLDetector:
    """Watches R runs in which all clients are present; silent until N predictions could be made."""

    def __init__(self, n_runs: int, seed: int = 0) -> None:
        self.steps: deque[jax.Array] = deque(maxlen=WINDOW)  # of the model  (R, d)
        self.turns: deque[jax.Array] = deque(maxlen=WINDOW)  # what the mean move changed by
        self.distances: deque[np.ndarray] = deque(maxlen=WINDOW)  # (R, K)
        self.last: tuple[jax.Array, jax.Array] | None = None  # the model sent, and the moves
        self.n_runs = n_runs
        self.rng = np.random.default_rng(seed)

    def update(self, sent: jax.Array, moves: jax.Array) -> np.ndarray:
        """Who is named in this round, (R, K)."""
        named = np.zeros((self.n_runs, moves.shape[1]), bool)
        if self.last is not None:
            model, before = self.last
            step = sent - model
            if len(self.steps) == WINDOW:
                shift = hessian_times(self.steps, self.turns, step)
                off = np.asarray(_lengths(moves - before - shift[:, None]), float)
                self.distances.append(off / off.sum(axis=1, keepdims=True))
            self.steps.append(step)
            self.turns.append(moves.mean(axis=1) - before.mean(axis=1))
        self.last = (sent, moves)
        if len(self.distances) == WINDOW:
            named = named_by(np.mean(self.distances, axis=0), self.rng)
        return named


def hessian_times(steps: Iterable[jax.Array], turns: Iterable[jax.Array], vector: jax.Array) -> jax.Array:
    """L-BFGS's Hessian of every run times a vector (R, d), in its compact form; steps and turns are the oldest first.

    The sign does not matter: with turns of moves, which go down, it is minus the Hessian.
    """
    s, y = jnp.stack(list(steps), axis=1), jnp.stack(list(turns), axis=1)  # (R, N, d)
    ss, sy = np.asarray(_products(s, s), float), np.asarray(_products(s, y), float)
    sv, yv = (np.asarray(_products(x, vector[:, None]), float) for x in (s, y))  # (R, N, 1)
    scale = (sy[:, -1, -1] / ss[:, -1, -1])[:, None, None]
    below = np.tril(sy, -1)
    diagonal = sy * np.eye(sy.shape[1])
    middle = np.block([[scale * ss, below], [below.swapaxes(1, 2), -diagonal]])
    weights = np.linalg.solve(middle, np.concatenate([scale * sv, yv], axis=1))[..., 0]  # few numbers: in double
    of_s, of_y = np.split(weights, 2, axis=1)
    return jnp.asarray(scale[:, 0], jnp.float32) * (vector - _sums(of_s, s)) - _sums(of_y, y)


def _products(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b.swapaxes(1, 2), precision=jax.lax.Precision.HIGHEST)


def _sums(weights: np.ndarray, vectors: jax.Array) -> jax.Array:
    weighted = jnp.matmul(jnp.asarray(weights, jnp.float32)[:, None], vectors, precision=jax.lax.Precision.HIGHEST)
    return weighted[:, 0]


def _lengths(vectors: jax.Array) -> jax.Array:
    return jnp.linalg.norm(vectors, axis=-1)


# --- clusters on a line -----------------------------------------------------------------------------------------------


def spreads(values: np.ndarray, most: int) -> np.ndarray:
    """The least sum of squares within 1, ..., `most` clusters of each row of (R, n): (R, most).

    The best clusters on a line are intervals, so the best split of the first j values into k has a last interval.
    """
    x = np.sort(values, axis=1)
    n = x.shape[1]
    sums = np.pad(np.cumsum(x, axis=1), ((0, 0), (1, 0)))
    squares = np.pad(np.cumsum(x**2, axis=1), ((0, 0), (1, 0)))
    first, end = np.arange(n)[:, None], np.arange(1, n + 1)[None]
    count = end - first  # of the values from `first` up to `end`
    total = sums[:, end] - sums[:, first]
    within = np.where(count > 0, squares[:, end] - squares[:, first] - total**2 / np.maximum(count, 1), np.inf)
    within = np.maximum(within, 0.0)  # (R, first, end)
    best = within[:, 0]  # one cluster, by where it ends
    found = [best[:, -1]]
    for _ in range(1, most):
        begun = np.pad(best[:, :-1], ((0, 0), (1, 0)), constant_values=np.inf)  # what comes before `first`
        best = (begun[:, :, None] + within).min(axis=1)
        found.append(best[:, -1])
    return np.stack(found, axis=1)


def clusters(scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How many each row of (R, n) has, by the gap statistic against uniform samples, (R,)."""
    n_runs, n = scores.shape
    low, high = scores.min(axis=1, keepdims=True), scores.max(axis=1, keepdims=True)
    most, tiny = min(MOST_CLUSTERS, n - 1), 1e-300
    own = np.log(spreads((scores - low) / np.maximum(high - low, tiny), most) + tiny)
    drawn = spreads(rng.uniform(size=(n_runs * REFERENCES, n)), most).reshape(n_runs, REFERENCES, most)
    uniform = np.log(drawn + tiny)
    gap = uniform.mean(axis=1) - own
    error = uniform.std(axis=1) * np.sqrt(1 + 1 / REFERENCES)
    enough = gap[:, :-1] >= gap[:, 1:] - error[:, 1:]
    return np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, most)


def upper_of_two(scores: np.ndarray) -> np.ndarray:
    """The clients in the upper one of the best two clusters of each row, (R, n)."""
    x = np.sort(scores, axis=1)
    cuts = [((x[:, :c] - x[:, :c].mean(1, keepdims=True)) ** 2).sum(1) for c in range(1, x.shape[1])]
    rests = [((x[:, c:] - x[:, c:].mean(1, keepdims=True)) ** 2).sum(1) for c in range(1, x.shape[1])]
    cut = 1 + np.argmin(np.add(cuts, rests), axis=0)
    return scores >= np.take_along_axis(x, cut[:, None], axis=1)


def named_by(scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Nobody in rows with one cluster, else the upper one of two."""
    return upper_of_two(scores) & (clusters(scores, rng) > 1)[:, None]
