"""What clients would report after a warm-up: Hessians and gradient covariances from a few hundred draws each."""

from __future__ import annotations

import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization, gradient_moments, linearization
from fedgauss._random import stage_key
from fedgauss._types import ArrayLike
from fedgauss.problems.base import Problem, checked_problem
from fedgauss.problems.linearize import sampled_gradients

_LANES = 512  # draws made at least, and those not asked for dropped: short warm-ups share one compilation


def warm_up(problem: Problem, n_warmup: int, at: ArrayLike, seed: int = 0) -> Linearization:
    """A linearisation from `n_warmup` draws of every client at the point `at` (d,), where a warm start ended.

    Each client takes the gradient and the Hessian of its loss at `at` for each of its draws, and reports the mean
    Hessian with the covariance and the kurtosis of its gradients: what `linearization` asks for. For a problem on real
    rows this is a simulation of it; clients of your own call `gradient_moments`.

    Parameters
    ----------
    problem : Problem
    n_warmup : int
        Draws of each client.
    at : (d,) array_like
        Where gradients are taken.
    seed : int
        Fixes the draws.

    Returns
    -------
    Linearization
    """
    n_warmup = _checks.whole("n_warmup", n_warmup, at_least=2, fix="One gradient shows no spread.")
    point = _checks.real_array("at", at, shape=(checked_problem(problem).dim,))
    key = stage_key(_checks.whole("seed", seed, at_least=0), "warm up")
    problem = problem.reference()
    lanes = max(_LANES, 1 << (n_warmup - 1).bit_length())
    drawn = sampled_gradients(problem, key, 0, point, lanes, np.float32(n_warmup))
    gradients, hessians = (np.asarray(part, dtype=float) for part in drawn)
    gradients = gradients[:, :, :n_warmup]
    reports = [gradient_moments(client.T) for client in np.moveaxis(gradients, 1, 0)]
    covariances, kurtosis = (np.stack(part) for part in zip(*reports, strict=True))
    symmetric = (hessians + hessians.transpose(0, 2, 1)) / 2  # but for rounding, they are
    weights = np.asarray(problem.weights, dtype=float)
    return linearization(symmetric, covariances, weights, n_warmup, point, kurtosis, gradients.mean(axis=2).T)
