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
from fedgauss.inference.estimate import checked_names
from fedgauss.inference.fit_result import Fit
from fedgauss.inference.fit_statistics import FitStatistics
from fedgauss.inference.reference_laws import ChiSquared
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
    "format", "version", "names", "params", "cov", "level", "method", "dof", "facts", "notes", "intercepts", "shapes", "scales",
    "bias_in_std_errors", "predicted_coverage", "clients_alike", "deviations", "statistics", "sites", *_DERIVED,
    "checksum",
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
        "statistics": None if fit.statistics is None else {key: getattr(fit.statistics, key) for key in _STATISTICS},
        "sites": None if fit.sites is None else _sites_numbers(fit.sites),
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
    _check_keys("a saved fit", held, _FIELDS)
    if held["checksum"] != _checksum({key: value for key, value in held.items() if key != "checksum"}):
        raise ValueError("its checksum does not fit its content: the file was changed or damaged. Save it again.")
    names = checked_names(_texts("names", held["names"], most=_MOST_PARAMETERS), len(held["names"]))
    if not names:
        raise ValueError("names must be at least one; there are none.")
    d = len(names)
    cov = _covariance(held["cov"], d)
    dof = held["dof"]
    return Fit(
        params=_numbers("params", held["params"], (d,)),
        cov=cov,
        level=_checks.level(_number("level", held["level"])),
        method=_text("method", held["method"]),
        names=names,
        facts={name: _text(f"the fact {name!r}", value) for name, value in _object("facts", held["facts"]).items()},
        notes=tuple(_texts("notes", held["notes"])),
        bias=_numbers_or_none("bias_in_std_errors", held["bias_in_std_errors"], (d,)),
        predicted_coverage=_numbers_or_none("predicted_coverage", held["predicted_coverage"], (d,)),
        heterogeneity=_test(held["clients_alike"]),
        dof=np.inf if dof is None else _checks.real("dof", _number("dof", dof), above=0.0),
        deviations=_draws(held["deviations"], d),
        intercepts=_places("intercepts", held["intercepts"], d),
        shapes=_places("shapes", held["shapes"], d),
        scales=_scales(held["scales"], d),
        statistics=_statistics(held["statistics"]),
        sites=_sites(held["sites"], names),
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


def _check_keys(what: str, held: dict[str, Any], wanted: tuple[str, ...]) -> None:
    missing = [key for key in wanted if key not in held]
    surplus = [key for key in held if key not in wanted]
    if missing or surplus:
        wrong = f"{missing[0]!r} is missing" if missing else f"{surplus[0][:40]!r} does not belong there"
        raise ValueError(f"{what} must have its fields and no others; {wrong}.")


def _object(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be an object; got a {type(value).__name__}.")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text; got a {type(value).__name__}.")
    return value


def _texts(name: str, value: Any, most: int = 100_000) -> list[str]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"{name} must be a list of at most {most:,} texts.")
    return [_text(f"each of {name}", part) for part in value]


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise ValueError(f"{name} must be a number.")
    return float(value)


def _numbers(name: str, value: Any, shape: tuple[int | None, ...], unknown: bool = False) -> FloatArray:
    """An array of this shape; with `unknown`, null stands for NaN."""
    array = np.array(_checked_list(name, value, len(shape), unknown), dtype=float)
    fits = array.ndim == len(shape) and all(w is None or w == s for w, s in zip(shape, array.shape, strict=True))
    if not fits:
        wanted = " x ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must be {wanted} numbers; got shape {array.shape}.")
    return array


def _checked_list(name: str, value: Any, depth: int, unknown: bool) -> Any:
    """Nested lists of numbers, all of one length at each depth."""
    if depth == 0:
        return np.nan if unknown and value is None else _number(f"each of {name}", value)
    if not isinstance(value, list):
        raise ValueError(f"{name} must be lists of numbers; got a {type(value).__name__}.")
    parts = [_checked_list(name, part, depth - 1, unknown) for part in value]
    if depth > 1 and len({len(part) for part in parts}) > 1:
        raise ValueError(f"{name} must have rows of one length.")
    return parts


def _numbers_or_none(name: str, value: Any, shape: tuple[int | None, ...]) -> FloatArray | None:
    return None if value is None else _numbers(name, value, shape)


def _covariance(value: Any, d: int) -> FloatArray:
    cov = _checks.covariance("cov", _numbers("cov", value, (d, d)))
    if not np.all(np.diag(cov) > 0.0):
        raise ValueError("cov must have positive variances.")
    return cov


def _draws(value: Any, d: int) -> FloatArray | None:
    draws = _numbers_or_none("deviations", value, (None, d))
    if draws is not None and len(draws) < 2:
        raise ValueError("deviations must be at least two draws.")
    return draws


def _places(name: str, value: Any, d: int) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list of whole numbers.")
    places = tuple(_checks.whole(f"each of {name}", part, at_least=0, at_most=d - 1) for part in value)
    if len(set(places)) < len(places):
        raise ValueError(f"{name} must differ.")
    return places


def _scales(value: Any, d: int) -> FloatArray:
    scales = _numbers("scales", value, (None,))
    if len(scales) not in (0, d) or not np.all(scales > 0.0):
        raise ValueError(f"scales must be {d} positive numbers, or none.")
    return scales


def _test(value: Any) -> ChiSquared | None:
    if value is None:
        return None
    _check_keys("clients_alike", _object("clients_alike", value), ChiSquared._fields)
    statistic, dof, p = (_number(f"clients_alike: {key}", value[key]) for key in ChiSquared._fields)
    if statistic < 0.0 or dof < 1 or dof != int(dof) or not 0.0 <= p <= 1.0:
        raise ValueError("clients_alike must have a statistic and a p_value from 0 to 1, and whole degrees of freedom.")
    return ChiSquared(statistic, int(dof), p)


def _statistics(value: Any) -> FitStatistics | None:
    if value is None:
        return None
    _check_keys("statistics", _object("statistics", value), _STATISTICS)
    return FitStatistics(**value)


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
    _check_keys("sites", _object("sites", value), ("sites", "params", "cov", "level", "left_out"))
    labels, d = _texts("sites", value["sites"]), len(names)
    params = _numbers("params of sites", value["params"], (len(labels), d), unknown=True)
    cov = _numbers("cov of sites", value["cov"], (len(labels), d, d), unknown=True)
    left_out = {site: _text("left_out", why) for site, why in _object("left_out", value["left_out"]).items()}
    if set(labels) & set(left_out):
        raise ValueError("sites must be either there or left out.")
    return site_estimates(labels, names, params, cov, left_out, _number("level of sites", value["level"]))


def _plain(values: Any) -> Any:
    return np.asarray(values, dtype=float).tolist()


def _finite_or_none(values: Any) -> Any:
    """As lists, with null for what is no finite number."""
    array = np.asarray(values, dtype=float)
    kept = array.astype(object)
    kept[~np.isfinite(array)] = None
    return kept.tolist()
