"""`fit`: a regression on a frame whose rows belong to clients, by local SGD, with a summary like statsmodels'."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.families import Family
from fedgauss.inference.accuracy import WARN, predicted_coverage
from fedgauss.inference.client_steps import row_batches
from fedgauss.inference.estimate import Estimate, Readout
from fedgauss.inference.fit_result import Fit
from fedgauss.inference.infer import METHODS, Method, check_hessian, heterogeneity, infer, population, run_facts
from fedgauss.inference.model_data import ModelData, ModelSpec, read_model_data
from fedgauss.inference.passes import Passes, run_passes
from fedgauss.inference.preparation import Units, check_rows, check_separable, checked_columns, starting_point
from fedgauss.networks import Network, as_network, ring
from fedgauss.problems.arrays import checked_weights, from_arrays


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

    Parameters
    ----------
    frame : DataFrame or dict
        A pandas or polars DataFrame, or a dictionary of columns.
    target : str
        The column to explain.
    client : str
        The column that says to whom a row belongs.
    family : str or Family
        "linear" ("gaussian"), "logistic" ("binomial"), "poisson", "huber", "one_versus_rest", any other registered
        name, or an instance of a family (`fedgauss.families`).
    features : sequence of str, optional
        The covariates; by default all other columns. Text, categories and true/false columns become indicators, with
        the first level as base.
    formula : str, optional
        In place of `features`: "y ~ a + b + C(c)", with "- 1" for no intercept.
    intercept : bool
        Whether the model has an intercept.
    passes : int
        1 reads every row once; more passes are for small data (`inference.passes`).
    sync_every : int
        Steps between two synchronisations.
    network : Network or (K, K) array_like, optional
        Who averages with whom, clients in the order of their labels; a ring by default.
    method : {"plugin", "bootstrap", "random_scaling", "batch_means"}
        As for `infer`; several passes need "plugin".
    level : float
        Level of the intervals.
    seed : int
        Fixes the order in which rows are read.
    weights : {"rows", "equal"} or (K,) array_like
        "rows" for w_k = n_k / N, whose optimum is that of the pooled rows.
    standardise : bool
        Run on covariates of mean 0 and scale 1, and report on the scale of the frame all the same. Clients share sums
        for it, not rows.
    clients : {"these", "population"}
        Whether intervals hold for these clients, or for other clients like these.
    correct_drift : bool
        Subtract the estimated bias of clients that drift apart between mixings.
    bootstraps : int
        Number of chains of the bootstrap.
    progress : bool, optional
        Whether to show a progress bar; by default in a terminal and for long runs.

    Returns
    -------
    Fit

    Raises
    ------
    ValueError
        If the data cannot be fitted: missing values, collinear columns, separable classes and so on. Nothing is run.

    Notes
    -----
    Steps are whitened (`inference.passes`).

    Examples
    --------
    >>> fit = fg.fit(frame, target="readmitted", client="hospital", family="logistic")
    >>> print(fit)
    >>> fit.conf_int(), fit.wald(), fit.simultaneous()
    """
    level = _checks.level(level)
    _checks.one_of("method", method, METHODS)
    over = _checks.one_of("clients", clients, ["these", "population"]) == "population"
    tau, passes = _checks.whole("sync_every", sync_every), _checks.whole("passes", passes)
    _checks.seed(seed)
    if passes > 1 and method != "plugin":
        raise ValueError(f"several passes need method='plugin'; got {method!r}, which is for one. Use passes=1?")
    if passes > 1 and correct_drift:
        raise ValueError("correct_drift belongs to one pass; over several, steps shrink until there is no drift.")
    data = read_model_data(frame, client, ModelSpec(target, family, features, formula, intercept))
    check_rows(data.clients, data.counts, len(data.all_names))
    n_clients = len(data.clients)
    graph = ring(n_clients) if network is None else as_network(network, n_clients)
    share = checked_weights(weights, n_clients)
    columns = checked_columns(data)
    units = Units.of(data, columns)
    check_separable(data, units.rows(data.covariates))
    if not standardise:
        units = units.unscaled()
    rows = from_arrays(
        units.rows(data.covariates), units.target(data.response), data.owner, units.family(data.family), weights=share
    )
    start, readout = starting_point(data), units.readout(data.family.n_outputs)
    problem = row_batches(rows, seed)
    if tau > problem.n_steps:
        raise ValueError(
            f"sync_every must be at most the {problem.n_steps} steps of a pass, or clients never mix; got {tau}. "
            "Use 10?"
        )
    if passes == 1:
        estimate = infer(
            problem, graph, None, problem.n_steps, tau, method, level, seed,
            target="population" if over else "optimum", correct_drift=correct_drift, bootstraps=bootstraps,
            start=start, names=data.all_names, readout=readout, every=1, progress=progress,
        )  # fmt: skip
        if estimate.notes and not over:  # about a bias
            estimate = estimate.with_notes("With few rows, passes=5 or more reads them again.")
    else:
        done = run_passes(
            lambda i: row_batches(rows, seed, i), graph, problem.n_steps, tau, passes, seed=seed, start=start,
            progress=progress,
        )  # fmt: skip
        check_hessian(done.last)
        estimate = _from_passes(done, data, readout, level, over)
        steps, window = f"{passes} x {problem.n_steps:,}", f"{len(done.kept)} passes"
        estimate = replace(
            estimate,
            heterogeneity=heterogeneity(done.last, problem.busy(done.last.clients.count)),
            facts=run_facts("plugin (sandwich)", graph, steps, tau, window, "whitened each pass, t^-0.75"),
        )
    return as_fit(estimate, data, columns.scale, passes, weights, standardise, seed)


