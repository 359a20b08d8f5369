"""The design of a fit as JSON, so that a fit that is read from a file predicts: terms, levels, means and knots.

What is read is what a formula may say (`formula.terms`), each part against a rule; nothing in it is evaluated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedgauss import _checks
from fedgauss.inference.formula.design import Design
from fedgauss.inference.formula.terms import STEPS, Expression, Factor, Formula, Levels, Pooled, Spline, Summary
from fedgauss.inference.frame_design import FrameDesign
from fedgauss.inference.model import Model
from fedgauss.inference.saved_fields import check_keys, list_of, number_of, numbers_of, object_of, text_of, truth_of

_KINDS: dict[str, type[Any]] = {"column": Expression, "levels": Levels, "pooled": Pooled, "spline": Spline}
_FIELDS = (
    "terms",
    "formula_intercept",
    "offsets",
    "regrouped",
    "levels",
    "means",
    "constant",
    "model",
    "client",
    "renamed",
)
_MOST = 2_000  # terms, columns and levels
_MOST_FACTORS = 4
_MOST_STEPS = 16


def design_numbers(made: FrameDesign) -> dict[str, Any] | None:
    """As plain numbers and text; None where levels are neither (intervals of pandas, say)."""
    formula = made.design.formula
    levels = {name: _plain_levels(made.design.levels[name]) for name in formula.columns}
    if any(some == [] for some in levels.values()):
        return None
    return {
        "terms": [[_factor_numbers(factor) for factor in term] for term in formula.terms],
        "formula_intercept": formula.intercept,
        "offsets": [_factor_numbers(part) for part in formula.offsets],
        "regrouped": formula.regrouped,
        "levels": levels,
        "means": {name: [float(part) for part in about] for name, about in made.agreed.items()},
        "constant": made.constant,
        "model": replace(made.model, family=None).wire(),  # that of the fit is beside the design
        "client": made.client,
        "renamed": {name: dict(became) for name, became in made.renamed.items()},
    }


def read_design(value: Any) -> FrameDesign:
    """The design that `design_numbers` wrote."""
    held = object_of("design", value)
    check_keys("design", held, _FIELDS)
    terms = [
        tuple(_factor(part) for part in list_of("a term", term, _MOST_FACTORS))
        for term in list_of("terms", held["terms"], _MOST)
    ]
    if not all(terms):
        raise ValueError("terms must have factors; one has none.")
    offsets = [_expression(part) for part in list_of("offsets", held["offsets"], _MOST)]
    intercept, regrouped = (truth_of(name, held[name]) for name in ("formula_intercept", "regrouped"))
    formula = Formula(tuple(terms), intercept, tuple(offsets), regrouped)
    levels = {name: _levels(name, some) for name, some in object_of("levels", held["levels"]).items()}
    if set(levels) != set(formula.columns) or any(levels[name] is None for name in formula.as_levels):
        raise ValueError("levels must be those of the columns of the design, and of no others.")
    pairs = object_of("means", held["means"]).items()
    means = {name: Summary(*numbers_of("means", pair, (2,)).tolist()) for name, pair in pairs}
    renamed = {
        name: {old: text_of("renamed", new) for old, new in object_of("renamed", became).items()}
        for name, became in object_of("renamed", held["renamed"]).items()
    }
    most = 5 * max([1, *(len(some) for some in levels.values() if some is not None)])  # rows, of which there are none
    constant, model = truth_of("constant", held["constant"]), Model.from_wire(held["model"])
    client = text_of("client", held["client"])
    return FrameDesign(Design(formula, levels, most), means, constant, model, client, renamed)


def _plain_levels(levels: Any) -> list[Any] | None:
    """None for numbers; an empty list where JSON has no word for a level."""
    if levels is None:
        return None
    plain = [level.item() if isinstance(level, np.generic) else level for level in levels]
    return plain if all(isinstance(level, str | bool | int | float) for level in plain) else []


def _levels(name: str, value: Any) -> tuple[Any, ...] | None:
    if value is None:
        return None
    found = list_of(f"levels of {name[:40]!r}", value, _MOST)
    alike = any(all(isinstance(level, kind) for level in found) for kind in (str, bool))
    if not found or len(set(map(str, found))) < len(found) or not (alike or all(_is_number(level) for level in found)):
        raise ValueError(f"levels of {name[:40]!r} must be all text, all numbers or all truths, each once.")
    return tuple(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _factor_numbers(factor: Factor) -> dict[str, Any]:
    """Its fields by name."""
    kind = next(name for name, made in _KINDS.items() if type(factor) is made)
    held = factor._asdict()
    inside = {"of": _factor_numbers(held["of"])} if "of" in held else {}
    return {"kind": kind, **held, **inside}


def _factor(value: Any) -> Factor:
    kind = object_of("a factor", value).get("kind")
    if kind == "column":
        return _expression(value)
    if kind == "levels":
        check_keys("a factor", value, ("kind", *Levels._fields))
        base = value["reference"]
        if base is not None and not isinstance(base, str | bool):
            base = number_of("reference", base)
        return Levels(text_of("column", value["column"]), base, text_of("name", value["name"]))
    if kind == "pooled":
        check_keys("a factor", value, ("kind", *Pooled._fields))
        return Pooled(_expression(value["of"]), truth_of("scaled", value["scaled"]), text_of("name", value["name"]))
    if kind != "spline":
        raise ValueError(f"the kind of a factor must be one of {', '.join(_KINDS)}.")
    check_keys("a factor", value, ("kind", *Spline._fields))
    df = _checks.whole("df", value["df"], at_least=1, at_most=100)
    sizes = {"knots": df - 1, "bounds": 2}
    knots, bounds = (
        None if value[key] is None else tuple(numbers_of(key, value[key], (size,)).tolist())
        for key, size in sizes.items()
    )
    return Spline(_expression(value["of"]), df, knots, bounds, text_of("name", value["name"]))


def _expression(value: Any) -> Expression:
    held = object_of("a column", value)
    check_keys("a column", held, ("kind", *Expression._fields))
    steps = []
    for step in list_of("steps", held["steps"], _MOST_STEPS):
        sign, number = list_of("a step", step, 2) if isinstance(step, list) and len(step) == 2 else ("", 0.0)
        if not isinstance(sign, str) or sign not in STEPS:
            raise ValueError("a step must be a sign or a function, and a number.")
        steps.append((sign, number_of("the number of a step", number)))
    return Expression(text_of("column", held["column"]), tuple(steps), text_of("name", held["name"]))
