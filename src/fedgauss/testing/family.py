"""What every regression family must keep to."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedgauss._random import Noise, stage_key
from fedgauss._types import FloatArray, JaxArray
from fedgauss.families import Family, names
from fedgauss.families import family as family_named
from fedgauss.families.rows import Rows
from fedgauss.problems.regression import from_family
from fedgauss.testing import exact_family
from fedgauss.testing.battery import Check, Report, checks, expect, not_applicable, run
from fedgauss.testing.chance import expect_mean
from fedgauss.testing.evaluation import SEED, quickly
from fedgauss.testing.problem import checks_for_problem

_CLIENTS, _FEATURES, _ROWS = 3, 2, 4096
_ROUNDING = 1e-4  # relative, of float32
_CERTAIN = 6.0  # standard errors


def check_family(family: Family, rows: Rows | None = None) -> Report:
    """Check a regression family of your own: by itself, for exact fits, and as a problem on simulated rows.

    Parameters
    ----------
    family : Family
        An instance, with the settings that are to be checked. It need not be registered.
    rows : Rows, optional
        A hundred or so rows of data as the family takes them, for the rules of exact fits (`fedgauss.families.rows`).
        By default responses are drawn by `respond`; without either these rules do not apply.

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
    Rules that begin with "exact" are about fits by scoring, for which a family needs `loss` or its own `sums`; the
    others are about SGD. Rules about what a family does not have are skipped. A family that defines `respond` is also
    put through `check_problem`, as `problems.from_family` makes it. Means and closed forms are compared with averages
    over draws, with a chance of at most 1e-4 for each check of failing although the family is right.

    Examples
    --------
    >>> from fedgauss.families import Poisson
    >>> from fedgauss.testing import check_family
    >>> print(check_family(Poisson()))  # doctest: +SKIP
    """
    return run(f"family {type(family).__name__}", checks_for_family(family, rows))


def checks_for_family(family: Family, rows: Rows | None = None) -> list[Check]:
    """The checks of `check_family` one by one, for `pytest.mark.parametrize("check", ..., ids=str)`.

    Parameters
    ----------
    family, rows
        As in `check_family`.

    Returns
    -------
    list of Check
        Each is called without arguments and raises an AssertionError if its rule is broken.
    """
    if not isinstance(family, Family):
        got = type(family).__name__
        raise ValueError(f"a family must be an instance of a subclass of families.Family; got {got}.")
    case = _Case(family)
    exact = checks(exact_family.RULES, exact_family.ExactCase(family, rows, lambda: case.rows))
    named = [Check(f"exact: {check.name}", check.rule, check.test) for check in exact]
    return checks(_RULES, case) + named + _as_a_problem(family)


def _as_a_problem(family: Family) -> list[Check]:
    """The battery for problems, on simulated rows; empty for a family that cannot draw responses."""
    if family.exact_only or type(family).respond is Family.respond:
        return []
    generator = np.random.default_rng(SEED)
    beta = 0.5 * family.signal * generator.standard_normal((_CLIENTS, family.n_outputs * _FEATURES))
    return [
        Check(f"simulated: {check.name}", check.rule, check.test)
        for check in checks_for_problem(from_family(family, beta))
    ]


class _Case:
    """A family, predictors, and responses to them."""

    def __init__(self, family: Family) -> None:
        self.family = family

    @cached_property
    def predictor(self) -> JaxArray:
        """One for each output and client, the same in every replicate, (C, K, R)."""
        levels = np.linspace(-1.0, 1.0, self.family.n_outputs * _CLIENTS).reshape(-1, _CLIENTS, 1)
        return jnp.asarray(np.broadcast_to(self.family.signal * levels, (*levels.shape[:2], _ROWS)), jnp.float32)

    @cached_property
    def response(self) -> JaxArray:
        """Drawn given the predictors, (K, R)."""
        noise = Noise(stage_key(SEED, "data"), jnp.uint32(0), _CLIENTS, _ROWS).at_step(jnp.int32(1))
        try:
            return quickly(lambda eta: self.family.respond(eta, noise, jnp.ones(_CLIENTS)))(self.predictor)
        except NotImplementedError:
            not_applicable("it does not say how responses are drawn")

    @cached_property
    def rows(self) -> FloatArray:
        """The responses of all clients as a column of data, centred where a fit would centre them."""
        column = np.asarray(self.response, float).ravel()
        return column - column.mean() if self.family.additive else column

    def residual(self, predictor: JaxArray | None = None) -> FloatArray:
        """At the responses, (C, K, R)."""
        return np.asarray(
            self.family.residual(self.predictor if predictor is None else predictor, self.response), float
        )

    def residual_at(self, level: JaxArray, response: JaxArray) -> FloatArray:
        """With all predictors at one level, (C, K, 1)."""
        eta = jnp.broadcast_to(level, (self.family.n_outputs, *response.shape))
        return np.asarray(self.family.residual(eta, response), float)


def _named(case: _Case) -> None:
    """A family has a name, and aliases as a tuple: words that commands and messages can use."""
    name, aliases = getattr(case.family, "name", None), case.family.aliases
    expect(isinstance(name, str) and name.isidentifier(), f"name = {name!r}", "use a word: 'exponential'.")
    good = isinstance(aliases, tuple) and all(isinstance(alias, str) for alias in aliases)
    expect(good, f"aliases = {aliases!r}", "use a tuple: ('waiting_time',).")


def _found_by_name(case: _Case) -> None:
    """Once registered, a family is found by its name and every alias."""
    if case.family.name not in names():
        not_applicable("it is not registered")
    for name in (case.family.name, *case.family.aliases):
        found = family_named(name) if name in names() else None
        expect(type(found) is type(case.family), f"{found!r} under {name!r}", "decorate the class with @register.")


def _comparable(case: _Case) -> None:
    """Equal families are equal and have one hash: they share a compilation."""
    twin = copy.copy(case.family)
    fix = "make the class a frozen dataclass: @dataclass(frozen=True)."
    try:
        same = twin == case.family and hash(twin) == hash(case.family)
    except TypeError as error:
        expect(False, f"TypeError: {error}", fix)
    expect(same, "a copy that is not equal, or has another hash", fix)


def _described(case: _Case) -> None:
    """`describe` is one short line, and `needs` says in words what a response must be."""
    for name, words in (("describe()", case.family.describe()), ("needs", case.family.needs)):
        good = isinstance(words, str) and 0 < len(words) <= 120 and "\n" not in words
        expect(good, f"{name} = {words!r}", "use a few words.")


def _shapes(case: _Case) -> None:
    """`mean` and `residual` have the shape of the predictors, (C, K, R), and `respond` gives (K, R)."""
    wanted = case.predictor.shape
    expect(np.shape(case.response) == wanted[1:], f"responses of shape {np.shape(case.response)}", "return (K, R).")
    for name, found in (("mean", case.family.mean(case.predictor)), ("residual", case.residual())):
        expect(np.shape(found) == wanted, f"`{name}` of shape {np.shape(found)}, not {wanted}", "keep every axis.")
        expect(np.isfinite(found).all(), f"`{name}` with entries that are not finite", "guard exponentials.")


def _mean(case: _Case) -> None:
    """Responses drawn by `respond` have the mean that `mean` states."""
    if case.family.by_class:
        not_applicable("its response is a class")
    stated = np.asarray(case.family.mean(case.predictor), float)[0, :, 0]
    expect_mean(np.asarray(case.response, float), stated, "mean", "let `respond` draw with this mean.")


def _unbiased(case: _Case) -> None:
    """At the true predictors the residuals average to zero: the loss is least where the data come from."""
    if case.family.by_class:
        not_applicable("its outputs are fitted one by one")
    fix = "`residual` is the derivative of the loss in eta: mean - y for a canonical link."
    expect_mean(case.residual()[0], np.zeros(_CLIENTS), "the mean residual", fix)


def _convex(case: _Case) -> None:
    """The loss is convex in the predictor: a larger predictor has no smaller residual."""
    grid = jnp.asarray(np.linspace(-2.0, 2.0, 41) * case.family.signal, jnp.float32)
    response = case.response[:, :1]
    along = [case.residual_at(point, response) for point in grid]
    drop = float(np.max(np.maximum(-np.diff(np.stack(along), axis=0), 0.0)))
    got = f"a residual that falls by {drop:.3g} as the predictor grows"
    expect(
        drop <= _ROUNDING * np.abs(along).max(), got, "is the sign of `residual` right? It is mean - y, not y - mean."
    )


def _steepness(case: _Case) -> None:
    """`steepness` has the shape of the predictors, and is no less than the slope of the residual."""
    eta, ones = case.predictor, jnp.ones_like(case.predictor)
    slope = np.asarray(jax.jvp(lambda at: case.family.residual(at, case.response), (eta,), (ones,))[1], float)
    steep = np.asarray(case.family.steepness(eta, case.response), float)
    fix = "drop your own `steepness`, or let it be larger: steps are shortened by it."
    expect(steep.shape == slope.shape, f"shape {steep.shape}, not {slope.shape}", fix)
    short = float(np.max(slope - steep))
    expect(short <= _ROUNDING * np.abs(slope).max(), f"a steepness {short:.3g} below the slope", fix)


def _responses_suit(case: _Case) -> None:
    """Responses that the family draws are responses that it takes, as arrays and as a column of data."""
    values = np.asarray(case.response, float).ravel()
    fix = "let `check_response` and `read` accept every value that `respond` can draw."
    try:
        case.family.check_response(values)
        read = case.family.read("y", values, None)
    except ValueError as error:
        expect(False, f"{error}", fix)
    expect(np.array_equal(read, values), "other values from `read`", fix)


def _start(case: _Case) -> None:
    """`start` makes intercepts, (C,), from totals that clients can share, at which residuals average to zero.

    Extra parameters come after them.
    """
    terms = np.asarray(case.family.start_terms(case.rows), float)
    outputs = case.family.n_outputs
    fix = "the intercept of the model without covariates: the link of the mean response."
    good = terms.ndim == 2 and len(terms) == len(case.rows)
    expect(good, f"`start_terms` of shape {terms.shape}", "return a row of terms for each row.")
    found = np.asarray(case.family.start(terms.sum(axis=0), len(terms)), float)
    expect(found.shape == (outputs + len(case.family.extra_names),) and np.isfinite(found).all(), f"{found}", fix)
    eta = jnp.asarray(np.broadcast_to(found[:outputs, None, None], (outputs, 1, len(terms))), jnp.float32)
    residual = np.asarray(case.family.residual(eta, jnp.asarray(case.rows, jnp.float32)[None]), float)[:, 0]
    gap = float(np.abs(residual.mean(axis=1)).max())
    # A centred response is only near its optimum, by the error of a mean.
    allowed = (
        _CERTAIN * residual.std() / np.sqrt(len(terms)) if case.family.additive else 1e-3 * np.abs(residual).mean()
    )
    expect(gap <= allowed, f"a mean residual of {gap:.3g} at the intercepts {found}", fix)


def _rescaled(case: _Case) -> None:
    """`rescaled` is the family of y / scale: residuals are divided by the scale too."""
    if not case.family.additive:
        not_applicable("its response has a scale of its own")
    scale = 4.0
    small = case.family.rescaled(scale)
    expect(isinstance(small, Family), f"{small!r}", "return a family.")
    found = np.asarray(small.residual(case.predictor / scale, case.response / scale), float)
    gap = float(np.abs(scale * found - case.residual()).max())
    fix = "divide settings that are in the units of the response by the scale."
    expect(gap <= _ROUNDING * np.abs(case.residual()).max(), f"residuals that differ by {gap:.3g}", fix)


def _sides(case: _Case) -> None:
    """`sides` are arrays over the rows, of 1, -1 and 0."""
    for side in case.family.sides(case.rows):
        good = np.shape(side) == case.rows.shape and np.isin(side, (-1.0, 0.0, 1.0)).all()
        expect(good, f"shape {np.shape(side)} with values {np.unique(side)[:4]}", "return one array of (N,) a plane.")


def _classes(case: _Case) -> None:
    """A family by class makes itself anew for any number of classes."""
    if not case.family.by_class:
        not_applicable("its response is a number")
    found = case.family.with_classes(4)
    got = f"{found!r} with {found.n_classes} classes"
    expect(type(found) is type(case.family) and found.n_classes == 4, got, "dataclasses.replace(self, n_outputs=...).")
    labels = found.classes_of_outputs("abcd")
    fix = "say in `classes_of_outputs` which classes have an output."
    expect(len(labels) == found.n_outputs, f"{found.n_outputs} outputs for the classes {labels!r}", fix)


_RULES: Sequence[Any] = (
    _named, _found_by_name, _comparable, _described, _shapes, _mean, _unbiased, _convex, _steepness, _responses_suit,
    _start, _rescaled, _sides, _classes,
)  # fmt: skip
