"""How far a simulated law is from a Gaussian one: stand-ins for the distance over convex sets, and quantile gaps."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy import special

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._shown import ShownInSentences
from fedgauss._types import ArrayLike, FloatArray

# E sup |B| for a Brownian bridge: the mean of sqrt(R) sup |F_R - F|.
_KOLMOGOROV_MEAN = float(np.sqrt(np.pi / 2) * np.log(2))


@dataclass(frozen=True, repr=False)
class Distance(ShownInSentences):
    """A Kolmogorov distance from R runs.

    estimate        sup over the sets of |empirical - Gaussian probability|
    standard_error  binomial, at the set where the sup is attained
    interval        a confidence interval for the true sup, by the Dvoretzky-Kiefer-Wolfowitz inequality
    floor           the mean estimate if the law were Gaussian: what R runs cannot tell from zero
    """

    name: str
    estimate: float
    standard_error: float
    interval: tuple[float, float]
    floor: float
    replicates: int
    level: float

    def __str__(self) -> str:
        low, high = self.interval
        verdict = "above" if low > 0 else "within"
        return (
            f"{self.name} {self.estimate:.4f} (s.e. {self.standard_error:.4f}; {self.level:.0%} interval {low:.4f} to "
            f"{high:.4f}); {verdict} what {self.replicates} runs of a Gaussian law show ({self.floor:.4f} on average)"
        )


def ball_distance(
    sample: ArrayLike, center: ArrayLike, cov: ArrayLike, rate: float, *, level: float = 0.95
) -> Distance:
    """sup_x |P(|rate cov^-1/2 (X - center)| <= x) - P(|Z| <= x)|, Z ~ N(0, I), against the exact chi distribution.

    With `cov` Sigma_n and rate sqrt(n) this is the paper's d_c~ of the average, with Sigma/K its d_c-dagger; for the
    last iterate use tilde Sigma_n and n^(beta/2).

    Parameters
    ----------
    sample : array of shape (R, d)
        One row per replicate, such as `runs.average`.
    center : array of shape (d,)
        Usually the optimum theta*.
    cov : array of shape (d, d)
        The covariance to compare with.
    rate : float
        Multiplies the deviations.
    level : float
        Of the confidence interval.

    Returns
    -------
    Distance

    Examples
    --------
    >>> import numpy as np
    >>> import fedgauss as fg
    >>> sample = np.random.default_rng(0).standard_normal((1000, 2)) / 10
    >>> print(f"{fg.ball_distance(sample, np.zeros(2), np.eye(2), rate=10).estimate:.3f}")
    0.014
    """
    z = _standardised(sample, center, cov, rate)
    return _kolmogorov("ball distance", np.linalg.norm(z, axis=1), lambda r: special.chdtr(z.shape[1], r**2), level)


def half_space_distance(
    sample: ArrayLike,
    center: ArrayLike,
    cov: ArrayLike,
    rate: float,
    *,
    directions: int = 100,
    seed: int = 0,
    level: float = 0.95,
) -> Distance:
    """The largest distance over half-spaces {u'z <= x}, with u an axis or one of some random directions.

    Balls around the centre show a shift only to second order; half-spaces show it to first order. The interval and the
    floor allow for the number of directions.

    Parameters
    ----------
    sample : array of shape (R, d)
        One row per replicate, such as `runs.average`.
    center : array of shape (d,)
        Usually the optimum theta*.
    cov : array of shape (d, d)
        The covariance to compare with.
    rate : float
        Multiplies the deviations.
    directions : int
        The number of random directions.
    seed : int
        Fixes the directions.
    level : float
        Of the confidence interval.

    Returns
    -------
    Distance
    """
    z = _standardised(sample, center, cov, rate)
    seed = _checks.seed(seed)
    directions = _checks.whole("directions", directions)
    check_memory(f"{directions:,} directions", 16 * directions * z.shape[1], "Use fewer directions.")
    units = _directions(z.shape[1], directions, seed)
    share = 1.0 - (1.0 - _checks.level(level)) / len(units)
    found = [_kolmogorov("half-space distance", z @ u, special.ndtr, share) for u in units]
    worst = max(found, key=lambda d: d.estimate)
    floor = _half_space_floor(z.shape[1], directions, seed, len(z))
    return replace(worst, floor=floor, level=level)


def max_relative_quantile_gap(reference: ArrayLike, other: ArrayLike, *, trim: float = 0.0) -> float:
    """Q = max over alpha of |q_alpha(reference) - q_alpha(other)| / q_alpha(reference), alpha in [trim, 1 - trim].

    The paper takes all alpha in (0, 1) (trim = 0). Extreme quantiles then decide, and Q has a Monte Carlo standard
    deviation of 0.1 to 0.6 at 500 runs. Trimmed at 0.05 it is stable.

    Parameters
    ----------
    reference, other : array of shape (R,)
        Two samples; they may differ in size.
    trim : float
        The levels left out at either end, in [0, 0.5).

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> import fedgauss as fg
    >>> rng = np.random.default_rng(0)
    >>> print(f"{fg.max_relative_quantile_gap(rng.chisquare(3, 500), rng.chisquare(3, 500), trim=0.05):.2f}")
    0.34
    """
    a, b, levels = _gap_levels(reference, other, trim)
    q, r = (np.quantile(x, levels) for x in (a, b))
    if np.any(q <= 0):
        raise ValueError(f"reference must have positive quantiles, to be relative to; one is {q.min():.3g}.")
    return float(np.max(np.abs(q - r) / q))


def quantile_gap_error(
    reference: ArrayLike, other: ArrayLike, *, trim: float = 0.0, resamples: int = 50, seed: int = 0
) -> float:
    """The Monte Carlo standard error of `max_relative_quantile_gap`, by the bootstrap.

    Parameters
    ----------
    reference, other : array of shape (R,)
        Two samples; they may differ in size.
    trim : float
        As in `max_relative_quantile_gap`.
    resamples : int
        The number of bootstrap resamples.
    seed : int
        Fixes them.

    Returns
    -------
    float
    """
    a, b, levels = _gap_levels(reference, other, trim)
    rng = np.random.default_rng(_checks.seed(seed))
    size = _checks.whole("resamples", resamples, at_least=2)
    check_memory(f"{size:,} resamples", 32 * size * (len(a) + len(b)), "Use fewer resamples.")
    q, r = (_row_quantiles(rng.choice(x, (size, len(x))), levels) for x in (a, b))
    return float(np.std(np.max(np.abs(q - r) / q, axis=1), ddof=1))


def quantile_pairs(reference: ArrayLike, other: ArrayLike, levels: ArrayLike | None = None) -> FloatArray:
    """The points of a QQ plot.

    Parameters
    ----------
    reference, other : array of shape (R,)
        Two samples; they may differ in size.
    levels : array, optional
        The levels alpha; 0.01, 0.02, ..., 0.99 by default.

    Returns
    -------
    array of shape (m, 3)
        A row (alpha, q_alpha(reference), q_alpha(other)) for each level.
    """
    a, b = (_checks.real_array(name, x, shape=(None,)) for name, x in (("reference", reference), ("other", other)))
    alpha = np.linspace(0.01, 0.99, 99) if levels is None else _checks.real_array("levels", levels, shape=(None,))
    if np.any((alpha < 0) | (alpha > 1)):
        raise ValueError(f"levels must lie in [0, 1]; got {alpha.min():g} to {alpha.max():g}.")
    return np.column_stack([alpha, np.quantile(a, alpha), np.quantile(b, alpha)])


def _gap_levels(reference: ArrayLike, other: ArrayLike, trim: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Both samples, and the levels (i + 1/2) / m of m values, m the size of the smaller one."""
    a, b = (_checks.real_array(name, x, shape=(None,)) for name, x in (("reference", reference), ("other", other)))
    if not 0.0 <= trim < 0.5:
        raise ValueError(f"trim must lie in [0, 0.5); got {trim:g}.")
    if not a.size or not b.size:
        raise ValueError("reference and other must each hold at least one value.")
    count = min(len(a), len(b))
    levels = (np.arange(count) + 0.5) / count
    levels = levels[(levels >= trim) & (levels <= 1.0 - trim)]
    if not levels.size:
        raise ValueError(f"no quantile of {count} values lies in [{trim:g}, {1 - trim:g}]. Use more runs.")
    return a, b, levels


def _row_quantiles(samples: FloatArray, levels: FloatArray) -> FloatArray:
    """Quantiles of each row, interpolated as `np.quantile` does; one sort serves every level."""
    ordered = np.sort(samples, axis=1)
    place = levels * (samples.shape[1] - 1)
    below = place.astype(int)
    above = np.minimum(below + 1, samples.shape[1] - 1)
    return ordered[:, below] + (place - below) * (ordered[:, above] - ordered[:, below])


def _standardised(sample: ArrayLike, center: ArrayLike, cov: ArrayLike, rate: float) -> FloatArray:
    x = _checks.real_array("sample", sample, shape=(None, None), fix="Give one row per replicate, as in runs.average.")
    if len(x) < 2:
        raise ValueError(f"sample must hold at least 2 replicates; got {len(x)}. Run with replicates=1000?")
    dim = x.shape[1]
    middle = _checks.real_array("center", center, shape=(dim,))
    scale = _checks.covariance("cov", cov, definite=True)
    if scale.shape != (dim, dim):
        raise ValueError(f"cov must have shape ({dim}, {dim}); got {scale.shape}.")
    values, vectors = np.linalg.eigh(scale)
    return _checks.real("rate", rate, above=0.0) * (x - middle) @ (vectors / np.sqrt(values)) @ vectors.T


def _kolmogorov(name: str, values: FloatArray, cdf: Callable[[FloatArray], FloatArray], level: float) -> Distance:
    """sup_x |F_R(x) - F(x)|: attained at a value, from the left or the right."""
    level, r = _checks.level(level), len(values)
    exact = np.asarray(cdf(np.sort(values)))
    gaps = np.maximum(np.arange(1, r + 1) / r - exact, exact - np.arange(r) / r)
    where = int(np.argmax(gaps))
    estimate = float(gaps[where])
    empirical = np.clip((where + 0.5) / r, 0.5 / r, 1 - 0.5 / r)
    margin = float(np.sqrt(np.log(2.0 / (1.0 - level)) / (2.0 * r)))
    error = float(np.sqrt(empirical * (1 - empirical) / r))
    interval = max(0.0, estimate - margin), min(1.0, estimate + margin)
    return Distance(name, estimate, error, interval, _KOLMOGOROV_MEAN / np.sqrt(r), r, level)


def _directions(dim: int, count: int, seed: int) -> FloatArray:
    """The axes, and as many random unit vectors as asked for."""
    random = np.random.default_rng(seed).standard_normal((count, dim))
    return np.concatenate([np.eye(dim), random / np.linalg.norm(random, axis=1, keepdims=True)])


@lru_cache(maxsize=64)
def _half_space_floor(dim: int, count: int, seed: int, replicates: int) -> float:
    """The mean of the largest distance over these directions for Gaussian samples of this size.

    It shrinks as R^-1/2 from a few hundred runs on, so larger samples need not be drawn.
    """
    drawn = min(replicates, 1000)
    units = _directions(dim, count, seed)
    rng = np.random.default_rng([seed, drawn])
    largest = []
    for _ in range(20):
        z = rng.standard_normal((drawn, dim))
        largest.append(max(_kolmogorov("", z @ u, special.ndtr, 0.95).estimate for u in units))
    return float(np.mean(largest) * np.sqrt(drawn / replicates))
