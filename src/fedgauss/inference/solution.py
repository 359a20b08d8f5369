"""Where the gradient of all rows of a run vanishes, by Newton steps from sums and from a few rows that are kept.

Near a reference r the gradient of a row is all but straight, g(theta) = g(r) + H(r) (theta - r) + second order, and
straight where the loss is quadratic. So sums of g and H at r give the gradient of all rows at theta, and no row has to
be read twice. References are estimates from earlier rows, the same for all clients: no run of SGD is needed, which
would have to forget its start, and whose clients drift apart:

1. Each client keeps its first rows, max(100, 40 d / K) of them, or more where these tell little: twice as many for as
   long as the bend (3.) of the next ones may matter, gradients are heavy-tailed or a client is not heard. The first
   reference is their fit.
2. As many rows again are added up there. The next reference is where the gradient of all rows so far vanishes, and so
   on: whenever the number of rows has doubled there is a new one. A reference from m rows is off by m^-1/2, second
   order for the next m rows by m^-1, and for the mean over all n rows by log(n) / n, which is less than noise.
3. At the estimate the rows that were kept are read once more; they show by how much straight gradients of later rows
   are off,

       n_later * mean of g(r) + H(r) (theta - r) - g(theta).

4. A row that outweighs the others, an outlier, moves the reference that it was read at far away, and so do a dozen
   alike. Where one has a sixteenth of the squares of a coordinate of all gradients, all rows are kept, and the estimate
   is that of their fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fedgauss._memory import check_memory
from fedgauss._progress import ProgressBar
from fedgauss._random import stage_key
from fedgauss._types import BoolArray, FloatArray, IntArray
from fedgauss.inference.client_sums import ClientStatistics
from fedgauss.inference.read_once import ReadOnce
from fedgauss.inference.row_sums import RowRange
from fedgauss.inference.symmetric import inverse, root, sound, variances
from fedgauss.inference.zero import QUIETLY, find_zero, first_reference, less_noise, newton_steps, statistics_at
from fedgauss.problems.base import Problem

_KEPT = 100  # rows: with 30 the Poisson ellipsoid of a thin network covers .76, with 100 .92, with all of them .92
_BENT = 0.25  # standard errors: where the bend of the next rows may move an estimate by more, more rows are kept
_TOLD = 5  # degrees of freedom a parameter: rows that are kept must tell as much; normal ones tell 40, counts 2 to 20
_HEAVY = (
    1 / 16
)  # of the squares of gradients: where one row has as much, all rows are kept: a dozen alike are found, too
_BYTES = 200  # for K d^2 numbers a run: two sums of as many are kept, others come and go; measured 184 to 191


@dataclass(frozen=True)
class Solution:
    """Where the mean gradient of all rows vanishes, of R runs, and the clients' statistics there."""

    params: FloatArray  # (R, d)
    last_step: FloatArray  # (R, d): it has settled where this is small
    bend: FloatArray  # (R, d): how far it was moved because gradients are not straight
    clients: ClientStatistics  # over all rows, with gradients at `params`
    hessian: FloatArray  # A there, (R, d, d)
    noise_cov: FloatArray  # V_K there, (R, d, d)
    kurtosis: FloatArray  # (R,): of gradients along a direction, over that of a normal law; 3 for least squares
    first_hessian: FloatArray  # A over the rows that are kept, at the start or at zero, (R, d, d)
    bias: FloatArray  # (R, d): of order 1 / n, as the fit of all rows has it; `params` may be less it
    fitted_hessian: FloatArray  # A where gradients vanish, (R, d, d): that at `params` unless the bias is subtracted


def all_rows(
    problem: Problem,
    n_steps: int,
    replicates: int,
    seed: int,
    start: FloatArray,
    progress: bool | None = None,
    correct_bias: bool = False,
) -> Solution:
    """Read n rows of each client, those that a run with this seed would see, and solve for the estimate.

    Newton steps begin at `start` (d,). Each of `replicates` runs decides for itself how many rows it keeps. With
    `correct_bias` the estimate is less its bias of order 1 / n, and Hessian and noise are those there.
    """
    weights = np.asarray(problem.weights, dtype=float)
    _check_memory(problem, replicates)
    n_kept = min(n_steps, max(_KEPT, math.ceil(40 * problem.dim / problem.n_clients)))
    every = RowRange(problem, stage_key(seed, "data"), np.arange(replicates), 0, n_steps)
    start = np.asarray(start, dtype=float)
    parts, numbers = list[Solution](), list[IntArray]()
    with ProgressBar("reading rows", replicates * n_steps, progress) as bar:
        groups = _begun(every, n_kept, weights, start)
        bar.advance(sum(len(begun.kept.replicates) * begun.done for begun in groups))
        while groups:
            begun = groups.pop().read_on(n_steps, weights, bar)
            heavy = begun.has_a_heavy_row(weights)
            if heavy.any():
                again = replace(every, replicates=begun.kept.replicates[heavy])
                groups += _begun(again, n_steps, weights, start)
            if not heavy.all():
                light = begun.of_runs(np.flatnonzero(~heavy))
                parts.append(_described(light, weights, correct_bias))
                numbers.append(light.kept.replicates)
    return parts[0] if len(parts) == 1 else _joined(parts, np.argsort(np.concatenate(numbers)))


