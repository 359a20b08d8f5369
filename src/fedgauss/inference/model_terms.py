"""The right-hand side of a model on the columns of a frame."""

from fedgauss.inference.formula.parser import parse
from fedgauss.inference.formula.terms import Expression, Formula
from fedgauss.inference.model import Model
from fedgauss.inference.tables import Frame, listed, repeats


def right_hand_side(table: Frame, model: Model, client: str | None = None) -> Formula:
    """The terms of the model, whether they were given as columns or as a formula."""
    target, features = table.check_name(model.target, "target"), model.features
    roles = {name: role for role, name in model.roles.items()}
    for column, role in roles.items():
        table.check_name(column, role)
    others = [name for name in table.names if name not in (target, client, *roles)]
    if model.formula is not None:
        formula = parse(model.formula, table, target, others)
        formula = formula._replace(intercept=formula.intercept and model.intercept)
    else:
        if repeated := repeats(features or ()):
            raise ValueError(f"features must be different columns; {listed(repeated)} occurs more than once.")
        chosen = others if features is None else features
        terms = tuple((Expression(table.check_name(name, "features"), (), name),) for name in chosen)
        formula = Formula(terms, model.intercept)
    for name, role in ((target, "target"), (client, "client")):
        if name in formula.columns:
            raise ValueError(f"{name!r} is the {role} and cannot be a covariate too. Leave it out.")
        if name in roles and (name, roles[name]) != (client, "cluster"):
            raise ValueError(f"{name!r} is the {role} and cannot be the column of {roles[name]} too.")
    if not formula.terms and not formula.intercept and not model.site_effects:
        raise ValueError("a model needs a covariate or an intercept; got neither.")
    return formula
