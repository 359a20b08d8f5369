"""The results of replicated runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from fedgauss._shown import Shown, html_table
from fedgauss._types import AnyArray, ArrayLike, FloatArray
from fedgauss.stopping.movement import Convergence, converged

_SHOWN = 10  # coordinates of a run that is printed


@dataclass(frozen=True, repr=False)
class Runs(Shown):
    """Results of R replicates, with replicates along the first axis.

    Observed quantities are attributes too: `runs.cusum` is `runs.observed["cusum"]`.

    Attributes
    ----------
    average : array of shape (R, d)
        Ybar_n, the average of the iterates.
    last : array of shape (R, d)
        Y_n, the last iterate.
    n_steps, n_clients, seed : int
        As they were asked for.
    observed : dict of str to array
        The results of the observers, by name.

    Examples
    --------
    >>> import fedgauss as fg
    >>> problem = fg.problems.random_effects(n_clients=10, seed=1907)
    >>> runs = fg.simulate(problem, fg.networks.ring(10), [0.1] * 100, n_steps=100, replicates=50)
    >>> runs.replicates, runs.last.shape
    (50, (50, 2))
    """

    average: FloatArray
    last: FloatArray
    n_steps: int
    n_clients: int
    seed: int
    observed: dict[str, AnyArray] = field(default_factory=dict)

    def __getattr__(self, name: str) -> AnyArray:
        observed = self.__dict__.get("observed", {})
        if name in observed:
            return observed[name]
        known = ", ".join(["average", "last", *observed])
        raise AttributeError(f"these runs kept {known}, not {name!r}. Ask for it with observe=[...] or keep='path'.")

    @property
    def replicates(self) -> int:
        """R."""
        return len(self.average)

    def __str__(self) -> str:
        lines = [
            self._summary(),
            f"{'':12}{'mean':>12}{'sd':>12}{'mean':>14}{'sd':>12}",
            f"{'coordinate':12}{'average':>12}{'average':>12}{'last':>14}{'last':>12}",
            *(f"{i:<12}{a:12.5f}{b:12.5f}{c:14.5f}{e:12.5f}" for i, (a, b, c, e) in enumerate(self._rows())),
            *self._remarks(),
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        heads = ("coordinate", "mean of average", "sd of average", "mean of last", "sd of last")
        rows = [(str(i), *(f"{x:.5f}" for x in row)) for i, row in enumerate(self._rows())]
        remarks = "".join(f"<p>{escape(line)}</p>" for line in self._remarks())
        return html_table(heads, rows, self._summary()) + remarks

    def plot(self, center: ArrayLike | None = None, cov: ArrayLike | None = None) -> Any:
        """A figure of how Gaussian the averages are: quantiles of each coordinate against normal ones.

        On the diagonal the law is the normal one; the grey band holds 95 of 100 points of a sample from it.

        Parameters
        ----------
        center, cov : array of shape (d,) and (d, d), optional
            The mean and the covariance of the normal law to compare `average` with, such as `mean_average` and
            `cov_average` of `theory.exact_moments`. By default those of the runs themselves, which leaves the shape.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from fedgauss.engine.figures import quantile_figure

        return quantile_figure(self.average, center, cov)

    def converged(
        self,
        tolerance: ArrayLike | float | None = None,
        share: float = 0.25,
        times: float = 10.0,
        level: float = 0.95,
        cov: ArrayLike | None = None,
        transient: ArrayLike | None = None,
        dof: float = math.inf,
    ) -> Convergence:
        """Whether the runs may stop, and how far more steps would move their averages.

        With a tolerance: whether `times` as many steps would move the average by more than that. Without: whether what
        the start and drift still contribute is a small share of its standard error. Print the answer to read it.

        Parameters
        ----------
        tolerance : float or (d,) array_like, optional
            The movement of a coordinate that does not matter, in its own units.
        share : float
            Without a tolerance, how many standard errors may be left of the start and of drift. At 0.25 a 95 % interval
            still covers 94.3 %.
        times : float
            The longer run has times * n_steps steps.
        level : float
            In what share of runs the movement must stay below the tolerance, all coordinates at once.
        cov : (d, d) or (R, d, d) array_like, optional
            The covariance of the average, for all runs or for each; by default that of the replicates.
        transient : (d,) array_like, optional
            What the start and drift contribute to the average (`theory.start_bias`); by default an upper bound from how
            far averages are from last iterates over the replicates.
        dof : float
            Degrees of freedom of `cov`, where it is itself an estimate from few batches.

        Returns
        -------
        Convergence
            Its truth is the answer for all runs, `settled` that for each.

        Raises
        ------
        ValueError
            With fewer than 30 replicates, unless `cov` and `transient` are both given.

        Examples
        --------
        >>> import fedgauss as fg
        >>> problem, steps = fg.problems.random_effects(n_clients=10, seed=1907), fg.step_sizes.polynomial(0.3, 0.75)
        >>> runs = fg.simulate(problem, fg.networks.ring(10), steps, n_steps=100, sync_every=5, replicates=50)
        >>> bool(runs.converged(tolerance=0.001))
        False
        """
        return converged(self.average, self.last, self.n_steps, tolerance, share, times, level, cov, transient, dof)

    def _summary(self) -> str:
        return (
            f"{self.replicates} runs of local SGD: {self.n_clients} clients, {self.n_steps} steps, "
            f"{self.average.shape[1]} dimensions, seed {self.seed}"
        )

    def _rows(self) -> list[tuple[float, float, float, float]]:
        """Mean and sd of the average and of the last iterate, for the first ten coordinates."""
        dim = self.average.shape[1]
        sd = (lambda x: x.std(axis=0, ddof=1)) if self.replicates > 1 else (lambda x: np.full(dim, np.nan))
        table = zip(self.average.mean(0), sd(self.average), self.last.mean(0), sd(self.last), strict=True)
        return list(table)[:_SHOWN]

    def _remarks(self) -> list[str]:
        dim = self.average.shape[1]
        lines = [f"... and {dim - _SHOWN} more coordinates"] if dim > _SHOWN else []
        if self.observed:
            shapes = ", ".join(f"{name} {value.shape}" for name, value in self.observed.items())
            lines.append(f"also kept: {shapes}")
        return lines
