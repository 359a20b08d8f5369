"""The MNIST training set, reduced to three numbers per image."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss._types import FloatArray


class Scores(NamedTuple):
    """Principal component scores (N, p) and digits (N,)."""

    scores: FloatArray
    labels: npt.NDArray[np.int64]


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
