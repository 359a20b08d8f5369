"""A site's answers to the questions of a private fit: whole numbers, bounded for each row, added up, with noise.

What a row adds to a part of an answer is a vector of at most some length, whatever the row is. It is rounded to a grid
of 2^-20 of that length and only then added up, so that the most by which one row changes a total, its sensitivity, is
a matter of whole numbers: 2^20 and what rounding may add. A row that would still be longer adds nothing.

A row's vector is computed element by element from the question and this row alone. A product of matrices by BLAS could
make its last bits depend on other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fedgauss._types import FloatArray, IntArray
from fedgauss.federated.discrete_gaussian import discrete_gaussian
from fedgauss.federated.plan import Question
from fedgauss.federated.privacy import GRID
from fedgauss.federated.private_families import private_family

STEPS = 2**20  # of the grid to the longest vector
USUAL = 2.5  # standard deviations: where gaussian residuals are clipped to see whether they look normal
_TINY = 1e-12
MOST_ROWS = 2**32  # with which totals stay below 2^53, where floats are still exact
EDGES = 2.0 ** -np.arange(9.75, -1.25, -0.25)  # of the bins of residuals, in half ranges of the response
COUNTS = (
    np.unique(np.rint(2.0 ** np.arange(0.0, 30.5, 0.5))) - 1.0
)  # upper ends of bins of counts: 0, 1, 2, 3, 5, 7, ...
_CHUNK = 4_096  # rows at a time

Noise = Callable[[int, int], Any]  # noise(variance, size) are as many whole numbers


class PrivateRows(NamedTuple):
    """The rows of a site, in the user's units."""

    x: FloatArray  # (n, p), covariates without a constant
    y: FloatArray  # (n,)


def answer(question: Question, rows: PrivateRows, noise: Noise = discrete_gaussian) -> dict[str, FloatArray]:
    """The totals of a site's rows with its share of the noise: whole numbers, which are exact as floats."""
    found = bounds(question.kind, question.content, rows.x.shape[1] + 1)
    totals = {name: np.zeros(part.length) for name, part in found.items()}
    for first in range(0, len(rows.y), _CHUNK):
        u, t, y = in_ranges(question, rows.x[first : first + _CHUNK], rows.y[first : first + _CHUNK])
        for name, vectors in parts(question, u, t, y).items():
            totals[name] += whole(vectors, found[name].bound).sum(axis=1)
    shares = question.content["noise"]
    return {name: total + np.array(noise(shares[name], len(total)), float) for name, total in totals.items()}


class Bounded(NamedTuple):
    """A part of an answer: of each row a vector of as many elements, none longer than the bound."""

    length: int
    bound: float


def bounds(kind: str, content: dict[str, Any], p: int) -> dict[str, Bounded]:
    """The parts of an answer about p columns, the constant among them."""
    half = p * (p + 1) // 2
    if kind == "moments":
        return {"matrix": Bounded(half, float(p))}
    if kind == "start":
        return {"matrix": Bounded(half, content["heaviest"]), "cross": Bounded(p, content["heaviest"] ** 0.5)}
    if kind == "counts":
        return {"bins": Bounded(len(COUNTS) + 1, 1.0)}
    if kind == "scale":
        return {"bins": Bounded(len(EDGES) + 1, 1.0)}
    if kind == "curve":
        return {"score": Bounded(p, content["most"])}
    found = {"matrix": Bounded(half, content["heaviest"]), "score": Bounded(p, content["longest"])}
    if not content["last"]:
        found["shape"] = Bounded(half, content["heaviest"])
    else:
        found["spread"] = Bounded(half, content["heaviest"])
        if content["family"] == "gaussian":
            found["residuals"] = Bounded(2, 2.0**0.5)
    return found


def sensitivity(length: int) -> int:
    """The length of the longest vector of whole numbers: rounding adds half a step to each of its elements."""
    return STEPS + int(np.ceil(np.sqrt(length) / 2.0))


