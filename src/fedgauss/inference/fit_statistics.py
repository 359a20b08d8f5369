"""How well an exact fit fits: likelihood, deviance, information criteria, and the test of a model within another."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy import special

from fedgauss import _checks
from fedgauss._shown import Shown
from fedgauss.inference.reference_laws import ChiSquared

if TYPE_CHECKING:
    from fedgauss.inference.fit_result import Fit

_SAME = 1e-8  # relative: null deviances of the same rows, summed up in another order
_MOST = 10**15  # rows, parameters, rounds
_ROUNDING = 1e-9  # of a log-likelihood: by so much a bigger model may seem to be worse


@dataclass(frozen=True, repr=False)
class FitStatistics(Shown):
    """What an exact fit knows about its fit; None where a family has no such thing. Printed, it is a list.

    Attributes
    ----------
    n_rows : int
        Rows that were fitted, by all sites together.
    n_params : int
        k, the number of parameters that were chosen by likelihood: the coefficients, and a shape such as that of the
        negative binomial. A dispersion that is estimated afterwards does not count, as in statsmodels.
    dof_resid : float
        Residual degrees of freedom.
    log_likelihood, null_log_likelihood : float or None
        The log-likelihood, and that of the model with an intercept only, each at its own dispersion.
    deviance, null_deviance : float or None
        Twice the gap to the log-likelihood of the saturated model, times the dispersion: for a gaussian family the
        residual sum of squares. There is no null deviance where a shape is estimated, which the model without
        covariates has another of.
    dispersion : float or None
        The estimated dispersion, or 1 where a family has none.
    pearson_chi2 : float or None
        The sum of (y - mean)^2 / variance.
    rounds : int or None
        How many times sites were asked for sums.
    gaussian : bool
        Whether the family is gaussian with the identity link, so that there is an R2.
    """

    n_rows: int
    n_params: int
    dof_resid: float
    log_likelihood: float | None = None
    null_log_likelihood: float | None = None
    deviance: float | None = None
    null_deviance: float | None = None
    dispersion: float | None = None
    pearson_chi2: float | None = None
    rounds: int | None = None
    gaussian: bool = False

    def checked(self) -> Self:
        """The same with its numbers as floats, unless one is of another kind: it may come from a file."""
        _checks.whole("n_rows", self.n_rows, at_most=_MOST)
        _checks.whole("n_params", self.n_params, at_least=0, at_most=_MOST)
        if self.rounds is not None:
            _checks.whole("rounds", self.rounds, at_least=0, at_most=_MOST)
        if not isinstance(self.gaussian, bool):
            raise ValueError(f"gaussian must be true or false; got {self.gaussian!r}.")
        given = {name: getattr(self, name) for name in ("dof_resid", *_NUMBERS)}
        real: dict[str, Any] = {name: _checks.real(name, each) for name, each in given.items() if each is not None}
        return replace(self, **real)

    @property
    def aic(self) -> float | None:
        """Akaike's criterion, -2 log-likelihood + 2 k."""
        return None if self.log_likelihood is None else -2.0 * self.log_likelihood + 2.0 * self.n_params

    @property
    def bic(self) -> float | None:
        """Schwarz's criterion, -2 log_likelihood + k log(n)."""
        return (
            None
            if self.log_likelihood is None
            else -2.0 * self.log_likelihood + self.n_params * float(np.log(self.n_rows))
        )

    @property
    def r2(self) -> float | None:
        """R2 of a gaussian family, 1 - deviance / null deviance; of others McFadden's, the same of log-likelihoods."""
        model, null = (
            (self.deviance, self.null_deviance) if self.gaussian else (self.log_likelihood, self.null_log_likelihood)
        )  # fmt: skip
        return None if model is None or null is None or null == 0.0 else 1.0 - model / null

    def facts(self) -> dict[str, str]:
        """In words by name, as a summary shows them; what is not known is left out."""
        shown = {
            "Residual dof": f"{self.dof_resid:,.10g}",
            "Rounds": self.rounds,
            "Log-likelihood": self.log_likelihood,
            "Null log-likelihood": self.null_log_likelihood,
            "Deviance": self.deviance,
            "Null deviance": self.null_deviance,
            "Pearson chi2": self.pearson_chi2,
            "Dispersion": self.dispersion,
            "AIC": self.aic,
            "BIC": self.bic,
            "R2" if self.gaussian else "Pseudo R2 (McFadden)": None if self.r2 is None else f"{self.r2:.4f}",
        }
        return {
            name: f"{value:,.6g}" if isinstance(value, float) else str(value)
            for name, value in shown.items()
            if value is not None
        }

    def __str__(self) -> str:
        facts = {"Rows": f"{self.n_rows:,}", "Parameters": str(self.n_params), **self.facts()}
        width = max(map(len, facts))
        return "\n".join(["Fit statistics", *(f"{name.ljust(width)}  {value:>14}" for name, value in facts.items())])


