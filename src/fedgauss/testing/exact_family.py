"""What a regression family must keep to for exact fits: derivatives that are derivatives, and sums that add up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.families import Family
from fedgauss.families.glm import LINKS, GeneralisedLinear
from fedgauss.families.rows import Rows, Sums
from fedgauss.testing.battery import expect, not_applicable
from fedgauss.testing.evaluation import SEED

_ROWS = 150
_STEP = 1e-5  # of a central difference, relative
_NEAR = 1e-4  # relative, of a derivative and a central difference
_SAME = 1e-9  # relative, of two ways to add up
_PRECISION = "work in float64 NumPy, with `fedgauss._namespaces.numpy_for` where JAX arrays come too."


class ExactCase:
    """A family, rows, and a parameter not far from that of the model without covariates."""

    def __init__(self, family: Family, rows: Rows | None, drawn: Callable[[], FloatArray]) -> None:
        self.family, self._given, self._drawn = family, rows, drawn

    @cached_property
    def rows(self) -> Rows:
        """Those given, or drawn responses with covariates, offsets and weights at random."""
        if type(self.family).loss is Family.loss and type(self.family).sums is Family.sums:
            not_applicable("it has no `loss`, so it is for SGD alone")
        if self._given is not None:
            return self._given
        generator, column = np.random.default_rng(SEED), self._drawn()
        response = column[:: max(1, len(column) // _ROWS)]
        x = np.column_stack([np.ones(len(response)), generator.standard_normal((len(response), 2))])
        offset = 0.1 * self.family.signal * generator.standard_normal(len(response))
        return Rows(x, response, offset, generator.uniform(0.5, 1.5, len(response)))

    @cached_property
    def theta(self) -> FloatArray:
        """(d,)."""
        family, (rows, width) = self.family, np.shape(self.rows.x)
        outputs = family.n_outputs
        found = np.asarray(family.start(family.start_terms(self.rows.response).sum(axis=0), rows), float)
        ones = np.flatnonzero(np.all(self.rows.x == 1.0, axis=0))
        theta = 0.1 * family.signal * np.random.default_rng(SEED).standard_normal((outputs, width))
        theta[:, ones[:1]] += found[:outputs, None]
        return np.concatenate([theta.ravel(), found[outputs:]])

    @cached_property
    def predictor(self) -> FloatArray:
        """(C, n)."""
        coefficients = self.theta[: len(self.theta) - len(self.family.extra_names)]
        return np.asarray(coefficients.reshape(self.family.n_outputs, -1) @ self.rows.x.T + self.rows.offset)

    @cached_property
    def sums(self) -> Sums:
        """At the parameter."""
        return self.family.sums(self.rows, self.theta)

    def of_predictor(self, name: str) -> Callable[[FloatArray], FloatArray]:
        """A part that depends on the predictor and the response alone; not applicable where there is more to it."""
        part, response = getattr(self.family, name), self.rows.response
        try:
            part(self.predictor, response)
        except NotImplementedError:
            not_applicable(f"its `{name}` depends on more than the predictor")
        return lambda predictor: np.asarray(part(predictor, response), float)


def _gap(found: FloatArray, wanted: FloatArray) -> float:
    """The largest difference, relative to the largest entry."""
    return float(np.max(np.abs(found - wanted), initial=0.0) / max(1e-300, float(np.max(np.abs(wanted), initial=0.0))))


def _residual(case: ExactCase) -> None:
    """`residual` is the derivative of `loss` in each predictor."""
    loss, residual = case.of_predictor("loss"), case.of_predictor("residual")
    found = residual(case.predictor)
    for output, (h, direction) in enumerate(_directions(case.predictor)):
        quotient = (loss(case.predictor + direction) - loss(case.predictor - direction)) / (2.0 * h)
        gap = _gap(found[output], quotient)
        expect(
            gap <= _NEAR, f"residuals that differ from a difference quotient by {gap:.2g} of the largest", _PRECISION
        )


def _curvature(case: ExactCase) -> None:
    """`curvature` is the derivative of `residual`: (C, n), or (C, C, n) where outputs meet in a row."""
    residual, curvature = case.of_predictor("residual"), case.of_predictor("curvature")
    found, outputs = curvature(case.predictor), case.family.n_outputs
    shapes = (case.predictor.shape, (outputs, *case.predictor.shape))
    expect(found.shape in shapes, f"shape {found.shape}", f"return {shapes[0]} or {shapes[1]}.")
    for output, (h, direction) in enumerate(_directions(case.predictor)):
        quotient = (residual(case.predictor + direction) - residual(case.predictor - direction)) / (2.0 * h)
        stated = found[:, output] if found.ndim == 3 else (direction > 0.0) * found
        gap = _gap(stated, quotient)
        expect(gap <= _NEAR, f"a curvature off by {gap:.2g} of the largest", "mend it, or leave `curvature` out.")


def _weight(case: ExactCase) -> None:
    """`weight` is not negative: a row never takes information away."""
    found = case.of_predictor("weight")(case.predictor)
    least = np.linalg.eigvalsh(np.moveaxis(found, -1, 0)) if found.ndim == 3 else found
    expect(np.isfinite(found).all(), "weights that are not finite", "keep means off the ends of their range.")
    expect(least.min() >= -_SAME * np.abs(found).max(), f"a weight of {least.min():.2g}", "return the expected value.")


def _score(case: ExactCase) -> None:
    """The score of `sums` is the gradient of its log-likelihood, (d,), of which the last are extra parameters."""
    found = np.asarray(case.sums.score, float)
    expect(found.shape == case.theta.shape, f"a score of shape {found.shape}", f"return {case.theta.shape}.")
    units = np.eye(len(case.theta))
    ends = [[case.family.sums(case.rows, case.theta + sign * _STEP * e).log_likelihood for e in units]
            for sign in (1.0, -1.0)]  # fmt: skip
    gap = _gap(found, (np.array(ends[0]) - np.array(ends[1])) / (2.0 * _STEP))
    expect(gap <= _NEAR, f"a score off by {gap:.2g} of its largest entry", "is the sign that of the log-likelihood?")
    gap = _gap(_flat(case.family.score(case.rows, case.theta)), _flat(case.sums[:2]))
    expect(gap <= _SAME, f"a `score` off by {gap:.2g} of `sums`", "define `score` where you define `sums`.")


def _observed(case: ExactCase) -> None:
    """`observed` is minus the derivative of the score, (d, d)."""
    found = np.asarray(case.family.observed(case.rows, case.theta), float)
    units = np.eye(len(case.theta))
    ends = [np.stack([case.family.sums(case.rows, case.theta + sign * _STEP * e).score for e in units])
            for sign in (1.0, -1.0)]  # fmt: skip
    expect(found.shape == units.shape, f"shape {found.shape}", f"return {units.shape}.")
    gap = _gap(found, (ends[1] - ends[0]) / (2.0 * _STEP))
    expect(gap <= _NEAR, f"an information off by {gap:.2g} of its largest entry", "derive the score once more.")


def _information(case: ExactCase) -> None:
    """The information that scoring steps by is symmetric, finite and positive."""
    steadied = case.family.steadied
    sums = case.sums if steadied is None else steadied(case.theta, case.sums)
    found = np.asarray(sums.information, float)
    fix = "return the expected information in `sums`, or mend an indefinite one in `steadied`."
    finite = found.shape == (len(case.theta),) * 2 and bool(np.isfinite(found).all())
    expect(finite and _gap(found, found.T) <= _SAME, f"shape {found.shape}, not symmetric or not finite", fix)
    least = float(np.linalg.eigvalsh(found)[0])
    expect(least > 0.0, f"an eigenvalue of {least:.2g}", fix)


def _adds_up(case: ExactCase) -> None:
    """The sums of a site are those of its rows: halves add up to the whole. So does how well they fit."""
    if not case.family.by_row:
        not_applicable("rows of a site are compared with each other")
    half = case.rows.x.shape[0] // 2
    parts = [_part(case.rows, slice(None, half)), _part(case.rows, slice(half, None))]
    for name, of in (
        ("sums", lambda rows: case.family.sums(rows, case.theta)),
        ("goodness", lambda rows: case.family.goodness(rows, case.theta, 1.0)),
    ):
        whole, *halves = (_flat(of(rows)) for rows in (case.rows, *parts))
        gap = _gap(halves[0] + halves[1], whole)
        fix = "add over rows; take means over all sites, if at all. Set by_row = False where rows need each other."
        expect(gap <= _SAME, f"`{name}` of two halves that differ from the whole by {gap:.2g}", fix)


def _row_scores(case: ExactCase) -> None:
    """`row_scores`, (n, d), add up to the score of `sums`."""
    found = np.asarray(case.family.row_scores(case.rows, case.theta), float)
    wanted = (len(case.rows.x), len(case.theta))
    expect(found.shape == wanted, f"shape {found.shape}, not {wanted}", "return a row for each row.")
    size = float(np.abs(found).sum(axis=0).max())
    gap = float(np.abs(found.sum(axis=0) - case.sums.score).max()) / size
    expect(gap <= _SAME, f"a total off by {gap:.2g} of its terms", "multiply by the weights of rows in both.")


def _goodness(case: ExactCase) -> None:
    """`goodness` is finite, and its log-likelihood rises and falls as that of `sums` does."""
    there = 0.9 * case.theta
    ends = [case.family.goodness(case.rows, theta, 1.0) for theta in (case.theta, there)]
    expect(np.isfinite(ends).all(), f"{ends[0]}", "mind zeros under logarithms: scipy.special.xlogy.")
    rise = ends[1].log_likelihood - ends[0].log_likelihood
    wanted = case.family.sums(case.rows, there).log_likelihood - case.sums.log_likelihood
    off = abs(rise - wanted) / (abs(wanted) + 1e-6 * abs(case.sums.log_likelihood))
    fix = "`log_likelihood` is minus `loss`, over the dispersion, plus what depends on no parameter."
    expect(off <= 1e-6, f"a rise of {rise:.6g} and not {wanted:.6g} between two parameters", fix)


def _perfect_fit(case: ExactCase) -> None:
    """The deviance is not negative, and zero where the mean of a row is its response."""
    family, response = case.family, case.rows.response
    if not isinstance(family, GeneralisedLinear):
        not_applicable("it has no link to find a perfect predictor by")
    deviance = case.of_predictor("deviance")
    low, high = family.mean_range
    inside = (response > low) & (response < high)
    perfect = LINKS[family.link].predictor(np.where(inside, response, family.mean(case.predictor)[0]))
    found, here = deviance(perfect[None])[inside], deviance(case.predictor)
    size, fix = float(np.abs(here).max()), "twice `loss`, less twice the loss of a perfect prediction."
    expect(here.min() >= -_SAME * size, f"a deviance of {here.min():.3g}", fix)
    worst = float(np.max(np.abs(found), initial=0.0))
    expect(worst <= 1e-8 * size, f"a deviance of {worst:.3g} at a perfect fit", fix)


def _directions(predictor: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
    """For each output the steps of its rows, (n,), and the same with zeros for all other outputs, (C, n)."""
    for output, eta in enumerate(predictor):
        direction = np.zeros_like(predictor)
        direction[output] = _STEP * (1.0 + np.abs(eta))
        yield direction[output], direction


def _part(rows: Rows, which: slice) -> Rows:
    """Some of the rows."""
    offset, weights = (np.broadcast_to(part, len(rows.x))[which] for part in (rows.offset, rows.weights))
    clusters = None if rows.clusters is None else rows.clusters[which]
    constant = rows.constant if which.start is None else 0.0
    return Rows(rows.x[which], rows.response[which], offset, weights, clusters, constant)


def _flat(terms: Any) -> FloatArray:
    """All fields in one array."""
    return np.concatenate([np.ravel(np.asarray(term, float)) for term in terms])


RULES: Sequence[Any] = (
    _residual, _curvature, _weight, _score, _observed, _information, _adds_up, _row_scores, _goodness, _perfect_fit,
)  # fmt: skip
