"""`fit`: a regression on a frame whose rows belong to clients, by local SGD, with what statsmodels would print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.inference.bias import WARN, predicted_coverage
from fedgauss.inference.conclude import check_hessian, heterogeneity, population
from fedgauss.inference.design import Design, checked_weights, family_name, read_design
from fedgauss.inference.estimate import Estimate
from fedgauss.inference.infer import Method, infer
from fedgauss.inference.many_passes import run_passes
from fedgauss.inference.obstacles import (
    check_collinear,
    check_constant,
    check_huber,
    check_rows,
    check_separable,
    triangle,
)
from fedgauss.inference.row_batches import row_batches
from fedgauss.inference.standardise import Location, Standardised, locate, standardise
from fedgauss.networks import Network, as_network, ring
from fedgauss.problems.arrays import ArrayProblem, from_arrays
from fedgauss.problems.families import Family, Huber


@dataclass(frozen=True, repr=False)
class Fit(Estimate):
    """An estimate from a frame. `scales` has the standard deviation of each covariate, and 1 for an intercept."""

    scales: FloatArray = field(default_factory=lambda: np.empty(0))


def fit(
    frame: Any,
    target: str,
    client: str,
    family: str | Family = "linear",
    features: Sequence[str] | None = None,
    formula: str | None = None,
    *,
    intercept: bool = True,
    passes: int = 1,
    sync_every: int = 10,
    network: Network | ArrayLike | None = None,
    method: Method = "plugin",
    level: float = 0.95,
    seed: int = 0,
    weights: ArrayLike | Literal["rows", "equal"] = "rows",
    standardise: bool = True,
    clients: Literal["these", "population"] = "these",
    correct_drift: bool = False,
    bootstraps: int = 200,
    progress: bool | None = None,
) -> Fit:
    """Fit a regression by local SGD between clients, with standard errors and intervals.

    frame         a pandas or polars DataFrame, or a dictionary of columns
    target        the column to explain
    client        the column that says to whom a row belongs
    family        linear, logistic, poisson, huber, or one_versus_rest
    features      the covariates; by default all other columns. Text, categories, true and false become columns of
                  zeros and ones, with the first level as base
    formula       in place of features: "y ~ a + b + C(c)", "- 1" for no intercept
    passes        1 reads every row once; more are for small data (`inference.many_passes`)
    network       who averages with whom, clients in the order of their labels; a ring by default
    method        as `infer` has it; several passes need "plugin"
    weights       "rows" for w_k = n_k / N, whose optimum is that of the pooled rows; "equal"; or one for each client
    standardise   run on covariates of mean 0 and scale 1, and report on the scale of the frame all the same. Clients
                  share sums for it, not rows
    clients       "these", or "population": intervals hold for other clients like these
    Steps are whitened (`inference.whitened`), and `seed` fixes the order in which rows are read. What cannot be fitted
    (missing values, collinear columns, separable classes and so on) is refused before the run.
    """
    level = _checks.probability("level", level, fix="Use 0.95?")
    _checks.one_of("method", method, ["plugin", "bootstrap", "random_scaling", "batch_means"])
    _checks.one_of("clients", clients, ["these", "population"])
    tau, passes = _checks.whole("sync_every", sync_every), _checks.whole("passes", passes)
    _checks.whole("seed", seed, at_least=0)
    if passes > 1 and method != "plugin":
        raise ValueError(f"several passes need method='plugin'; got {method!r}, which is for one. Use passes=1?")
    design = read_design(frame, target, client, family, features, formula, intercept)
    check_rows(design.clients, design.counts, len(design.all_names))
    n_clients = len(design.clients)
    graph = ring(n_clients) if network is None else as_network(network, n_clients)
    share = checked_weights(weights, n_clients)
    scaled = _prepared(design, standardise)
    rows = from_arrays(
        scaled.rows, scaled.response, design.owner, scaled.family, weights=share, n_classes=len(design.classes) or None
    )
    over = clients == "population"
    problem = row_batches(rows, seed)
    if tau > problem.n_steps:
        raise ValueError(
            f"sync_every must be at most the {problem.n_steps} steps of a pass, or clients never mix; got {tau}. "
            "Use 10?"
        )
    if passes == 1:
        found = infer(
            problem, graph, None, problem.n_steps, tau, method, level, seed,
            target="population" if over else "optimum", correct_drift=correct_drift, bootstraps=bootstraps,
            start=scaled.start, names=design.all_names, readout=scaled.readout, every=1, progress=progress,
        )  # fmt: skip
        if found.notes and not over:  # a bias was found
            found = replace(found, notes=(*found.notes, "With few rows, passes=5 or more reads them again."))
    else:
        if correct_drift:
            raise ValueError("correct_drift belongs to one pass; over several, steps shrink until there is no drift.")
        found = _many(design, scaled, rows, graph, tau, passes, level, seed, over, progress)
    how = {
        "Weights": weights if isinstance(weights, str) else "given",
        "Covariates": "standardised for the run" if standardise else "as they are",
        "Seed": str(seed),
    }
    return finished(found, design, scaled.columns, passes, how)


def _prepared(design: Design, scaled: bool) -> Standardised:
    """The design to run on, once nothing stands in its way."""
    columns = locate(design.covariates, design, design.constant is not None)
    check_constant(design.names, columns)
    triangles = [triangle(own, columns) for own in np.split(design.covariates, design.firsts[1:])]
    check_collinear(design.names, triangles, len(design.response), design.constant is not None)
    check_huber(design)
    check_separable(design, standardise(design, columns, True).rows)
    return standardise(design, columns, scaled)


def _many(
    design: Design,
    scaled: Standardised,
    rows: ArrayProblem,
    graph: Network,
    tau: int,
    passes: int,
    level: float,
    seed: int,
    over: bool,
    progress: bool | None,
) -> Estimate:
    """Several passes, and the sandwich."""
    problem = row_batches(rows, seed)
    n_steps = problem.n_steps
    done = run_passes(
        lambda i: row_batches(rows, seed, i), graph, n_steps, tau, passes, seed=seed, start=scaled.start,
        progress=progress,
    )  # fmt: skip
    check_hessian(done.last)
    shown = scaled.readout
    cov, more = shown.cov(done.sandwich), shown.cov(done.optimisation)
    errors = np.sqrt(np.diag(cov + more))
    bias = shown.matrix @ done.gap / errors
    covered = predicted_coverage(bias, level)
    worst = np.sqrt((np.diag(more) / np.diag(cov)).max())
    notes = [
        f"Rows were read {passes} times: the estimate is the mean over the last {len(done.kept)} passes. Intervals "
        f"are by the sandwich with the {len(rows.response):,} rows there are, plus the optimisation error, at most "
        f"{worst:.2f} standard errors."
    ]
    j = int(np.abs(bias).argmax())
    if abs(bias[j]) > WARN:
        notes.append(
            f"The estimate of {design.all_names[j]} is {bias[j]:.2f} standard errors from where the gradient vanishes, "
            f"and its interval covers about {covered[j]:.2f} and not {level:g}; use more passes, or synchronise more "
            "often."
        )
    facts = {
        "Method": "plugin (sandwich)",
        "Clients": f"{graph.n_clients} ({graph.name})",
        "Steps a client": f"{passes} x {n_steps:,}",
        "Synchronised every": f"{tau} steps",
        "Averaged over": f"{len(done.kept)} passes",
        "Step sizes": "whitened each pass, t^-0.75",
    }
    found = Estimate(
        shown.of(done.params), cov + more, level, "plugin", design.all_names, facts, tuple(notes), bias, covered,
        heterogeneity(done.last, problem.busy(done.last.summaries.count)),
    )  # fmt: skip
    return population(found, done.last, shown) if over else found


def finished(found: Estimate, design: Design, columns: Location, passes: int, how: dict[str, str]) -> Fit:
    """With the facts of the data before those of the run."""
    family = family_name(design.family)
    if isinstance(design.family, Huber):
        family += f" (threshold {design.family.threshold:g})"
    counts = design.counts
    each = f"{counts.min():,}" if counts.min() == counts.max() else f"{counts.min():,} to {counts.max():,}"
    facts = {
        "Target": design.target,
        "Family": family,
        "Rows": f"{int(counts.sum()):,}",
        "Rows a client": each,
        "Passes": str(passes),
        **found.facts,
        **how,
    }
    one = columns.scale if design.constant is None else np.concatenate([[1.0], columns.scale])
    scales = np.tile(one, max(1, len(design.classes)))
    kept = {item.name: getattr(found, item.name) for item in fields(Estimate)}
    return Fit(**{**kept, "facts": facts}, scales=scales)
