"""A fit as JSON: every number of it, what follows from these for other readers, and a checksum.

A file may come from a stranger. It is read as data, each field against a rule, and refused with a sentence; the
checksum tells that a file was damaged, not who wrote it. The formula of its model is read again on the columns that it
used; nothing in it is evaluated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedgauss import _checks
from fedgauss._files import write_whole
from fedgauss._types import FloatArray
from fedgauss.families import Family
from fedgauss.inference.estimate import checked_names
from fedgauss.inference.fit_result import Fit, FitStatistics
from fedgauss.inference.formula.design import Design
from fedgauss.inference.formula.terms import SITE, Summary
from fedgauss.inference.model import Model, family_fields, read_family
from fedgauss.inference.model_data import right_hand_side, with_sites
from fedgauss.inference.prediction import FrameDesign
from fedgauss.inference.reference_laws import ChiSquared
from fedgauss.inference.saved_fields import (
    check_keys,
    list_of,
    number_of,
    numbers_of,
    object_of,
    places_of,
    text_of,
    texts_of,
    truth_of,
)
from fedgauss.inference.site_estimates import SiteEstimates, site_estimates
from fedgauss.inference.tables import Frame

FORMAT, VERSION = "fedgauss fit", 1
_LARGEST = 64 * 2**20  # bytes
_MOST_PARAMETERS = 20_000
_MOST_LEVELS = 2_000  # of a design, and columns


class Part(NamedTuple):
    """A field of a fit in its file."""

    name: str  # of the attribute
    write: Callable[[Any], Any]  # to plain numbers and text; None stays what it is
    read: Callable[[Any, tuple[str, ...]], Any]  # given the names of the parameters, too


def fit_numbers(fit: Fit) -> dict[str, Any]:
    """A fit as plain numbers and text: what is in its file."""
    values = {key: (part, getattr(fit, part.name)) for key, part in _PARTS.items()}
    numbers = {
        "format": FORMAT,
        "version": VERSION,
        "names": list(fit.names),
        **{key: None if value is None else part.write(value) for key, (part, value) in values.items()},
        **{key: work_out(fit) for key, work_out in _DERIVED.items()},
    }
    return {**numbers, "checksum": _checksum(numbers)}


def save_fit(fit: Fit, path: Path) -> None:
    """Write the file whole or not at all."""
    try:
        text = json.dumps(fit_numbers(fit), indent=1, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise ValueError("a fit that is saved must have finite numbers; this one has not.") from error
    if len(text) > _LARGEST:
        raise ValueError(f"a saved fit must have at most {_LARGEST // 2**20} MiB; it has {len(text) / 2**20:.0f}.")
    write_whole(path, (text + "\n").encode())


def load_fit(path: Path) -> Fit:
    """Read a file that `save_fit` wrote; refuse any other with a sentence."""
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"{path} must be a saved fit of at most {_LARGEST // 2**20} MiB; it is larger.")
    try:
        return read_fit(path.read_bytes())
    except RecursionError as error:
        raise ValueError(f"{path} is not a fit that can be read: it is nested too deeply.") from error
    except ValueError as error:
        raise ValueError(f"{path} is not a fit that can be read: {error}") from error


def read_fit(content: bytes) -> Fit:
    """The fit in the content of a file."""
    held = _read_json(content)
    if not isinstance(held, dict) or held.get("format") != FORMAT:
        raise ValueError(f"a saved fit must be a JSON object with the format {FORMAT!r}.")
    version = held.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ValueError(f"its version must be {VERSION}; got {version!r}. Use the release that wrote it?")
    check_keys("a saved fit", held, ("format", "version", "names", *_PARTS, *_DERIVED, "checksum"))
    if held["checksum"] != _checksum({key: value for key, value in held.items() if key != "checksum"}):
        raise ValueError("its checksum does not fit its content: the file was changed or damaged. Save it again.")
    names = checked_names(texts_of("names", held["names"], most=_MOST_PARAMETERS), len(held["names"]))
    if not names:
        raise ValueError("names must be at least one; there are none.")
    found: dict[str, Any] = {
        part.name: None if held[key] is None and part.name in _MAY_BE_NONE else part.read(held[key], names)
        for key, part in _PARTS.items()
    }
    return Fit(names=names, **found)


def _read_json(content: bytes) -> Any:
    """JSON as the standard has it: no NaN, no name twice, no nesting without end."""

    def refuse(constant: str) -> None:
        raise ValueError(f"numbers must be finite; got {constant}.")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("an object has a name twice.")
        return dict(pairs)

    try:
        return json.loads(content.decode("utf-8"), parse_constant=refuse, object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        raise ValueError("it is not text in UTF-8.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg}, line {error.lineno}).") from error


def _checksum(content: dict[str, Any]) -> str:
    """Of the values, whatever the spaces and the order of names."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(values: Any) -> Any:
    return np.asarray(values, dtype=float).tolist()


def _finite_or_none(values: Any) -> Any:
    """As lists, with null for what is no finite number."""
    array = np.asarray(values, dtype=float)
    kept = array.astype(object)
    kept[~np.isfinite(array)] = None
    return kept.tolist()


def _facts(value: Any, names: tuple[str, ...]) -> dict[str, str]:
    return {name: text_of(f"the fact {name!r}", fact) for name, fact in object_of("facts", value).items()}


def _covariance(value: Any, names: tuple[str, ...]) -> FloatArray:
    cov = _checks.covariance("cov", numbers_of("cov", value, (len(names), len(names))))
    if not np.all(np.diag(cov) > 0.0):
        raise ValueError("cov must have positive variances.")
    return cov


