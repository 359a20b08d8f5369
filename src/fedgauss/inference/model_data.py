"""From columns to a regression: the matrix of covariates with a name for each column, the response, the clients.

Covariates are a list of columns or a formula such as "y ~ a + b + C(c) - 1": columns joined by +, C() for columns whose
values are levels.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss._types import FloatArray, IntArray
from fedgauss.families import Family, as_family
from fedgauss.inference.tables import Frame, FrameColumn, listed, repeats

_RULE = "a formula may have columns, C(column), Q('column'), '.', +, and - 1 for no intercept"
_QUOTED = re.compile(r"""^Q\(\s*(["'])(.*)\1\s*\)$""")
_LEVELS = re.compile(r"^C\((.*)\)$")


class Term(NamedTuple):
    """A column on the right-hand side; `levels` if its values are levels even where they are numbers."""

    column: str
    levels: bool = False
    shown: str = ""

    @property
    def name(self) -> str:
        """As the formula has it."""
        return self.shown or self.column


class Formula(NamedTuple):
    """What a formula says."""

    terms: tuple[Term, ...]
    intercept: bool


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
    counts: IntArray  # (K,)

    @property
    def firsts(self) -> IntArray:
        """Where each client's rows begin."""
        return np.cumsum(self.counts) - self.counts

    @property
    def owner(self) -> IntArray:
        """The client of each row, by number."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def one_output(self) -> tuple[str, ...]:
        """Names of one output's parameters, the intercept first."""
        return self.names if self.constant is None else (self.constant, *self.names)

    @property
    def all_names(self) -> tuple[str, ...]:
        """Names of all parameters, class by class, then those that a family has besides coefficients."""
        each, labels = self.one_output, self.family.classes_of_outputs(self.classes)
        named = tuple(f"{label}: {name}" for label in labels for name in each) if labels else each
        return named + self.family.extra_names

    def sizes(self, n_rows: int) -> dict[str, int]:
        """At a site with so many rows, by letter: p covariates, C outputs, d parameters, s planes, a triangle of t."""
        p = len(self.names)
        return {
            "p": p, "C": self.family.n_outputs, "d": len(self.all_names), "s": len(self.sides), "t": min(n_rows, p)
        }  # fmt: skip

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
    who = columns[client].as_levels()
    owner = who.values.astype(np.int64)
    order = np.argsort(owner, kind="stable")
    labels = tuple(str(level) for level in who.levels or ())
    response, counts = response_of(columns[target], spec.family), np.bincount(owner, minlength=len(labels))
    data = model_data(spec, terms, columns, response, labels, counts, len(order))
    return replace(data, covariates=data.covariates[order], response=data.response[order])


def model_data(
    spec: ModelSpec,
    terms: Formula,
    columns: dict[str, FrameColumn],
    response: Response,
    clients: Sequence[str],
    counts: npt.ArrayLike,
    total: int,
) -> ModelData:
    """The model on the rows of these columns, of which there may be none: clients have `total` rows together."""
    covariates, names = covariates_of(terms, columns, total)
    constant, (values, classes, family) = intercept_name(terms, spec, names), response
    return ModelData(
        covariates, names, constant, values, spec.target, classes, family, tuple(clients), np.asarray(counts)
    )


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
    """As statsmodels calls it, in brackets where a covariate has that name; None where there is none.

    A family may have no place for one. Levels are then coded as if there were: the first is the base.
    """
    if not (terms.intercept and as_family(spec.family).has_intercept):
        return None
    name = "const" if spec.formula is None else "Intercept"
    while name in names:
        name = f"({name})"
    return name


def _as_list(features: Sequence[str]) -> list[str]:
    if isinstance(features, str):
        raise ValueError(f"features must be a list of columns; got {features!r}. Use [{features!r}]?")
    names = list(features)
    if repeated := repeats(names):
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


def parse(formula: str, frame: Frame, target: str, others: Sequence[str]) -> Formula:
    """Read a formula. Nothing in it is evaluated: anything but a column or one of the few forms is refused.

    others   the columns that '.' stands for
    """
    if not isinstance(formula, str):
        raise ValueError(f"formula must be text such as 'y ~ a + b'; got {formula!r}.")
    if formula.count("(") != formula.count(")") or formula.count("'") % 2 or formula.count('"') % 2:
        raise ValueError(f"brackets and quotes in a formula must be closed; got {formula!r}.")
    left, tilde, right = formula.partition("~")
    if not tilde:
        left, right = target, formula
    if _unquoted(left.strip()) != target:
        raise ValueError(f"the left-hand side of the formula must be the target {target!r}; got {left.strip()!r}.")
    terms: list[Term] = []
    intercept = True
    for sign, text in _signed(right):
        if text in ("0", "1"):
            intercept = (text == "1") == (sign == "+")
        elif sign == "-":
            raise ValueError(f"{_RULE}; got '- {text}'. Leave the column out instead.")
        elif text == "." and "." not in frame.names:
            terms += [Term(name) for name in others if name not in [term.column for term in terms]]
        else:
            terms.append(_term(text, frame))
    if repeated := repeats(term.name for term in terms):
        raise ValueError(f"each column may occur in the formula once; {repeated[0]!r} occurs more often.")
    return Formula(tuple(terms), intercept)


def _signed(right: str) -> list[tuple[str, str]]:
    """Terms with their signs; signs inside brackets or quotes belong to names."""
    parts = re.findall(r"""([+-])?((?:\([^)]*\)|"[^"]*"|'[^']*'|[^+\-("'])+)""", right)
    signed = [(sign or "+", text.strip()) for sign, text in parts]
    if not signed or any(not text for _, text in signed) or re.search(r"[+-]\s*([+-]|$)", right.strip()):
        raise ValueError(f"{_RULE}; got {right.strip()!r}, where a column is missing.")
    return signed


def _term(text: str, frame: Frame) -> Term:
    if text in frame.names:
        return Term(text)
    if inside := _LEVELS.match(text):
        name = _unquoted(inside[1].strip())
        return Term(frame.check_name(name, "C() in the formula"), levels=True, shown=f"C({inside[1].strip()})")
    if _QUOTED.match(text):
        return Term(frame.check_name(_unquoted(text), "Q() in the formula"))
    if re.search(r"[*:^()/\[\]|]", text):
        raise ValueError(f"{_RULE}; got {text!r}. Make it a column of the frame first.")
    return Term(frame.check_name(text, "the formula"))


def _unquoted(text: str) -> str:
    inside = _QUOTED.match(text)
    return inside[2] if inside else text
