"""What the closed forms of a problem must keep to: its mean gradient, its moments, and the optimum they lead to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedgauss.problems.linearize import exact_linearization, linearize
from fedgauss.testing.battery import expect, not_applicable
from fedgauss.testing.chance import expect_mean
from fedgauss.testing.evaluation import SEED, evaluate, everywhere, mean_gradient, on_device
from fedgauss.testing.problem_case import ROUNDING, ProblemCase, float32

_SAMPLES, _BATCHES = 1024, 4  # draws of `linearize`, where a problem has no closed forms


def _mean_gradient(case: ProblemCase) -> None:
    """`mean_gradient` is the mean of `gradient` over the data, where there is one."""
    problem = case.problem
    try:
        stated = mean_gradient(on_device(problem), float32(everywhere(case.at, problem.n_clients, 1)))
    except NotImplementedError:
        not_applicable("it has no closed-form mean gradient")
    expect(np.shape(stated) == (*case.shape, 1), f"shape {np.shape(stated)}", "return (d, K, R), like `gradient`.")
    fix = "mend the closed form, or leave it out: sampling then takes its place."
    expect_mean(case.gradients(), np.asarray(stated, float)[..., 0], "mean_gradient", fix)


def _moments_shape(case: ProblemCase) -> None:
    """`moments` are a gradient (K, d), a Hessian and a gradient covariance (K, d, d), both symmetric."""
    dim, clients = case.shape
    found = case.moments()
    wanted = ((clients, dim), (clients, dim, dim), (clients, dim, dim))
    shapes = tuple(np.shape(part) for part in found)
    expect(shapes == wanted, f"shapes {shapes}, not {wanted}", "clients come first in closed forms.")
    fix = "return the full matrices, in float64."
    for name, matrices in (("hessian", found.hessian), ("noise_cov", found.noise_cov)):
        gap = float(np.abs(matrices - np.swapaxes(matrices, 1, 2)).max())
        expect(gap <= 1e-6 * np.abs(matrices).max(), f"a {name} {gap:.3g} away from its transpose", fix)
    lowest = float(np.linalg.eigvalsh(found.noise_cov).min())
    expect(lowest >= -1e-6 * np.abs(found.noise_cov).max(), f"a noise_cov with an eigenvalue of {lowest:.3g}", fix)


def _moments_gradient(case: ProblemCase) -> None:
    """The gradient of `moments` is the mean of `gradient` over the data."""
    fix = "mend the closed form, or return None: sampling then takes its place."
    expect_mean(case.gradients(), np.asarray(case.moments().gradient, float).T, "moments.gradient", fix)


def _moments_noise(case: ProblemCase) -> None:
    """The covariance of `moments` is that of `gradient` over the data."""
    found, along = case.moments(), case.directions
    centred = np.einsum("qd,dkr->qkr", along, case.gradients() - np.asarray(found.gradient, float).T[..., None])
    products = np.einsum("pkr,qkr->kpqr", centred, centred)
    stated = np.einsum("pi,kij,qj->kpq", along, np.asarray(found.noise_cov, float), along)
    fix = "noise_cov is the covariance of one gradient, E[g g'] less the square of its mean."
    expect_mean(products, stated, "moments.noise_cov", fix)


def _moments_hessian(case: ProblemCase) -> None:
    """The Hessian of `moments` is the derivative of their gradient, and `risk` gives the same two."""
    found, width = case.moments(), 1e-4
    scale = float(np.abs(found.hessian).max())
    for direction in case.directions:
        ends = [case.problem.moments(case.at + side * width * direction) for side in (1, -1)]
        if ends[0] is None or ends[1] is None:
            not_applicable("its closed forms end here")
        slope = (ends[0].gradient - ends[1].gradient) / (2 * width)
        gap = float(np.abs(slope - found.hessian @ direction).max())
        expect(gap <= 1e-3 * scale, f"a Hessian {gap:.3g} away from a difference quotient", "mend the closed form.")
    risk = case.problem.risk(case.at)
    if risk is not None:
        gap = max(float(np.abs(a - b).max()) for a, b in zip(risk, found[:2], strict=True))
        got = f"`risk` {gap:.3g} away from `moments`"
        expect(gap <= ROUNDING * max(scale, 1.0), got, "drop your own `risk`, or mend it.")


def _optimum(case: ProblemCase) -> None:
    """`linearize` finds a zero of sum_k w_k grad F_k, where the Hessian is positive definite."""
    problem = case.problem.reference()
    lin = linearize(problem, samples=_SAMPLES, batches=_BATCHES)
    lowest = float(np.linalg.eigvalsh((lin.hessian + lin.hessian.T) / 2).min())
    fix = "begin near it, with `guess`, and see that the risk has one minimiser."
    expect(lowest > 0, f"a Hessian with an eigenvalue of {lowest:.3g}", fix)
    count = case.count
    there = everywhere(lin.optimum, problem.n_clients, count)
    found = np.asarray(evaluate(problem, there, seed=SEED + 2)[1], float)
    mean = np.einsum("k,dkr->dr", lin.weights, found)
    # An estimated optimum has an error of its own, that of its samples.
    widen = 1.0 if exact_linearization(problem) is not None else np.sqrt(1.0 + count / (_SAMPLES * _BATCHES))
    expect_mean(mean, np.zeros(problem.dim), "the gradient at the optimum", fix, widen=float(widen))


MOMENT_RULES: Sequence[Any] = (
    _mean_gradient, _moments_shape, _moments_gradient, _moments_noise, _moments_hessian, _optimum,
)  # fmt: skip
