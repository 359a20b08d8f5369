"""The design of a fit for frames that are new to it: columns, the intercept, offsets and the exposure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.inference.formula.design import Design
from fedgauss.inference.formula.terms import SITE
from fedgauss.inference.formula.values import Agreed
from fedgauss.inference.model_data import ModelData
from fedgauss.inference.model_spec import ModelSpec
from fedgauss.inference.response import numbers
from fedgauss.inference.tables import Frame, FrameColumn


class FrameDesign(NamedTuple):
    """What `predict` asks of a model; levels, means and knots are those of the fit."""

    design: Design
    agreed: Agreed
    intercept: bool
    offset_column: str | None = None
    exposure_column: str | None = None

    def matrix(self, frame: Any) -> FloatArray:
        """The covariates of each row, (n, p), the column of ones first."""
        if SITE in self.design.formula.columns:
            raise ValueError("predict does not know the effect of a site for new rows. Fit without site_effects?")
        rows = self._rows(frame)
        n_rows = len(next(iter(rows.values())).values)
        columns = self.design.columns(rows, self.agreed)
        return np.column_stack([np.ones(n_rows), columns]) if self.intercept else columns

    def offset(self, frame: Any) -> FloatArray | float:
        """The offset() terms of the formula, the column of offsets and the logarithm of the exposure, together."""
        table, total = Frame(frame), self.design.offset(self._rows(frame))
        sums: FloatArray | float = 0.0 if total is None else total
        if self.offset_column is not None:
            sums = sums + _numbers(table, self.offset_column, "offset")
        if self.exposure_column is not None:
            exposure = _numbers(table, self.exposure_column, "exposure")
            if np.any(exposure <= 0.0):
                raise ValueError(f"exposure must be above 0; column {self.exposure_column!r} has other values.")
            sums = sums + np.log(exposure)
        return sums

    def _rows(self, frame: Any) -> Mapping[str, FrameColumn]:
        """The columns of the model; for a model without any, one that tells how many rows there are."""
        rows = self.design.read(frame)
        if rows:
            return rows
        table = Frame(frame)
        return table.read(table.names[:1])


def frame_design(data: ModelData, spec: ModelSpec) -> FrameDesign | None:
    """Of the model that these rows were fitted by, where it keeps a design."""
    if data.design is None:
        return None
    return FrameDesign(data.design, data.agreed, data.constant is not None, spec.offset, spec.exposure)


def _numbers(table: Frame, column: str, role: str) -> FloatArray:
    """A column of numbers by its name."""
    return numbers(table.read([table.check_name(column, role)])[column], role)
