"""MNIST as the paper's appendix uses it: K clients train a linear classifier on three principal components."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._types import ArrayLike
from fedgauss.data import mnist_scores
from fedgauss.problems.arrays import ArrayProblem, Order, from_arrays

# The digits that the paper's label-flipping attack swaps.
MNIST_FLIP = ((1, 7), (2, 5), (4, 8))


def mnist(
    n_clients: int = 5,
    seed: int = 0,
    *,
    scores: ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
    order: Order = "replacement",
    weights: ArrayLike | Literal["rows"] | None = None,
) -> ArrayProblem:
    """Ten one-versus-rest logistic losses on (scores, 1), d = 40 = 10 x (3 + 1); rows split at random among clients.

        f(theta, (x, y)) = sum_c log(1 + exp(x'theta_c)) - x'theta_y

    No ridge is needed: with an elementwise sigmoid the Hessian is positive definite (a softmax would leave a constant
    added to every theta_c undetermined).

    Parameters
    ----------
    n_clients : int
        K; their numbers of rows differ by one at most.
    seed : int
        Fixes the split.
    scores : (N, p) array_like, optional
        In place of the training set that comes with the package: for example
        data.principal_scores(data.read_images(path), 3), with labels data.read_labels(path).
    labels : (N,) array_like, optional
        One for each row of `scores`.
    order, weights
        As for `from_arrays`.

    Returns
    -------
    ArrayProblem
    """
    if (scores is None) != (labels is None):
        raise ValueError("scores and labels belong together: give both, or neither for those of the package.")
    if scores is None or labels is None:
        scores, labels = mnist_scores()
    x = _checks.real_array("scores", scores, shape=(None, None))
    n_clients = _checks.whole("n_clients", n_clients, at_most=len(x), fix="Every client needs a row.")
    order_of_rows = np.random.default_rng(_checks.whole("seed", seed, at_least=0)).permutation(len(x))
    client = np.empty(len(x), dtype=np.int64)
    client[order_of_rows] = np.arange(len(x)) % n_clients
    with_intercept = np.column_stack([x, np.ones(len(x))])
    return from_arrays(with_intercept, labels, client, "one_versus_rest", order=order, weights=weights, n_classes=10)
