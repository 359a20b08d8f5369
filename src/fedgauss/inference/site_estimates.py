"""Every site's own estimate, side by side: meta-analysis of each coefficient, leave-one-site-out, a forest plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgauss import _checks
from fedgauss._shown import Shown
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.inference.coefficient_table import no_such_name
from fedgauss.inference.meta import MetaAnalysis, meta_analysis, meta_frame, meta_html, meta_lines

if TYPE_CHECKING:
    from fedgauss.inference.estimate import Estimate

_NOT_ESTIMATED = "its own fit does not estimate this coefficient"


@dataclass(frozen=True, repr=False)
class LeaveOneOut(Shown):
    """The meta-analysis of a coefficient without each site in turn. Printed, it is a table.

    Attributes
    ----------
    name : str
        Of the coefficient.
    all_sites : MetaAnalysis
        With all of them.
    without : dict of str to MetaAnalysis
        By the site that is left out.
    """

    name: str
    all_sites: MetaAnalysis
    without: dict[str, MetaAnalysis]

    @property
    def most_influential(self) -> str:
        """The site without which the random-effects mean moves most."""
        centre = self.all_sites.random.estimate
        return max(self.without, key=lambda site: abs(self.without[site].random.estimate - centre))

    def to_frame(self) -> Any:
        """As a pandas DataFrame, a row for each site that is left out."""
        return meta_frame(self.without)

    def __str__(self) -> str:
        rows = {"(none)": self.all_sites, **self.without}
        return "\n".join(meta_lines(f"{self.name} without each site in turn", "left out", rows))

    def _repr_html_(self) -> str:
        return meta_html(f"{self.name} without each site in turn", {"(none)": self.all_sites, **self.without})


@dataclass(frozen=True, repr=False)
class SiteEstimates(Shown):
    """Each site's own estimate with its covariance. Printed, it is a table of meta-analyses, a row a coefficient.

    Make one with `site_estimates`, which checks and leaves out what no site could estimate.

    Attributes
    ----------
    sites : tuple of str
        The K sites whose own fit gave an estimate.
    names : tuple of str
        The d coefficients.
    params : (K, d) ndarray
        Estimates; NaN where a site cannot tell, as for a level of which it has no row.
    cov : (K, d, d) ndarray
        Their covariances.
    level : float
        Of intervals.
    left_out : dict
        Sites whose own fit failed, and why.
    """

    sites: tuple[str, ...]
    names: tuple[str, ...]
    params: FloatArray
    cov: FloatArray
    level: float = 0.95
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def std_errors(self) -> FloatArray:
        """Standard errors, (K, d); NaN where there is no estimate."""
        return np.sqrt(np.diagonal(self.cov, axis1=1, axis2=2))

    def meta(self, name: str, level: float | None = None) -> MetaAnalysis:
        """Fixed and random effects of a coefficient, Cochran's Q, I2 and tau2.

        Parameters
        ----------
        name : str
            Of the coefficient.
        level : float, optional
            Of the intervals.

        Returns
        -------
        MetaAnalysis

        Raises
        ------
        KeyError
            If there is no such coefficient.
        ValueError
            If fewer than two sites estimate it.

        Examples
        --------
        >>> found = site_estimates(["a", "b", "c"], ["age"], [[1.0], [2.0], [1.4]], np.full((3, 1, 1), 0.04))
        >>> found.meta("age").q.dof
        2
        """
        return self._meta(self._place(name), range(len(self.sites)), level)

    def leave_one_out(self, name: str, level: float | None = None) -> LeaveOneOut:
        """The same without each site in turn: does one of them decide?

        Parameters
        ----------
        name : str
            Of the coefficient.
        level : float, optional
            Of the intervals.

        Returns
        -------
        LeaveOneOut

        Raises
        ------
        ValueError
            If fewer than three sites estimate it.
        """
        whole = self.meta(name, level)
        if len(whole.sites) < 3:
            raise ValueError(
                f"leave-one-out needs at least three sites that estimate {name!r}; got {len(whole.sites)}."
            )
        j, numbers = self._place(name), range(len(self.sites))
        there = [k for k in numbers if self.sites[k] in whole.sites]
        return LeaveOneOut(
            name, whole, {self.sites[k]: self._meta(j, [i for i in numbers if i != k], level) for k in there}
        )

    def forest(self, name: str, pooled: Estimate | None = None, exp: bool = False, level: float | None = None) -> Any:
        """A forest plot: each site, the pooled fit, and what random effects say.

        Parameters
        ----------
        name : str
            Of the coefficient.
        pooled : Estimate, optional
            The fit to all rows, which gets a line of its own.
        exp : bool
            Whether to show exponentials: odds, rate or hazard ratios on a logarithmic axis.
        level : float, optional
            Of the intervals.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> fit.sites.forest("age", pooled=fit).savefig("age.png")  # doctest: +SKIP
        """
        from fedgauss.inference.figures import forest_figure

        return forest_figure(self.meta(name, level), pooled, exp)

    def to_frame(self) -> Any:
        """As a pandas DataFrame: a row for each coefficient that two sites or more estimate."""
        return meta_frame(self._all())

    def summary_lines(self) -> list[str]:
        """The table, as a summary of the pooled fit shows it."""
        lines = meta_lines(self._title(), "", self._all()) if len(self.sites) > 1 else [self._title()]
        return [*lines, *self._left_out_lines()]

    def _repr_html_(self) -> str:
        table = meta_html(self._title(), self._all()) if len(self.sites) > 1 else f"<p>{escape(self._title())}</p>"
        return table + "".join(f"<p>{escape(line)}</p>" for line in self._left_out_lines())

    def _title(self) -> str:
        if len(self.sites) == 1:
            return f"Own fit of one site, {self.sites[0]}"
        return f"Own fits of {len(self.sites)} sites, {100 * self.level:g} % intervals by Hartung and Knapp"

    def _left_out_lines(self) -> list[str]:
        return [f"Left out: {site} ({why})" for site, why in self.left_out.items()]

    def __str__(self) -> str:
        return "\n".join(self.summary_lines())

    def _meta(self, j: int, among: Sequence[int], level: float | None) -> MetaAnalysis:
        known = [k for k in among if np.isfinite(self.params[k, j])]
        missing = {self.sites[k]: _NOT_ESTIMATED for k in among if k not in known}
        return meta_analysis(
            self.params[known, j], self.cov[known, j, j], [self.sites[k] for k in known], self.names[j],
            self.level if level is None else level, self.left_out | missing,
        )  # fmt: skip

    def _all(self) -> dict[str, MetaAnalysis]:
        """Of every coefficient that at least two sites estimate."""
        several = np.isfinite(self.params).sum(axis=0) > 1
        return {name: self.meta(name) for name, enough in zip(self.names, several, strict=True) if enough}

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise KeyError(no_such_name(name, self.names))
        return self.names.index(name)


def site_estimates(
    sites: Sequence[str],
    names: Sequence[str],
    params: ArrayLike,
    cov: ArrayLike,
    failed: Mapping[str, str] | None = None,
    level: float = 0.95,
) -> SiteEstimates:
    """Sites' own estimates, checked; what could not be estimated is left out and named.

    Parameters
    ----------
    sites : sequence of str
        Names of the sites.
    names : sequence of str
        Names of the coefficients.
    params : (K, d) array_like
        Each site's estimate. NaN stands for what a site could not estimate.
    cov : (K, d, d) array_like
        Their covariances. A coefficient whose variance is not finite and positive is one that was not estimated.
    failed : mapping of str to str, optional
        Sites whose own fit failed, and why: "separable classes", "5 rows for 4 coefficients". They may be among `sites`
        or not.
    level : float
        Of intervals.

    Returns
    -------
    SiteEstimates

    Raises
    ------
    ValueError
        If shapes do not fit, names are repeated, or no site is left.

    Examples
    --------
    >>> cov = np.full((3, 1, 1), 0.04)
    >>> found = site_estimates(["a", "b", "c"], ["age"], [[1.0], [2.0], [9.0]], cov, {"c": "separable classes"})
    >>> found.sites, found.left_out
    (('a', 'b'), {'c': 'separable classes'})
    """
    level, reasons = _checks.level(level), dict(failed or {})
    labels, columns = tuple(map(str, sites)), tuple(map(str, names))
    for what, given in (("sites", labels), ("names", columns)):
        if len(set(given)) < len(given):
            repeated = next(each for each in given if given.count(each) > 1)
            raise ValueError(f"{what} must differ; {repeated!r} occurs more than once.")
    shape = (len(labels), len(columns))
    b, v = np.array(params, dtype=float), np.array(cov, dtype=float)
    if b.shape != shape or v.shape != (*shape, len(columns)):
        wanted = f"{shape} and {(*shape, len(columns))}"
        raise ValueError(f"params and cov must have shapes {wanted}, sites first; got {b.shape} and {v.shape}.")
    variance = np.diagonal(v, axis1=1, axis2=2)
    unknown = ~(np.isfinite(b) & np.isfinite(variance) & (variance > 0.0))
    b[unknown] = np.nan
    v[unknown[:, :, None] | unknown[:, None, :]] = np.nan
    for site, nothing in zip(labels, unknown.all(axis=1), strict=True):
        if nothing:
            reasons.setdefault(site, "its own fit estimates no coefficient")
    kept = [k for k, site in enumerate(labels) if site not in reasons]
    if not kept:
        raise ValueError("site estimates need at least one site whose own fit succeeds; none does.")
    return SiteEstimates(tuple(labels[k] for k in kept), columns, b[kept], v[kept], level, reasons)
