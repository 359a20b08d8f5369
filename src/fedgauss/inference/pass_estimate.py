"""From what clients added up in one pass to an estimate: covariance, bias and notes."""

from dataclasses import dataclass, replace

import numpy as np

from fedgauss._types import FloatArray, IntArray
from fedgauss.inference.accuracy import BIAS, COVARIANCE, WARN, newton_gap, predicted_coverage, sandwich
from fedgauss.inference.between_clients import heterogeneity, population
from fedgauss.inference.client_sums import ClientStatistics
from fedgauss.inference.estimate import Estimate, Readout
from fedgauss.inference.methods import PATH_METHODS
from fedgauss.inference.passes import Pass
from fedgauss.networks import Network

# What to do about the start, drift, and the rest.
_ADVICE = (
    "the start is not forgotten: use more steps, or a start nearer to the optimum",
    "clients drift apart: synchronise more often, or mix several times (network.repeated(4)); correct_drift=True "
    "subtracts what is estimated",
    "the gradient does not vanish there: use more steps, or smaller ones (largest_step)",
)
_FAR = 2.0  # standard errors: a Newton step from further away may itself be off by half a standard error
_WIDE = 10.0  # times the sandwich's: no run that has begun to settle has such errors
_FEW = 30  # gradients a parameter: with 28 a 95 % ellipsoid of 20 parameters covers .91, with 8 it covers .5
_SHORT = "intervals are somewhat short, and joint sets much too small. Use more steps, or sum up more often (every=1)"
_VANISHED = 1e-3  # of the Hessian at the start: a logistic optimum keeps a tenth of it, or a hundredth


@dataclass(frozen=True)
class Request:
    """What is asked of a pass; fields are as `infer` and `infer_run` have them."""

    method: str
    level: float
    names: tuple[str, ...]
    readout: Readout
    iterate: str = "average"
    target: str = "optimum"
    correct_drift: bool = False
    correct_bias: bool = False


def estimate_from_pass(
    one_pass: Pass, request: Request, network: Network, tau: int, busy: IntArray, draws: FloatArray | None = None
) -> Estimate:
    """The estimate with its covariance, the diagnostic of bias, and the test of equal optima.

    `busy` (K,) says in how many of the steps that were summed up each client had data; `draws` (B, d) are errors by the
    bootstrap. A Hessian that cannot be inverted must have been refused (`check_hessian`).
    """
    n_steps, source = len(one_pass.schedule.eta), {"Averaged over": f"{one_pass.schedule.window:,} steps"}
    if request.method == "plugin" and request.iterate == "average" and one_pass.summed_all:
        estimate = _after_newton(one_pass, request)
    else:
        estimate = _with_bias(_with_covariance(one_pass, request, draws), one_pass, request)
    estimate = with_length(estimate, one_pass.clients, _SHORT)
    sizes = "whitened, t^-0.75" if one_pass.preconditioned else "as given"
    facts = run_facts(estimate.method, network, f"{n_steps:,}", tau, source, sizes)
    estimate = replace(estimate, heterogeneity=heterogeneity(one_pass.clients, busy), facts=facts)
    if request.target != "population":
        return estimate
    return population(estimate, one_pass.clients, one_pass.weights, one_pass.runs.average[0], request.readout)


def run_facts(
    method: str, network: Network, steps: str, tau: int, source: dict[str, str], sizes: str
) -> dict[str, str]:
    """What was run, in words; `source` says what the estimate comes from."""
    return {
        "Method": method,
        "Clients": f"{network.n_clients} ({network.name})",
        "Steps per client": steps,
        "Synchronised every": f"{tau} steps",
        **source,
        "Step sizes": sizes,
    }


def _after_newton(one_pass: Pass, request: Request) -> Estimate:
    """Where the clients' mean gradient over the window vanishes, by one Newton step from the average.

    Neither the start, nor drift, nor curvature biases it but in second order; its covariance is the sandwich of the
    window. A note says where it comes from so far that second order counts.
    """
    readout = request.readout
    gap = newton_gap(one_pass)[0]
    params = np.asarray(one_pass.runs.average[0], dtype=float) - gap
    cov = readout.cov(sandwich(one_pass)[0])
    estimate = Estimate(readout.of(params), cov, request.level, request.method, request.names)
    step = readout.matrix @ gap / estimate.std_errors
    worst = int(np.abs(step).argmax())
    if abs(step[worst]) <= _FAR:
        return estimate
    return estimate.with_notes(
        f"The average of the iterates is {abs(step[worst]):.1f} standard errors of {estimate.names[worst]} from where "
        f"the gradient vanishes. The estimate is one Newton step from there, which beyond {_FAR:g} standard errors is "
        "not exact: its intervals may be short. Use more rows, or synchronise more often."
    )


