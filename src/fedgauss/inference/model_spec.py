"""Which regression: the target, what it is explained by, and the columns that have another role."""

from collections.abc import Sequence
from typing import NamedTuple

from fedgauss.families import Family
from fedgauss.inference.formula.parser import parse
from fedgauss.inference.formula.terms import Expression, Formula
from fedgauss.inference.tables import Frame, listed, repeats


class ModelSpec(NamedTuple):
    """Which regression; fields are as `fit` has them."""

    target: str
    family: str | Family | None
    features: Sequence[str] | None
    formula: str | None
    intercept: bool
    offset: str | None = None
    exposure: str | None = None
    row_weights: str | None = None
    cluster: str | None = None
    trials: str | None = None
    event: str | None = None
    site_effects: bool = False
    missing: str = "refuse"
    link: str | None = None

    @property
    def roles(self) -> dict[str, str]:
        """Columns that are no covariates, by what they are for."""
        named = {
            "offset": self.offset, "exposure": self.exposure, "row_weights": self.row_weights,
            "cluster": self.cluster, "trials": self.trials, "event": self.event,
        }  # fmt: skip
        return {role: name for role, name in named.items() if name is not None}

    def columns(self, formula: Formula) -> list[str]:
        """All columns that the model uses, the target first, each once."""
        return list(dict.fromkeys([self.target, *formula.columns, *self.roles.values()]))


def right_hand_side(table: Frame, spec: ModelSpec, client: str | None = None) -> Formula:
    """The terms of the model, whether they were given as columns or as a formula."""
    target, features = table.check_name(spec.target, "target"), spec.features
    roles = {name: role for role, name in spec.roles.items()}
    for column, role in roles.items():
        table.check_name(column, role)
    if spec.missing not in ("refuse", "drop"):
        raise ValueError(f"missing must be 'refuse' or 'drop'; got {spec.missing!r}.")
    others = [name for name in table.names if name not in (target, client, *roles)]
    if spec.formula is not None:
        if features is not None:
            raise ValueError("give features or a formula, not both.")
        formula = parse(spec.formula, table, target, others)
        formula = formula._replace(intercept=formula.intercept and spec.intercept)
    else:
        chosen = others if features is None else _as_list(features)
        terms = tuple((Expression(table.check_name(name, "features"), (), name),) for name in chosen)
        formula = Formula(terms, spec.intercept)
    for name, role in ((target, "target"), (client, "client")):
        if name in formula.columns:
            raise ValueError(f"{name!r} is the {role} and cannot be a covariate too. Leave it out.")
        if name in roles and (name, roles[name]) != (client, "cluster"):
            raise ValueError(f"{name!r} is the {role} and cannot be the column of {roles[name]} too.")
    if not formula.terms and not formula.intercept and not spec.site_effects:
        raise ValueError("a model needs a covariate or an intercept; got neither.")
    return formula


def _as_list(features: Sequence[str]) -> list[str]:
    if isinstance(features, str):
        raise ValueError(f"features must be a list of columns; got {features!r}. Use [{features!r}]?")
    names = list(features)
    if repeated := repeats(names):
        raise ValueError(f"features must be different columns; {listed(repeated)} occurs more than once.")
    return names
