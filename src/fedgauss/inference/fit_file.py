"""A fit as JSON: every number of it, what follows from these for other readers, and a checksum.

A file may come from a stranger. It is read as data, each field against a rule, and refused with a sentence; the
checksum tells that a file was damaged, not who wrote it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from fedgauss import _checks
from fedgauss._files import write_whole
from fedgauss._types import FloatArray
from fedgauss.families import Family
from fedgauss.inference.design_file import design_numbers, read_design
from fedgauss.inference.estimate import checked_names
from fedgauss.inference.family_file import family_fields, read_family
from fedgauss.inference.fit_result import Fit
from fedgauss.inference.fit_statistics import FitStatistics
from fedgauss.inference.frame_design import FrameDesign
from fedgauss.inference.reference_laws import ChiSquared
from fedgauss.inference.saved_fields import (
    check_keys,
    number_of,
    numbers_of,
    numbers_or_none,
    object_of,
    places_of,
    text_of,
    texts_of,
)
from fedgauss.inference.site_estimates import SiteEstimates, site_estimates

FORMAT, VERSION = "fedgauss fit", 1
_LARGEST = 64 * 2**20  # bytes
_MOST_PARAMETERS = 20_000
_DERIVED = ("std_errors", "z", "p", "intervals")  # for readers without this package; a fit works them out again
_STATISTICS = (
    "n_rows", "n_params", "dof_resid", "log_likelihood", "null_log_likelihood", "deviance", "null_deviance",
    "dispersion", "pearson_chi2", "rounds", "gaussian",
)  # fmt: skip
_FIELDS = (
    "format", "version", "names", "params", "cov", "level", "method", "dof", "facts", "notes", "intercepts", "shapes",
    "scales", "bias_in_std_errors", "predicted_coverage", "clients_alike", "deviations", "statistics", "sites",
    "design", "family", *_DERIVED, "checksum",
)  # fmt: skip


def fit_numbers(fit: Fit) -> dict[str, Any]:
    """A fit as plain numbers and text: what is in its file."""
    test = fit.heterogeneity
    numbers = {
        "format": FORMAT,
        "version": VERSION,
        "names": list(fit.names),
        "params": _plain(fit.params),
        "std_errors": _finite_or_none(fit.std_errors),
        "z": _finite_or_none(fit.z_values),
        "p": _finite_or_none(fit.p_values),
        "level": float(fit.level),
        "intervals": _plain(fit.conf_int()),
        "cov": _plain(fit.cov),
        "scales": _plain(fit.scales),
        "intercepts": list(map(int, fit.intercepts)),
        "shapes": list(map(int, fit.shapes)),
        "method": fit.method,
        "dof": float(fit.dof) if np.isfinite(fit.dof) else None,
        "facts": {str(name): str(value) for name, value in fit.facts.items()},
        "notes": list(fit.notes),
        "bias_in_std_errors": None if fit.bias is None else _plain(fit.bias),
        "predicted_coverage": None if fit.predicted_coverage is None else _plain(fit.predicted_coverage),
        "clients_alike": None if test is None else {key: float(value) for key, value in test._asdict().items()},
        "deviations": None if fit.deviations is None else _plain(fit.deviations),
        "statistics": None if fit.statistics is None else _statistics_numbers(fit.statistics),
        "sites": None if fit.sites is None else _sites_numbers(fit.sites),
        "design": design_numbers(fit.design) if isinstance(fit.design, FrameDesign) else None,
        "family": family_fields(fit.family) if isinstance(fit.family, Family) else None,
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
    check_keys("a saved fit", held, _FIELDS)
    if held["checksum"] != _checksum({key: value for key, value in held.items() if key != "checksum"}):
        raise ValueError("its checksum does not fit its content: the file was changed or damaged. Save it again.")
    names = checked_names(texts_of("names", held["names"], most=_MOST_PARAMETERS), len(held["names"]))
    if not names:
        raise ValueError("names must be at least one; there are none.")
    d = len(names)
    cov = _covariance(held["cov"], d)
    dof = held["dof"]
    return Fit(
        params=numbers_of("params", held["params"], (d,)),
        cov=cov,
        level=_checks.level(number_of("level", held["level"])),
        method=text_of("method", held["method"]),
        names=names,
        facts={name: text_of(f"the fact {name!r}", value) for name, value in object_of("facts", held["facts"]).items()},
        notes=tuple(texts_of("notes", held["notes"])),
        bias=numbers_or_none("bias_in_std_errors", held["bias_in_std_errors"], (d,)),
        predicted_coverage=numbers_or_none("predicted_coverage", held["predicted_coverage"], (d,)),
        heterogeneity=_test(held["clients_alike"]),
        dof=np.inf if dof is None else _checks.real("dof", number_of("dof", dof), above=0.0),
        deviations=_draws(held["deviations"], d),
        intercepts=places_of("intercepts", held["intercepts"], d),
        shapes=places_of("shapes", held["shapes"], d),
        scales=_scales(held["scales"], d),
        statistics=_statistics(held["statistics"]),
        sites=_sites(held["sites"], names),
        design=None if held["design"] is None else read_design(held["design"]),
        family=None if held["family"] is None else read_family(held["family"]),
    )


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


def _covariance(value: Any, d: int) -> FloatArray:
    cov = _checks.covariance("cov", numbers_of("cov", value, (d, d)))
    if not np.all(np.diag(cov) > 0.0):
        raise ValueError("cov must have positive variances.")
    return cov


def _draws(value: Any, d: int) -> FloatArray | None:
    draws = numbers_or_none("deviations", value, (None, d))
    if draws is not None and len(draws) < 2:
        raise ValueError("deviations must be at least two draws.")
    return draws


def _scales(value: Any, d: int) -> FloatArray:
    scales = numbers_of("scales", value, (None,))
    if len(scales) not in (0, d) or not np.all(scales > 0.0):
        raise ValueError(f"scales must be {d} positive numbers, or none.")
    return scales


def _test(value: Any) -> ChiSquared | None:
    if value is None:
        return None
    check_keys("clients_alike", object_of("clients_alike", value), ChiSquared._fields)
    statistic, dof, p = (number_of(f"clients_alike: {key}", value[key]) for key in ChiSquared._fields)
    if statistic < 0.0 or dof < 1 or dof != int(dof) or not 0.0 <= p <= 1.0:
        raise ValueError("clients_alike must have a statistic and a p_value from 0 to 1, and whole degrees of freedom.")
    return ChiSquared(statistic, int(dof), p)


def _statistics_numbers(statistics: FitStatistics) -> dict[str, Any]:
    found = statistics.checked()
    return {key: getattr(found, key) for key in _STATISTICS}


def _statistics(value: Any) -> FitStatistics | None:
    if value is None:
        return None
    check_keys("statistics", object_of("statistics", value), _STATISTICS)
    return FitStatistics(**value).checked()


def _sites_numbers(sites: SiteEstimates) -> dict[str, Any]:
    """Sites' own estimates; null where there is none."""
    return {
        "sites": list(sites.sites),
        "params": _finite_or_none(sites.params),
        "cov": _finite_or_none(sites.cov),
        "level": float(sites.level),
        "left_out": dict(sites.left_out),
    }


def _sites(value: Any, names: tuple[str, ...]) -> SiteEstimates | None:
    if value is None:
        return None
    check_keys("sites", object_of("sites", value), ("sites", "params", "cov", "level", "left_out"))
    labels, d = texts_of("sites", value["sites"]), len(names)
    params = numbers_of("params of sites", value["params"], (len(labels), d), unknown=True)
    cov = numbers_of("cov of sites", value["cov"], (len(labels), d, d), unknown=True)
    left_out = {site: text_of("left_out", why) for site, why in object_of("left_out", value["left_out"]).items()}
    if set(labels) & set(left_out):
        raise ValueError("sites must be either there or left out.")
    return site_estimates(labels, names, params, cov, left_out, number_of("level of sites", value["level"]))


def _plain(values: Any) -> Any:
    return np.asarray(values, dtype=float).tolist()


def _finite_or_none(values: Any) -> Any:
    """As lists, with null for what is no finite number."""
    array = np.asarray(values, dtype=float)
    kept = array.astype(object)
    kept[~np.isfinite(array)] = None
    return kept.tolist()
