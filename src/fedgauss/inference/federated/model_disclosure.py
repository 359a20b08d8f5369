"""Which models a site refuses before any sum of them leaves: the rules of `few_rows` for all that enters sums."""

from __future__ import annotations

import numpy as np

from fedgauss._types import BoolArray, FloatArray
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
    columns, fewest = told_columns(data), policy.least_rows_in_a_level
    covariates = _covariates(data)
    products = {name: own for name, own in columns.items() if name not in covariates}
    in_a_cell = 1 if masked else policy.least_rows_in_a_cell  # masked, it is cells of all sites that are told
    counting = [np.ones(len(data.response), dtype=bool)]
    if data.row_weights is not None and np.any(data.row_weights == 0.0):
        counting.append(data.row_weights > 0.0)  # other rows are in sums without weights alone
    for rows in counting if covariates else []:
        _check_design(covariates, products, rows, fewest, in_a_cell)
    few_rows.check_shares(columns, data.row_weights, share=policy.largest_share, fewest=fewest)
    if data.cluster is not None:
        few_rows.check_clusters(data.cluster, fewest)


def check_needed(values: Columns, policy: Policy) -> None:
    """The same for what a formula needs means and standard deviations of: these are told before any design is."""
    if values:
        rows = np.ones(len(next(iter(values.values()))), dtype=bool)
        _check_design(values, {}, rows, policy.least_rows_in_a_level, 1)
        few_rows.check_shares(values, share=policy.largest_share, fewest=policy.least_rows_in_a_level)


def _check_design(covariates: Columns, products: Columns, rows: BoolArray, fewest: int, in_a_cell: int) -> None:
    """A column of ones is always there: whether the model has an intercept or not, sums of columns are told."""
    x = np.column_stack([np.ones(int(rows.sum())), *(own[rows] for own in covariates.values())])
    few_rows.check_design(
        x, ["the intercept", *covariates], {name: own[rows] for name, own in products.items()}, fewest=fewest,
        in_a_cell=in_a_cell,
    )  # fmt: skip


def _covariates(data: ModelData) -> Columns:
    return dict(zip(data.names, data.covariates.T, strict=True))


def _responses(data: ModelData) -> Columns:
    """The response; of classes each is a column, since X'1[y = c] is told."""
    if not data.classes:
        return {data.target: data.response}
    return {f"{data.target} == {label!r}": (data.response == c).astype(float) for c, label in enumerate(data.classes)}
