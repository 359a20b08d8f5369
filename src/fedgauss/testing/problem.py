"""What every problem must keep to."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.engine.simulate import simulate
from fedgauss.networks import complete
from fedgauss.problems.base import Moments, Problem, checked_problem
from fedgauss.problems.linearize import exact_linearization, linearize
from fedgauss.testing.battery import Check, Report, checks, expect, not_applicable, run
from fedgauss.testing.chance import expect_mean
from fedgauss.testing.evaluation import (
    SEED,
    curvatures,
    evaluate,
    everywhere,
    expect_pytree,
    mean_gradient,
    on_device,
    shared_shape,
    trace,
    traced_twice,
)

_FEW = 16  # replicates of checks that need no statistics
_MANY = 8192  # draws of checks by sampling; fewer where K d is large
_SAMPLES, _BATCHES = 1024, 4  # draws of `linearize`, where a problem has no closed forms
_DIRECTIONS = 6  # along which matrices are compared; all of them up to so many dimensions
_ROUNDING = 1e-4  # relative, between programs in float32


def check_problem(problem: Problem, at: ArrayLike | None = None) -> Report:
    """Check a problem of your own against everything that the engine and the theory rely on.

    Parameters
    ----------
    problem : Problem
        An instance with few clients and dimensions checks fastest.
    at : array_like of shape (d,), optional
        The parameter at which gradients and moments are compared; near `problem.guess()` by default.

    Returns
    -------
    Report
        The outcome of every check; printed, it lists them.

    Raises
    ------
    ConformanceError
        If any rule is broken. It lists all broken rules, with what was found and how to mend it.

    Notes
    -----
    Mean gradients and moments are compared with averages over draws. Each such check has a chance of at most 1e-4 of
    failing although the problem is right; seeds are fixed, so the answer is always the same.

    Examples
    --------
    >>> import fedgauss as fg
    >>> from fedgauss.testing import check_problem
    >>> print(check_problem(fg.problems.random_effects(n_clients=3)))  # doctest: +SKIP
    """
    return run(repr(problem), checks_for_problem(problem, at))


def checks_for_problem(problem: Problem, at: ArrayLike | None = None) -> list[Check]:
    """The checks of `check_problem` one by one, for `pytest.mark.parametrize("check", ..., ids=str)`.

    Parameters
    ----------
    problem, at
        As in `check_problem`.

    Returns
    -------
    list of Check
        Each is called without arguments and raises an AssertionError if its rule is broken.
    """
    return checks(_RULES, _Case(checked_problem(problem), at))


class _Case:
    """A problem, and what several checks look at."""

    def __init__(self, problem: Problem, at: ArrayLike | None) -> None:
        self.problem, self._at = problem, at

    @cached_property
    def shape(self) -> tuple[int, int]:
        """(d, K)."""
        return self.problem.dim, self.problem.n_clients

    @cached_property
    def at(self) -> FloatArray:
        """Where gradients are compared."""
        if self._at is not None:
            return _checks.real_array("at", self._at, shape=(self.problem.dim,))
        offset = np.random.default_rng(SEED).standard_normal(self.problem.dim)
        return np.asarray(self.problem.guess(), float) + 0.25 * offset

    @cached_property
    def count(self) -> int:
        """How many draws fit into a few dozen megabytes."""
        return max(512, min(_MANY, 2**22 // (self.problem.dim * self.problem.n_clients) // 32 * 32))

    @cached_property
    def theta(self) -> FloatArray:
        """Other parameters for each client and replicate, (d, K, R)."""
        offsets = np.random.default_rng(SEED + 1).standard_normal((*self.shape, self.count))
        return self.at[:, None, None] + 0.25 * offsets

    @cached_property
    def drawn(self) -> tuple[Any, JaxArray]:
        """Data of the first step, and the gradients there."""
        return evaluate(self.problem, self.theta)

    @cached_property
    def gradient(self) -> FloatArray:
        """The gradients of the first step, (d, K, R)."""
        return np.asarray(self.drawn[1], float)

    def gradients(self, t: int = 1, seed: int = SEED) -> FloatArray:
        """Gradients of everybody at one point, (d, K, R)."""
        theta = everywhere(self.at, self.problem.n_clients, self.count)
        return np.asarray(evaluate(self.problem, theta, t, seed=seed)[1], float)

    @cached_property
    def directions(self) -> FloatArray:
        """Orthonormal rows: every coordinate where there are few."""
        dim = self.problem.dim
        if dim <= _DIRECTIONS:
            return np.eye(dim)
        return np.linalg.qr(np.random.default_rng(SEED).standard_normal((dim, _DIRECTIONS)))[0].T

    def moments(self, at: FloatArray | None = None) -> Moments:
        """The closed forms."""
        found = self.problem.moments(self.at if at is None else at)
        if found is None:
            not_applicable("it has no closed-form moments")
        return found


def _dimensions(case: _Case) -> None:
    """`dim` and `n_clients` are positive whole numbers."""
    for name in ("dim", "n_clients"):
        value = getattr(case.problem, name)
        expect(isinstance(value, int) and value >= 1, f"{name} = {value!r}", f"return {name} as an int of at least 1.")


def _weights(case: _Case) -> None:
    """The weights w_k are positive, one for each client, and sum to one."""
    weights = np.asarray(case.problem.weights, float)
    fix = "use weights / weights.sum(), or equal weights 1 / K."
    expect(weights.ndim == 1, f"weights of shape {weights.shape}", "give one weight for each client, (K,).")
    expect(np.all(weights > 0), f"a smallest weight of {weights.min():g}", fix)
    expect(abs(weights.sum() - 1.0) < 1e-5, f"weights that sum to {weights.sum():.6g}", fix)


def _pytree(case: _Case) -> None:
    """JAX can take the problem to pieces and put it together again: numbers are leaves, everything else is static."""
    expect_pytree(case.problem)


def _hashable(case: _Case) -> None:
    """A problem can be looked up by identity: what `linearize` finds is remembered for each problem."""
    fix = "use fedgauss.problems.pytree, or a dataclass with eq=False."
    try:
        weakref.ref(case.problem)
        hash(case.problem)
    except TypeError as error:
        expect(False, f"TypeError: {error}", fix)
    expect(case.problem == case.problem, "a problem that does not equal itself", fix)


def _short_repr(case: _Case) -> None:
    """`repr` is one short line: error messages quote it."""
    shown = repr(case.problem)
    got = f"{len(shown.splitlines())} lines and {len(shown)} characters"
    expect("\n" not in shown and len(shown) <= 200, got, "use repr=False for the dataclass: the base class has one.")


def _gradient_shape(case: _Case) -> None:
    """The gradient has the shape and type of theta: (d, K, R), replicates last, float32."""
    found, wanted = case.drawn[1], (*case.shape, case.count)
    expect(
        np.shape(found) == wanted,
        f"shape {np.shape(found)} for theta of shape {wanted}",
        "theta is (d, K, R): coordinates first, then clients, replicates last.",
    )
    expect(found.dtype == jnp.float32, f"{found.dtype}", "keep to the type of theta.")


def _gradient_finite(case: _Case) -> None:
    """Gradients near the starting guess are finite."""
    good = np.isfinite(case.gradient)
    got = f"{np.count_nonzero(~good)} of {good.size} entries that are not"
    expect(good.all(), got, "guard logarithms and divisions, or pass a parameter that makes sense as `at`.")


def _repeatable(case: _Case) -> None:
    """The same step, seed and replicates draw the same data: all randomness comes from `noise`."""
    first, second = traced_twice(case.problem, case.theta)
    same = first.same(second)
    fix = "draw with noise.normal, noise.uniform or noise.keys(), never with numpy.random or a key of your own."
    expect(same, "another program when the problem is traced a second time", fix)


def _chunks(case: _Case) -> None:
    """A replicate is the same in whatever chunk it is computed, and knows nothing of the others."""
    half = case.count // 2
    others = np.broadcast_to(case.at[:, None, None] + 1.0, (*case.shape, case.count - half))
    theta = np.concatenate([case.theta[..., -half:], others], axis=-1)
    later = evaluate(case.problem, theta, first=case.count - half)[1]
    gap = float(np.abs(np.asarray(later)[..., :half] - case.gradient[..., -half:]).max())
    fix = "draw from `noise`, whose numbers belong to a replicate, and never reduce over the last axis."
    got = f"gradients that differ by {gap:.3g} in another chunk"
    expect(gap <= _ROUNDING * np.abs(case.gradient).max(), got, fix)


def _fresh_data(case: _Case) -> None:
    """Where data are random, every step, every seed and every replicate has its own."""
    here, later, elsewhere = case.gradients(), case.gradients(t=2), case.gradients(seed=SEED + 1)
    by_seed, by_replicate = not np.array_equal(here, elsewhere), not np.all(here == here[..., :1])
    if not by_seed and not by_replicate:
        not_applicable("it draws no data at random")
    fix = "draw from `noise` in `sample`, and use a stream of it for each purpose: noise.stream('response')."
    expect(by_seed, "the same data with another seed", fix)
    expect(by_replicate, "the same data in every replicate", fix)
    expect(not np.array_equal(here, later), "the same data in steps 1 and 2", fix)


def _independent_clients(case: _Case) -> None:
    """Clients draw independently of each other, as V_K = sum_k w_k^2 Var(W^k) supposes."""
    if case.problem.n_clients == 1:
        not_applicable("it has one client")
    along = np.einsum("d,dkr->kr", case.directions[0], case.gradients())
    centred = along - along.mean(axis=1, keepdims=True)
    fix = "noise.normal(count) is (count, K, R): use another number for each client."
    expect_mean(centred[1:] * centred[:-1], np.zeros(len(along) - 1), "the covariance of neighbouring clients", fix)


def _shared_data(case: _Case) -> None:
    """`shared` makes the data of one replicate do for several, as bootstrap chains need."""
    found, wanted = shared_shape(case.problem, _FEW), (*case.shape, _FEW)
    fix = "return data that broadcast along the last axis, or repeat them along it in `shared`."
    expect(found == wanted, f"gradients of shape {found}, not {wanted}", fix)


def _curvature(case: _Case) -> None:
    """`curvature` is the derivative of `gradient` in a direction, at the same data; `steepness` is one number each."""
    fix = "drop your own `curvature`: automatic differentiation of `gradient` takes its place."
    direction = np.full(case.problem.dim, 1.0 / np.sqrt(case.problem.dim))
    found = curvatures(on_device(case.problem), _f32(case.theta), case.drawn[0], _f32(direction))
    curvature, steepness, slope = (np.asarray(part, float) for part in found)
    shape = case.gradient.shape
    expect(curvature.shape == shape, f"`curvature` of shape {curvature.shape}, not {shape}", fix)
    expect(steepness.shape == shape[1:], f"`steepness` of shape {steepness.shape}, not {shape[1:]}", fix)
    allowed = 0.05 * (np.abs(slope) + np.median(np.abs(slope))) + 1e-4 * np.abs(case.gradient)
    wrong = float(np.mean(np.abs(slope - curvature) > allowed))
    # A few may stand next to a kink of the loss.
    expect(wrong <= 0.1, f"`curvature` off by more than 5 per cent in {wrong:.0%} of entries", fix)


def _compiles(case: _Case) -> None:
    """The engine can trace the problem into its loop: branches and sizes do not depend on traced numbers."""
    try:
        trace(case.problem)
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        fix = "write with jax.numpy; use jnp.where or lax.cond for conditions, and static fields for sizes."
        expect(False, f"{type(error).__name__}: {said}", fix)


def _guess(case: _Case) -> None:
    """`guess` is one finite parameter, (d,)."""
    guess = np.asarray(case.problem.guess(), float)
    fix = "return an array of shape (d,), or drop `guess` for zeros."
    expect(guess.shape == case.shape[:1], f"shape {guess.shape}", fix)
    expect(np.isfinite(guess).all(), f"{guess}", fix)


def _mean_gradient(case: _Case) -> None:
    """`mean_gradient` is the mean of `gradient` over the data, where there is one."""
    problem = case.problem
    try:
        stated = mean_gradient(on_device(problem), _f32(everywhere(case.at, problem.n_clients, 1)))
    except NotImplementedError:
        not_applicable("it has no closed-form mean gradient")
    expect(np.shape(stated) == (*case.shape, 1), f"shape {np.shape(stated)}", "return (d, K, R), like `gradient`.")
    fix = "mend the closed form, or leave it out: sampling then takes its place."
    expect_mean(case.gradients(), np.asarray(stated, float)[..., 0], "mean_gradient", fix)


def _moments_shape(case: _Case) -> None:
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


def _moments_gradient(case: _Case) -> None:
    """The gradient of `moments` is the mean of `gradient` over the data."""
    fix = "mend the closed form, or return None: sampling then takes its place."
    expect_mean(case.gradients(), np.asarray(case.moments().gradient, float).T, "moments.gradient", fix)


def _moments_noise(case: _Case) -> None:
    """The covariance of `moments` is that of `gradient` over the data."""
    found, along = case.moments(), case.directions
    centred = np.einsum("qd,dkr->qkr", along, case.gradients() - np.asarray(found.gradient, float).T[..., None])
    products = np.einsum("pkr,qkr->kpqr", centred, centred)
    stated = np.einsum("pi,kij,qj->kpq", along, np.asarray(found.noise_cov, float), along)
    fix = "noise_cov is the covariance of one gradient, E[g g'] less the square of its mean."
    expect_mean(products, stated, "moments.noise_cov", fix)


def _moments_hessian(case: _Case) -> None:
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
        expect(gap <= _ROUNDING * max(scale, 1.0), got, "drop your own `risk`, or mend it.")


def _optimum(case: _Case) -> None:
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


def _reference(case: _Case) -> None:
    """`reference` is a problem with the same clients and dimensions: the one that the theory describes."""
    found = case.problem.reference()
    fix = "return the problem before anything changes in it, or drop `reference`."
    expect(isinstance(found, Problem), f"{type(found).__name__}", fix)
    shape = found.dim, found.n_clients
    expect(shape == case.shape, f"{shape[1]} clients and {shape[0]} dimensions", fix)
    again = found.reference()
    expect(type(again) is type(found), f"a {type(again).__name__} as the reference of the reference", fix)


def _replicates(case: _Case) -> None:
    """`replicates` is a problem with the same clients and dimensions."""
    found = case.problem.replicates(0, _FEW)
    fix = "return self, unless replicates differ in what the problem knows of them."
    expect(isinstance(found, Problem), f"{type(found).__name__}", fix)
    shape = found.dim, found.n_clients
    expect(shape == case.shape, f"{shape[1]} clients and {shape[0]} dimensions", fix)


def _max_steps(case: _Case) -> None:
    """`max_steps` is None or a number of steps, and `simulate` refuses to go on beyond it."""
    longest = case.problem.max_steps()
    if longest is None:
        not_applicable("its data never run out")
    fix = "return how many steps the data last, as an int, or None."
    expect(isinstance(longest, int) and longest >= 1, f"{longest!r}", fix)
    try:
        simulate(case.problem, complete(case.problem.n_clients), np.full(longest + 1, 0.1), longest + 1)
    except ValueError as error:
        expect(str(longest) in str(error), f"an error that does not name it: {error}", fix)
    else:
        expect(False, f"a run of {longest + 1} steps", fix)


_RULES: Sequence[Any] = (
    _dimensions, _weights, _pytree, _hashable, _short_repr, _gradient_shape, _gradient_finite, _repeatable, _chunks,
    _fresh_data, _independent_clients, _shared_data, _curvature, _compiles, _guess, _mean_gradient, _moments_shape,
    _moments_gradient, _moments_noise, _moments_hessian, _optimum, _reference, _replicates, _max_steps,
)  # fmt: skip


def _f32(array: FloatArray) -> JaxArray:
    return jnp.asarray(array, jnp.float32)
