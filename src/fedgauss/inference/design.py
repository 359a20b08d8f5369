"""From columns to a regression: the matrix of covariates with a name for each column, the response, the clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._types import FloatArray
from fedgauss.inference.formula import Formula, Term, parse
from fedgauss.inference.frames import Column, Frame, listed
from fedgauss.problems.families import Family, Huber, Linear, Logistic, OneVersusRest, Poisson
from fedgauss.problems.families import family as family_named

_MOST_CLASSES = 50


@dataclass(frozen=True)
class Design:
    """Rows sorted by client. `covariates` has no column of ones; `constant` is the name of the intercept, if any."""

    covariates: FloatArray  # (N, p)
    names: tuple[str, ...]  # (p,)
    constant: str | None
    response: FloatArray  # (N,)
    target: str
    classes: tuple[Any, ...]  # of the response, for one-versus-rest
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
    def all_names(self) -> tuple[str, ...]:
        """Of all parameters: the intercept first, and once for each class."""
        one = self.names if self.constant is None else (self.constant, *self.names)
        return tuple(f"{label}: {name}" for label in self.classes for name in one) if self.classes else one


def read_design(
    frame: Any,
    target: str,
    client: str,
    family: str | Family,
    features: Sequence[str] | None,
    formula: str | None,
    intercept: bool,
) -> Design:
    """Read the columns that are asked for, and refuse what no model can use."""
    table = Frame(frame)
    table.check_name(target, "target")
    table.check_name(client, "client")
    if target == client:
        raise ValueError(f"target and client must be two columns; both are {target!r}.")
    asked = asked_terms(table, target, client, features, formula, intercept)
    columns = table.read(list(dict.fromkeys([target, client, *(term.column for term in asked.terms)])))
    _check_varies(columns[target])
    covariates, names = covariates_of(asked, columns, len(columns[target].values))
    response, classes, chosen_family = response_of(columns[target], family)
    who = columns[client].as_levels()
    assert who.levels is not None
    owner = who.values.astype(np.int64)
    order = np.argsort(owner, kind="stable")
    labels = tuple(str(level) for level in who.levels)
    return Design(
        covariates[order], names, intercept_name(asked, formula, names), response[order], target, classes,
        chosen_family, labels, np.bincount(owner, minlength=len(labels)),
    )  # fmt: skip


def asked_terms(
    table: Frame,
    target: str,
    client: str | None,
    features: Sequence[str] | None,
    formula: str | None,
    intercept: bool,
) -> Formula:
    """What the right-hand side of the model is, whether it was given as columns or as a formula."""
    table.check_name(target, "target")
    others = [name for name in table.names if name not in (target, client)]
    if formula is not None:
        if features is not None:
            raise ValueError("give features or a formula, not both.")
        asked = parse(formula, table, target, others)
        asked = asked._replace(intercept=asked.intercept and intercept)
    else:
        chosen = others if features is None else _as_list(features)
        asked = Formula(tuple(Term(table.check_name(name, "features")) for name in chosen), intercept)
    for name, role in ((target, "target"), (client, "client")):
        if any(term.column == name for term in asked.terms):
            raise ValueError(f"{name!r} is the {role}, and cannot be a covariate too. Leave it out.")
    if not asked.terms and not asked.intercept:
        raise ValueError("a model needs a covariate or an intercept; got neither.")
    return asked


def intercept_name(asked: Formula, formula: str | None, names: Sequence[str]) -> str | None:
    """As statsmodels calls it, unless a column is called so."""
    if not asked.intercept:
        return None
    usual = "const" if formula is None else "Intercept"
    return next(name for name in (usual, "(const)", "(intercept)") if name not in names)


def _as_list(features: Sequence[str]) -> list[str]:
    if isinstance(features, str):
        raise ValueError(f"features must be a list of columns; got {features!r}. Use [{features!r}]?")
    names = list(features)
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"features must be different columns; {listed(twice)} occurs more than once.")
    return names


def covariates_of(asked: Formula, columns: dict[str, Column], total: int) -> tuple[FloatArray, tuple[str, ...]]:
    """Numbers as they are; a column of zeros and ones for each level but the first.

    Without an intercept the first column of levels keeps its first level too: it takes the intercept's place. `total`
    is the number of rows that all clients have.
    """
    n_rows = len(next(iter(columns.values())).values)
    parts: list[FloatArray] = []
    names: list[str] = []
    whole = asked.intercept
    for term in asked.terms:
        column = columns[term.column]
        if column.levels is None and not term.levels:
            parts.append(column.values)
            names.append(term.name)
            continue
        column = column.as_levels()
        assert column.levels is not None
        if len(column.levels) > max(2, total // 5):
            raise ValueError(
                f"column {term.column!r} has {len(column.levels):,} levels in {total:,} rows. Is it an identifier, or "
                "a number read as text? Leave it out, or make it a number."
            )
        if len(column.levels) == 1:
            raise ValueError(f"column {term.column!r} is constant ({column.levels[0]!r}). Leave it out.")
        first = 1 if whole else 0
        mark = "T." if whole else ""
        for code, level in list(enumerate(column.levels))[first:]:
            parts.append((column.values == code).astype(float))
            names.append(f"{term.name}[{mark}{level}]")
        whole = True
    matrix = np.column_stack(parts) if parts else np.empty((n_rows, 0))
    return matrix, tuple(names)


def _check_varies(column: Column) -> None:
    if len(set(column.values.tolist())) == 1:
        raise ValueError(f"the target {column.name!r} is constant ({column.labels[0]!r}): there is nothing to explain.")


def response_of(column: Column, family: str | Family) -> tuple[FloatArray, tuple[Any, ...], Family]:
    """The target as the family wants it, its classes, and the family."""
    name = column.name
    if family == "one_versus_rest" or isinstance(family, OneVersusRest):
        if column.levels is None and np.any(column.values != np.floor(column.values)):
            raise ValueError(f"one_versus_rest needs classes; {name!r} has fractions. Use family='linear'?")
        classes = column.as_levels()
        assert classes.levels is not None
        if len(classes.levels) > _MOST_CLASSES:
            raise ValueError(
                f"one_versus_rest needs classes, at most {_MOST_CLASSES}; {name!r} has {len(classes.levels):,} values."
            )
        if len(classes.levels) == 2:
            raise ValueError(f"one_versus_rest needs three classes or more; {name!r} has two. Use family='logistic'.")
        return classes.values, classes.levels, OneVersusRest(len(classes.levels))
    chosen = family_named(family) if isinstance(family, str) else family
    if not isinstance(chosen, Family):
        raise ValueError(f"family must be a name, such as 'linear', or a family of fedgauss; got {family!r}.")
    truth = column.levels is not None and all(isinstance(level, bool) for level in column.levels)
    if isinstance(chosen, Logistic) and not truth and not (column.levels and all(map(_is_number, column.levels))):
        _check_two_values(column)
    if column.levels is not None and not truth and all(_is_number(level) for level in column.levels):
        raise ValueError(
            f"the target {name!r} must be numbers for family {family_name(chosen)!r}; its numbers are stored as text "
            f"or as categories. Make them numbers: frame[{name!r}].astype(float)."
        )
    if column.levels is not None and not truth:
        raise ValueError(
            f"the target {name!r} must be numbers for family {family_name(chosen)!r}; it has "
            f"{listed([str(level) for level in column.levels])}. Use family='one_versus_rest' for classes?"
        )
    try:
        chosen.check_response(column.values)
    except ValueError as error:
        raise ValueError(f"the target {name!r} does not suit the family: {error}") from error
    return column.values, (), chosen


def _is_number(level: Any) -> bool:
    try:
        float(level)
    except (TypeError, ValueError):
        return False
    return True


def _check_two_values(column: Column) -> None:
    """Two values that are not 0 and 1 are easily made so."""
    levels = column.as_levels().levels
    assert levels is not None
    if len(levels) == 2 and set(levels) != {0, 1}:
        raise ValueError(
            f"the target {column.name!r} must be 0 or 1 for family 'logistic'; it has {levels[0]!r} and "
            f"{levels[1]!r}. Use frame[{column.name!r}] == {levels[1]!r} as the target?"
        )


def family_name(family: Family) -> str:
    """As `fit` takes it."""
    names: dict[type[Family], str] = {
        Linear: "linear",
        Logistic: "logistic",
        Poisson: "poisson",
        Huber: "huber",
        OneVersusRest: "one_versus_rest",
    }
    return names.get(type(family), type(family).__name__)


def checked_weights(weights: Any, n_clients: int) -> Any:
    """Weights as `from_arrays` takes them: "rows", None for equal ones, or numbers."""
    if isinstance(weights, str):
        return None if _checks.one_of("weights", weights, ["rows", "equal"]) == "equal" else "rows"
    return None if weights is None else _checks.client_weights(weights, n_clients)
