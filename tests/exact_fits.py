"""The exact fit of rows that are split over sites, in the units of the rows: what tests compare with statsmodels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from fedgauss.families import Family
from fedgauss.families.rows import Rows
from fedgauss.inference.asks import Exact, exact_program, run
from fedgauss.inference.fit_exact import covariance

PARTS = ("information", "observed", "squares.rows", "squares.clusters", "squares.sites")


@dataclass(frozen=True)
class Split:
    """A fit over sites, and the way back from standardised covariates."""

    family: Family
    exact: Exact
    back: np.ndarray  # (d, d)
    n_rows: int
    n_sites: int

    @property
    def params(self) -> np.ndarray:
        """Class by class, the intercept first; extra parameters last."""
        return self.back @ self.exact.theta

    def cov(self, errors: Any) -> np.ndarray:
        """Their covariance."""
        e = self.exact
        inside = covariance(errors, self.family, e.matrices, e.dispersion, self.n_rows, self.n_sites)
        return self.back @ inside @ self.back.T

    def bse(self, errors: Any) -> np.ndarray:
        """Standard errors."""
        return np.sqrt(np.diag(self.cov(errors)))


def fit_split(
    family: Family, x, y, site, *, beside=None, offset=None, weights=None, clusters=None, intercept=True, start=None
) -> Split:
    """Fit as `fit` does: standardise by pooled sums, start from pooled sums, then rounds of sums over sites.

    x has no column of ones.
    """
    x, y, site = np.asarray(x, float).reshape(len(y), -1), np.asarray(y, float), np.asarray(site)
    intercept = intercept and family.has_intercept
    mean = x.mean(axis=0) if intercept or not family.has_intercept else np.zeros(x.shape[1])
    scale = np.sqrt(((x - mean) ** 2).mean(axis=0))
    scaled = (x - mean) / scale
    design = np.column_stack([np.ones(len(x)), scaled]) if intercept else scaled
    parts = []
    for label in np.unique(site):
        i = np.flatnonzero(site == label)
        rows = Rows(
            design[i],
            y[i],
            0.0 if offset is None else np.asarray(offset, float)[i],
            1.0 if weights is None else np.asarray(weights, float)[i],
            None if clusters is None else np.asarray(clusters)[i],
        )
        parts.append(family.rows(rows, None if beside is None else np.asarray(beside, float)[i]))
    outputs, extra, width = family.n_outputs, len(family.extra_names), design.shape[1]
    begin = np.zeros(outputs * width + extra)
    share = y if family.beside != "trials" or beside is None else y / np.asarray(beside, float)
    found = family.start(family.start_terms(share).sum(axis=0), len(y))
    begin[len(begin) - extra :] = found[outputs:]
    null: list[int] = []
    if intercept:
        begin[: outputs * width : width] = found[:outputs]
        null = [*range(0, outputs * width, width), *range(outputs * width, len(begin))]
    if start is not None:
        begin = np.asarray(start, float)
    exact = run(exact_program(family, begin, null, len(y), PARTS), family, parts)
    one = np.diag(1.0 / np.concatenate([np.ones(int(intercept)), scale]))
    if intercept:
        one[0, 1:] = -mean / scale
    return Split(family, exact, block_diag(*[one] * outputs, *[np.eye(1)] * extra), len(y), len(parts))
