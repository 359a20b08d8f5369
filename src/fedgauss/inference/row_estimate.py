"""From a `Solution`, where the gradient of all rows vanishes, to an estimate: covariance and notes."""

from dataclasses import replace

import numpy as np
from scipy import linalg

from fedgauss._types import FloatArray, IntArray
from fedgauss.inference.accuracy import WARN, predicted_coverage, row_covariance
from fedgauss.inference.between_clients import heterogeneity, population
from fedgauss.inference.estimate import Estimate
from fedgauss.inference.pass_estimate import Request, need_finite, need_some_left, with_length
from fedgauss.inference.solution import Solution
from fedgauss.inference.symmetric import scaled_alike

_SINGULAR = 1e-6  # of the largest eigenvalue: below, sums in single precision make errors 10 times too short
_ROUNDED = 5.0  # standard errors, at worst: what happens is 5 to 50 times less
_HALF_A_BIT = 2.0**-24  # how far a number in single precision may be off, relative to its size
_WORTH = 10.0  # rows with the Hessian of the start: where so much is left, outcomes are rare and not separable
_BENT = 1.0  # standard errors: what is of third order may then be a fifth of one
_UNSETTLED = 0.1  # standard errors: the last Newton step
_LARGE = 1.0  # standard errors of bias: beyond, a logistic model with 12 parameters covers .93 corrected
_SMALL = "intervals and joint sets may be too small, above all for heavy tails, as of counts. Use more steps"


def estimate_from_rows(solution: Solution, request: Request, weights: FloatArray, busy: IntArray) -> Estimate:
    """The estimate of the first run with its covariance, the test of equal optima, and notes.

    `busy` (K,) says in how many of the steps each client had rows.
    """
    check_solution(solution, weights)
    clients = solution.clients
    facts = {
        "Method": request.method,
        "Clients": f"{len(weights)}",
        "Rows per client": f"{clients.count:,}",
        "Estimated from": "all rows, bias subtracted" if request.correct_bias else "all rows",
    }
    estimate = _with_settling(_with_errors(solution, request, weights), solution, request)
    estimate = with_length(_with_rounding(estimate, solution, request), clients, _SMALL)
    estimate = replace(estimate, heterogeneity=heterogeneity(clients, busy), facts=facts)
    if request.target == "population":
        estimate = population(estimate, clients, weights, solution.params[0], request.readout)
    return _with_bias(estimate, solution, request)


def check_solution(solution: Solution, weights: FloatArray) -> None:
    """Refuse a Hessian that cannot be inverted, or that has all but vanished on the way to the estimate."""
    hessian, first = solution.fitted_hessian[0], solution.first_hessian[0]
    need_finite(hessian)
    need_finite(solution.hessian[0])
    _need_independent(scaled_alike(hessian[None])[0][0])
    if not np.all(np.isfinite(first)):
        return
    largest = float(linalg.eigvalsh(first, hessian)[-1])  # of H_0 relative to A: the inverse of what is left
    n_rows = solution.clients.count / float(weights @ weights)
    if largest * _WORTH > n_rows:
        need_some_left(1.0 / largest)


def _need_independent(hessian: FloatArray) -> None:
    """Refuse columns that sums in single precision cannot tell apart; `hessian` has columns that are scaled alike."""
    values = np.linalg.eigvalsh(hessian)
    if values[0] <= _SINGULAR * values[-1]:
        raise ValueError(
            "the Hessian A must be positive definite to infer; with columns scaled alike its eigenvalues go from "
            f"{values[0]:.3g} to {values[-1]:.3g}. Are columns nearly collinear, or is there an outlier? Drop a "
            "column, or subtract its mean from one that is far from zero."
        )


def _with_errors(solution: Solution, request: Request, weights: FloatArray) -> Estimate:
    readout = request.readout
    cov, dof = row_covariance(solution, weights)
    variances = np.diag(readout.cov(cov[0]))
    if not np.all((variances > 0.0) & np.isfinite(variances) & np.isfinite(dof[0])):
        raise ValueError(
            f"standard errors must be positive numbers; here a variance is {variances.min():.3g}. Do gradients have no "
            "noise, or have they left the finite numbers? Use fit for rows that a model fits exactly, smaller scales, "
            "or a start nearer to the optimum."
        )
    return Estimate(
        readout.of(solution.params[0]), readout.cov(cov[0]), request.level, request.method, request.names,
        dof=float(dof[0]),
    )  # fmt: skip


def _with_bias(estimate: Estimate, solution: Solution, request: Request) -> Estimate:
    """What few rows for many parameters do to any fit: a diagnostic unless it was subtracted, and perhaps a note."""
    ratio = request.readout.matrix @ solution.bias[0] / estimate.std_errors
    covered, worst = predicted_coverage(ratio, estimate.level), int(np.abs(ratio).argmax())
    name = estimate.names[worst]
    if request.correct_bias:
        if not abs(ratio[worst]) > _LARGE:
            return estimate
        return estimate.with_notes(
            f"A bias of {ratio[worst]:.2f} standard errors was subtracted from {name}. What is of higher order may "
            "count then, too: intervals may be short. Use more rows."
        )
    estimate = replace(estimate, bias=ratio, predicted_coverage=covered)
    if not abs(ratio[worst]) > WARN:
        return estimate
    return estimate.with_notes(
        f"Bias of {ratio[worst]:.2f} standard errors is estimated for {name}, whose interval then covers about "
        f"{covered[worst]:.2f} and not {estimate.level:g}: few rows, or few that count, tell about so many parameters. "
        "The fit of the pooled rows has it, too. correct_bias=True subtracts it, or use more rows."
    )


def _with_settling(estimate: Estimate, solution: Solution, request: Request) -> Estimate:
    """A note where Newton steps have not settled, or gradients bend so much that the estimate may not be exact."""
    step, bend = (
        np.abs(request.readout.matrix @ part[0]) / estimate.std_errors for part in (solution.last_step, solution.bend)
    )
    if step.max() > _UNSETTLED:
        return estimate.with_notes(
            f"Newton steps have not settled: the last one moved {estimate.names[int(step.argmax())]} by "
            f"{step.max():.2g} standard errors. Are there too few rows for so many parameters? Intervals mean little."
        )
    if bend.max() > _BENT:
        return estimate.with_notes(
            "Rows were read so far from the estimate that the bend of their gradients moves "
            f"{estimate.names[int(bend.argmax())]} by {bend.max():.1f} standard errors. The estimate allows for it, "
            "but not exactly: its intervals may be short. Use more rows, or a start nearer to the optimum."
        )
    return estimate


def _with_rounding(estimate: Estimate, solution: Solution, request: Request) -> Estimate:
    """A note where rows may be read too coarsely: numbers with seven digits, such as 1e7 and a noise of 1, lose theirs.

    Predictors sum_j x_j theta_j are off by 2^-24 sum_j |x_j theta_j| at most, and the estimate then by

        2^-24 sum_j |A^-1|_ij s_j sum_k s_k |theta_k|,    s_j = A_jj^1/2
    """
    hessian, theta = solution.hessian[0], solution.params[0]
    sizes = np.sqrt(np.diag(hessian))
    most = np.abs(request.readout.matrix @ np.linalg.inv(hessian)) @ sizes * (sizes @ np.abs(theta)) * _HALF_A_BIT
    worst = most / estimate.std_errors
    if worst.max() <= _ROUNDED:
        return estimate
    return estimate.with_notes(
        "Rows are read in single precision, with seven digits: rounding may move "
        f"{estimate.names[int(worst.argmax())]} by up to {worst.max():.2g} standard errors. Subtract their means from "
        "covariates and from the response."
    )
