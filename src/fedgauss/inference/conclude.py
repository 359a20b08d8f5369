"""From a finished pass to an estimate: its covariance, what it cannot see, and whether clients are alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import stats

from fedgauss._types import FloatArray
from fedgauss.inference.bias import WARN, estimated_bias, estimated_bias_of_last, predicted_coverage
from fedgauss.inference.estimate import ChiSquared, Estimate
from fedgauss.inference.passes import Pass
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
IntArray = npt.NDArray[np.int64]

_VANISHED = 1e-3  # of the Hessian at the start: a logistic optimum keeps a tenth of it, or a hundredth
_SINGULAR = 1e-6  # of the largest eigenvalue of a covariance summed up in single precision


@dataclass(frozen=True)
class Question:
    """What is asked of a pass; fields are as `infer` has them."""

    method: str
    level: float
    names: tuple[str, ...]
    readout: Readout
    iterate: str = "average"
    target: str = "optimum"
    correct_drift: bool = False


def conclude(
    whole: Pass, asked: Question, network: Network, tau: int, busy: IntArray, draws: FloatArray | None = None
) -> Estimate:
    """The estimate with its covariance, the diagnostic of bias, and the test of clients that are alike.

    busy    in how many of the steps that were summed up each client had data, (K,)
    draws   of the error by the bootstrap, (B, d)
    A Hessian that cannot be inverted must have been refused (`check_hessian`).
    """
    found = _estimate(whole, asked, draws)
    found = _with_bias(found, whole, asked)
    found = _with_length(found, whole)
    found = replace(found, heterogeneity=heterogeneity(whole, busy), facts=_facts(found, whole, network, tau))
    return population(found, whole, asked.readout) if asked.target == "population" else found


def _estimate(whole: Pass, asked: Question, draws: FloatArray | None) -> Estimate:
    method, iterate, shown = asked.method, asked.iterate, asked.readout
    params = np.asarray(whole.runs.last[0] if iterate == "last" else whole.runs.average[0], dtype=float)
    window = whole.schedule.window
    if method == "random_scaling":
        cov = np.asarray(whole.runs.random_scaling[0], dtype=float) / window
    elif method == "batch_means":
        cov = np.asarray(whole.runs.batch_means[0], dtype=float) / window
    elif draws is not None:
        cov = draws.T @ draws / len(draws)
    else:
        cov = (last_covariance(whole) if iterate == "last" else average_covariance(whole))[0]
    deviations = None if draws is None else draws @ shown.matrix.T
    return Estimate(shown.of(params), shown.cov(cov), asked.level, method, asked.names, deviations=deviations)


def _with_bias(found: Estimate, whole: Pass, asked: Question) -> Estimate:
    """The diagnostic, and drift subtracted on request."""
    last, shown = asked.iterate == "last", asked.readout
    bias = (estimated_bias_of_last(whole) if last else estimated_bias(whole)).shown(shown)
    if asked.correct_drift:
        found = replace(found, params=found.params - bias.drift.clear[0])
        bias = bias._replace(drift=bias.drift._replace(value=bias.drift.value - bias.drift.clear))
    # In errors by the plug-in, whatever the method: random scaling has none of its own, only a random scale.
    cov = found.cov
    if found.method != "plugin":
        cov = shown.cov((last_covariance(whole) if last else average_covariance(whole))[0])
    ratio = bias.total[0] / np.sqrt(np.diag(cov))
    covered = predicted_coverage(ratio, found.level)
    parts = np.abs([bias.start[0], bias.drift.clear[0], bias.rest.clear[0]])
    cause = parts.argmax(axis=0)
    sure = np.choose(cause, [np.ones(len(cause), dtype=bool), bias.drift.sure[0], bias.rest.sure[0]])
    worst = int(np.where(sure, np.abs(ratio), 0.0).argmax())
    notes = found.notes
    if sure[worst] and abs(ratio[worst]) > WARN:
        notes = (
            *notes,
            f"Bias of {ratio[worst]:.2f} standard errors is estimated for {found.names[worst]}, whose interval then "
            f"covers about {covered[worst]:.2f} and not {found.level:g}; {_ADVICE[cause[worst]]}.",
        )
    return replace(found, bias=ratio, predicted_coverage=covered, notes=notes)


def _with_length(found: Estimate, whole: Pass) -> Estimate:
    """A note where the covariance is of too few gradients: joint sets suffer first."""
    known = whole.summaries
    seen, dim = known.count * known.places.shape[1], known.places.shape[2]
    if seen >= _FEW * dim:
        return found
    note = (
        f"The covariance of {dim} parameters comes from {seen} gradients: intervals are somewhat short, and joint sets "
        f"much too small. Use more steps, or sum up more often (every=1), until there are {_FEW * dim}."
    )
    return replace(found, notes=(*found.notes, note))


def _pulls(whole: Pass, place: FloatArray) -> FloatArray:
    """The mean gradients of the clients' losses at one place, (K, d), from those where each client was."""
    known = whole.summaries
    return known.gradients[0] + np.einsum("kij,kj->ki", known.hessians[0], place - known.places[0])


