"""From columns to a regression: the matrix of covariates with a name for each column, the response, the clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._types import FloatArray
from fedgauss.inference.formula import Formula, Term, parse
from fedgauss.inference.frames import Frame, FrameColumn, listed
from fedgauss.problems.families import Family, as_family


class ModelSpec(NamedTuple):
    """Which regression; fields are as `fit` has them."""

    target: str
    family: str | Family
    features: Sequence[str] | None
    formula: str | None
    intercept: bool


# The values of a target as its family reads them, its classes if it has them, and the family.
Response = tuple[FloatArray, tuple[Any, ...], Family]


@dataclass(frozen=True)
class ModelData:
    """Rows sorted by client. `covariates` has no column of ones; `constant` is the name of the intercept, if any."""

    covariates: FloatArray  # (N, p)
    names: tuple[str, ...]  # (p,)
    constant: str | None
    response: FloatArray  # (N,)
    target: str
    classes: tuple[Any, ...]  # of the response, for families with an output for each class
    family: Family
    clients: tuple[str, ...]  # (K,)
    counts: npt.NDArray[np.int64]  # (K,)

    @property
    def firsts(self) -> npt.NDArray[np.int64]:
        """Where each client's rows begin."""
        return np.cumsum(self.counts) - self.counts

    @property
    def owner(self) -> npt.NDArray[np.int64]:
        """The client of each row, by number."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def one_output(self) -> tuple[str, ...]:
        """Names of one output's parameters, the intercept first."""
        return self.names if self.constant is None else (self.constant, *self.names)

    @property
    def all_names(self) -> tuple[str, ...]:
        """Names of all parameters, class by class."""
        each = self.one_output
        return tuple(f"{label}: {name}" for label in self.classes for name in each) if self.classes else each

    @property
    def sides(self) -> dict[str, FloatArray]:
        """What might be linearly separable, by name, with the side of a plane on which each row would have to lie."""
        labels = [f"{self.target} == {label!r}" for label in self.classes] or [self.target]
        return dict(zip(labels, self.family.sides(self.response), strict=False))


def read_model_data(frame: Any, client: str, spec: ModelSpec) -> ModelData:
    """Read the columns that are asked for, and refuse what no model can use."""
    table, target = Frame(frame), spec.target
    table.check_name(target, "target")
    table.check_name(client, "client")
    if target == client:
        raise ValueError(f"target and client must be two columns; both are {target!r}.")
    terms = right_hand_side(table, spec, client)
    columns = table.read(list(dict.fromkeys([target, client, *(term.column for term in terms.terms)])))
    if len(set(columns[target].values.tolist())) == 1:
        value = columns[target].labels[0]
        raise ValueError(f"the target {target!r} is constant ({value!r}): there is nothing to explain.")
    covariates, names = covariates_of(terms, columns, len(columns[target].values))
    response, classes, family = response_of(columns[target], spec.family)
    who = columns[client].as_levels()
    owner = who.values.astype(np.int64)
    order = np.argsort(owner, kind="stable")
    labels = tuple(str(level) for level in who.levels or ())
    return ModelData(
        covariates[order], names, intercept_name(terms, spec, names), response[order], target, classes, family,
        labels, np.bincount(owner, minlength=len(labels)),
    )  # fmt: skip


def right_hand_side(table: Frame, spec: ModelSpec, client: str | None = None) -> Formula:
    """The terms of the model, whether they were given as columns or as a formula."""
    target, features = table.check_name(spec.target, "target"), spec.features
    others = [name for name in table.names if name not in (target, client)]
    if spec.formula is not None:
        if features is not None:
            raise ValueError("give features or a formula, not both.")
        terms = parse(spec.formula, table, target, others)
        terms = terms._replace(intercept=terms.intercept and spec.intercept)
    else:
        chosen = others if features is None else _as_list(features)
        terms = Formula(tuple(Term(table.check_name(name, "features")) for name in chosen), spec.intercept)
    for name, role in ((target, "target"), (client, "client")):
        if any(term.column == name for term in terms.terms):
            raise ValueError(f"{name!r} is the {role} and cannot be a covariate too. Leave it out.")
    if not terms.terms and not terms.intercept:
        raise ValueError("a model needs a covariate or an intercept; got neither.")
    return terms


def intercept_name(terms: Formula, spec: ModelSpec, names: Sequence[str]) -> str | None:
    """As statsmodels calls it, in brackets where a covariate has that name."""
    if not terms.intercept:
        return None
    name = "const" if spec.formula is None else "Intercept"
    while name in names:
        name = f"({name})"
    return name


def _as_list(features: Sequence[str]) -> list[str]:
    if isinstance(features, str):
        raise ValueError(f"features must be a list of columns; got {features!r}. Use [{features!r}]?")
    names = list(features)
    repeated = sorted({str(name) for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"features must be different columns; {listed(repeated)} occurs more than once.")
    return names


def covariates_of(terms: Formula, columns: dict[str, FrameColumn], total: int) -> tuple[FloatArray, tuple[str, ...]]:
    """The matrix of covariates and its names: numbers as they are, an indicator for each level but the first.

    Without an intercept the first column of levels keeps its first level too: it takes the intercept's place. `total`
    is the number of rows that all clients have.
    """
    n_rows = len(next(iter(columns.values())).values)
    parts: list[FloatArray] = []
    names: list[str] = []
    drop_first = terms.intercept
    for term in terms.terms:
        column = columns[term.column]
        if column.levels is None and not term.levels:
            parts.append(column.values)
            names.append(term.name)
            continue
        column = column.as_levels()
        levels = column.levels or ()
        if len(levels) > max(2, total // 5):
            raise ValueError(
                f"column {term.column!r} has {len(levels):,} levels in {total:,} rows. Is it an identifier, or a "
                "number read as text? Leave it out, or make it a number."
            )
        if len(levels) == 1:
            raise ValueError(f"column {term.column!r} is constant ({levels[0]!r}). Leave it out.")
        mark = "T." if drop_first else ""
        for code, level in list(enumerate(levels))[int(drop_first) :]:
            parts.append((column.values == code).astype(float))
            names.append(f"{term.name}[{mark}{level}]")
        drop_first = True
    return np.column_stack(parts) if parts else np.empty((n_rows, 0)), tuple(names)


def response_of(column: FrameColumn, family: str | Family) -> Response:
    """The target as its family reads it."""
    chosen = as_family(family)
    if not chosen.by_class:
        return chosen.read(column.name, column.values, column.levels), (), chosen
    if column.levels is None and np.any(column.values != np.floor(column.values)):
        raise ValueError(f"{chosen.name} needs classes; {column.name!r} has fractions. Use family='linear'?")
    column = column.as_levels()
    classes = column.levels or ()
    return chosen.read(column.name, column.values, classes), classes, chosen.with_classes(len(classes))


def checked_weights(weights: Any, n_clients: int) -> Any:
    """Weights as `from_arrays` takes them: "rows", None for equal ones, or numbers."""
    if isinstance(weights, str):
        return None if _checks.one_of("weights", weights, ["rows", "equal"]) == "equal" else "rows"
    return None if weights is None else _checks.client_weights(weights, n_clients)
