"""`fit` by scoring: from the sums of sites to a `Fit`, whether their rows are here or elsewhere."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedgauss import _checks
from fedgauss._types import BoolArray, FloatArray
from fedgauss.families import Family
from fedgauss.families.rows import NoFiniteEstimate, blocks_of
from fedgauss.inference.asks import Answer, Ask, run
from fedgauss.inference.errors import (
    Errors,
    check_errors,
    clusters_of,
    covariance,
    few_clusters,
    few_rows,
    parts_of,
)
from fedgauss.inference.estimate import Estimate, Readout
from fedgauss.inference.exact import Exact, client_rows, exact_program
from fedgauss.inference.fit import as_fit
from fedgauss.inference.fit_result import Fit
from fedgauss.inference.fit_statistics import FitStatistics
from fedgauss.inference.formula.terms import SITE
from fedgauss.inference.model_data import ModelData
from fedgauss.inference.preparation import (
    Location,
    Units,
    check_collinear,
    check_constant,
    check_separable,
    locate,
    starting_point,
)
from fedgauss.inference.site_estimates import SiteEstimates, site_estimates
from fedgauss.inference.tables import listed

_ADVICE = (
    " Mostly a column tells outcomes apart without error, or a level has outcomes of one kind alone. Use fewer "
    "columns, merge rare levels, or set ridge=1."
)
_SHRUNK = (
    "The penalty draws coefficients towards zero: intervals are about the optimum of the penalised likelihood, and AIC "
    "and BIC count every parameter as a whole one."
)


_LEFT = 1e-5  # of a standard deviation, what must be left of a column beside the others
_NOTHING = 1e-12  # information about a standardised column that does not vary where it is compared


class Finish(NamedTuple):
    """Steps of scoring from an estimate that was found otherwise."""

    params: FloatArray
    steps: int


def fit_exactly(data: ModelData, errors: Errors, level: float, ridge: float, finish: Finish | None = None) -> Fit:
    """The fit of rows that are all here, client by client; or some steps towards it from an estimate."""
    columns = locate(data.covariates, data)
    check_constant(data.names, columns)
    units = Units(columns, None, data.constant is not None)
    x = units.rows(data.covariates)
    pieces = [slice(first, first + count) for first, count in zip(data.firsts, data.counts, strict=True)]
    sites = [client_rows(data, x, piece) for piece in pieces]
    program = fit_program(data, columns, starting_point(data), errors, level, ridge, own=True, finish=finish)
    try:
        fit = run(program, data.family, sites, client_rows(data, x, slice(None)) if data.family.by_row else None)
    except NoFiniteEstimate:
        check_separable(data, x)  # which columns, in words
        raise
    return fit.with_notes(*few_rows(errors, data.names, data.covariates))


def fit_program(
    data: ModelData, columns: Location, start: FloatArray, errors: Errors, level: float, ridge: float, own: bool,
    compare: bool = True, finish: Finish | None = None,
) -> Generator[Ask, Any, Fit]:  # fmt: skip
    """Ask until there is a fit of rows that sites have, in units of these locations; `data` need not have rows.

    It is sent the totals of each answer (`asks.total`), and a list of the sites' own answers where `Ask.kind` is "own".

    Parameters
    ----------
    data, columns, start, errors, level, ridge
        The model, the units of its columns, where scoring starts, and what is reported.
    own : bool
        Whether to ask for each site's own estimate.
    compare : bool
        Whether to ask how far sites' slopes lie apart, for the test of heterogeneity.
    finish : Finish, optional
        Where to begin, and how many steps to take.
    """
    check_errors(errors, data.family, data.cluster is not None)
    if _checks.real("ridge", ridge) < 0.0:
        raise ValueError(f"ridge must not be negative; got {ridge}. Use 0 for no penalty.")
    family, extra = data.family, len(data.family.extra_names)
    n_rows, each, intercept = int(data.counts.sum()), len(data.one_output), data.constant is not None
    dim = len(start)
    if n_rows <= dim:
        raise ValueError(f"{dim} parameters need more than {dim} rows; got {n_rows}. Use fewer columns?")
    slopes = [np.arange(each) >= int(intercept)] * family.n_outputs
    moves = np.concatenate([*slopes, np.zeros(extra, dtype=bool)])  # what the model without covariates leaves at zero
    readout = _readout(Units(columns, None, intercept), family.n_outputs, extra)
    likely = family.model_errors != "none"  # else the loss is no likelihood, and no model is compared with another
    begin = None if finish is None else np.asarray(np.linalg.solve(readout.matrix, finish.params - readout.offset))
    try:
        exact = yield from exact_program(
            family, start, np.flatnonzero(~moves & likely).tolist(), n_rows, parts_of(errors, family),
            _compared(data, moves) if compare else (), ridge * moves if ridge else None,
            check=lambda information: _check_independent(data, information), begin=begin,
            steps=None if finish is None else finish.steps,
        )  # fmt: skip
        covered = covariance(errors, family, exact.matrices, exact.dispersion, n_rows, len(data.clients))
    except NoFiniteEstimate as error:
        knows = str(error).rpartition(". ")[2].startswith("Use ")  # a family that says what to do
        raise NoFiniteEstimate(
            f"{data.target!r} has no finite estimate: {error}." + ("" if knows else _ADVICE)
        ) from error
    estimate = Estimate(
        readout.of(exact.theta), readout.cov(covered), level, "scoring", data.all_names,
        facts={"Solver": "scoring", "Errors": errors}, heterogeneity=exact.heterogeneity,
    )  # fmt: skip
    fit = as_fit(estimate, data, columns.scale, {"Ridge": f"{ridge:g}"} if ridge else {})
    notes = few_clusters(clusters_of(errors, exact.matrices, len(data.clients)), dim)
    fit = fit.with_notes(*notes, *([_SHRUNK] if ridge else []))
    good = _statistics(exact, family, n_rows) if likely else None
    found = (yield Ask("own", exact.theta)) if own else []
    return replace(fit, statistics=good, sites=_sites(found, data, readout, level))


def _compared(data: ModelData, moves: BoolArray) -> Sequence[int]:
    """Slopes, of each output: parameters of columns that may vary at a site, as the effects of sites do not."""
    by_site = data.design is not None and SITE in data.design.formula.columns
    effects = [by_site and name.startswith("site[") and ":" not in name for name in data.one_output]
    extra = len(data.family.extra_names)
    effect = np.concatenate([*[effects] * data.family.n_outputs, np.zeros(extra)]).astype(bool)
    return np.flatnonzero(moves & ~effect).tolist()


def _sites(found: Sequence[Answer | None], data: ModelData, readout: Readout, level: float) -> SiteEstimates | None:
    """Sites' own estimates, in the units of the user's."""
    if sum(own is not None and bool(own["found"]) for own in found) < 2:
        return None
    dim = len(data.all_names)
    params, cov = np.full((len(found), dim), np.nan), np.full((len(found), dim, dim), np.nan)
    failed = {}
    for k, own in enumerate(found):
        if own is None or not own["found"]:
            failed[data.clients[k]] = "its rows alone are too few, or have no finite estimate"
        else:
            params[k], cov[k] = readout.of(own["theta"]), readout.cov(own["cov"])
    return site_estimates(data.clients, data.all_names, params, cov, failed=failed, level=level)


def _readout(units: Units, n_outputs: int, extra: int) -> Readout:
    """From the units of the rows to those of the user's; extra parameters stay as they are."""
    matrix, offset = units.readout(n_outputs)
    return Readout(blocks_of([matrix, np.eye(extra)]), np.concatenate([offset, np.zeros(extra)]))


