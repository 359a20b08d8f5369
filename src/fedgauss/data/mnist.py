"""The MNIST training set, reduced to three numbers an image."""

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
    """Scores (60000, 3) on the first three principal components of the MNIST training images, and their digits.

    Made by scripts/make_mnist_scores.py; README.md beside this file says from what, and under which licence.
    """
    with (files("fedgauss.data") / "mnist_pca3.npz").open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return Scores(stored["scores"].astype(np.float64), stored["labels"].astype(np.int64))
