"""Meta-analysis of one coefficient: what sites' own estimates say together, and by how much sites differ.

Site k estimates b_k with variance v_k. The fixed-effect mean has weights 1 / v_k. Random effects suppose that
b_k = mu + N(0, tau2) + N(0, v_k); with w_k = 1 / (v_k + tau2)

    mu = sum w_k b_k / sum w_k,    var(mu) = sum w_k (b_k - mu)^2 / ((K - 1) sum w_k),

the variance of Hartung and Knapp, whose interval is by Student's t with K - 1 degrees of freedom; it is kept from
falling below the variance of the fixed effect. tau2 maximises the restricted likelihood (REML).

Below it are tables of several: as text, in HTML and as a frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from fedgauss import _checks
from fedgauss._shown import Shown, html_table
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.inference.coefficient_table import number, pandas_frame
from fedgauss.inference.reference_laws import ChiSquared, t_below, t_quantile

_MOST_STEPS = 200  # of Fisher scoring for tau2
_CLOSE = 1e-10  # of a step, in units of a typical variance of a site
_FEWEST_TO_PREDICT = 3
_HEADS = ("fixed", "random", "[low", "high]", "tau2", "I2", "P(Q)")
_COLUMNS = (10, 10, 10, 10, 10, 8, 8)  # characters: with names of 12 the width of a summary


class Mean(NamedTuple):
    """A mean over sites with its standard error and interval."""

    estimate: float
    std_error: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True, repr=False)
class MetaAnalysis(Shown):
    """One coefficient over sites. Printed, it is a paragraph.

    Attributes
    ----------
    name : str
        Of the coefficient.
    sites : tuple of str
        Those that take part.
    estimates, std_errors : (K,) ndarray
        What each site says.
    level : float
        Of the intervals.
    fixed : Mean
        The mean with weights 1 / v_k, whose interval is right if all sites have one coefficient.
    random : Mean
        The random-effects mean with the interval of Hartung and Knapp.
    prediction : (low, high) or None
        Where the coefficient of another such site lies, mu +- t(K - 2) sqrt(tau2 + var(mu)); from three sites on.
    q : ChiSquared
        Cochran's test that all sites have one coefficient: `statistic`, `dof`, `p_value`.
    tau2 : float
        The variance between sites.
    tau2_method : str
        "REML", or "DerSimonian-Laird" where that did not converge.
    i2 : float
        The share of the variance that is between sites, tau2 / (tau2 + a typical v_k), from 0 to 1.
    weights : (K,) ndarray
        Of the sites in the random-effects mean; they sum to 1.
    left_out : dict
        Sites without an estimate, and why.
    notes : tuple of str
        What a reader should know.
    """

    name: str
    sites: tuple[str, ...]
    estimates: FloatArray
    std_errors: FloatArray
    level: float
    fixed: Mean
    random: Mean
    prediction: tuple[float, float] | None
    q: ChiSquared
    tau2: float
    tau2_method: str
    i2: float
    weights: FloatArray
    left_out: dict[str, str]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        percent = f"{100 * self.level:g} %"
        lines = [f"Meta-analysis of {self.name} over {len(self.sites)} sites"]
        for label, mean, interval in (
            ("fixed effect", self.fixed, percent),
            ("random effects", self.random, f"{percent}, Hartung-Knapp"),
        ):
            value, error, low, high = (number(part).strip() for part in mean[:4])
            lines.append(f"  {label:<16}{value:>11} (std err {error}), {low} to {high} ({interval})")
        if self.prediction is not None:
            low, high = (number(end).strip() for end in self.prediction)
            lines.append(f"  {'another site':<21}{low} to {high} ({percent} prediction interval)")
        tau2 = f"tau2 = {number(self.tau2).strip()} ({self.tau2_method})"
        lines.append(f"  {'between sites':<21}Q: {self.q}; I2 = {100 * self.i2:.1f} %; {tau2}")
        lines += [f"  {note}" for note in self.notes]
        lines += [f"  left out: {site} ({why})" for site, why in self.left_out.items()]
        return "\n".join(lines)


def meta_analysis(
    estimates: ArrayLike,
    variances: ArrayLike,
    sites: Sequence[str] | None = None,
    name: str = "the coefficient",
    level: float = 0.95,
    left_out: dict[str, str] | None = None,
) -> MetaAnalysis:
    """Fixed and random effects of one coefficient, and how much sites differ.

    Parameters
    ----------
    estimates : (K,) array_like
        Each site's estimate, of at least two sites.
    variances : (K,) array_like
        Their variances.
    sites : sequence of str, optional
        Names of the sites; "site 1", "site 2", ... by default.
    name : str
        Of the coefficient.
    level : float
        Of the intervals.
    left_out : dict, optional
        Sites that are not among these, and why, to be named in the result.

    Returns
    -------
    MetaAnalysis

    Raises
    ------
    ValueError
        If there are fewer than two sites, or a variance is not positive.

    Examples
    --------
    >>> found = meta_analysis([0.10, 0.30, 0.35, 0.65], [0.03, 0.03, 0.05, 0.01])
    >>> print(found)
    Meta-analysis of the coefficient over 4 sites
      fixed effect         0.4571 (std err 0.0732), 0.3137 to 0.6006 (95 %)
      random effects       0.3772 (std err 0.1220), -0.0111 to 0.7655 (95 %, Hartung-Knapp)
      another site         -0.6574 to 1.4119 (95 % prediction interval)
      between sites        Q: chi2(3) = 9.02, p = 0.029; I2 = 63.0 %; tau2 = 0.0429 (REML)
    """
    level = _checks.level(level)
    b = _checks.real_array("estimates", estimates, shape=(None,))
    v = _checks.real_array("variances", variances, shape=b.shape)
    k = len(b)
    if k < 2:
        raise ValueError(f"a meta-analysis needs the estimates of at least two sites; got {k} for {name!r}.")
    if not np.all(v > 0.0):
        raise ValueError(f"variances must be positive; got {v.min():g}. Leave that site out.")
    labels = tuple(f"site {i + 1}" for i in range(k)) if sites is None else tuple(map(str, sites))
    if len(labels) != k:
        raise ValueError(f"sites must be as many as estimates; got {len(labels)} and {k}.")
    precision = 1.0 / v
    centre = _mean(b, precision)
    statistic = float(precision @ (b - centre) ** 2)
    q = ChiSquared(statistic, k - 1, float(special.chdtrc(k - 1, statistic)))
    tau2, converged = _reml(b, v)
    notes: tuple[str, ...] = ()
    if not converged:
        tau2 = _der_simonian_laird(statistic, precision)
        notes = ("REML did not converge for this coefficient: tau2 is by DerSimonian and Laird.",)
    w = 1.0 / (v + tau2)
    mu = _mean(b, w)
    error = float(np.sqrt((w @ (b - mu) ** 2) / ((k - 1) * w.sum())))
    fixed = _interval(centre, float(precision.sum() ** -0.5), level, np.inf)
    if error < fixed.std_error:  # as for two sites that agree by chance, where it may be zero
        notes += (
            f"Sites agree more closely than their errors would have it: the standard error of Hartung and Knapp, "
            f"{error:.3g}, is below that of the fixed effect, which takes its place.",
        )
        error = fixed.std_error
    predicted = None
    if k >= _FEWEST_TO_PREDICT:
        reach = t_quantile(0.5 + level / 2, k - 2) * float(np.sqrt(tau2 + error**2))
        predicted = (mu - reach, mu + reach)
    typical = (k - 1) * precision.sum() / (precision.sum() ** 2 - (precision**2).sum())  # Higgins and Thompson
    return MetaAnalysis(
        name, labels, b, np.sqrt(v), level,
        fixed=fixed, random=_interval(mu, error, level, k - 1.0),
        prediction=predicted, q=q, tau2=tau2, tau2_method="REML" if converged else "DerSimonian-Laird",
        i2=tau2 / (tau2 + float(typical)), weights=w / w.sum(), left_out=dict(left_out or {}), notes=notes,
    )  # fmt: skip


def _mean(b: FloatArray, w: FloatArray) -> float:
    return float(w @ b / w.sum())


def _interval(centre: float, error: float, level: float, dof: float) -> Mean:
    """A mean with its interval by Student's t."""
    half = t_quantile(0.5 + level / 2, dof) * error
    p = 2.0 * float(t_below(np.asarray(-abs(centre) / error), dof))
    return Mean(centre, error, centre - half, centre + half, p)