def _draws(value: Any, names: tuple[str, ...]) -> FloatArray:
    draws = numbers_of("deviations", value, (None, len(names)))
    if len(draws) < 2:
        raise ValueError("deviations must be at least two draws.")
    return draws


def _scales(value: Any, names: tuple[str, ...]) -> FloatArray:
    scales = numbers_of("scales", value, (None,))
    if len(scales) not in (0, len(names)) or not np.all(scales > 0.0):
        raise ValueError(f"scales must be {len(names)} positive numbers, or none.")
    return scales


def _test(value: Any, names: tuple[str, ...]) -> ChiSquared:
    check_keys("clients_alike", object_of("clients_alike", value), ChiSquared._fields)
    statistic, dof, p = (number_of(f"clients_alike: {key}", value[key]) for key in ChiSquared._fields)
    if statistic < 0.0 or dof < 1 or dof != int(dof) or not 0.0 <= p <= 1.0:
        raise ValueError("clients_alike must have a statistic and a p_value from 0 to 1, and whole degrees of freedom.")
    return ChiSquared(statistic, int(dof), p)


def _statistics(value: Any, names: tuple[str, ...]) -> FitStatistics:
    check_keys("statistics", object_of("statistics", value), tuple(part.name for part in fields(FitStatistics)))
    return FitStatistics(**value).checked()


def _sites_numbers(sites: SiteEstimates) -> dict[str, Any]:
    """Sites' own estimates; null where there is none."""
    return {
        "sites": list(sites.sites), "params": _finite_or_none(sites.params), "cov": _finite_or_none(sites.cov),
        "level": float(sites.level), "left_out": dict(sites.left_out),
    }  # fmt: skip


def _sites(value: Any, names: tuple[str, ...]) -> SiteEstimates:
    check_keys("sites", object_of("sites", value), ("sites", "params", "cov", "level", "left_out"))
    labels, d = texts_of("sites", value["sites"]), len(names)
    params = numbers_of("params of sites", value["params"], (len(labels), d), unknown=True)
    cov = numbers_of("cov of sites", value["cov"], (len(labels), d, d), unknown=True)
    left_out = {site: text_of("left_out", why) for site, why in object_of("left_out", value["left_out"]).items()}
    if set(labels) & set(left_out):
        raise ValueError("sites must be either there or left out.")
    return site_estimates(labels, names, params, cov, left_out, number_of("level of sites", value["level"]))


def _design_numbers(made: Any) -> dict[str, Any] | None:
    """A design as the model, levels and means; None where levels are no plain text or numbers (intervals of pandas)."""
    if not isinstance(made, FrameDesign):
        return None
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


def _design(value: Any, names: tuple[str, ...]) -> FrameDesign:
    held = object_of("design", value)
    check_keys("design", held, ("columns", "levels", "means", "constant", "model", "client", "renamed"))
    model, columns = Model.from_wire(held["model"]), texts_of("columns", held["columns"], _MOST_LEVELS)
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
    found = list_of(f"levels of {name[:40]!r}", value, _MOST_LEVELS)
    alike = any(all(isinstance(level, kind) for level in found) for kind in (str, bool))
    if not found or len(set(map(str, found))) < len(found) or not (alike or all(_is_number(level) for level in found)):
        raise ValueError(f"levels of {name[:40]!r} must be all text, all numbers or all truths, each once.")
    return tuple(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _row(name: str) -> Callable[[Any, tuple[str, ...]], FloatArray]:
    """A number for each parameter."""
    return lambda value, names: numbers_of(name, value, (len(names),))


def _places(name: str) -> Part:
    return Part(name, lambda places: list(map(int, places)), lambda value, names: places_of(name, value, len(names)))


_PARTS = {
    "params": Part("params", _plain, _row("params")),
    "cov": Part("cov", _plain, _covariance),
    "level": Part("level", float, lambda value, names: _checks.level(number_of("level", value))),
    "method": Part("method", str, lambda value, names: text_of("method", value)),
    "dof": Part(
        "dof", lambda dof: float(dof) if np.isfinite(dof) else None,
        lambda dof, names: np.inf if dof is None else _checks.real("dof", number_of("dof", dof), above=0.0),
    ),
    "facts": Part("facts", lambda facts: {str(name): str(value) for name, value in facts.items()}, _facts),
    "notes": Part("notes", list, lambda value, names: tuple(texts_of("notes", value))),
    "intercepts": _places("intercepts"),
    "shapes": _places("shapes"),
    "scales": Part("scales", _plain, _scales),
    "bias_in_std_errors": Part("bias", _plain, _row("bias_in_std_errors")),
    "predicted_coverage": Part("predicted_coverage", _plain, _row("predicted_coverage")),
    "clients_alike": Part("heterogeneity", lambda test: dict(zip(test._fields, map(float, test), strict=True)), _test),
    "deviations": Part("deviations", _plain, _draws),
    "statistics": Part("statistics", lambda statistics: asdict(statistics.checked()), _statistics),
    "sites": Part("sites", _sites_numbers, _sites),
    "design": Part("design", _design_numbers, _design),
    "family": Part(
        "family", lambda family: family_fields(family) if isinstance(family, Family) else None,
        lambda value, names: read_family(value),
    ),
}  # fmt: skip
_MAY_BE_NONE = {part.name for part in fields(Fit) if part.default is None}
_DERIVED: dict[str, Callable[[Fit], Any]] = {  # for readers without this package; a fit works them out again
    "std_errors": lambda fit: _finite_or_none(fit.std_errors),
    "z": lambda fit: _finite_or_none(fit.z_values),
    "p": lambda fit: _finite_or_none(fit.p_values),
    "intervals": lambda fit: _plain(fit.conf_int()),
}
