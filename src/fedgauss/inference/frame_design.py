"""The design of a fit for frames that are new to it: columns, the intercept, offsets and the exposure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.inference.formula.design import Design
from fedgauss.inference.formula.terms import SITE, Agreed
from fedgauss.inference.model import Model
from fedgauss.inference.model_data import offset_of
from fedgauss.inference.tables import Frame, FrameColumn, coded, listed


class FrameDesign(NamedTuple):
    """What `predict` asks of a model; levels, means and knots are those of the fit."""

    design: Design
    agreed: Agreed
    constant: bool  # whether there is an intercept among the parameters
    model: Model
    client: str = "site"  # the column of sites, where these have effects
    renamed: Mapping[str, Mapping[str, str]] = MappingProxyType({})  # levels by column that became others

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
        rows = self.design.read(frame, self.renamed)
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
