"""From a noise covariance, known or estimated, to the matrix that whitens innovations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedgauss._linearization import Linearization, noise_dof
from fedgauss._types import FloatArray
from fedgauss.detect.channel import TEMPERING

_SAFETY = 3.0  # times the tempering that the reported kurtosis asks for
_RIDGE = 0.1  # of the mean variance, added to an estimated V ...
_RIDGE_FROM = 12  # ... from this many dimensions on


def dof_needed(dim: int) -> int:
    """Degrees of freedom behind an estimated V, at least: with fewer its inverse has no useful law."""
    return 2 * dim + 4


@dataclass(frozen=True)
class Whitening:
    """x = M E, scaled so that tr(M V M) = d, and what a calibration must know of M.

    With V known, M = V^-1/2. An estimated V has small eigenvalues that are too small, and its inverse makes much of
    them: from 12 dimensions on M = (V + .1 (tr V / d) I)^-1/2 instead.

    spectrum   eigenvalues of V, all that a calibration needs of it: the statistics do not change under rotation   (d,)
    ridge      what is added to an estimated V, in units of tr V / d
    dof        degrees of freedom behind V; infinite when it is known
    tempering  how much less short segments count, see `mean_channel.tempered`
    """

    matrix: FloatArray
    spectrum: FloatArray
    ridge: float
    dof: float
    tempering: float

    @cached_property
    def sizes(self) -> FloatArray:
        """Sums of the 1, 2, ..., d largest eigenvalues of M V M."""
        return np.cumsum(np.sort(scales(self.spectrum, self.ridge) ** 2 * self.spectrum)[::-1])

    @property
    def in_table(self) -> bool:
        """Whether the thresholds that come with the package are this one's."""
        return math.isinf(self.dof) and self.tempering == TEMPERING


def whitening(lin: Linearization) -> Whitening:
    """The whitening that suits what is known of V, or a ValueError when a warm-up was too short to know it."""
    dim = lin.dim
    spectrum, axes = np.linalg.eigh(lin.noise_cov)
    ridge = _RIDGE if lin.dof is not None and dim >= _RIDGE_FROM else 0.0
    dof = _noise_dof(lin, ridge)
    if dof < dof_needed(dim):
        raise ValueError(_too_short(lin, dof))
    matrix = (axes * scales(spectrum, ridge)) @ axes.T
    return Whitening(matrix, spectrum, ridge, dof, _tempering(lin))


def scales(values: FloatArray, ridge: float) -> FloatArray:
    """Eigenvalues of M from those of the V that it is made of, (..., d)."""
    plain = 1.0 / np.sqrt(values + ridge * values.mean(axis=-1, keepdims=True))
    return plain / np.sqrt((plain**2 * values).mean(axis=-1, keepdims=True))


def _noise_dof(lin: Linearization, ridge: float) -> float:
    if lin.dof is None:
        return math.inf
    return lin.dof if lin.n_warmup is None else noise_dof(lin, ridge)


def _tempering(lin: Linearization) -> float:
    """c = 3 (excess kurtosis of the averaged gradient) / 12, by Cramer's correction; .35 at most, and when not known.

    In every direction client k's gradient has the excess kurtosis 3 (kurtosis_k - 1), of which the average over
    clients keeps the square of k's share in V.
    """
    if lin.kurtosis is None:
        return TEMPERING
    shares = lin.weights**2 * np.trace(lin.client_noise_cov, axis1=1, axis2=2) / np.trace(lin.noise_cov)
    excess = float(np.sum(shares**2 * 3.0 * (lin.kurtosis - 1.0)))
    return min(TEMPERING, max(_SAFETY * excess / 12.0, 0.0))


def _too_short(lin: Linearization, dof: float) -> str:
    needed = dof_needed(lin.dim)
    said = f"the noise covariance must rest on at least {needed} degrees of freedom in {lin.dim} dimensions"
    if lin.n_warmup is None:
        return f"{said}; it has {dof:.0f}. Use a longer warm-up."
    steps = 1 + math.ceil((lin.n_warmup - 1) * needed / dof)
    return f"{said}; a warm-up of {lin.n_warmup} steps gives {dof:.0f}. Use a warm-up of {steps} steps at least."
