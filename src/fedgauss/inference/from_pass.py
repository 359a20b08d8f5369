"""From a finished pass to an estimate: its covariance, its bias, and whether clients are alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.inference.between_clients import IntArray, heterogeneity, population
from fedgauss.inference.bias import WARN, estimated_bias, estimated_bias_of_last, predicted_coverage
from fedgauss.inference.estimate import Estimate
from fedgauss.inference.passes import Pass
from fedgauss.inference.path_methods import PATH_METHODS
from fedgauss.inference.plugin import average_covariance, last_covariance
from fedgauss.inference.readout import Readout
from fedgauss.networks import Network

# What to do about the start, drift, and the rest.
_ADVICE = (
    "the start is not forgotten: use more steps, or a start nearer to the optimum",
    "clients drift apart: synchronise more often, or mix several times (network.repeated(4)); correct_drift=True "
    "subtracts what is estimated",
    "the gradient does not vanish there: use more steps",
)
_FEW = 30  # gradients a parameter: with 28 a 95 % ellipsoid of 20 parameters covers .91, with 8 it covers .5
_VANISHED = 1e-3  # of the Hessian at the start: a logistic optimum keeps a tenth of it, or a hundredth


@dataclass(frozen=True)
class Request:
    """What is asked of a pass; fields are as `infer` has them."""

    method: str
    level: float
    names: tuple[str, ...]
    readout: Readout
    iterate: str = "average"
    target: str = "optimum"
    correct_drift: bool = False


def estimate_from_pass(
    one_pass: Pass, request: Request, network: Network, tau: int, busy: IntArray, draws: FloatArray | None = None
) -> Estimate:
    """The estimate with its covariance, the diagnostic of bias, and the test of equal optima.

    `busy` (K,) says in how many of the steps that were summed up each client had data; `draws` (B, d) are errors by the
    bootstrap. A Hessian that cannot be inverted must have been refused (`check_hessian`).
    """
    estimate = _with_bias(_with_covariance(one_pass, request, draws), one_pass, request)
    estimate = _with_length(estimate, one_pass)
    facts = {
        "Method": estimate.method,
        "Clients": f"{network.n_clients} ({network.name})",
        "Steps per client": f"{len(one_pass.schedule.eta):,}",
        "Synchronised every": f"{tau} steps",
        "Averaged over": f"{one_pass.schedule.window:,} steps",
        "Step sizes": "whitened, t^-0.75" if one_pass.preconditioned else "as given",
    }
    estimate = replace(estimate, heterogeneity=heterogeneity(one_pass, busy), facts=facts)
    return population(estimate, one_pass, request.readout) if request.target == "population" else estimate


def _with_covariance(one_pass: Pass, request: Request, draws: FloatArray | None) -> Estimate:
    runs, readout = one_pass.runs, request.readout
    params = np.asarray(runs.last[0] if request.iterate == "last" else runs.average[0], dtype=float)
    if request.method in PATH_METHODS:
        cov = np.asarray(runs.observed[request.method][0], dtype=float) / one_pass.schedule.window
    elif draws is not None:
        cov = draws.T @ draws / len(draws)
    else:
        cov = _plugin(one_pass, request)
    deviations = None if draws is None else draws @ readout.matrix.T
    return Estimate(
        readout.of(params), readout.cov(cov), request.level, request.method, request.names, deviations=deviations
    )


def _plugin(one_pass: Pass, request: Request) -> FloatArray:
    return (last_covariance(one_pass) if request.iterate == "last" else average_covariance(one_pass))[0]


def _with_bias(estimate: Estimate, one_pass: Pass, request: Request) -> Estimate:
    """The diagnostic of bias, with drift subtracted on request."""
    last, readout = request.iterate == "last", request.readout
    bias = (estimated_bias_of_last(one_pass) if last else estimated_bias(one_pass)).shown(readout)
    if request.correct_drift:
        estimate = replace(estimate, params=estimate.params - bias.drift.clear[0])
        bias = bias._replace(drift=bias.drift._replace(value=bias.drift.value - bias.drift.clear))
    # In errors by the plug-in, whatever the method: random scaling has none of its own, only a random scale.
    cov = estimate.cov if estimate.method == "plugin" else readout.cov(_plugin(one_pass, request))
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


def _with_length(estimate: Estimate, one_pass: Pass) -> Estimate:
    """A note where the covariance is of too few gradients: joint sets suffer first."""
    clients = one_pass.clients
    seen, dim = clients.count * clients.places.shape[1], clients.places.shape[2]
    if seen >= _FEW * dim:
        return estimate
    return estimate.with_notes(
        f"The covariance of {dim} parameters comes from {seen} gradients: intervals are somewhat short, and joint sets "
        f"much too small. Use more steps, or sum up more often (every=1), until there are {_FEW * dim}."
    )


def check_hessian(one_pass: Pass) -> None:
    """Refuse a Hessian that cannot be inverted, or that has all but vanished during the run."""
    values = np.linalg.eigvalsh(one_pass.hessian[0])
    if values[0] <= 1e-8 * values[-1]:
        raise ValueError(
            f"the Hessian A must be positive definite to infer; its eigenvalues go from {values[0]:.3g} to "
            f"{values[-1]:.3g}. Are columns nearly collinear, or of very different scales, or is there an outlier?"
        )
    if one_pass.preconditioned:
        left = float(np.linalg.eigvals(one_pass.first[0] @ one_pass.hessian[0]).real.min())
        if left < _VANISHED:
            raise ValueError(
                f"the Hessian must not vanish during the run; along one direction {left:.1g} of it is left, so the run "
                "has reached parameters about which rows say nothing. Are there too few rows for so many columns, or "
                "are classes nearly separable? Use more rows or fewer columns."
            )
