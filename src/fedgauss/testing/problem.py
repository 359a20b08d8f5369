"""What every problem must keep to."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedgauss._types import ArrayLike
from fedgauss.engine.simulate import simulate
from fedgauss.networks import complete
from fedgauss.problems.base import Problem, checked_problem, claims
from fedgauss.testing.battery import Check, Report, checks, expect, not_applicable, run
from fedgauss.testing.chance import expect_mean
from fedgauss.testing.evaluation import (
    SEED,
    curvatures,
    evaluate,
    expect_pytree,
    gradients_of_some,
    on_device,
    shared_shape,
    trace,
    traced_twice,
)
from fedgauss.testing.problem_case import ROUNDING, ProblemCase, float32
from fedgauss.testing.problem_moments import MOMENT_RULES

_FEW = 16  # replicates of checks that need no statistics


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
    return checks(_RULES, ProblemCase(checked_problem(problem), at))


def _dimensions(case: ProblemCase) -> None:
    """`dim` and `n_clients` are positive whole numbers."""
    for name in ("dim", "n_clients"):
        value = getattr(case.problem, name)
        expect(isinstance(value, int) and value >= 1, f"{name} = {value!r}", f"return {name} as an int of at least 1.")


def _weights(case: ProblemCase) -> None:
    """The weights w_k are positive, one for each client, and sum to one."""
    weights = np.asarray(case.problem.weights, float)
    fix = "use weights / weights.sum(), or equal weights 1 / K."
    expect(weights.ndim == 1, f"weights of shape {weights.shape}", "give one weight for each client, (K,).")
    expect(np.all(weights > 0), f"a smallest weight of {weights.min():g}", fix)
    expect(abs(weights.sum() - 1.0) < 1e-5, f"weights that sum to {weights.sum():.6g}", fix)


def _pytree(case: ProblemCase) -> None:
    """JAX can take the problem to pieces and put it together again: numbers are leaves, everything else is static."""
    expect_pytree(case.problem)


def _hashable(case: ProblemCase) -> None:
    """A problem can be looked up by identity: what `linearize` finds is remembered for each problem."""
    fix = "use fedgauss.problems.pytree, or a dataclass with eq=False."
    try:
        weakref.ref(case.problem)
        hash(case.problem)
    except TypeError as error:
        expect(False, f"TypeError: {error}", fix)
    expect(case.problem == case.problem, "a problem that does not equal itself", fix)


def _short_repr(case: ProblemCase) -> None:
    """`repr` is one short line: error messages quote it."""
    shown = repr(case.problem)
    got = f"{len(shown.splitlines())} lines and {len(shown)} characters"
    expect("\n" not in shown and len(shown) <= 200, got, "use repr=False for the dataclass: the base class has one.")


def _gradient_shape(case: ProblemCase) -> None:
    """The gradient has the shape and type of theta: (d, K, R), replicates last, float32."""
    found, wanted = case.drawn[1], (*case.shape, case.count)
    expect(
        np.shape(found) == wanted,
        f"shape {np.shape(found)} for theta of shape {wanted}",
        "theta is (d, K, R): coordinates first, then clients, replicates last.",
    )
    expect(found.dtype == jnp.float32, f"{found.dtype}", "keep to the type of theta.")


def _gradient_finite(case: ProblemCase) -> None:
    """Gradients near the starting guess are finite."""
    good = np.isfinite(case.gradient)
    got = f"{np.count_nonzero(~good)} of {good.size} entries that are not"
    expect(good.all(), got, "guard logarithms and divisions, or pass a parameter that makes sense as `at`.")


def _repeatable(case: ProblemCase) -> None:
    """The same step, seed and replicates draw the same data: all randomness comes from `noise`."""
    first, second = traced_twice(case.problem, case.theta)
    same = first.same(second)
    fix = "draw with noise.normal, noise.uniform or noise.keys(), never with numpy.random or a key of your own."
    expect(same, "another program when the problem is traced a second time", fix)


def _chunks(case: ProblemCase) -> None:
    """A replicate is the same in whatever chunk it is computed, and knows nothing of the others."""
    half = case.count // 2
    others = np.broadcast_to(case.at[:, None, None] + 1.0, (*case.shape, case.count - half))
    theta = np.concatenate([case.theta[..., -half:], others], axis=-1)
    later = evaluate(case.problem, theta, first=case.count - half)[1]
    gap = float(np.abs(np.asarray(later)[..., :half] - case.gradient[..., -half:]).max())
    fix = "draw from `noise`, whose numbers belong to a replicate, and never reduce over the last axis."
    got = f"gradients that differ by {gap:.3g} in another chunk"
    expect(gap <= ROUNDING * np.abs(case.gradient).max(), got, fix)


def _fresh_data(case: ProblemCase) -> None:
    """Where data are random, every step, every seed and every replicate has its own."""
    here, later, elsewhere = case.gradients(), case.gradients(t=2), case.gradients(seed=SEED + 1)
    by_seed, by_replicate = not np.array_equal(here, elsewhere), not np.all(here == here[..., :1])
    if not by_seed and not by_replicate:
        not_applicable("it draws no data at random")
    fix = "draw from `noise` in `sample`, and use a stream of it for each purpose: noise.stream('response')."
    expect(by_seed, "the same data with another seed", fix)
    expect(by_replicate, "the same data in every replicate", fix)
    expect(not np.array_equal(here, later), "the same data in steps 1 and 2", fix)


def _independent_clients(case: ProblemCase) -> None:
    """Clients draw independently of each other, as V_K = sum_k w_k^2 Var(W^k) supposes."""
    if case.problem.n_clients == 1:
        not_applicable("it has one client")
    along = np.einsum("d,dkr->kr", case.directions[0], case.gradients())
    centred = along - along.mean(axis=1, keepdims=True)
    fix = "noise.normal(count) is (count, K, R): use another number for each client."
    expect_mean(centred[1:] * centred[:-1], np.zeros(len(along) - 1), "the covariance of neighbouring clients", fix)


def _shared_data(case: ProblemCase) -> None:
    """`shared` makes the data of one replicate do for several, as bootstrap chains need."""
    found, wanted = shared_shape(case.problem, _FEW), (*case.shape, _FEW)
    fix = "return data that broadcast along the last axis, or repeat them along it in `shared`."
    expect(found == wanted, f"gradients of shape {found}, not {wanted}", fix)


def _curvature(case: ProblemCase) -> None:
    """`curvature` is the derivative of `gradient` in a direction, at the same data; `steepness` is one number each.

    `hessian_factors`, where there are any, have the same curvature.
    """
    fix = "drop your own `curvature`: automatic differentiation of `gradient` takes its place."
    direction = np.full(case.problem.dim, 1.0 / np.sqrt(case.problem.dim))
    found = curvatures(on_device(case.problem), float32(case.theta), case.drawn[0], float32(direction))
    curvature, steepness, slope, factored = (np.asarray(part, float) for part in found)
    shape = case.gradient.shape
    expect(curvature.shape == shape, f"`curvature` of shape {curvature.shape}, not {shape}", fix)
    expect(steepness.shape == shape[1:], f"`steepness` of shape {steepness.shape}, not {shape[1:]}", fix)
    allowed = 0.05 * (np.abs(slope) + np.median(np.abs(slope))) + 1e-4 * np.abs(case.gradient)
    wrong = float(np.mean(np.abs(slope - curvature) > allowed))
    # A few may stand next to a kink of the loss.
    expect(wrong <= 0.1, f"`curvature` off by more than 5 per cent in {wrong:.0%} of entries", fix)
    gap = float(np.abs(factored - curvature).max())
    fix = "drop your own `hessian_factors`, or return u and v (m, d, K, R) with second derivative sum_m u_m v_m'."
    expect(gap <= 1e-4 * np.abs(curvature).max(), f"`hessian_factors` whose curvature differs by {gap:.3g}", fix)


def _compiles(case: ProblemCase) -> None:
    """The engine can trace the problem into its loop: branches and sizes do not depend on traced numbers."""
    try:
        trace(case.problem)
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        fix = "write with jax.numpy; use jnp.where or lax.cond for conditions, and static fields for sizes."
        expect(False, f"{type(error).__name__}: {said}", fix)


def _guess(case: ProblemCase) -> None:
    """`guess` is one finite parameter, (d,)."""
    guess = np.asarray(case.problem.guess(), float)
    fix = "return an array of shape (d,), or drop `guess` for zeros."
    expect(guess.shape == case.shape[:1], f"shape {guess.shape}", fix)
    expect(np.isfinite(guess).all(), f"{guess}", fix)


def _reference(case: ProblemCase) -> None:
    """`reference` is a problem with the same clients and dimensions: the one that the theory describes."""
    found = case.problem.reference()
    fix = "return the problem before anything changes in it, or drop `reference`."
    expect(isinstance(found, Problem), f"{type(found).__name__}", fix)
    shape = found.dim, found.n_clients
    expect(shape == case.shape, f"{shape[1]} clients and {shape[0]} dimensions", fix)
    again = found.reference()
    expect(type(again) is type(found), f"a {type(again).__name__} as the reference of the reference", fix)


def _replicates(case: ProblemCase) -> None:
    """`replicates` is a problem with the same clients and dimensions."""
    found = case.problem.replicates(0, _FEW)
    fix = "return self, unless replicates differ in what the problem knows of them."
    expect(isinstance(found, Problem), f"{type(found).__name__}", fix)
    shape = found.dim, found.n_clients
    expect(shape == case.shape, f"{shape[1]} clients and {shape[0]} dimensions", fix)


def _some_clients(case: ProblemCase) -> None:
    """A problem that says `serves_some` has for some clients alone the data and gradients that they have among all."""
    if not claims(case.problem, "serves_some"):
        not_applicable("it draws for all clients at once")
    lots = np.random.default_rng(SEED).random((case.problem.n_clients, case.count))
    some = np.argsort(lots, axis=0)[: max(1, case.problem.n_clients - 1)]  # others in each replicate
    theta, wanted = (np.take_along_axis(array, some[None], axis=1) for array in (case.theta, case.gradient))
    gap = float(np.abs(np.asarray(gradients_of_some(case.problem, theta, some)) - wanted).max())
    fix = "read tables by noise.per_client(table), and put into the data what `gradient` needs to know of a client."
    got = f"gradients that differ by {gap:.3g} where some clients are asked alone"
    expect(gap <= ROUNDING * np.abs(case.gradient).max(), got, fix)


def _max_steps(case: ProblemCase) -> None:
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
    _fresh_data, _independent_clients, _shared_data, _curvature, _compiles, _guess, *MOMENT_RULES, _reference,
    _replicates, _some_clients, _max_steps,
)  # fmt: skip
