"""Symmetric matrices, (R, d, d): inverses and roots that do not depend on the units in which columns are measured."""

import numpy as np

from fedgauss._types import BoolArray, FloatArray

_SINGULAR = 1e-8  # of the largest eigenvalue, with columns scaled alike: below, a direction cannot be inverted


def scaled_alike(matrices: FloatArray) -> tuple[FloatArray, FloatArray]:
    """D^-1 M D^-1 with D = |diag M|^1/2, (R, d, d), and the diagonals of D (R, d), 1 where M has a zero.

    Whether M can be inverted is then a question of its columns, and not of the units in which they are measured.
    """
    sizes = np.sqrt(np.abs(np.einsum("rii->ri", matrices)))
    sizes = np.where(sizes > 0.0, sizes, 1.0)
    return matrices / sizes[:, :, None] / sizes[:, None], sizes


def inverse(hessians: FloatArray) -> FloatArray:
    """|H|^-1, along what can be inverted, so that steps lead down where H is not positive; NaN where H is not finite.

    What can be inverted does not depend on the scales of columns. An estimate with a Hessian that is not positive is
    refused later on (`check_solution`).
    """
    finite = np.all(np.isfinite(hessians), axis=(1, 2), keepdims=True)
    scaled, scales = scaled_alike(np.where(finite, hessians, 0.0))
    values, vectors = np.linalg.eigh(scaled)
    sizes, vectors = np.abs(values), vectors / scales[..., None]
    kept = sizes > _SINGULAR * sizes.max(axis=1, keepdims=True)
    inverses = np.where(kept, 1.0 / np.where(kept, sizes, 1.0), 0.0)
    return np.where(finite, vectors * inverses[:, None] @ np.swapaxes(vectors, 1, 2), np.nan)


def root(matrices: FloatArray) -> FloatArray:
    """L with L L' = S, whatever the scales of columns; NaN where S is not finite."""
    finite = np.all(np.isfinite(matrices), axis=(1, 2), keepdims=True)
    scaled, sizes = scaled_alike(np.where(finite, matrices, 0.0))
    values, vectors = np.linalg.eigh(scaled)
    return np.where(finite, sizes[..., None] * vectors * np.sqrt(np.maximum(values, 0.0))[:, None], np.nan)


def sound(matrices: FloatArray, plain: FloatArray) -> BoolArray:
    """Whether no direction has less than a third of what it has in `plain`, or more than three times; (R,)."""
    finite = np.all(np.isfinite(matrices) & np.isfinite(plain), axis=(1, 2), keepdims=True)
    scaled, sizes = scaled_alike(np.where(finite, plain, 0.0))
    values, vectors = np.linalg.eigh(scaled)
    positive = finite[:, 0, 0] & (values[:, 0] > _SINGULAR * values[:, -1])
    whitening = vectors / np.sqrt(np.where(positive[:, None], values, 1.0))[:, None] / sizes[..., None]
    ratios = np.linalg.eigvalsh(np.swapaxes(whitening, 1, 2) @ np.where(finite, matrices, 0.0) @ whitening)
    return np.asarray(positive & (ratios[:, 0] > 1 / 3) & (ratios[:, -1] < 3.0))


def variances(lever: FloatArray, noise: FloatArray) -> FloatArray:
    """The diagonals of L N L', (R, d)."""
    return np.einsum("rij,rij->ri", lever @ noise, lever)
