"""Federated standardisation: clients share counts, sums and sums of squares, never rows; results come back unscaled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.special import logit

from fedgauss._types import FloatArray
from fedgauss.inference.design import Design
from fedgauss.inference.readout import Readout
from fedgauss.problems.families import Family, Huber, Linear, Logistic, OneVersusRest, Poisson


class Location(NamedTuple):
    """Where columns lie and how far they spread, (p,) each."""

    mean: FloatArray
    scale: FloatArray


@dataclass(frozen=True)
class Standardised:
    """A design in units in which steps are safe in single precision, and the way back."""

    rows: FloatArray  # (N, p), with the column of ones first if there is an intercept
    response: FloatArray
    family: Family
    start: FloatArray  # the model with an intercept alone, or zero
    readout: Readout  # from the parameters of these rows to those of the user's
    columns: Location  # of the covariates


def locate(rows: FloatArray, design: Design, centred: bool) -> Location:
    """Means and standard deviations in two rounds of client sums: of x, then of (x - mean)^2.

    One round, of x and x^2, would lose all digits of a column such as a year. Without an intercept nothing can be
    centred, and the scale is the root mean square.
    """
    total = int(design.counts.sum())
    mean = _client_sums(rows, design).sum(axis=0) / total if centred else np.zeros(rows.shape[1])
    scale = np.sqrt(_client_sums((rows - mean) ** 2, design).sum(axis=0) / total)
    return Location(mean, scale)


def standardise(design: Design, columns: Location, scaled: bool) -> Standardised:
    """Covariates of mean 0 and scale 1, and such a response where the family allows it.

    The squared loss does, and Huber's with a threshold in the same units.
    """
    p, intercept = len(design.names), design.constant is not None
    mean, scale = columns if scaled else (np.zeros(p), np.ones(p))
    rows = (design.covariates - mean) / scale
    if intercept:
        rows = np.column_stack([np.ones(len(rows)), rows])
    matrix = np.diag(np.concatenate([np.ones(int(intercept)), 1.0 / scale]))
    if intercept:
        matrix[0, 1:] = -mean / scale
    family, response, offset = design.family, design.response, np.zeros(len(matrix))
    if scaled and isinstance(family, Linear | Huber):
        about = locate(response[:, None], design, intercept)
        response = (response - about.mean[0]) / about.scale[0]
        matrix = matrix * about.scale[0]
        offset[0] = about.mean[0] if intercept else 0.0
        if isinstance(family, Huber):
            family = replace(family, threshold=family.threshold / float(about.scale[0]))
    classes = max(1, len(design.classes))
    start = np.zeros((classes, len(matrix)))
    if intercept:
        start[:, 0] = _alone(design)
    back = Readout(block_diag(*[matrix] * classes), np.tile(offset, classes))
    return Standardised(rows, response, family, start.ravel(), back, columns)


def _alone(design: Design) -> FloatArray:
    """The intercept of a model without covariates, from sums of the response: where a run begins.

    Squared losses begin at zero, which is the mean of a centred response.
    """
    y, total = design.response, float(design.counts.sum())
    if isinstance(design.family, Logistic):
        return logit(np.array([_client_sums(y[:, None], design).sum() / total]))
    if isinstance(design.family, Poisson):
        return np.log(np.array([_client_sums(y[:, None], design).sum() / total]))
    if isinstance(design.family, OneVersusRest):
        marked = (y[:, None] == np.arange(len(design.classes))).astype(float)
        return logit(_client_sums(marked, design).sum(axis=0) / total)
    return np.zeros(1)


def _client_sums(rows: FloatArray, design: Design) -> FloatArray:
    """Sums over each client's rows, (K, p): all that leaves a client here."""
    return np.add.reduceat(rows, design.firsts, axis=0)
