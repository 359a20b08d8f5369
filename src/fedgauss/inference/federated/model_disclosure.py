"""Which models a site refuses before any sum of them leaves: the rules of `few_rows` for all that enters sums."""

from __future__ import annotations

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.inference.federated import few_rows
from fedgauss.inference.federated.policy import Policy
from fedgauss.inference.model_data import ModelData

Columns = dict[str, FloatArray]  # (n,) each


def told_columns(data: ModelData) -> Columns:
    """All columns whose sums of products a site tells, by name: covariates, response, and what stands beside them."""
    beside = {
        "the offset": data.offset, "the row weights": data.row_weights, f"the {data.family.beside}": data.beside
    }  # fmt: skip
    return _covariates(data) | _responses(data) | {name: own for name, own in beside.items() if own is not None}


def check_model(data: ModelData, policy: Policy, masked: bool) -> None:
    """Refuse a model of which sums would tell of few rows."""
    columns, covariates, weights = told_columns(data), _covariates(data), data.row_weights
    beside = {name: own for name, own in columns.items() if name not in covariates}
    in_a_cell = 1 if masked else policy.least_rows_in_a_cell  # masked, it is cells of all sites that are told
    _check(covariates, beside, weights, policy, in_a_cell)
    if data.cluster is not None:
        few_rows.check_clusters(data.cluster, policy.least_rows_in_a_level)


def check_needed(values: Columns, policy: Policy) -> None:
    """The same for what a formula needs means and standard deviations of: these are told before any design is."""
    if values:
        _check(values, {}, None, policy, in_a_cell=1)


def _check(covariates: Columns, beside: Columns, weights: FloatArray | None, policy: Policy, in_a_cell: int) -> None:
    """A column of ones is always there: whether the model has an intercept or not, sums of columns are told."""
    ones = np.ones(len(next(iter((covariates | beside).values()))))
    few_rows.check_design(
        np.column_stack([ones, *covariates.values()]), ["the intercept", *covariates], beside, row_weights=weights,
        share=policy.largest_share, fewest=policy.least_rows_in_a_level, in_a_cell=in_a_cell,
    )  # fmt: skip


def _covariates(data: ModelData) -> Columns:
    return dict(zip(data.names, data.covariates.T, strict=True))


def _responses(data: ModelData) -> Columns:
    """The response; of classes each is a column, since X'1[y = c] is told."""
    if not data.classes:
        return {data.target: data.response}
    return {f"{data.target} == {label!r}": (data.response == c).astype(float) for c, label in enumerate(data.classes)}
