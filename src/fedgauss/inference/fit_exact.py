"""`fit` by scoring: from the sums of sites to a `Fit`, whether their rows are here or elsewhere.

With I the expected information and A the observed one, B = sum_i s_i s_i' the squared scores of rows, and
C = sum_g s_g s_g' those of clusters, the covariance of the estimate is

    model     phi I^-1 (phi A^-1 for families that say so)
    HC0       A^-1 B A^-1
    HC1       n / (n - d) times HC0
    cluster   G / (G - 1) (n - 1) / (n - d) times A^-1 C A^-1, with G clusters
    site      the same, each site a cluster
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.families import Family
from fedgauss.families.rows import NoFiniteEstimate
from fedgauss.families.same_bits import inverse
from fedgauss.inference.asks import Answer, Ask, Exact, client_rows, exact_program, run
from fedgauss.inference.estimate import Estimate, Readout
from fedgauss.inference.fit_result import Fit, FitStatistics, as_fit
from fedgauss.inference.formula.terms import SITE
from fedgauss.inference.model import Errors
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
_FEW = 30  # clusters
_FEW_ROWS = 5  # as many as a site wants in a level


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
    finish: Finish | None = None,
) -> Generator[Ask, Any, Fit]:  # fmt: skip
    """Ask until there is a fit of rows that sites have, in units of these locations; `data` need not have rows.

    It is sent the totals of each answer (`asks.total`), and a list of the sites' own answers where `Ask.kind` is "own".

    Parameters
    ----------
    data, columns, start, errors, level, ridge
        The model, the units of its columns, where scoring starts, and what is reported.
    own : bool
        Whether to ask for each site's own estimate.
    finish : Finish, optional
        Where to begin, and how many steps to take.
    """
    check_errors(errors, data.family, data.cluster is not None)
    family, extra = data.family, len(data.family.extra_names)
    n_rows, intercept = int(data.counts.sum()), data.constant is not None
    dim = len(start)
    if n_rows <= dim:
        raise ValueError(f"{dim} parameters need more than {dim} rows; got {n_rows}. Use fewer columns?")
    slopes = [np.arange(len(data.names) + intercept) >= intercept] * family.n_outputs
    moves = np.concatenate([*slopes, np.zeros(extra, dtype=bool)])  # what the model without covariates leaves at zero
    readout = Units(columns, None, intercept).readout(family.n_outputs, extra)
    likely = family.model_errors != "none"  # else the loss is no likelihood, and no model is compared with another
    begin = None if finish is None else np.asarray(np.linalg.solve(readout.matrix, finish.params - readout.offset))
    try:
        exact = yield from exact_program(
            family, start, np.flatnonzero(~moves & likely).tolist(), n_rows, parts_of(errors, family),
            _compared(data, moves), ridge * moves if ridge else None,
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
        notes=(*few_clusters(clusters_of(errors, exact.matrices, len(data.clients)), dim), *[_SHRUNK] * bool(ridge)),
    )  # fmt: skip
    fit = as_fit(estimate, data, columns.scale, {"Ridge": f"{ridge:g}"} if ridge else {})
    good = _statistics(exact, family, n_rows) if likely else None
    found = (yield Ask("own", exact.theta)) if own else []
    return replace(fit, statistics=good, sites=_sites(found, data.clients, fit.names, readout, level))


def _compared(data: ModelData, moves: BoolArray) -> Sequence[int]:
    """Slopes, of each output: parameters of columns that may vary at a site, as the effects of sites do not."""
    by_site = data.design is not None and SITE in data.design.levels
    effects = [by_site and name.startswith("site[") and ":" not in name for name in data.one_output]
    extra = len(data.family.extra_names)
    effect = np.concatenate([*[effects] * data.family.n_outputs, np.zeros(extra)]).astype(bool)
    return np.flatnonzero(moves & ~effect).tolist()


def _sites(
    found: Sequence[Answer | None], clients: Sequence[str], names: Sequence[str], readout: Readout, level: float
) -> SiteEstimates | None:
    """Sites' own estimates, in the units of the user's."""
    if sum(own is not None and bool(own["found"]) for own in found) < 2:
        return None
    dim = len(names)
    params, cov = np.full((len(found), dim), np.nan), np.full((len(found), dim, dim), np.nan)
    failed = {}
    for k, own in enumerate(found):
        if own is None or not own["found"]:
            failed[clients[k]] = "its rows alone are too few, or have no finite estimate"
        else:
            params[k], cov[k] = readout.of(own["theta"]), readout.cov(own["cov"])
    return site_estimates(clients, names, params, cov, failed=failed, level=level)


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
    intercept = data.constant is not None
    each = len(data.names) + intercept
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
    check_collinear(data.names, triangle, 1, intercept, _LEFT)


def check_errors(errors: str, family: Family, clustered: bool) -> None:
    """Refuse clusters without a use or a name, and model-based errors where the loss is not that of a model."""
    if errors == "cluster" and not clustered:
        raise ValueError(
            "errors='cluster' needs a column that says who belongs together: cluster='doctor'. For sites as clusters "
            "use errors='site'."
        )
    if clustered and errors != "cluster":
        raise ValueError(f"cluster is for errors='cluster'; got errors={errors!r}. Leave it out, or use 'cluster'.")
    if errors == "model" and family.model_errors == "none":
        raise ValueError(
            f"family {family.name!r} has no model for errors='model' to be right about: its loss is no likelihood. "
            "Use errors='HC0'."
        )


def parts_of(errors: Errors, family: Family) -> tuple[str, ...]:
    """What is asked for at the estimate (`Ask.parts`): no more than these errors need."""
    if errors == "model":
        return ("information",) if family.model_errors == "expected" else ("observed",)
    squares = {"cluster": ("squares.clusters",), "site": ("squares.sites",)}
    return ("observed", *squares.get(errors, ("squares.rows",)))


def clusters_of(errors: Errors, matrices: Mapping[str, FloatArray], n_sites: int) -> int:
    """How many clusters there are; none for errors by rows."""
    if errors == "cluster":
        return int(matrices["squares.n_clusters"])
    return n_sites if errors == "site" else 0


def few_clusters(groups: int, dim: int) -> tuple[str, ...]:
    """A note where a covariance is from so few clusters that its errors are too small."""
    if not 0 < groups < _FEW:
        return ()
    rank = f" They have rank {groups - 1}, and there are {dim} parameters." if groups <= dim else ""
    return (
        f"Errors are those of {groups} clusters: with fewer than {_FEW} or so they come out too small.{rank} Compare "
        "them with errors='HC0', and with the intervals of the sites' own fits.",
    )


def few_rows(errors: str, names: Sequence[str], covariates: FloatArray) -> tuple[str, ...]:
    """A note where a coefficient rests on so few rows that their residuals, made small by it, say little of its error.

    The coefficient of a level with one row fits that row exactly: its robust error counts no noise of that row at all.
    """
    there = covariates != 0.0
    counts = dict(zip(names, there.sum(axis=0).tolist(), strict=True))
    factors = {name.partition("[T.")[0] for name in names if "[T." in name and ":" not in name}
    for factor in sorted(factors):
        levels = [j for j, name in enumerate(names) if name.startswith(f"{factor}[T.") and ":" not in name]
        counts[f"the base level of {factor}"] = int(np.sum(~there[:, levels].any(axis=1)))
    rare = [f"{name} ({count})" for name, count in counts.items() if count < _FEW_ROWS]
    if errors == "model" or not rare:
        return ()
    return (
        f"Fewer than {_FEW_ROWS} rows stand behind {listed(rare, quote=False)}: robust errors are then too small. "
        "Merge rare levels, or use errors='model'.",
    )


def covariance(
    errors: Errors,
    family: Family,
    matrices: Mapping[str, FloatArray],
    dispersion: float,
    n_rows: int,
    n_sites: int,
) -> FloatArray:
    """The covariance of the estimate, (d, d), from the parts that `parts_of` names."""
    if errors == "model":
        return dispersion * inverse(matrices[parts_of(errors, family)[0]])
    bread = inverse(matrices["observed"])
    dim = len(bread)
    if errors in ("HC0", "HC1"):
        return (n_rows / (n_rows - dim) if errors == "HC1" else 1.0) * bread @ matrices["squares.rows"] @ bread
    meat = matrices["squares.sites" if errors == "site" else "squares.clusters"]
    groups = clusters_of(errors, matrices, n_sites)
    if groups <= 1:
        raise ValueError(f"errors={errors!r} needs several clusters; there is {groups}. Use errors='HC0'?")
    return groups / (groups - 1) * (n_rows - 1) / (n_rows - dim) * bread @ meat @ bread