def _check_memory(problem: Problem, replicates: int) -> None:
    """Refuse sums that do not fit."""
    numbers = replicates * problem.n_clients * problem.dim**2
    what = f"sums of {problem.dim:,} x {problem.dim:,} numbers of {problem.n_clients:,} clients"
    check_memory(what, _BYTES * numbers, "Use fewer parameters or clients.")


class _Begun(NamedTuple):
    """Runs that keep as many rows, after some that they do not keep."""

    kept: RowRange
    once: ReadOnce
    place: FloatArray  # where their gradients vanish, (R, d)
    first_hessian: FloatArray
    done: int  # rows

    def of_runs(self, index: IntArray) -> _Begun:
        """The part of some runs."""
        kept = replace(self.kept, replicates=self.kept.replicates[index])
        return _Begun(kept, self.once.of_runs(index), self.place[index], self.first_hessian[index], self.done)

    def read_on(self, n_steps: int, weights: FloatArray, bar: ProgressBar) -> _Begun:
        """Up to the last row, with a new reference whenever the number of rows has doubled."""
        once, place, done = self.once, self.place, self.done
        while done < n_steps:
            rows = replace(self.kept, first=done, last=min(2 * done, n_steps))
            once = once.and_also(rows, place, bar)
            place, done = newton_steps(self.kept, once, weights, place)[0], rows.last
        return self._replace(once=once, place=place, done=done)

    @QUIETLY
    def has_a_heavy_row(self, weights: FloatArray) -> BoolArray:
        """Whether one row that is read once has a sixteenth of the squares of a coordinate of all gradients, (R,).

        Its own gradient at the estimate is another one: it moves the reference that it was read at.
        """
        squares = self.kept.sums_at(self.place).squares + self.once.squares
        largest = (weights[:, None] * self.once.largest).max(axis=1)
        return np.any(largest**2 > _HEAVY * np.einsum("k,rkii->ri", weights**2, squares), axis=1)


def _begun(every: RowRange, n_kept: int, weights: FloatArray, start: FloatArray) -> list[_Begun]:
    """Runs by the number of rows that they keep: twice as many where the gradients of the next ones bend too much.

    Where outcomes are rare many rows tell as little as a few ordinary ones, and references from them are far off.
    """
    kept = replace(every, last=min(n_kept, every.last))
    reference, row = first_reference(kept, weights, np.broadcast_to(start, (len(every.replicates), len(start))))
    nothing = ReadOnce.nothing(len(every.replicates), len(weights), len(start))
    first = find_zero(kept, nothing, weights, reference)
    if kept.last == every.last:
        return [_Begun(kept, nothing, first.params, row, kept.last)]
    later = replace(every, first=kept.last, last=min(2 * kept.last, every.last))
    once = nothing.and_also(later, first.params)
    found = find_zero(kept, once, weights, first.params)
    told = freedom(
        _kurtosis(kept, first.params, statistics_at(kept, nothing, first.params), weights), kept.count, weights
    )
    bent = ~(np.all(found.doubt <= _BENT, axis=1) & (told >= _TOLD * len(start)) & _all_heard(kept, first.params))
    groups = []
    if not bent.all():
        groups.append(_Begun(kept, once, found.params, row, later.last).of_runs(np.flatnonzero(~bent)))
    if bent.any():
        groups += _begun(replace(every, replicates=every.replicates[bent]), 2 * kept.last, weights, start)
    return groups


def _all_heard(kept: RowRange, theta: FloatArray) -> BoolArray:
    """Whether every client has a gradient among these rows, (R,): one with few rows may rest all the while.

    Nothing would then be known of its kurtosis, nor of how its gradients bend.
    """
    squares = np.einsum("rkii->rk", kept.sums_at(theta).squares)
    return np.asarray(np.all(squares > 0.0, axis=1))


