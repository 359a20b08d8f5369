"""`Fit`: what `fit` returns, and all that can be done after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.inference.estimate import Estimate
from fedgauss.inference.fit_statistics import FitStatistics
from fedgauss.inference.prediction import Design, Interval, Kind, MeanOf, Prediction, predict
from fedgauss.inference.site_estimates import SiteEstimates


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
