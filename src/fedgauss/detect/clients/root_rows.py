"""A few rows at the server: which classes a client's move teaches the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedgauss._types import ArrayLike, FloatArray

FEATURES = ("best class", "right rows")
_LARGEST_LOSS = 50.0  # of a row: that of a chance of 2e-22
_LARGEST_SCORE = 1e6  # of a move that nobody would call small


class RootRows:
    """Rows of known labels that no client has sent.

    Parameters
    ----------
    scores : callable
        From a model's arrays, in the order of moves, to the scores of the rows before softmax, (n, classes).
    labels : (n,) array_like of int
        Five rows of each class are enough.
    """

    def __init__(self, scores: Callable[[list[FloatArray]], ArrayLike], labels: ArrayLike) -> None:
        found = np.asarray(labels)
        if found.ndim != 1 or found.dtype.kind not in "iu" or len(np.unique(found)) < 2:
            raise ValueError("labels must be whole numbers of at least two classes, one for each root row.")
        self._scores, self.labels = scores, found.astype(np.int64)

    def features_of(self, model: Sequence[FloatArray], moves: Sequence[Sequence[FloatArray]]) -> FloatArray:
        """Of every client, (K, 2).

        - `best class`: by how much the move lowers the mean loss of the class that it lowers most;
        - `right rows`: with C the mean change of the score of class j on rows of class c, less means over rows and
          columns and of length one, the largest entry where j = c less the largest where it is not.

        An honest client raises the score of some class on rows of that class. One whose labels are permuted raises it
        on rows of another.
        """
        before = self._of(model)
        after = [self._of([w + u for w, u in zip(model, move, strict=True)]) for move in moves]
        return np.array([(self._best(before, scores), self._right(scores - before)) for scores in after])

    def _best(self, before: FloatArray, after: FloatArray) -> float:
        return float(self._by_class(self._losses(before) - self._losses(after)).max())

    def _right(self, change: FloatArray) -> float:
        by_class = self._by_class(change)[:, np.unique(self.labels)]
        by_class = by_class - by_class.mean(axis=0) - by_class.mean(axis=1, keepdims=True) + by_class.mean()
        size = float(np.linalg.norm(by_class))
        own = np.eye(len(by_class), dtype=np.bool_)
        return float(by_class[own].max() - by_class[~own].max()) / size if size > 0 else 0.0

    def _by_class(self, values: FloatArray) -> FloatArray:
        return np.array([values[self.labels == c].mean(axis=0) for c in np.unique(self.labels)])

    def _losses(self, scores: FloatArray) -> FloatArray:
        scores = scores - scores.max(axis=1, keepdims=True)
        losses = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(scores)), self.labels]
        return np.asarray(np.minimum(losses, _LARGEST_LOSS))

    def _of(self, model: Sequence[FloatArray]) -> FloatArray:
        scores = np.asarray(self._scores(list(model)), dtype=np.float64)
        n, most = len(self.labels), int(self.labels.max())
        if scores.ndim != 2 or len(scores) != n or scores.shape[1] <= most:
            raise ValueError(f"scores must have {n} rows and {most + 1} classes or more; got shape {scores.shape}.")
        return np.clip(np.nan_to_num(scores), -_LARGEST_SCORE, _LARGEST_SCORE)