def _with_covariance(one_pass: Pass, request: Request, draws: FloatArray | None) -> Estimate:
    runs, readout = one_pass.runs, request.readout
    params = np.asarray(runs.last[0] if request.iterate == "last" else runs.average[0], dtype=float)
    if request.method in PATH_METHODS:
        cov = np.asarray(runs.observed[request.method][0], dtype=float) / one_pass.schedule.window
    elif draws is not None:
        cov = draws.T @ draws / len(draws)
    else:
        cov = _checked_covariance(one_pass, request.iterate)
    deviations = None if draws is None else draws @ readout.matrix.T
    return Estimate(
        readout.of(params), readout.cov(cov), request.level, request.method, request.names, deviations=deviations
    )


def _with_bias(estimate: Estimate, one_pass: Pass, request: Request) -> Estimate:
    """The diagnostic of bias, with drift subtracted on request."""
    readout = request.readout
    bias = BIAS[request.iterate](one_pass).shown(readout)
    if request.correct_drift:
        estimate = replace(estimate, params=estimate.params - bias.drift.clear[0])
        bias = bias._replace(drift=bias.drift._replace(value=bias.drift.value - bias.drift.clear))
    # In errors by the plug-in, whatever the method: random scaling has none of its own, only a random scale.
    plugin = estimate.method == "plugin"
    cov = estimate.cov if plugin else readout.cov(_checked_covariance(one_pass, request.iterate))
    ratio = bias.total[0] / np.sqrt(np.diag(cov))
    covered = predicted_coverage(ratio, estimate.level)
    parts = np.abs([bias.start[0], bias.drift.clear[0], bias.rest.clear[0]])
    cause = parts.argmax(axis=0)
    sure = np.choose(cause, [np.ones(len(cause), dtype=bool), bias.drift.sure[0], bias.rest.sure[0]])
    worst = int(np.where(sure, np.abs(ratio), 0.0).argmax())
    estimate = replace(estimate, bias=ratio, predicted_coverage=covered)
    if not sure[worst] or abs(ratio[worst]) <= WARN:
        return estimate
    return estimate.with_notes(
        f"Bias of {ratio[worst]:.2f} standard errors is estimated for {estimate.names[worst]}, whose interval then "
        f"covers about {covered[worst]:.2f} and not {estimate.level:g}; {_ADVICE[cause[worst]]}."
    )


def _checked_covariance(one_pass: Pass, iterate: str) -> FloatArray:
    """The covariance by the plug-in, (d, d); refused where it is none, or far beyond that of a run that has settled."""
    cov = COVARIANCE[iterate](one_pass)[0]
    settled = np.diag(sandwich(one_pass)[0])
    if iterate == "last":  # Theorem 2.2: wider by about eta_n N / 2
        settled = settled * max(1.0, one_pass.schedule.window * float(one_pass.schedule.eta[-1]))
    ratio = np.sqrt(np.diag(cov) / settled)
    if not np.all(ratio <= _WIDE):  # also where it is not a number
        raise ValueError(
            f"standard errors must be numbers, and at most {_WIDE:g} times those of the sandwich; here one is "
            f"{float(np.max(ratio)):.3g} times as large: the steps do not suit the problem. Use more, or smaller ones."
        )
    return cov


def with_length(estimate: Estimate, clients: ClientStatistics, consequence: str) -> Estimate:
    """A note where the covariance is of too few gradients: joint sets suffer first."""
    seen, dim = clients.count * clients.gradients.shape[1], clients.gradients.shape[2]
    if seen >= _FEW * dim:
        return estimate
    return estimate.with_notes(
        f"The covariance of {dim} parameters comes from {seen} gradients: {consequence}, until there are {_FEW * dim}."
    )


def check_hessian(one_pass: Pass) -> None:
    """Refuse a Hessian that cannot be inverted, or that has all but vanished during the run."""
    hessian = one_pass.hessian[0]
    need_positive(hessian)
    if one_pass.preconditioned:
        need_some_left(float(np.linalg.eigvals(one_pass.first[0] @ hessian).real.min()))


def need_finite(hessian: FloatArray) -> None:
    """Refuse a Hessian that is not finite, (d, d)."""
    if not np.all(np.isfinite(hessian)):
        raise ValueError(
            "the Hessian A must be finite to infer; it has left the finite numbers. Use a start nearer to the optimum, "
            "or covariates of smaller scale."
        )


def need_positive(hessian: FloatArray) -> None:
    """Refuse a Hessian that cannot be inverted, (d, d)."""
    need_finite(hessian)
    values = np.linalg.eigvalsh(hessian)
    if values[0] <= 1e-8 * values[-1]:
        raise ValueError(
            f"the Hessian A must be positive definite to infer; its eigenvalues go from {values[0]:.3g} to "
            f"{values[-1]:.3g}. Are columns nearly collinear, or of very different scales, or is there an outlier?"
        )


def need_some_left(share: float) -> None:
    """Refuse where a direction has less than a thousandth of the Hessian that it had at first."""
    if share < _VANISHED:
        raise ValueError(
            f"the Hessian must not vanish on the way; along one direction {share:.1g} of it is left, so parameters "
            "have been reached about which rows say nothing. Are there too few rows for so many columns, or are "
            "classes nearly separable? Use more rows or fewer columns, or a start nearer to the optimum."
        )