def _statistics(exact: Exact, family: Family, n_rows: int) -> FitStatistics:
    """What is known about the fit as a whole."""
    good, dim = exact.goodness, len(exact.theta)
    return FitStatistics(
        n_rows, dim, n_rows - dim, log_likelihood=good.log_likelihood, null_log_likelihood=exact.null.log_likelihood,
        deviance=good.deviance, null_deviance=None if family.extra_names else exact.null.deviance,
        dispersion=exact.dispersion,
        pearson_chi2=good.pearson or None, rounds=exact.rounds,
        gaussian=family.name == "linear" and family.additive,
    )  # fmt: skip


def _check_independent(data: ModelData, information: FloatArray) -> None:
    """Refuse covariates of which one is a sum of others, given the information of the model without them."""
    each, intercept = len(data.one_output), data.constant is not None
    block = information[:each, :each]
    if intercept:  # what is left of covariates beside a constant
        block = block[1:, 1:] - np.outer(block[0, 1:], block[0, 1:]) / block[0, 0]
    flat = np.flatnonzero(np.diag(block) <= _NOTHING).tolist()
    if flat and not data.family.by_row:
        raise ValueError(
            f"columns must vary within sites for family {data.family.name!r}, which compares rows of one site; "
            f"{listed([data.names[j] for j in flat])} is constant in each, or where events are. Leave it out."
        )
    scale = np.sqrt(np.maximum(np.diag(block), np.finfo(float).tiny))
    with np.errstate(over="ignore", invalid="ignore"):
        alike = block / np.outer(scale, scale)
    if not np.isfinite(alike).all():  # a site may send anything of the right shape
        raise ValueError("sums must make up an information matrix; these do not. A site sent something else.")
    values, vectors = np.linalg.eigh(alike)
    if len(values) and values[0] > _LEFT**2:
        return  # without SciPy, which takes long to load: what is left of a column is at least the least singular value
    triangle = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    check_collinear(data.names, [triangle], 1, intercept, _LEFT)
