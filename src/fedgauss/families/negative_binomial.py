"""Negative binomial regression: counts that vary more than those of a Poisson law."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln, polygamma, xlogy

from fedgauss import _checks
from fedgauss._types import FloatArray, JaxArray
from fedgauss.families.base import register, require
from fedgauss.families.glm import GeneralisedLinear
from fedgauss.families.rows import Goodness, NoFiniteEstimate, Rows, Score, Sums
from fedgauss.families.same_bits import dot, factor, on_grid, solve

_TABLE = 100_000  # counts up to which sums over j < y are added up term by term
_NOTHING_LEFT = 1e-4  # of a log-likelihood, to be gained on the way to alpha = 0
_LONGEST = 2.0  # step of log(alpha)


class _Rising(NamedTuple):
    """Sums over j = 0, ..., y - 1 for each row, (n,)."""

    logs: FloatArray  # of log(1 + alpha j)
    shares: FloatArray  # of q_j = alpha j / (1 + alpha j), the derivative of the former in log(alpha)
    bends: FloatArray  # of q_j (1 - q_j), the derivative of that


@register
@dataclass(frozen=True)
class NegativeBinomial(GeneralisedLinear):
    """Counts with mean mu = exp(eta) and variance mu + alpha mu^2 ("NB2"). A row has the log-likelihood

        sum_(j < y) log(1 + alpha j) + y log(mu) - (y + 1 / alpha) log(1 + alpha mu) - log(y!)

    Without `alpha` it is estimated with the coefficients, as log(alpha), a parameter of its own; model-based errors
    are then from the observed information of all of them, as those of statsmodels' discrete model are.
    """

    alpha: float | None = None
    link: str = "log"

    name = "negative_binomial"
    aliases = ("negbin", "nb")
    needs = "counts"
    separated = "zero counts"
    links = ("log",)
    mean_range = (0.0, np.inf)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha is not None:
            _checks.real("alpha", self.alpha, above=0.0, fix="Use family='poisson' for alpha = 0.")

    @property
    def extra_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """log(alpha), unless alpha is given."""
        return ("log(alpha)",) if self.alpha is None else ()

    @property
    def model_errors(self) -> str:  # type: ignore[override]
        """As in statsmodels, where alpha is given (`GLM`) and where it is not (`NegativeBinomial`)."""
        return "observed" if self.alpha is None else "expected"

    @property
    def exact_only(self) -> str:  # type: ignore[override]
        """Unless alpha is given."""
        return "alpha is estimated with the coefficients" if self.alpha is None else ""

    def describe(self) -> str:
        """With alpha, where it is given."""
        return self.name if self.alpha is None else f"{self.name} (alpha {self.alpha:g})"

    # With alpha given: a generalised linear model.

    def variance(self, mean: JaxArray) -> JaxArray:
        """Mu + alpha mu^2."""
        return mean * (1.0 + self._given * mean)

    def variance_slope(self, mean: FloatArray) -> FloatArray:
        """1 + 2 alpha mu."""
        return 1.0 + 2.0 * self._given * mean

    def residual(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """(mu - y) / (1 + alpha mu)."""
        mean = self.mean(predictor)
        return (mean - response) / (1.0 + self._given * mean)

    def loss(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """(y + 1 / alpha) log(1 + alpha mu) - y log(mu)."""
        alpha, eta = self._given, predictor[0]
        return (response + 1.0 / alpha) * np.log1p(alpha * np.exp(eta)) - response * eta

    def log_likelihood(self, predictor: FloatArray, response: FloatArray, dispersion: FloatArray | float) -> FloatArray:
        """That of a negative binomial law."""
        constant = _rising(response, self._given).logs - gammaln(response + 1.0)
        return constant - self.loss(predictor, response)

    def deviance(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """2 (y log(y / mu) - (y + 1 / alpha) log((1 + alpha y) / (1 + alpha mu)))."""
        alpha = self._given
        perfect = xlogy(response, response) - (response + 1.0 / alpha) * np.log1p(alpha * response)
        return 2.0 * (perfect + self.loss(predictor, response))

    @property
    def _given(self) -> float:
        if self.alpha is None:
            raise NotImplementedError(
                "alpha is a parameter here, which the linear predictor does not have: use `sums`, or give alpha."
            )
        return self.alpha

    # With alpha estimated: theta = (coefficients, log(alpha)).

    def score(self, rows: Rows, theta: FloatArray) -> Score:
        """With the log-likelihood's derivative in log(alpha)."""
        if self.alpha is not None:
            return super().score(rows, theta)
        with np.errstate(over="ignore", invalid="ignore"):  # of a step too far, which is taken back
            row = self._at(theta)
            likelihood = row.log_likelihood(row._predictors(rows, theta[:-1]), rows.response, 1.0)
            return Score(float(np.sum(rows.weights * likelihood)), self.row_scores(rows, theta).sum(axis=0))

    def sums(self, rows: Rows, theta: FloatArray) -> Sums:
        """The observed information; `steadied` sees to it that it is definite."""
        if self.alpha is not None:
            return super().sums(rows, theta)
        with np.errstate(over="ignore", invalid="ignore"):
            return Sums(*self.score(rows, theta), self.observed(rows, theta))

    def row_scores(self, rows: Rows, theta: FloatArray) -> FloatArray:
        """Those of the coefficients, and beside them that of log(alpha)."""
        if self.alpha is not None:
            return super().row_scores(rows, theta)
        row, y = self._at(theta), rows.response
        mu = np.exp(row._predictors(rows, theta[:-1])[0])
        t = row._given * mu
        shape = _rising(y, row._given).shares - y * t / (1.0 + t) + mu * _bent(t)
        return np.column_stack([row.row_scores(rows, theta[:-1]), rows.weights * shape])

    def observed(self, rows: Rows, theta: FloatArray) -> FloatArray:
        """With a row and a column for log(alpha)."""
        if self.alpha is not None:
            return super().observed(rows, theta)
        cross, shape = self._shape_terms(rows, theta)
        beside = (rows.x.T @ cross)[:, None]
        return np.block([[self._at(theta).observed(rows, theta[:-1]), beside], [beside.T, np.array([[shape.sum()]])]])

    def _shape_terms(self, rows: Rows, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Minus second derivatives of each row's log-likelihood in predictor and log(alpha), and log(alpha) twice."""
        row, y = self._at(theta), rows.response
        mu = np.exp(row._predictors(rows, theta[:-1])[0])
        t = row._given * mu
        cross = (y - mu) * t / (1.0 + t) ** 2
        return rows.weights * cross, rows.weights * (mu * _bent(t) + cross - _rising(y, row._given).bends)

    def goodness(self, rows: Rows, theta: FloatArray, dispersion: float) -> Goodness:
        """At the alpha of theta."""
        if self.alpha is not None:
            return super().goodness(rows, theta, dispersion)
        return self._at(theta).goodness(rows, theta[:-1], dispersion)

    def behind(self, rows: Rows, kind: str, theta: FloatArray) -> dict[str, FloatArray]:
        """As with the alpha of theta given; and what log(alpha) has of the score, 1'u, and of matrices, X'u and 1'u."""
        if self.alpha is not None:
            return super().behind(rows, kind, theta)
        row = self._at(theta)
        columns = row.behind(rows, kind if kind in ("score", "goodness") else "final", theta[:-1])
        if kind == "goodness":
            return columns
        score, shape = columns["score 0"], self.row_scores(rows, theta)[:, -1]
        columns["score log(alpha)"] = shape
        if kind in ("sums", "final"):
            columns["observed log(alpha)"], columns["observed log(alpha) twice"] = self._shape_terms(rows, theta)
        if kind == "final":
            columns |= {"squares log(alpha)": score * shape, "squares log(alpha) twice": shape**2}
        told = ("score", "observed") if kind == "sums" else ("score", "observed", "squares", "deviance", "pearson")
        return {name: column for name, column in columns.items() if name.startswith(told)}

    def steadied(self, theta: FloatArray, total: Sums) -> Sums:
        """Uphill in log(alpha) where its information is not positive, and never by a long step.

        The log-likelihood is concave in the coefficients but not in log(alpha). Where counts vary no more than those
        of a Poisson law it rises, ever more slowly, towards minus infinity.
        """
        if self.alpha is not None or not np.all(np.isfinite(total.information)):
            return total
        information = total.information.copy()
        cross, slope = information[:-1, -1], float(total.score[-1])
        shared = dot(cross, solve(factor(information[:-1, :-1]), cross))
        own = float(information[-1, -1]) - shared
        if slope < 0.0 and abs(slope) < _NOTHING_LEFT and slope <= -0.5 * abs(own):
            raise NoFiniteEstimate(
                f"the counts vary no more than those of a Poisson law: alpha falls towards 0 (it is "
                f"{np.exp(theta[-1]):.1g} now). Use family='poisson'"
            )
        information[-1, -1] = shared + max(abs(own), abs(slope) / _LONGEST, 1e-300)
        return total._replace(information=information)

    def _at(self, theta: FloatArray) -> NegativeBinomial:
        """The family with alpha given."""
        return NegativeBinomial(float(np.exp(np.clip(theta[-1], -600.0, 600.0))))

    # Reading, and before a fit.

    def check_response(self, response: FloatArray) -> None:
        """Counts are whole and not negative."""
        counts = (response >= 0) & (response == np.floor(response))
        fix = "Use family='gamma' for positive numbers, or 'linear' for others?"
        require(counts, response, "negative binomial responses must be counts 0, 1, 2, ...", fix)

    def sides(self, response: FloatArray) -> list[FloatArray]:
        """Rows with a count hold the direction fast; it may only lead rows without one further down."""
        return [np.where(response > 0, 0.0, -1.0)]

    def start_terms(self, response: FloatArray) -> FloatArray:
        """The count and, where alpha is to be estimated, its square."""
        return np.column_stack([response, response**2]) if self.alpha is None else response[:, None]

    def start(self, totals: FloatArray, n_rows: int) -> FloatArray:
        """log(mean), and log((variance - mean) / mean^2) between those of 0.01 and 100."""
        mean = float(totals[0]) / n_rows
        if self.alpha is not None:
            return on_grid(np.log([mean]))
        variance = float(totals[1]) / n_rows - mean * mean
        return on_grid(np.log([mean, np.clip((variance - mean) / (mean * mean), 0.01, 100.0)]))


def _bent(t: FloatArray) -> FloatArray:
    """log(1 + t) / t - 1 / (1 + t), about t / 2 where t is small."""
    small = t < 1e-5
    safe = np.where(small, 1.0, t)
    return np.where(small, t / 2.0 - 2.0 * t**2 / 3.0, np.log1p(safe) / safe - 1.0 / (1.0 + safe))


def _rising(response: FloatArray, alpha: float) -> _Rising:
    """Term by term for small counts: differences of log-gammas would lose all digits where alpha is small."""
    y = response.astype(np.int64)
    low = np.minimum(y, _TABLE)
    j = alpha * np.arange(low.max(initial=0))
    share = j / (1.0 + j)
    tables = [np.concatenate([[0.0], np.cumsum(part)]) for part in (np.log1p(j), share, share * (1.0 - share))]
    found = _Rising(*(table[low] for table in tables))
    if not np.any(y > _TABLE):
        return found
    # Beyond, with a = 1 / alpha: sum log(a + j), a sum 1 / (a + j) and a^2 sum 1 / (a + j)^2 over j = low, ..., y - 1.
    a = 1.0 / alpha
    logs = gammaln(a + y) - gammaln(a + low) + (y - low) * np.log(alpha)
    first = a * (digamma(a + y) - digamma(a + low))
    second = a**2 * (polygamma(1, a + low) - polygamma(1, a + y))
    return _Rising(found.logs + logs, found.shares + (y - low) - first, found.bends + first - second)
