"""What a fit says about new rows: how they become covariates, and the mean of the response or the linear predictor.

For a row x the predictor is eta = x'theta + offset, with standard error sqrt(x' cov x). An interval for eta becomes one
for the mean by the family's mean function, which is monotone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from fedgauss import _checks
from fedgauss._shown import Shown
from fedgauss._types import FloatArray
from fedgauss.inference.coefficient_table import pandas_frame
from fedgauss.inference.formula import design as designs
from fedgauss.inference.formula.design import Renamed
from fedgauss.inference.formula.terms import SITE, Agreed
from fedgauss.inference.model import Model
from fedgauss.inference.model_data import offset_of
from fedgauss.inference.tables import Frame, FrameColumn, coded, listed

if TYPE_CHECKING:
    from fedgauss.inference.estimate import Estimate

Interval = Literal["confidence", "prediction"]
Kind = Literal["mean", "predictor"]
_SHOWN = 10  # rows of a printed prediction


class Design(Protocol):
    """How a frame becomes rows of covariates: what a prediction asks of a model."""

    def matrix(self, frame: Any) -> FloatArray:
        """The covariates of each row, (n, p), in the order of the parameters, the column of ones included."""

    def offset(self, frame: Any) -> FloatArray | float:
        """What is added to the predictor of each row, (n,), such as the logarithm of an exposure, or 0."""


class FrameDesign(NamedTuple):
    """What `predict` asks of a model; levels, means and knots are those of the fit."""

    design: designs.Design
    agreed: Agreed
    constant: bool  # whether there is an intercept among the parameters
    model: Model
    client: str = "site"  # the column of sites, where these have effects
    renamed: Renamed = MappingProxyType({})  # what became of rare levels, after those that the model merges

    def matrix(self, frame: Any) -> FloatArray:
        """The covariates of each row, (n, p), the column of ones first."""
        rows = self._rows(frame)
        n_rows = len(next(iter(rows.values())).values)
        columns = self.design.columns(rows, self.agreed)
        return np.column_stack([np.ones(n_rows), columns]) if self.constant else columns

    def offset(self, frame: Any) -> FloatArray | float:
        """The offset() terms of the formula, the column of offsets and the logarithm of the exposure, together."""
        table, model = Frame(frame), self.model
        names = [
            table.check_name(getattr(model, role), role) for role in ("offset", "exposure") if getattr(model, role)
        ]
        found = offset_of(model, self.design, self._rows(frame), table.read(names) if names else {})
        return 0.0 if found is None else found

    def _rows(self, frame: Any) -> Mapping[str, FrameColumn]:
        """The columns of the model; for a model without any, one that tells how many rows there are."""
        rows = self.design.read(frame, self.model.merged, self.renamed)
        if self.model.site_effects:
            rows[SITE] = self._sites(Frame(frame), self.client)
        return rows or {"": FrameColumn("", np.zeros(Frame(frame).n_rows))}

    def _sites(self, table: Frame, name: str) -> FrameColumn:
        """Whose rows they are, among the sites of the fit."""
        labels = list(map(str, table.read([table.check_name(name, "the site of each row")])[name].as_levels().labels))
        known = list(self.design.levels[SITE] or ())
        if unknown := sorted(set(labels) - set(known)):
            raise ValueError(f"sites must be among those of the fit, which have effects; {listed(unknown)} is not.")
        return coded(SITE, labels, known)


class MeanOf(Protocol):
    """The part of a family that a prediction needs."""

    def mean(self, predictor: Any) -> Any:
        """E[y | eta], for predictors (C, n)."""


@dataclass(frozen=True, repr=False)
class Prediction(Shown):
    """Predictions with their intervals. Printed, it is a table.

    Attributes
    ----------
    estimate : (n,) ndarray
        The mean of the response, or the predictor. (n, C) for a family with C predictors.
    std_error : (n,) ndarray
        The standard error of the linear predictor.
    low, high : (n,) ndarray
        The ends of the interval for each row.
    level : float
        Of each interval.
    kind : str
        What is predicted and by which interval, in words.
    """

    estimate: FloatArray
    std_error: FloatArray
    low: FloatArray
    high: FloatArray
    level: float
    kind: str

    def to_frame(self) -> Any:
        """As a pandas DataFrame; of a family with one predictor."""
        if self.estimate.ndim > 1:
            raise ValueError("to_frame is for one predictor a row; take a column of estimate, low and high.")
        columns = {key: getattr(self, key) for key in ("estimate", "std_error", "low", "high")}
        return pandas_frame(columns)

    def __str__(self) -> str:
        lines = [f"{len(self.estimate):,} predictions of the {self.kind}, {100 * self.level:g} % intervals"]
        if self.estimate.ndim == 1:
            lines.append(f"{'':>6}{'estimate':>12}{'low':>12}{'high':>12}")
            rows = zip(self.estimate[:_SHOWN], self.low, self.high, strict=False)
            lines += [f"{i:>6}{value:>12.5g}{low:>12.5g}{high:>12.5g}" for i, (value, low, high) in enumerate(rows)]
            if len(self.estimate) > _SHOWN:
                lines.append(f"{'...':>6}")
        return "\n".join(lines)


def predict(
    estimate: Estimate,
    design: Design,
    family: MeanOf,
    frame: Any,
    interval: Interval | None = None,
    level: float | None = None,
    type: Kind = "mean",
    dispersion: float | None = None,
) -> FloatArray | Prediction:
    """Predictions for the rows of a frame.

    Parameters
    ----------
    estimate : Estimate
        Of the d parameters.
    design : Design
        Makes rows of covariates of a frame.
    family : Family
        Whose `mean` turns predictors into means.
    frame : DataFrame or dict
        New rows, with the columns of the model.
    interval : {"confidence", "prediction"}, optional
        For the mean (or predictor) of such rows, or for a single new response; the latter where a response is its
        predictor plus noise of one variance, and normal.
    level : float, optional
        That of the estimate by default.
    type : {"mean", "predictor"}
        What to predict: the mean of the response, or the linear predictor.
    dispersion : float, optional
        The variance of that noise.

    Returns
    -------
    (n,) ndarray or Prediction
        Numbers without an interval, a `Prediction` with one. (n, C) for a family with C predictors.

    Raises
    ------
    ValueError
        If the design does not fit the estimate, or there is no such interval for this family.
    """
    _checks.one_of("type", type, ("mean", "predictor"))
    if interval is not None:
        _checks.one_of("interval", interval, ("confidence", "prediction"))
    level = estimate.level if level is None else _checks.level(level)
    x = _checks.real_array("the design's matrix", design.matrix(frame), shape=(None, None))
    n, p = x.shape
    d = len(estimate.params) - len(getattr(family, "extra_names", ()))  # a family may have a shape besides
    n_outputs = d // p if p else 0
    if p == 0 or n_outputs * p != d:
        raise ValueError(f"the design must have a column for each of {d} parameters; it has {p}.")
    shift = np.broadcast_to(_checks.real_array("the design's offset", design.offset(frame)), (n,))
    predictor = np.asarray(estimate.params)[:d].reshape(n_outputs, p) @ x.T + shift  # (C, n)
    if interval is None:
        return _flat(_means(family, predictor) if type == "mean" else predictor)
    if type == "mean" and n_outputs > 1:
        raise ValueError(
            f"an interval for the mean needs one predictor a row; this family has {n_outputs}. Use type='predictor'."
        )
    errors, half = _reach(estimate, x, n_outputs, level)
    if interval == "prediction":
        if dispersion is None or not getattr(family, "additive", False):
            raise ValueError(
                "interval='prediction' needs a response that is its predictor plus noise of a known variance: a "
                "gaussian family fitted by solver='scoring'. Use interval='confidence'."
            )
        half = estimate.law_of(None).half_widths(np.sqrt(errors**2 + dispersion), level)
    ends = [predictor - half, predictor + half]
    if type == "mean":
        predictor, *ends = (_means(family, values) for values in (predictor, *ends))
    low, high = np.minimum(*ends), np.maximum(*ends)  # a mean may fall as its predictor grows
    kind = f"{type} ({interval})"
    return Prediction(_flat(predictor), _flat(errors), _flat(low), _flat(high), level, kind)


def _means(family: MeanOf, predictor: FloatArray) -> FloatArray:
    """Means of the responses, (C, n)."""
    means = np.asarray(family.mean(predictor), dtype=float)
    if means.shape != predictor.shape:
        raise ValueError(
            f"the family's mean must have the shape of its predictor, {predictor.shape}; got {means.shape}."
        )
    return means


def _reach(estimate: Estimate, x: FloatArray, n_outputs: int, level: float) -> tuple[FloatArray, FloatArray]:
    """Standard errors of predictors and half widths of their intervals, (C, n) each."""
    p = x.shape[1]
    errors, halves = [], []
    for c in range(n_outputs):
        own = slice(c * p, (c + 1) * p)
        squares = np.einsum("ij,ij->i", x @ estimate.cov[own, own], x)
        errors.append(np.sqrt(np.maximum(squares, 0.0)))
        draws = None if estimate.deviations is None else estimate.deviations[:, own] @ x.T
        halves.append(estimate.law_of(draws).half_widths(errors[-1], level))
    return np.array(errors), np.array(halves)


def _flat(values: FloatArray) -> FloatArray:
    """(n,) of one predictor, (n, C) of several."""
    return values[0] if len(values) == 1 else values.T
