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


@dataclass(frozen=True)
class Units:
    """How covariates and response are scaled for a run, and the way back. All clients share them."""

    columns: Location  # of the covariates
    response: Location | None  # of the response, (1,), where it is scaled
    intercept: bool

    def rows(self, covariates: FloatArray) -> FloatArray:
        """Covariates in these units, with a column of ones first if there is an intercept."""
        scaled = (covariates - self.columns.mean) / self.columns.scale
        return np.column_stack([np.ones(len(scaled)), scaled]) if self.intercept else scaled

    def target(self, response: FloatArray) -> FloatArray:
        """The response in these units."""
        about = self.response
        return response if about is None else (response - about.mean[0]) / about.scale[0]

    def family(self, family: Family) -> Family:
        """The family in these units."""
        if self.response is None or not isinstance(family, Huber):
            return family
        return replace(family, threshold=family.threshold / float(self.response.scale[0]))

    def readout(self, classes: int) -> Readout:
        """From the parameters of a run in these units to those of the user's."""
        mean, scale = self.columns
        matrix = np.diag(np.concatenate([np.ones(int(self.intercept)), 1.0 / scale]))
        offset = np.zeros(len(matrix))
        if self.intercept:
            matrix[0, 1:] = -mean / scale
        if self.response is not None:
            matrix = matrix * self.response.scale[0]
            offset[0] = self.response.mean[0] if self.intercept else 0.0
        return Readout(block_diag(*[matrix] * classes), np.tile(offset, classes))


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
    """Covariates of mean 0 and scale 1, and such a response where the family allows it."""
    intercept = design.constant is not None
    about = locate(design.response[:, None], design, intercept) if scalable(design.family) else None
    units = Units(columns, about, intercept) if scaled else unscaled(columns, intercept)
    classes = max(1, len(design.classes))
    sums = _client_sums(marks(design.response, design.family), design).sum(axis=0)
    start = starting_point(design.family, sums, int(design.counts.sum()), len(design.names), intercept)
    return Standardised(
        units.rows(design.covariates), units.target(design.response), units.family(design.family), start,
        units.readout(classes), columns,
    )  # fmt: skip


def scalable(family: Family) -> bool:
    """Whether the response may be scaled: for the squared loss, and for Huber's with a threshold in the same units."""
    return isinstance(family, Linear | Huber)


def unscaled(columns: Location, intercept: bool) -> Units:
    """Units in which everything stays as it is."""
    return Units(Location(np.zeros_like(columns.mean), np.ones_like(columns.scale)), None, intercept)


def marks(response: FloatArray, family: Family) -> FloatArray:
    """What of the response is summed up to begin with, (N, 1): itself, or for classes a mark in each one's column."""
    if isinstance(family, OneVersusRest):
        return (response[:, None] == np.arange(family.n_outputs)).astype(float)
    return response[:, None]


def starting_point(family: Family, sums: FloatArray, total: int, n_covariates: int, intercept: bool) -> FloatArray:
    """The model with an intercept alone, from the sums of `marks` over all rows; without an intercept, zero.

    Squared losses begin at zero, which is the mean of a centred response.
    """
    start = np.zeros((len(sums), n_covariates + int(intercept)))
    if intercept and isinstance(family, Logistic | OneVersusRest):
        start[:, 0] = logit(sums / total)
    elif intercept and isinstance(family, Poisson):
        start[:, 0] = np.log(sums / total)
    return start.ravel()


def _client_sums(rows: FloatArray, design: Design) -> FloatArray:
    """Sums over each client's rows, (K, p): all that leaves a client here."""
    return np.add.reduceat(rows, design.firsts, axis=0)
