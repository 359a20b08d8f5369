"""`Fit`: what `fit` returns, and all that can be done after it; how well it fits, and a model within another."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy import special

from fedgauss import _checks
from fedgauss._shown import Shown
from fedgauss._types import FloatArray
from fedgauss.inference.estimate import Estimate
from fedgauss.inference.prediction import Design, FrameDesign, Interval, Kind, MeanOf, Prediction, predict
from fedgauss.inference.reference_laws import ChiSquared
from fedgauss.inference.site_estimates import SiteEstimates

if TYPE_CHECKING:
    from fedgauss.inference.model_data import ModelData

_SAME = 1e-8  # relative: null deviances of the same rows, summed up in another order
_MOST = 10**15  # rows, parameters, rounds
_ROUNDING = 1e-9  # of a log-likelihood: by so much a bigger model may seem to be worse
_NUMBERS = ("log_likelihood", "null_log_likelihood", "deviance", "null_deviance", "dispersion", "pearson_chi2")


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


@dataclass(frozen=True, repr=False)
class Fit(Estimate):
    """What `fit` returns: an `Estimate` from a frame.

    Attributes
    ----------
    scales : (d,) ndarray
        The standard deviation of each covariate, and 1 for an intercept.
    statistics : FitStatistics or None
        Log-likelihood, deviance, AIC and so on, of an exact fit.
    sites : SiteEstimates or None
        Each site's own estimate: `sites.meta("age")`, `sites.leave_one_out("age")`.
    design : Design or None
        How a frame becomes rows of covariates, for `predict`.
    family : Family or None
        How a response follows its predictor, for `predict`.
    """

    scales: FloatArray = field(default_factory=lambda: np.empty(0))
    statistics: FitStatistics | None = None
    sites: SiteEstimates | None = None
    design: Design | None = None
    family: MeanOf | None = None

    def predict(
        self, frame: Any, interval: Interval | None = None, level: float | None = None, type: Kind = "mean"
    ) -> FloatArray | Prediction:
        """Predictions for the rows of a frame.

        Parameters
        ----------
        frame : DataFrame or dict
            New rows, with the columns of the model; the target may be missing.
        interval : {"confidence", "prediction"}, optional
            For the mean (or predictor) of such rows, or, for a gaussian family, for a single new response.
        level : float, optional
            That of the fit by default.
        type : {"mean", "predictor"}
            What to predict: the mean of the response (a probability, a rate), or the linear predictor.

        Returns
        -------
        (n,) ndarray or Prediction
            Numbers without an interval; with one a `Prediction`, which has `estimate`, `low` and `high`.

        Raises
        ------
        ValueError
            If this fit does not know its design, the frame does not suit it, or there is no such interval.

        Examples
        --------
        >>> fit.predict(frame)[:2]  # doctest: +SKIP
        array([0.31, 0.48])
        >>> fit.predict(frame, interval="confidence").to_frame()  # doctest: +SKIP
        """
        if self.design is None or self.family is None:
            raise ValueError(
                "predict needs the design and the family of the model; this fit does not know them. Is its family "
                "registered here? Else use fit.params with rows of your own."
            )
        dispersion = None if self.statistics is None else self.statistics.dispersion
        return predict(self, self.design, self.family, frame, interval, level, type, dispersion)

    def plot(self, exp: bool = False, standardised: bool = False) -> Any:
        """A figure of the coefficients with their intervals; all others are left out unless there is nothing else.

        Parameters
        ----------
        exp : bool
            Whether to show exponentials: odds, rate or hazard ratios on a logarithmic axis.
        standardised : bool
            Whether to show each for one standard deviation of its covariate, so that they can be compared.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> fit.plot(exp=True).savefig("odds.png")  # doctest: +SKIP
        """
        from fedgauss.inference.figures import coefficient_figure

        if standardised and len(self.scales) != len(self.names):
            raise ValueError("standardised=True needs the scales of covariates; this fit has none.")
        return coefficient_figure(self, exp, self.scales if standardised else None)

    def forest(self, name: str, exp: bool = False) -> Any:
        """A forest plot of a coefficient: each site, this fit, and what random effects say.

        Parameters
        ----------
        name : str
            Of the coefficient.
        exp : bool
            Whether to show exponentials on a logarithmic axis.

        Returns
        -------
        matplotlib.figure.Figure
        """
        if self.sites is None:
            raise ValueError("a forest plot needs the sites' own estimates; this fit has none.")
        return self.sites.forest(name, self, exp, self.level)

    def save(self, path: str | Path) -> None:
        """Write the fit to a JSON file, from which `Fit.load` reads it.

        Parameters
        ----------
        path : str or Path
            The file; one that is there is replaced. Only its owner can read it.
        """
        from fedgauss.inference.fit_file import save_fit

        save_fit(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Fit:
        """A fit from a file that `save` wrote. Every field is checked, and nothing in the file is run.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        Fit
            That predicts, too; but not where a family of your own is not registered, or levels were no text, numbers
            or truths.

        Raises
        ------
        ValueError
            If the file is no such fit, or was changed since it was written.

        Examples
        --------
        >>> fit.save("fit.json")  # doctest: +SKIP
        >>> Fit.load("fit.json").params["age"]  # doctest: +SKIP
        """
        from fedgauss.inference.fit_file import load_fit

        return load_fit(Path(path))

    def shown_facts(self) -> dict[str, str]:
        """The facts of a summary, those of the statistics among them."""
        return self.facts if self.statistics is None else {**self.facts, **self.statistics.facts()}

    def site_lines(self) -> list[str]:
        """What a summary says about the sites' own estimates."""
        return [] if self.sites is None else self.sites.summary_lines()

    def site_html(self) -> str:
        """The same as HTML."""
        return "" if self.sites is None else self.sites._repr_html_()


def as_fit(estimate: Estimate, data: ModelData, scales: FloatArray, settings: dict[str, str]) -> Fit:
    """The estimate with the facts of its data and settings, those of the run in between."""
    least, most = data.counts.min(), data.counts.max()
    facts = {
        "Target": data.target,
        "Family": data.family.describe(),
        "Rows": f"{int(data.counts.sum()):,}",
        "Rows per client": f"{least:,}" if least == most else f"{least:,} to {most:,}",
        **({"Rows dropped": f"{data.dropped.sum():,}"} if data.dropped.any() else {}),
        **estimate.facts,
        **settings,
    }
    one = scales if data.constant is None else np.concatenate([[1.0], scales])
    each, n_outputs = len(one), data.family.n_outputs
    intercepts = () if data.constant is None else tuple(range(0, each * n_outputs, each))
    inherited = {part.name: getattr(estimate, part.name) for part in fields(Estimate)}
    scales = np.concatenate([np.tile(one, n_outputs), np.ones(len(data.family.extra_names))])
    shapes = tuple(range(each * n_outputs, len(scales)))
    changed = {"facts": facts, "intercepts": intercepts, "shapes": shapes}
    return Fit(**inherited | changed, scales=scales, design=frame_design(data), family=data.family)


def frame_design(data: ModelData) -> FrameDesign | None:
    """How other frames become rows like these."""
    if data.design is None or data.model is None:
        return None
    return FrameDesign(data.design, data.agreed, data.constant is not None, data.model, data.client, data.renamed)


def _by_moments(fit: FitStatistics) -> bool:
    """Whether a dispersion was estimated that no likelihood was maximised over."""
    return not fit.gaussian and fit.dispersion not in (None, 1.0)


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