def _joined(parts: Sequence[Any], order: IntArray) -> Any:
    """Solutions of several groups of runs as one, in this order."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)[order]
    if is_dataclass(parts[0]):
        names = [each.name for each in fields(parts[0])]
        together = {name: _joined([getattr(part, name) for part in parts], order) for name in names}
        return replace(parts[0], **together)  # type: ignore[type-var]
    return parts[0]  # a number of rows


@QUIETLY
def _described(read: _Begun, weights: FloatArray, correct_bias: bool) -> Solution:
    """Where gradients vanish, with everything that errors need."""
    kept, once = read.kept, read.once
    found = find_zero(kept, once, weights, read.place)

    def moments_at(theta: FloatArray) -> tuple[ClientStatistics, FloatArray, FloatArray]:
        clients = statistics_at(kept, once, theta)
        return clients, *_moved(kept, once, weights, theta, clients)

    params, (clients, hessian, noise_cov) = found.params, moments_at(found.params)
    bias, fitted = _bias(kept, params, hessian, noise_cov, weights, clients.count), hessian
    if correct_bias:
        params = params - bias
        clients, hessian, noise_cov = moments_at(params)
    kurtosis = _kurtosis(kept, params, clients, weights)
    return Solution(
        params, found.last_step, found.bend, clients, hessian, noise_cov, kurtosis, read.first_hessian, bias, fitted
    )


@QUIETLY
def _bias(
    kept: RowRange, theta: FloatArray, hessian: FloatArray, noise_cov: FloatArray, weights: FloatArray, count: int
) -> FloatArray:
    """The bias of order 1 / n of the fit of n rows a client, which grows with the number of parameters; (R, d).

        A^-1 (sum_k w_k^2 E[H A^-1 (g - E g)] - sum_k w_k E D^2 g [v, v] / 2) / n,    v ~ N(0, A^-1 V_K A^-1)

    with expectations over rows of client k: gradients and Hessians go together, and gradients bend. For a logistic or
    Poisson model that is true it is that of Cox and Snell. Means are over the rows that are kept, less what their noise
    may have added (as in `find_zero`).
    """
    bread = inverse(hessian)
    means = kept.sums_at(theta).gradients / kept.count
    second, noise = kept.second_order_at(theta, means, bread, root(bread @ noise_cov @ bread))
    lever = bread / count
    bias = np.einsum("rij,rj->ri", lever, np.einsum("k,rkj->rj", weights, second))
    return less_noise(bias, variances(lever, np.einsum("k,rkij->rij", weights**2, noise)))


def freedom(kurtosis: FloatArray, count: int, weights: FloatArray) -> FloatArray:
    """2 N / (3 b - 1) for N = n / sum_k w_k^2 rows that count alike and gradients of kurtosis 3 b.

    The variance of so many is known as well as one with these degrees of freedom of normal ones.
    """
    return 2.0 * count / float(weights @ weights) / np.maximum(3.0 * kurtosis - 1.0, 1e-6)


def _kurtosis(kept: RowRange, theta: FloatArray, clients: ClientStatistics, weights: FloatArray) -> FloatArray:
    """Mardia's, E (u' V^-1 u)^2 / (d (d + 2)), u a gradient less its client's mean, V their covariance; (R,)."""
    share = weights**2 / (weights @ weights)
    means = kept.sums_at(theta).gradients / kept.count
    total = kept.fourths_at(theta, means, inverse(clients.noise(share**0.5)))
    dim = theta.shape[1]
    return total @ share / (kept.count * dim * (dim + 2))


def _moved(
    kept: RowRange, once: ReadOnce, weights: FloatArray, theta: FloatArray, clients: ClientStatistics
) -> tuple[FloatArray, FloatArray]:
    """A and V_K at theta: those of later rows, at their references, and what kept rows say of the difference."""
    plain = clients.hessian(weights), clients.noise(weights)
    moved, here = list(plain), kept.moments_at(theta, weights)[1:]
    for count, reference in once.stretches:
        for i, there in enumerate(kept.moments_at(reference, weights)[1:]):
            moved[i] = moved[i] + (here[i] - there) * count / clients.count
    hessian, noise_cov = (np.where(sound(m, p)[:, None, None], m, p) for m, p in zip(moved, plain, strict=True))
    return hessian, noise_cov