def _by_moments(fit: FitStatistics) -> bool:
    """Whether a dispersion was estimated that no likelihood was maximised over."""
    return not fit.gaussian and fit.dispersion not in (None, 1.0)


_NUMBERS = ("log_likelihood", "null_log_likelihood", "deviance", "null_deviance", "dispersion", "pearson_chi2")
assert set(_NUMBERS) <= {field.name for field in fields(FitStatistics)}


def likelihood_ratio(bigger: Fit, smaller: Fit) -> ChiSquared:
    """Likelihood-ratio test of a smaller model within a bigger one.

    Twice the difference of their log-likelihoods is chi-squared, with the difference of their numbers of parameters as
    degrees of freedom. Where a dispersion is estimated by moments (gamma, or gaussian with a log link) there is no such
    pair of likelihoods: the difference of deviances over the dispersion of the bigger model takes its place, as in
    anova(test="LRT") of R.

    Parameters
    ----------
    bigger, smaller : Fit
        Exact fits (``solver="scoring"``) of the same rows; every parameter of the smaller is one of the bigger.

    Returns
    -------
    ChiSquared
        `statistic`, `dof` and `p_value`.

    Raises
    ------
    ValueError
        If the two are not nested, or not of the same rows, target and family, or have no log-likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> import fedgauss as fg
    >>> rng = np.random.default_rng(0)
    >>> frame = {"hospital": rng.integers(0, 3, 600), "age": rng.normal(size=600), "dose": rng.normal(size=600)}
    >>> frame["died"] = (rng.random(600) < 1 / (1 + np.exp(1 - 0.3 * frame["dose"]))).astype(int)
    >>> both = fg.fit(frame, "died", "hospital", "binomial", ["age", "dose"])
    >>> age = fg.fit(frame, "died", "hospital", "binomial", ["age"])
    >>> print(fg.likelihood_ratio(both, age))
    chi2(1) = 12.44, p = 0.00042
    """
    big, small = bigger.statistics, smaller.statistics
    if big is None or small is None or big.log_likelihood is None or small.log_likelihood is None:
        raise ValueError(
            "a likelihood-ratio test needs the log-likelihood of both fits; one has none. Fit both with "
            "solver='scoring', by a family that has a likelihood."
        )
    if "Ridge" in bigger.facts or "Ridge" in smaller.facts:
        raise ValueError("a likelihood-ratio test needs fits without a penalty; one has ridge. Use ridge=0.")
    for fact in ("Target", "Family"):
        words = bigger.facts.get(fact), smaller.facts.get(fact)
        if words[0] != words[1]:
            raise ValueError(f"both fits must have the same {fact.lower()}; got {words[0]!r} and {words[1]!r}.")
    if big.n_rows != small.n_rows:
        raise ValueError(
            f"both fits must be of the same rows; got {big.n_rows:,} and {small.n_rows:,}. Leave the rows where a "
            "column of the bigger model is missing out of both."
        )
    # Without covariates both are the same model.
    both_deviances = big.null_deviance is not None and small.null_deviance is not None
    what = "null_deviance" if both_deviances else "null_log_likelihood"
    one, other = getattr(big, what), getattr(small, what)
    if one is not None and other is not None and abs(one - other) > _SAME * max(1.0, abs(one)):
        raise ValueError(
            f"both fits must be of the same rows; the {what} of the two, {one:.8g} and {other:.8g}, says that they are "
            "not."
        )
    extra = [name for name in smaller.names if name not in bigger.names]
    if extra:
        raise ValueError(f"the smaller model must lie within the bigger one, which has no {extra[0]!r}.")
    dof = big.n_params - small.n_params
    if dof <= 0:
        raise ValueError(
            f"the bigger model must have more parameters than the smaller; got {big.n_params} and {small.n_params}. "
            "Give the bigger one first."
        )
    if _by_moments(big) and big.deviance is not None and small.deviance is not None:
        better, worse, unit = -big.deviance / 2.0, -small.deviance / 2.0, big.dispersion or 1.0
    else:
        better, worse, unit = big.log_likelihood, small.log_likelihood, 1.0
    if better - worse < -_ROUNDING * max(1.0, abs(worse)):
        raise ValueError(
            f"the bigger model must be the more likely; its log-likelihood is {better / unit:.8g}, that of the smaller "
            f"{worse / unit:.8g}. Do both explain the same rows by the same columns?"
        )
    statistic = max(0.0, 2.0 * (better - worse) / unit)
    return ChiSquared(statistic, dof, float(special.chdtrc(dof, statistic)))
