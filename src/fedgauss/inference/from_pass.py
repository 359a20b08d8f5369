"""From a finished pass to an estimate: its covariance, its bias, and whether clients are alike."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import stats

from fedgauss._types import FloatArray
from fedgauss.inference.accuracy import (
    WARN,
    average_covariance,
    estimated_bias,
    estimated_bias_of_last,
    last_covariance,
    predicted_coverage,
)
from fedgauss.inference.estimate import Estimate, Readout
from fedgauss.inference.passes import Pass
from fedgauss.inference.path_methods import PATH_METHODS
from fedgauss.inference.reference_laws import ChiSquared
from fedgauss.networks import Network

IntArray = npt.NDArray[np.int64]

# What to do about the start, drift, and the rest.
_ADVICE = (
    "the start is not forgotten: use more steps, or a start nearer to the optimum",
    "clients drift apart: synchronise more often, or mix several times (network.repeated(4)); correct_drift=True "
    "subtracts what is estimated",
    "the gradient does not vanish there: use more steps",
)
_SINGULAR = 1e-6  # of the largest eigenvalue of a covariance summed up in single precision
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


def heterogeneity(one_pass: Pass, busy: IntArray) -> ChiSquared | None:
    """Test whether the clients' optima differ: at no one place do all their mean gradients vanish, but for noise.

    The sum of p_k' Var(p_k)^-1 p_k of the mean gradients p_k at the best place, chi-squared with (K - 1) d. A variance
    estimated from m gradients makes a term too large by (m - 1) / (m - d - 2) on average, which is divided out.

    Parameters
    ----------
    one_pass : Pass
    busy : (K,) ndarray
        In how many of the steps that were summed up each client had data.

    Returns
    -------
    ChiSquared or None
        None where a client cannot tell, because a covariate is constant there or because it has hardly more rows than
        parameters.
    """
    clients = one_pass.clients
    n_clients, dim = clients.places.shape[1:]
    noise, hessians = np.linalg.eigvalsh(clients.noise_cov[0]), clients.hessians[0]
    if n_clients == 1 or busy.min() < dim + 3 or np.any(noise[:, 0] <= _SINGULAR * noise[:, -1]):
        return None
    certain = np.linalg.inv(clients.noise_cov[0]) * (clients.count * (busy - dim - 2) / (busy - 1))[:, None, None]
    best = np.linalg.solve(
        np.einsum("kij,kjl,klm->im", hessians, certain, hessians),
        -np.einsum("kij,kjl,kl->i", hessians, certain, clients.gradients_at(np.zeros(dim))),
    )
    pulls = clients.gradients_at(best)
    statistic, dof = float(np.einsum("ki,kij,kj->", pulls, certain, pulls)), (n_clients - 1) * dim
    return ChiSquared(statistic, dof, float(stats.chi2.sf(statistic, dof)))


def population(estimate: Estimate, one_pass: Pass, readout: Readout) -> Estimate:
    """Treat clients as a sample: the variance between their pulls takes the place of the noise within them.

    The estimate is off by A^-1 sum_k w_k p_k, with p_k client k's mean gradient there: as with clustered data, the
    noise of each client is part of its p_k. For clients that are alike in law, r_k = p_k - sum_l w_l p_l has covariance
    (1 - 2 w_k + S) Var(p), S = sum_l w_l^2, so that

        A^-1 sum_k v_k r_k r_k' A^-1,    v_k = w_k^2 / (1 - 2 w_k + S)

    is unbiased. Student's t has the degrees of freedom of Satterthwaite, (tr Q)^2 / tr Q^2 with Q = C' diag(v) C and
    C = I - 1 w': K - 1 with equal weights, and fewer with others.
    """
    w = one_pass.weights
    n_clients = len(w)
    if n_clients < 3:
        raise ValueError(f"target='population' needs at least 3 clients to see how they vary; got {n_clients}.")
    pulls = one_pass.clients.gradients_at(np.asarray(one_pass.runs.average[0], dtype=float))
    v = w**2 / (1.0 - 2.0 * w + w @ w)
    r = pulls - w @ pulls
    inverse = np.linalg.inv(one_pass.hessian[0])
    centring = np.eye(n_clients) - w
    q = centring.T @ (v[:, None] * centring)
    dof = float(np.trace(q) ** 2 / np.sum(q * q))
    note = f"The population of clients is the target: intervals hold for other clients like these {n_clients}."
    if dof < n_clients - 1.5:
        note += f" By their weights they count like {dof + 1:.1f} equal ones."
    cov = readout.cov(inverse @ np.einsum("k,ki,kj->ij", v, r, r) @ inverse)
    return replace(estimate.with_notes(note), cov=cov, dof=dof)


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