def heterogeneity(whole: Pass, busy: IntArray) -> ChiSquared | None:
    """Whether the clients' optima differ: at no one place do all their mean gradients vanish, but for noise.

    The sum of p_k' Var(p_k)^-1 p_k of the mean gradients p_k at the best place, chi-squared with (K - 1) d. A variance
    estimated from m gradients makes a term too large by (m - 1) / (m - d - 2) on average, which is taken off. None
    where a client cannot tell, because some covariate is constant there or because it has hardly more rows than
    parameters.

    busy   in how many of the steps that were summed up each client had data, (K,)
    """
    known = whole.summaries
    n_clients, dim = known.places.shape[1:]
    noise, hessians = np.linalg.eigvalsh(known.noise_cov[0]), known.hessians[0]
    if n_clients == 1 or busy.min() < dim + 3 or np.any(noise[:, 0] <= _SINGULAR * noise[:, -1]):
        return None
    certain = np.linalg.inv(known.noise_cov[0]) * (known.count * (busy - dim - 2) / (busy - 1))[:, None, None]
    at_zero = _pulls(whole, np.zeros(dim))
    best = np.linalg.solve(
        np.einsum("kij,kjl,klm->im", hessians, certain, hessians),
        -np.einsum("kij,kjl,kl->i", hessians, certain, at_zero),
    )
    pulls = _pulls(whole, best)
    statistic = float(np.einsum("ki,kij,kj->", pulls, certain, pulls))
    freedom = (n_clients - 1) * dim
    return ChiSquared(statistic, freedom, float(stats.chi2.sf(statistic, freedom)))


def population(found: Estimate, whole: Pass, shown: Readout) -> Estimate:
    """Clients are a sample: the variance between their pulls takes the place of the noise within them.

    The estimate is off by A^-1 sum_k w_k p_k, with p_k client k's mean gradient there: as of clustered data, with the
    noise of each client part of its p_k. Of clients that are alike in law, r_k = p_k - sum_l w_l p_l has covariance
    (1 - 2 w_k + S) Var(p), S = sum_l w_l^2, so that

        A^-1 sum_k v_k r_k r_k' A^-1,    v_k = w_k^2 / (1 - 2 w_k + S)

    is unbiased. Student's t has the degrees of freedom of Satterthwaite, (tr Q)^2 / tr Q^2 with Q = C' diag(v) C and
    C = I - 1 w': K - 1 with equal weights, and fewer with others.
    """
    w = whole.weights
    n_clients = len(w)
    if n_clients < 3:
        raise ValueError(f"target='population' needs at least 3 clients to see how they vary; got {n_clients}.")
    pulls = _pulls(whole, np.asarray(whole.runs.average[0], dtype=float))
    v = w**2 / (1.0 - 2.0 * w + w @ w)
    r = pulls - w @ pulls
    inverse = np.linalg.inv(whole.hessian[0])
    centring = np.eye(n_clients) - w
    q = centring.T @ (v[:, None] * centring)
    freedom = float(np.trace(q) ** 2 / np.sum(q * q))
    note = f"The population of clients is the target: intervals hold over other clients like these {n_clients}."
    if freedom < n_clients - 1.5:
        note += f" By their weights they count like {freedom + 1:.1f} equal ones."
    cov = shown.cov(inverse @ np.einsum("k,ki,kj->ij", v, r, r) @ inverse)
    return replace(found, cov=cov, freedom=freedom, notes=(*found.notes, note))


def _facts(found: Estimate, whole: Pass, network: Network, tau: int) -> dict[str, str]:
    n = len(whole.schedule.eta)
    return {
        "Method": found.method,
        "Clients": f"{network.n_clients} ({network.name})",
        "Steps a client": f"{n:,}",
        "Synchronised every": f"{tau} steps",
        "Averaged over": f"{whole.schedule.window:,} steps",
        "Step sizes": "whitened, t^-0.75" if whole.preconditioned else "as given",
    }


def check_hessian(whole: Pass) -> None:
    """Refuse a Hessian that cannot be inverted, or that has all but vanished on the way."""
    values = np.linalg.eigvalsh(whole.hessian[0])
    if values[0] <= 1e-8 * values[-1]:
        raise ValueError(
            f"the Hessian A must be positive definite to infer; its eigenvalues go from {values[0]:.3g} to "
            f"{values[-1]:.3g}. Are columns nearly collinear, or of very different scales, or is there an outlier?"
        )
    if whole.preconditioned:
        left = float(np.linalg.eigvals(whole.first[0] @ whole.hessian[0]).real.min())
        if left < _VANISHED:
            raise ValueError(
                f"the Hessian must not vanish on the way; along one direction {left:.1g} of it is left, so the run has "
                "gone to where rows say nothing. Are there too few rows for so many columns, or are classes nearly "
                "separable? Use more rows or fewer columns."
            )
