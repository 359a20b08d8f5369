"""Where the mean gradient of rows vanishes: Newton steps from sums, and from the rows that are kept."""

from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.inference.client_sums import ClientStatistics
from fedgauss.inference.read_once import ReadOnce
from fedgauss.inference.row_sums import RowRange
from fedgauss.inference.symmetric import inverse, sound, variances

_MOST_STEPS = 10
_SETTLED = 1e-3  # standard errors: the last Newton step
_MOST_HALVED = 40  # steps of the first fit, and halvings of each: three to six steps are usual, with no halving
_STEEPER = 0.9  # the slope beyond a minimum over that before it: a step is halved if this is exceeded
# What is not finite is stepped back from, or refused later.
QUIETLY = np.errstate(divide="ignore", invalid="ignore", over="ignore")


class Zero(NamedTuple):
    """Where the mean gradient of the rows so far vanishes, of R runs."""

    params: FloatArray  # (R, d)
    last_step: FloatArray  # (R, d): it has settled where this is small
    bend: FloatArray  # (R, d): how far it was moved because gradients are not straight
    doubt: FloatArray  # (R, d): how large that is before noise is taken off, in standard errors of `params`


@QUIETLY
def first_reference(kept: RowRange, weights: FloatArray, start: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The fit of the rows that are kept, from `start` (R, d), with a penalty that weighs as much as d / 2 rows there.

    Also what a row weighs, (R, d, d).

    The penalty keeps it finite where a plane separates the rows; rows weigh as at zero if that is less, since counts
    that start too large would hold the fit there. If the penalty still moves the fit by more than noise does, one
    Newton step without it follows, unless the Hessian becomes another one on the way.
    """
    slope, hessian, noise = kept.moments_at(start, weights)
    at_zero = kept.moments_at(np.zeros_like(start), weights)[1]
    traces = [np.einsum("rii->r", each)[:, None, None] for each in (at_zero, hessian)]
    row = np.where((traces[0] > 0.0) & (traces[0] < traces[1]), at_zero, hessian)
    ridge, theta = row * (start.shape[1] * float(weights @ weights) / (2 * kept.count)), start
    for _ in range(_MOST_HALVED):
        bread = inverse(hessian + ridge)
        step = -np.einsum("rij,rj->ri", bread, slope)
        if np.all(np.abs(step) <= _SETTLED * standard_errors(bread, noise, kept.count)):
            break
        before = np.einsum("ri,ri->r", slope, step)
        for _ in range(_MOST_HALVED):  # while the slope beyond the minimum is steeper than it was before it
            slope, hessian, noise = kept.moments_at(theta + step, weights)
            slope = slope + np.einsum("rij,rj->ri", ridge, theta + step - start)
            beyond = ~(np.einsum("ri,ri->r", slope, step) <= np.abs(before) * _STEEPER)
            if not beyond.any():
                break
            step = np.where(beyond[:, None], step / 2, step)
            before = np.where(beyond, before / 2, before)
        theta = theta + step
    slope, hessian, noise = kept.moments_at(theta, weights)
    bread = inverse(hessian)
    step = -np.einsum("rij,rj->ri", bread, slope)
    free = np.any(np.abs(step) > standard_errors(bread, noise, kept.count), axis=1)
    if free.any():
        free &= sound(kept.moments_at(theta + step, weights)[1], hessian)
    return np.where(free[:, None], theta + step, theta), row


@QUIETLY
def find_zero(kept: RowRange, once: ReadOnce, weights: FloatArray, start: FloatArray) -> Zero:
    """Newton steps from `start` (R, d) until the gradient of all rows vanishes, and one for what is not straight.

    That last step comes from few rows, and what their noise may have added is taken off: where they are heavy-tailed
    it would otherwise do more harm than bias.
    """
    straight, clients, step = newton_steps(kept, once, weights, start)
    shift, variance = np.zeros_like(straight), np.zeros_like(straight)
    for count, reference in once.stretches:
        bends, noise = kept.bends_at(straight, reference)
        lever = inverse(clients.hessian(weights)) * count / clients.count
        shift += np.einsum("rij,rj->ri", lever, np.einsum("k,rkj->rj", weights, bends))
        variance += variances(lever, np.einsum("k,rkij->rij", weights**2, noise))
    bend = less_noise(shift, variance)
    errors = standard_errors(inverse(clients.hessian(weights)), clients.noise(weights), clients.count)
    return Zero(straight + bend, step, bend, np.sqrt(np.maximum(shift**2, variance)) / errors)


@QUIETLY
def newton_steps(
    kept: RowRange, once: ReadOnce, weights: FloatArray, start: FloatArray
) -> tuple[FloatArray, ClientStatistics, FloatArray]:
    """Where gradients vanish if those of later rows are straight, the statistics one step before, and that step."""
    theta = start
    for _ in range(_MOST_STEPS):
        clients = statistics_at(kept, once, theta)
        bread = inverse(clients.hessian(weights))
        step = np.einsum("rij,rj->ri", bread, np.einsum("k,rkj->rj", weights, clients.gradients))
        theta = theta - step
        if np.all(np.abs(step) <= _SETTLED * standard_errors(bread, clients.noise(weights), clients.count)):
            break
    return theta, clients, step


def statistics_at(kept: RowRange, once: ReadOnce, theta: FloatArray) -> ClientStatistics:
    """Over all rows, with gradients at theta."""
    sums, count = kept.sums_at(theta), kept.count + once.n_rows
    met = (sums.gradients + once.gradients) / count  # at the references that rows met
    noise = ((sums.squares + once.squares) / count - met[..., :, None] * met[..., None, :]) * (count / (count - 1))
    gradients = (sums.gradients + once.gradients_at(theta)) / count
    place = np.broadcast_to(theta[:, None], met.shape)
    hessians = (sums.hessians + once.hessians) / count
    return ClientStatistics(hessians, noise, place, gradients, place, np.zeros_like(met), count)


def standard_errors(bread: FloatArray, noise: FloatArray, count: int) -> FloatArray:
    """Standard errors of a fit, (R, d)."""
    return np.sqrt(np.maximum(variances(bread, noise), 0.0) / count)


def less_noise(value: FloatArray, variance: FloatArray) -> FloatArray:
    """Breiman's garrote: b (1 - s^2 / b^2), or zero where that is negative."""
    return value * np.maximum(0.0, 1.0 - variance / np.maximum(value**2, np.finfo(float).tiny))