def _from_passes(done: Passes, data: ModelData, readout: Readout, level: float, over: bool) -> Estimate:
    """The estimate of several passes: the sandwich plus the optimisation error."""
    cov, more = readout.cov(done.sandwich), readout.cov(done.optimisation)
    bias = readout.matrix @ done.gap / np.sqrt(np.diag(cov + more))
    covered = predicted_coverage(bias, level)
    worst = np.sqrt((np.diag(more) / np.diag(cov)).max())
    estimate = Estimate(
        readout.of(done.params), cov + more, level, "plugin", data.all_names, bias=bias, predicted_coverage=covered
    ).with_notes(
        f"Rows were read {len(done.averages)} times: the estimate is the mean over the last {len(done.kept)} passes. "
        f"Intervals are by the sandwich with the {len(data.response):,} rows there are, plus the optimisation error, "
        f"at most {worst:.2f} standard errors."
    )
    j = int(np.abs(bias).argmax())
    if abs(bias[j]) > WARN:
        estimate = estimate.with_notes(
            f"The estimate of {data.all_names[j]} is {bias[j]:.2f} standard errors from where the gradient vanishes, "
            f"and its interval covers about {covered[j]:.2f} and not {level:g}; use more passes, or synchronise more "
            "often."
        )
    return population(estimate, done.last, readout) if over else estimate


def as_fit(
    estimate: Estimate, data: ModelData, scales: FloatArray, passes: int, weights: Any, standardise: bool, seed: int
) -> Fit:
    """The estimate with the facts of its data and settings, those of the run in between."""
    least, most = data.counts.min(), data.counts.max()
    facts = {
        "Target": data.target,
        "Family": data.family.describe(),
        "Rows": f"{int(data.counts.sum()):,}",
        "Rows per client": f"{least:,}" if least == most else f"{least:,} to {most:,}",
        "Passes": str(passes),
        **estimate.facts,
        "Weights": weights if isinstance(weights, str) else "given",
        "Covariates": "standardised for the run" if standardise else "as they are",
        "Seed": str(seed),
    }
    each, n_outputs = len(data.one_output), data.family.n_outputs
    one = scales if data.constant is None else np.concatenate([[1.0], scales])
    intercepts = () if data.constant is None else tuple(range(0, each * n_outputs, each))
    return Fit(**vars(estimate) | {"facts": facts, "intercepts": intercepts}, scales=np.tile(one, n_outputs))
