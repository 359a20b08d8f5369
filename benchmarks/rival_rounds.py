"""Rules that look at one round alone, for R runs at once: FLAME's clustering, robust z-scores of norm and cosine."""

from __future__ import annotations

import numpy as np


def cosines(products: np.ndarray) -> np.ndarray:
    """From inner products, (R, K, K); zero with a vector that is zero."""
    squares = np.diagonal(products, axis1=1, axis2=2)
    scale = np.sqrt(squares[:, :, None] * squares[:, None])
    return np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)


def outside_the_majority(distances: np.ndarray) -> np.ndarray:
    """Who FLAME drops (Nguyen et al., USENIX Security 2022), (R, K): all outside the cluster of more than half.

    FLAME runs HDBSCAN with clusters of at least K / 2 + 1, one sample and a single cluster allowed. Then mutual
    reachability is the distance itself, and the one cluster is the first component of single linkage that is so large.
    """
    k = distances.shape[1]
    apart = distances * (1 - np.eye(k))
    for via in range(k):  # the least longest step on any way from one client to another
        apart = np.minimum(apart, np.maximum(apart[:, :, via, None], apart[:, None, via]))
    reach = np.sort(apart, axis=2)[:, :, k // 2]  # where a client's component has K // 2 + 1 members
    return reach > reach.min(axis=1, keepdims=True)


def beyond(values: np.ndarray, limit: float = 3.5) -> np.ndarray:
    """Which of each row are farther from the median than `limit` deviations, by 1.4826 times the median deviation."""
    off = np.abs(values - np.median(values, axis=1, keepdims=True))
    return off > limit * 1.4826 * np.median(off, axis=1, keepdims=True)


def robust_z(products: np.ndarray) -> np.ndarray:
    """Who stands out by the norm of the move, or by its cosine to the mean move, (R, K)."""
    norms = np.sqrt(np.diagonal(products, axis1=1, axis2=2))
    mean = np.sqrt(products.mean(axis=(1, 2)))[:, None]
    cosine = products.mean(axis=2) / np.maximum(norms * mean, 1e-30)
    return beyond(norms) | beyond(cosine)
