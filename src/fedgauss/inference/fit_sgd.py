"""`fit` by the paper's way: local SGD between clients, in one pass or several, with intervals from the pass itself."""

from dataclasses import replace

import numpy as np

from fedgauss import _checks
from fedgauss.inference.accuracy import WARN, predicted_coverage
from fedgauss.inference.between_clients import heterogeneity, population
from fedgauss.inference.client_steps import row_batches
from fedgauss.inference.estimate import Estimate, Readout
from fedgauss.inference.fit_exact import Finish, fit_exactly
from fedgauss.inference.fit_result import Fit, as_fit
from fedgauss.inference.infer_run import METHODS, infer_run
from fedgauss.inference.model import Model
from fedgauss.inference.model_data import ModelData, check_plain
from fedgauss.inference.pass_estimate import check_hessian, run_facts
from fedgauss.inference.passes import Passes, run_passes
from fedgauss.inference.preparation import (
    Units,
    check_rows,
    check_separable,
    checked_columns,
    largest_step,
    row_information,
    starting_point,
    told_little,
)
from fedgauss.inference.sgd import SGD
from fedgauss.problems.arrays import checked_weights, from_arrays

_SHARE = 0.1  # of a standard error: passes="auto" ends once more passes would move no estimate further
_KEPT_BACK = 0.5  # of that share may be seen: a Newton step is exact for straight gradients only
_MOST_PASSES = 100


def fit_by_sgd(data: ModelData, options: SGD, model: Model, level: float, progress: bool | None) -> Fit:
    """One pass or several over the rows of all clients, and steps of scoring after them where they are asked for."""
    options.check_model(model)
    if options.finish == 0:
        return _passes(data, options, level, progress)
    steps = _checks.whole("finish", options.finish)
    passed = _passes(data, options, level, progress)
    found = fit_exactly(data, model.errors, level, 0.0, Finish(np.asarray(passed.params), steps))
    many = f"{steps} step" + ("s" if steps > 1 else "")
    return replace(found, facts=found.facts | {"Solver": f"sgd, then {many} of scoring"} | sgd_facts(options))


def _passes(data: ModelData, options: SGD, level: float, progress: bool | None) -> Fit:
    check_plain(data)
    method, seed, weights = options.method, options.seed, options.weights
    _checks.one_of("method", method, METHODS)
    over = _checks.one_of("clients", options.clients, ["these", "population"]) == "population"
    tau = _checks.whole("sync_every", options.sync_every)
    auto = options.passes == "auto"
    passes = _MOST_PASSES if auto else _checks.whole("passes", options.passes, fix="Or use 'auto'?")
    _checks.seed(seed)
    if passes > 1 and method != "plugin":
        raise ValueError(f"several passes need method='plugin'; got {method!r}, which is for one. Use passes=1?")
    if passes > 1 and options.correct_drift:
        raise ValueError("correct_drift belongs to one pass; over several, steps shrink until there is no drift.")
    check_rows(data.clients, data.counts, len(data.all_names))
    n_clients = len(data.clients)
    graph = options.graph(n_clients)
    share = checked_weights(weights, n_clients)
    columns = checked_columns(data)
    units = Units.of(data, columns)
    check_separable(data, units.rows(data.covariates))
    if not options.standardise:
        units = units.unscaled()
    rows = from_arrays(
        units.rows(data.covariates), units.target(data.response), data.owner, units.family(data.family), weights=share
    )
    start, readout = starting_point(data), units.readout(data.family.n_outputs)
    problem, told = row_batches(rows, seed), row_information(rows.family, start, data.constant is not None)
    largest = largest_step(told, len(start))
    if tau > problem.n_steps:
        raise ValueError(
            f"sync_every must be at most the {problem.n_steps} steps of a pass, or clients never mix; got {tau}. "
            "Use 10?"
        )
    if passes == 1:
        estimate = infer_run(
            problem, graph, None, problem.n_steps, tau, method, level, seed,
            target="population" if over else "optimum", correct_drift=options.correct_drift,
            bootstraps=options.bootstraps, start=start, names=data.all_names, readout=readout, every=1,
            largest_step=largest, progress=progress,
        )  # fmt: skip
        if estimate.notes and not over:  # about a bias
            estimate = estimate.with_notes("With few rows, passes=5 or more reads them again.")
    else:
        done = run_passes(
            lambda i: row_batches(rows, seed, i), graph, problem.n_steps, tau, passes, seed=seed, start=start,
            largest=largest, enough=(lambda so_far: _off(so_far, readout) <= _KEPT_BACK * _SHARE) if auto else None,
            progress=progress,
        )  # fmt: skip
        check_hessian(done.last)
        estimate = _from_passes(done, data, readout, level, over)
        if auto:
            estimate = estimate.with_notes(_when_it_stopped(_off(done, readout)))
        steps, window = f"{len(done.averages)} x {problem.n_steps:,}", f"{len(done.kept)} passes"
        estimate = replace(
            estimate,
            heterogeneity=heterogeneity(done.last.clients, problem.busy(done.last.clients.count)),
            facts=run_facts(
                "plugin (sandwich)", graph, steps, tau, {"Averaged over": window}, "whitened each pass, t^-0.75"
            ),
        )
    estimate = estimate.with_notes(*told_little(told, len(data.response), len(start)))
    settings = sgd_facts(options) | ({"Passes": f"{len(done.averages)} (auto)"} if auto else {})
    return as_fit(estimate, data, columns.scale, settings)


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
    if not over:
        return estimate
    return population(estimate, done.last.clients, done.last.weights, done.last.runs.average[0], readout)


def _off(done: Passes, readout: Readout) -> float:
    """How far the estimate is from where the gradient of all rows vanishes, in standard errors; the worst coordinate.

    That is where further passes go. The standard errors, unlike those of a stream, do not shrink with more passes.
    """
    gap = readout.matrix @ done.gap
    return float(np.max(np.abs(gap) / np.sqrt(np.diag(readout.cov(done.sandwich)))))


def _when_it_stopped(off: float) -> str:
    if off <= _KEPT_BACK * _SHARE:
        return f"Stopped there: more passes would move no estimate by more than {_SHARE:g} standard errors."
    return (
        f"Stopped at {_MOST_PASSES} passes, the most for passes='auto', {off:.2f} standard errors from where "
        f"more would take the estimate, and not {_SHARE:g}. Use solver='scoring', or synchronise more often."
    )


def sgd_facts(options: SGD) -> dict[str, str]:
    """What a summary says of the settings."""
    return {
        "Passes": str(options.passes),
        "Weights": options.weights if isinstance(options.weights, str) else "given",
        "Covariates": "standardised for the run" if options.standardise else "as they are",
        "Seed": str(options.seed),
    }
