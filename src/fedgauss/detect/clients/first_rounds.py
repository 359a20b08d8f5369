"""What a client's first rounds are judged by: five numbers, from its move, the layers of it, and the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedgauss._types import FloatArray

Layers = Sequence[FloatArray]
FEATURES = ("others", "first layer", "rows", "nearest rows", "agreement")


def output_layer(shapes: Sequence[tuple[int, ...]]) -> int | None:
    """The place of the last array with two axes; None without one."""
    return max((i for i, shape in enumerate(shapes) if len(shape) == 2), default=None)


def features_of(moves: Sequence[Layers], model: Layers | None, output: int | None) -> tuple[FloatArray, FloatArray]:
    """Of every client, (K, F), NaN where layers or the model are not known; and inner products of moves, (K, K).

    With u_k the moves and s their sum, and with D_k and W the rows of the output layer in u_k and in the model, one for
    each class, less their mean over classes:

    - `others`: cos(u_k, s - u_k), and `first layer` the same of the first array;
    - `rows`: over classes the mean of the median over l of such cosines between rows that are not centred;
    - `nearest rows`: over classes the mean of the largest cos(D_k^c, D_l^c) over l;
    - `agreement`: sum_c |D_k^c| cos(D_k^c, W^c) / sum_c |D_k^c|. The gradient's product with W is, over the rows that a
      client trains on, the score of the label less what the model expects of it: it falls where labels are not those
      that the model knows.
    """
    found = np.full((len(moves), len(FEATURES)), np.nan)
    products = [_products(np.stack([move[i].ravel() for move in moves])) for i in range(len(moves[0]))]
    whole = np.sum(products, axis=0)
    found[:, 0] = _with_others(whole)
    if output is None:
        return found, whole
    rows = np.stack([_by_class(move, output) for move in moves])
    centred = rows - rows.mean(axis=1, keepdims=True)
    found[:, 1] = _with_others(products[0])
    found[:, 2] = np.nanmedian(_cosines(rows), axis=1).mean(axis=-1)
    found[:, 3] = np.nanmax(_cosines(centred), axis=1).mean(axis=-1)
    if model is not None:
        found[:, 4] = _agreement(centred, _by_class(model, output))
    return found, whole


def _products(vectors: FloatArray) -> FloatArray:
    return np.asarray(vectors @ vectors.T, dtype=np.float64)


def _with_others(products: FloatArray) -> FloatArray:
    """cos(u_k, s - u_k) from inner products; 0 where either is nothing."""
    own = np.diag(products)
    along = products.sum(axis=1) - own
    others = np.maximum(products.sum() - 2 * products.sum(axis=1) + own, 0.0)
    size = np.sqrt(own * others)
    return np.divide(along, size, out=np.zeros_like(along), where=size > 0)


def _by_class(arrays: Layers, output: int) -> FloatArray:
    """The output layer with a row for each class: that axis is as long as the bias behind it, or else the shorter."""
    weights = np.asarray(arrays[output], dtype=np.float64)
    after = arrays[output + 1] if output + 1 < len(arrays) else weights
    classes = len(after) if after.ndim == 1 and len(after) in weights.shape else min(weights.shape)
    return weights if weights.shape[0] == classes else weights.T


def _cosines(rows: FloatArray) -> FloatArray:
    """Of each client's rows with those of each other, (K, K, classes); NaN with itself, 0 where a row is nothing."""
    lengths = np.linalg.norm(rows, axis=2, keepdims=True)
    units = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    found = np.einsum("kch,lch->klc", units, units)
    found[np.eye(len(rows), dtype=np.bool_)] = np.nan
    return found


def _agreement(moves: FloatArray, weights: FloatArray) -> FloatArray:
    weights = weights - weights.mean(axis=0)
    lengths, sizes = np.linalg.norm(moves, axis=2), np.linalg.norm(weights, axis=1)
    along = np.einsum("kch,ch->kc", moves, weights)
    cosines_times = np.divide(along, sizes, out=np.zeros_like(along), where=sizes > 0)
    total = lengths.sum(axis=1)
    return np.divide(cosines_times.sum(axis=1), total, out=np.zeros_like(total), where=total > 0)
