"""The design of a fit as JSON, so that a fit that is read from a file predicts: the model, levels and means.

The formula of the model is read again on the columns that it used; nothing in it is evaluated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedgauss.inference.formula.design import Design
from fedgauss.inference.formula.terms import SITE, Summary
from fedgauss.inference.frame_design import FrameDesign
from fedgauss.inference.model import Model
from fedgauss.inference.model_data import right_hand_side, with_sites
from fedgauss.inference.saved_fields import check_keys, list_of, numbers_of, object_of, text_of, texts_of, truth_of
from fedgauss.inference.tables import Frame

_FIELDS = ("columns", "levels", "means", "constant", "model", "client", "renamed")
_MOST = 2_000  # columns and levels


def design_numbers(made: FrameDesign) -> dict[str, Any] | None:
    """As plain numbers and text; None where levels are neither (intervals of pandas, say)."""
    formula = made.design.formula
    levels = {name: _plain_levels(made.design.levels[name]) for name in formula.columns}
    if any(some == [] for some in levels.values()):
        return None
    return {
        "columns": [name for name in dict.fromkeys([*formula.others, *formula.columns]) if name != SITE],
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
    model, columns = Model.from_wire(held["model"]), texts_of("columns", held["columns"], _MOST)
    formula = right_hand_side(Frame(dict.fromkeys([model.target, *model.roles.values(), *columns], ())), model)
    formula = with_sites(formula) if model.site_effects else formula
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
    constant, client = truth_of("constant", held["constant"]), text_of("client", held["client"])
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
