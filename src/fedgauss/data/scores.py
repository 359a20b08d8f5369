"""Images reduced to a few numbers each, their principal component scores: those of MNIST, and of your own."""

from importlib.resources import files
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._types import FloatArray, IntArray

_BATCH = 5000  # rows centred at a time: 60,000 images in float64 would take a third of a gigabyte


class Scores(NamedTuple):
    """Principal component scores (N, p) and digits (N,)."""

    scores: FloatArray
    labels: IntArray


def mnist_scores() -> Scores:
    """The MNIST training images on their first three principal components, and their digits.

    Made by scripts/make_mnist_scores.py; the README.md next to this file names the source and its licence.

    Returns
    -------
    Scores
        `scores` of shape (60000, 3) and `labels` of shape (60000,).
    """
    with (files("fedgauss.data") / "mnist_pca3.npz").open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return Scores(stored["scores"].astype(np.float64), stored["labels"].astype(np.int64))


def principal_scores(images: npt.ArrayLike, n_components: int = 3) -> FloatArray:
    """Principal component scores of images: pixels are scaled to [0, 1], centred and rotated, but not rescaled.

    Each component's sign makes its largest loading positive, so that scores do not depend on the eigenvalue solver.

    Parameters
    ----------
    images : array of uint8 of shape (N, ...)
        At least two images.
    n_components : int
        The number of components.

    Returns
    -------
    array of shape (N, n_components)
    """
    pixels = np.asarray(images)
    if pixels.dtype != np.uint8 or pixels.ndim < 2 or len(pixels) < 2:
        raise ValueError(
            f"images must be at least two arrays of bytes, uint8 (N, ...); got {pixels.dtype} {pixels.shape}. "
            "Use (255 * images).astype(np.uint8) for pixels in [0, 1]."
        )
    pixels = pixels.reshape(len(pixels), -1)
    count = _checks.whole("n_components", n_components, at_most=pixels.shape[1], fix="There is one for each pixel.")
    mean = pixels.mean(axis=0, dtype=float) / 255
    batches = range(0, len(pixels), _BATCH)

    def centred(first: int) -> FloatArray:
        return pixels[first : first + _BATCH] / 255 - mean

    cov = sum(batch.T @ batch for batch in map(centred, batches)) / len(pixels)
    _, vectors = np.linalg.eigh(cov)
    loadings = vectors[:, ::-1][:, :count]
    loadings = loadings * np.sign(loadings[np.abs(loadings).argmax(axis=0), np.arange(count)])
    return np.concatenate([centred(first) @ loadings for first in batches])
