"""The columns of a model that a site adds up, and the functions of numbers that they are."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.federated.shares import Functions
from fedgauss.inference.formula.terms import Formula
from fedgauss.inference.model import Model
from fedgauss.inference.model_data import ModelData

Columns = dict[str, FloatArray]  # (n,) each
ONES = "1"  # the column of ones: which rows there are


def functions_of(
    model: Model, formula: Formula, columns: Iterable[tuple[str, frozenset[str]]], outcomes: Iterable[str]
) -> Functions:
    """Functions of numbers, and the columns that each is of: all that are added up times all others.

    They are those of the model's columns, outcomes that are no levels, and what stands beside them. Weights make a
    second one of each.
    """
    beside = (*outcomes, model.offset, model.exposure, model.trials, model.row_weights)
    told = {name: of for name, of in columns if of} | {name: frozenset([name]) for name in beside if name is not None}
    told |= {f"offset({part.name})": frozenset([part.column]) for part in formula.offsets}
    if model.row_weights is not None:
        told |= {f"{model.row_weights}:{name}": of | {model.row_weights} for name, of in told.items()}
    return told


def products_of(data: ModelData) -> Columns:
    """The covariates and the outcome, or a column of zeros and ones for each of its classes."""
    return dict(zip(data.names, data.covariates.T, strict=True)) | outcomes_of(data)


def outcomes_of(data: ModelData) -> Columns:
    """The outcome, or a column of zeros and ones for each of its classes."""
    events = data.family.beside == "event" and data.beside is not None
    outcome = data.beside.reshape(len(data.response), -1)[:, 0] if events else data.response  # type: ignore[union-attr]
    kinds = {f"{data.target} == {label!r}": (outcome == c).astype(float) for c, label in enumerate(data.classes)}
    return kinds or {data.target: outcome}


def columns_of(data: ModelData) -> Columns:
    """All columns of which a site adds up products: covariates, response, and what stands beside them.

    Where rows have weights, sums are of rows times the roots of their weights.
    """
    response = {data.target: data.response}
    if data.classes:  # X'1[y = c] is told of each class
        response = {
            f"{data.target} == {label!r}": (data.response == c).astype(float) for c, label in enumerate(data.classes)
        }
    beside = {"the offset": data.offset, "the row weights": data.row_weights}
    columns = {ONES: np.ones(len(data.response)), **dict(zip(data.names, data.covariates.T, strict=True)), **response}
    columns |= {name: own for name, own in beside.items() if own is not None}
    if data.beside is not None:
        columns |= {f"{data.family.beside} {j}": own for j, own in enumerate(np.atleast_2d(data.beside.T))}
    if data.row_weights is not None:
        root = np.sqrt(data.row_weights)
        columns |= {f"weighted {name}": own * root for name, own in columns.items()}
    return columns