def _der_simonian_laird(q: float, precision: FloatArray) -> float:
    """tau2 by the moments of Q."""
    total = float(precision.sum())
    return max(0.0, (q - (len(precision) - 1)) / (total - float((precision**2).sum()) / total))


def _reml(b: FloatArray, v: FloatArray) -> tuple[float, bool]:
    """tau2 by restricted maximum likelihood, and whether the search for it came to an end.

    Fisher scoring from the estimate of DerSimonian and Laird, in units of a typical variance: with
    P = W - W 11' W / sum w the score is (b'PPb - tr P) / 2 and its information tr(PP) / 2. A step that lowers the
    likelihood is halved, and one below zero ends at zero.
    """
    unit = float(np.median(v))
    b, v = (b - b.mean()) / np.sqrt(unit), v / unit
    precision = 1.0 / v
    tau2 = _der_simonian_laird(float(precision @ (b - _mean(b, precision)) ** 2), precision)
    best = _restricted_loglik(tau2, b, v)
    for _ in range(_MOST_STEPS):
        w = 1.0 / (v + tau2)
        total = w.sum()
        pb = w * (b - _mean(b, w))
        trace = total - (w**2).sum() / total
        information = (w**2).sum() - 2.0 * (w**3).sum() / total + ((w**2).sum() / total) ** 2
        step = float((pb @ pb - trace) / information)
        while True:
            moved = max(0.0, tau2 + step)
            value = _restricted_loglik(moved, b, v)
            if value >= best or abs(moved - tau2) <= _CLOSE * (1.0 + tau2):
                break
            step /= 2.0
        done = abs(moved - tau2) <= _CLOSE * (1.0 + tau2)
        tau2, best = moved, max(value, best)
        if done:
            return tau2 * unit, True
    return tau2 * unit, False