def share(multiplier: float, length: int, n_sites: int) -> int:
    """The variance of one site's noise: of all but one site together it is at least (multiplier sensitivity)^2."""
    own = round(multiplier * GRID) * sensitivity(length)
    return -(-own * own // (GRID * GRID * (n_sites - 1)))


def whole(vectors: FloatArray, bound: float) -> FloatArray:
    """Each row's vector, (m, n), in whole steps of the grid; one that is too long, or not finite, is zero.

    Floats add and multiply whole numbers below 2^53 exactly, and what is above that is too long.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(vectors * (STEPS / bound))
        fits = (steps * steps).sum(axis=0) <= sensitivity(len(steps)) ** 2
    return steps if fits.all() else np.where(fits, steps, 0.0)


def parts(question: Question, u: list[FloatArray], t: FloatArray, y: FloatArray) -> dict[str, FloatArray]:
    """The vectors of rows, (m, n); u has the constant and the covariates, t the response in half ranges, y as it is."""
    content = question.content
    if question.kind == "moments":
        return {"matrix": _products(u)}
    if question.kind == "start":
        z = [_dot(line, u) for line in content["whiten"]]
        weight = np.minimum(1.0, content["heaviest"] / _square(z))
        return {"matrix": _products(z) * weight, "cross": np.array(z) * (weight * np.clip(t, -1.0, 1.0))}
    if question.kind == "counts":
        return {"bins": _one_hot(np.searchsorted(COUNTS, y), len(COUNTS) + 1)}
    if question.kind == "scale":
        bins = np.searchsorted(EDGES, np.abs(t - _dot(content["theta"], u)))
        return {"bins": _one_hot(bins, len(EDGES) + 1)}
    return _step(question, u, t if content["family"] == "gaussian" else y)


def _step(question: Question, u: list[FloatArray], response: FloatArray) -> dict[str, FloatArray]:
    """The score and its derivative, in coordinates z = root W u in which the latter is about the identity.

    Residuals are clipped at C / |z|, and a row weighs w = min(1, C / (|z| reach), H / |z|^2), so that w |z| |residual|
    is at most C and w |z|^2 at most H. Clip and weight depend on covariates alone, so that the score still has
    expectation zero.

    Of a "curve" it is what the expectation of the score changes by over a step, less its derivative times the step;
    what is longer than `most` is shortened.
    """
    content = question.content
    family = private_family(content["family"], content["scale"])
    predictor = _dot(content["theta"], u)
    root = family.root(predictor)
    z = [_dot(line, u) * root for line in content["whiten"]]
    square = _square(z)
    room = content["longest"] / np.sqrt(square)
    terms = family.terms(predictor, response, room)
    weight = np.minimum(1.0, np.minimum(room / terms.reach, content["heaviest"] / square))
    if question.kind == "curve":
        moved = _dot(content["step"], z)
        bent = weight * (family.shift(predictor, predictor + moved / root, room) - terms.slope * moved)
        length = np.maximum(np.abs(bent) * np.sqrt(square), _TINY)
        return {"score": np.array(z) * (bent * np.minimum(1.0, content["most"] / length))}
    products = _products(z)
    found = {"matrix": products * (weight * terms.slope), "score": np.array(z) * (weight * terms.residual)}
    if not content["last"]:
        found["shape"] = products * np.minimum(1.0, content["heaviest"] / square)
    else:
        found["spread"] = products * (weight**2 * terms.spread)
        if content["family"] == "gaussian":
            residual = (response - predictor) / content["scale"] / USUAL
            found["residuals"] = np.array([np.abs(residual) < 1.0, np.minimum(residual**2, 1.0)])
    return found


def in_ranges(question: Question, x: FloatArray, y: FloatArray) -> tuple[list[FloatArray], FloatArray, FloatArray]:
    """A constant and the covariates in half ranges about their middles, where values outside count as the ends.

    And the response, likewise but not clipped, and as it is.
    """
    columns = [
        (values - (low + high) / 2.0) / ((high - low) / 2.0)
        for (low, high), values in zip(question.content["ranges"], [*x.T, y], strict=True)
    ]
    return [np.ones(len(y)), *(np.clip(column, -1.0, 1.0) for column in columns[:-1])], columns[-1], y


def _one_hot(bins: IntArray, length: int) -> FloatArray:
    return (bins == np.arange(length)[:, None]).astype(float)


def _square(z: list[FloatArray]) -> FloatArray:
    """|z|^2, if not zero."""
    return np.maximum(sum((one * one for one in z), np.zeros_like(z[0])), _TINY)


def _products(z: list[FloatArray]) -> FloatArray:
    """The upper triangle of zz', row by row, (p (p + 1) / 2, n); other elements than the diagonal times root two.

    So the length of this vector is |z|^2.
    """
    return np.array([z[i] * z[j] * (1.0 if i == j else 2.0**0.5) for i, j in triangle(len(z))])


def triangle(p: int) -> Iterator[tuple[int, int]]:
    """The places of an upper triangle, row by row."""
    return ((i, j) for i in range(p) for j in range(i, p))


def _dot(weights: list[float], columns: list[FloatArray]) -> FloatArray:
    total = np.zeros_like(columns[0])
    for weight, column in zip(weights, columns, strict=True):
        if weight:
            total = total + weight * column
    return total
