"""Federated standardisation: clients share counts, sums and sums of squares, never rows; results come back unscaled."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag

from fedgauss._types import FloatArray
from fedgauss.inference.estimate import Readout
from fedgauss.inference.model_data import ModelData
from fedgauss.problems.families import Family


class Location(NamedTuple):
    """Means and scales of columns, (p,) each."""

    mean: FloatArray
    scale: FloatArray


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
        return family if self.response is None else family.rescaled(float(self.response.scale[0]))

    def readout(self, n_outputs: int) -> Readout:
        """From the parameters of a run in these units to those of the user's."""
        mean, scale = self.columns
        matrix = np.diag(np.concatenate([np.ones(int(self.intercept)), 1.0 / scale]))
        offset = np.zeros(len(matrix))
        if self.intercept:
            matrix[0, 1:] = -mean / scale
        if self.response is not None:
            matrix = matrix * self.response.scale[0]
            offset[0] = self.response.mean[0] if self.intercept else 0.0
        return Readout(block_diag(*[matrix] * n_outputs), np.tile(offset, n_outputs))


def locate(rows: FloatArray, data: ModelData) -> Location:
    """Means and standard deviations in two rounds of client sums: of x, then of (x - mean)^2.

    One round, of x and x^2, would lose all digits of a column such as a year. Without an intercept nothing can be
    centred, and the scale is the root mean square.
    """
    total = int(data.counts.sum())
    mean = _total(rows, data) / total if data.constant is not None else np.zeros(rows.shape[1])
    scale = np.sqrt(_total((rows - mean) ** 2, data) / total)
    return Location(mean, scale)


def units_of(data: ModelData, columns: Location) -> Units:
    """Covariates of mean 0 and scale 1, and such a response where the family allows it."""
    about = locate(data.response[:, None], data) if data.family.additive else None
    return Units(columns, about, data.constant is not None)


def unscaled(columns: Location, intercept: bool) -> Units:
    """Units in which everything stays as it is."""
    return Units(Location(np.zeros_like(columns.mean), np.ones_like(columns.scale)), None, intercept)


def starting_point(data: ModelData, totals: FloatArray | None = None) -> FloatArray:
    """The model with an intercept alone, or zero where there is none; class by class.

    `totals` are those of the family's `start_terms` over all rows; by default those of the rows at hand.
    """
    intercept = data.constant is not None
    sums = _total(data.family.start_terms(data.response), data) if totals is None else totals
    start = np.zeros((len(sums), len(data.names) + int(intercept)))
    if intercept:
        start[:, 0] = data.family.start(sums, int(data.counts.sum()))
    return start.ravel()


def _total(rows: FloatArray, data: ModelData) -> FloatArray:
    """The sum over all rows, from those of each client: all that leaves a client here."""
    return np.add.reduceat(rows, data.firsts, axis=0).sum(axis=0)