def _restricted_loglik(tau2: float, b: FloatArray, v: FloatArray) -> float:
    """Up to a constant."""
    w = 1.0 / (v + tau2)
    return 0.5 * float(np.log(w).sum() - np.log(w.sum()) - w @ (b - _mean(b, w)) ** 2)


def _cells(found: MetaAnalysis) -> list[str]:
    """What a table says of a meta-analysis."""
    mean = found.random
    parts = (found.fixed.estimate, mean.estimate, mean.low, mean.high, found.tau2)
    mark = "" if found.tau2_method == "REML" else "*"
    return [*map(_short, parts), f"{100 * found.i2:.1f} %", f"{found.q.p_value:.3f}{mark}"]


def _short(value: float) -> str:
    """A number that leaves a space before it in its column: a small negative one has a digit less."""
    text = number(value).strip()
    return text if len(text) < _COLUMNS[0] else f"{value:.2e}"


def _footnotes(rows: Mapping[str, MetaAnalysis]) -> list[str]:
    by_moments = any(found.tau2_method != "REML" for found in rows.values())
    return ["* REML did not converge: tau2 by DerSimonian and Laird"] if by_moments else []


def meta_lines(title: str, corner: str, rows: Mapping[str, MetaAnalysis]) -> list[str]:
    """A meta-analysis a line."""
    first = max([12, len(corner), *map(len, rows)])
    rule = "-" * (first + sum(_COLUMNS))
    table = {corner: list(_HEADS), **{label: _cells(found) for label, found in rows.items()}}
    lines = [
        label.ljust(first) + "".join(cell.rjust(width) for cell, width in zip(cells, _COLUMNS, strict=True))
        for label, cells in table.items()
    ]
    return [title, rule, *lines, rule, *_footnotes(rows)]


def meta_html(title: str, rows: Mapping[str, MetaAnalysis]) -> str:
    """The same as a table in HTML."""
    notes = "".join(f"<p>{note}</p>" for note in _footnotes(rows))
    return html_table(["", *_HEADS], ([label, *_cells(found)] for label, found in rows.items()), title) + notes


def _row(found: MetaAnalysis) -> dict[str, float]:
    """A row of a frame."""
    low, high = found.prediction or (np.nan, np.nan)
    return {
        "estimate": found.random.estimate, "std_error": found.random.std_error, "low": found.random.low,
        "high": found.random.high, "prediction_low": low, "prediction_high": high, "fixed": found.fixed.estimate,
        "fixed_std_error": found.fixed.std_error, "tau2": found.tau2, "i2": found.i2, "q": found.q.statistic,
        "q_p": found.q.p_value, "sites": len(found.sites),
    }  # fmt: skip


def meta_frame(rows: Mapping[str, MetaAnalysis]) -> Any:
    """A meta-analysis a row; estimate, std_error, low and high are of random effects."""
    cells = [_row(found) for found in rows.values()]
    keys = list(cells[0]) if cells else []
    return pandas_frame({key: [row[key] for row in cells] for key in keys}, list(rows))
