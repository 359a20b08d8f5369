"""An estimate with its covariance, and what follows from the two: errors, intervals, tests, a summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from fedgauss import _checks
from fedgauss._shown import Shown
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.inference.path_methods import random_scaling_critical, random_scaling_p_value

_TIED = 1e-9  # the smallest eigenvalue of a correlation matrix: below that a contrast follows from the others
_DRAWS = 100_000  # for simultaneous intervals: the 95 % point has an error of about .005


class ChiSquared(NamedTuple):
    """A statistic, its degrees of freedom and the chance of a larger one under the hypothesis."""

    statistic: float
    freedom: int
    p_value: float

    def __str__(self) -> str:
        return f"chi2({self.freedom}) = {self.statistic:.2f}, p = {self.p_value:.3g}"


class FisherF(NamedTuple):
    """Hotelling's test as an F: the statistic, its two degrees of freedom, and the chance of a larger one."""

    statistic: float
    freedom: int
    freedom_below: float
    p_value: float

    def __str__(self) -> str:
        return f"F({self.freedom}, {self.freedom_below:.4g}) = {self.statistic:.2f}, p = {self.p_value:.3g}"


class RandomScaled(NamedTuple):
    """A joint test by random scaling, whose statistic has a law of its own."""

    statistic: float
    parameters: int
    p_value: float

    def __str__(self) -> str:
        return f"random scaling, {self.parameters} parameters: {self.statistic:.2f}, p = {self.p_value:.3g}"


JointTest = ChiSquared | FisherF | RandomScaled


@dataclass(frozen=True)
class Ellipsoid:
    """{theta: (theta - centre)' shape^-1 (theta - centre) <= radius2}."""

    centre: FloatArray
    shape: FloatArray
    radius2: float

    def __contains__(self, theta: ArrayLike) -> bool:
        gap = _checks.real_array("theta", theta, shape=self.centre.shape) - self.centre
        return bool(gap @ np.linalg.solve(self.shape, gap) <= self.radius2)


@dataclass(frozen=True, repr=False)
class Estimate(Shown):
    """What `infer` returns. Printed, it is a table in the manner of statsmodels.

    params  the estimate, (d,)
    cov     the covariance of the estimate itself, (d, d)
    level   of intervals, unless another is asked for
    names   of the parameters
    facts   what the run was, in words by name
    notes   what a reader should know before trusting it
    """

    params: FloatArray
    cov: FloatArray
    level: float
    method: str
    names: tuple[str, ...]
    facts: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    bias: FloatArray | None = None  # estimated, in standard errors, (d,)
    predicted_coverage: FloatArray | None = None  # what that bias leaves of the level, (d,)
    heterogeneity: ChiSquared | None = None
    freedom: float = np.inf  # of Student's t for single coordinates
    deviations: FloatArray | None = None  # draws of the error, (B, d), where the method makes them

    @property
    def std_errors(self) -> FloatArray:
        """Square roots of the diagonal of `cov`."""
        return np.sqrt(np.diag(self.cov))

    @property
    def z_values(self) -> FloatArray:
        """params / std_errors."""
        return self.params / self.std_errors

    @property
    def p_values(self) -> FloatArray:
        """Of the hypotheses that single parameters are zero, two-sided."""
        if self.deviations is not None:
            return np.array([_share_beyond(*pair) for pair in zip(np.abs(self.params), self.deviations.T, strict=True)])
        if self.method == "random_scaling":
            return random_scaling_p_value(self.z_values**2)
        return 2.0 * stats.t.sf(np.abs(self.z_values), self.freedom)

    def conf_int(self, level: float | None = None) -> FloatArray:
        """Intervals for single parameters, (d, 2)."""
        how_sure = self._level(level)
        if self.deviations is not None:
            half = np.quantile(np.abs(self.deviations), how_sure, axis=0)
        elif self.method == "random_scaling":
            half = random_scaling_critical(how_sure) ** 0.5 * self.std_errors
        else:
            half = stats.t.ppf(0.5 + how_sure / 2, self.freedom) * self.std_errors
        return np.column_stack([self.params - half, self.params + half])

    def contrast(self, matrix: ArrayLike, level: float | None = None) -> Estimate:
        """Estimates of matrix @ theta, (q, d) or (d,), as an `Estimate` of their own."""
        c = self._rows_of(matrix)
        draws = None if self.deviations is None else self.deviations @ c.T
        names = tuple(f"contrast {i + 1}" for i in range(len(c)))
        return Estimate(
            c @ self.params, c @ self.cov @ c.T, self._level(level), self.method, names, self.facts, self.notes,
            freedom=self.freedom, deviations=draws,
        )  # fmt: skip

    def wald(self, matrix: ArrayLike | None = None, value: ArrayLike | float = 0.0) -> JointTest:
        """The joint test of matrix @ theta = value; without a matrix, of all parameters at once.

        Chi-squared; Hotelling's for a population of clients and for the bootstrap, whose covariance is of B chains; a
        law of its own for random scaling.
        """
        c = np.eye(len(self.params)) if matrix is None else self._rows_of(matrix)
        want = _checks.real_array("value", value)
        if want.shape not in ((), (len(c),)):
            raise ValueError(f"value must be a number, or {len(c)}, one for each row; got shape {want.shape}.")
        gap = c @ self.params - want
        statistic = float(gap @ np.linalg.solve(self._regular(c), gap))
        q, f = len(c), self._joint_freedom
        if self.method == "random_scaling":
            return RandomScaled(statistic, q, float(random_scaling_p_value(statistic, q)))
        if np.isfinite(f):
            scaled = statistic * (f - q + 1) / (f * q)
            return FisherF(scaled, q, f - q + 1, float(stats.f.sf(scaled, q, f - q + 1)))
        return ChiSquared(statistic, q, float(stats.chi2.sf(statistic, q)))

    def ellipsoid(self, level: float | None = None) -> Ellipsoid:
        """The joint confidence set of all parameters."""
        how_sure, q, f = self._level(level), len(self.params), self._joint_freedom
        cov = self._regular(np.eye(q))
        if self.method == "random_scaling":
            radius2 = random_scaling_critical(how_sure, q)
        elif np.isfinite(f):
            radius2 = hotelling_radius2(how_sure, q, f)
        else:
            radius2 = float(stats.chi2.ppf(how_sure, q))
        return Ellipsoid(self.params, cov, radius2)

    def simultaneous(self, level: float | None = None, seed: int = 0) -> FloatArray:
        """Intervals that cover all parameters at once with this level, (d, 2).

        By the largest of correlated |z|, or of |t| for a population of clients; for random scaling by Bonferroni.
        """
        how_sure, errors = self._level(level), self.std_errors
        if self.method == "random_scaling":
            return self.conf_int(1.0 - (1.0 - how_sure) / len(errors))
        draws = self.deviations
        if draws is None:
            values, vectors = np.linalg.eigh(self.cov / np.outer(errors, errors))
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            generator = np.random.default_rng(seed)
            draws = generator.standard_normal((_DRAWS, len(errors))) @ root.T * errors
            if np.isfinite(self.freedom):
                draws /= np.sqrt(generator.chisquare(self.freedom, (_DRAWS, 1)) / self.freedom)
        half = np.quantile(np.max(np.abs(draws / errors), axis=1), how_sure) * errors
        return np.column_stack([self.params - half, self.params + half])

    def to_frame(self) -> Any:
        """The table as a pandas frame, a row for each parameter."""
        try:
            import pandas  # type: ignore[import-untyped,unused-ignore]
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install 'fedgauss[frames]'.") from error
        low, high = self.conf_int().T
        columns = {"estimate": self.params, "std_error": self.std_errors, "z": self.z_values, "p": self.p_values}
        return pandas.DataFrame({**columns, "low": low, "high": high}, index=list(self.names))

    def summary(self) -> str:
        """The table as text."""
        from fedgauss.inference.summary import summary_text

        return summary_text(self)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<Federated estimate of {len(self.params)} parameters, {self.method}>"

    def _rows_of(self, matrix: ArrayLike) -> FloatArray:
        """Contrasts, (q, d)."""
        c = np.atleast_2d(_checks.real_array("matrix", matrix))
        if c.ndim != 2 or c.shape[1] != len(self.params):
            raise ValueError(f"matrix must have {len(self.params)} columns, one a parameter; got shape {c.shape}.")
        if not np.all(np.any(c != 0.0, axis=1)):
            raise ValueError("matrix must have no row of zeros: such a contrast is always 0.")
        return c

    def _regular(self, c: FloatArray) -> FloatArray:
        """The covariance of c @ theta, where a joint statement can be made about it."""
        most = self._joint_freedom
        if len(c) > most:
            who, fix = ("clients", "") if self.deviations is None else ("chains", ", or more bootstraps")
            count = most if self.deviations is not None else most + 1
            raise ValueError(
                f"{count:.3g} {who} say something about at most {int(most)} parameters at once; {len(c)} were asked "
                f"for. Use fewer rows in matrix{fix}."
            )
        cov = c @ self.cov @ c.T
        scale = np.sqrt(np.diag(cov))
        if np.linalg.eigvalsh(cov / np.outer(scale, scale))[0] < _TIED:
            raise ValueError(
                f"a joint statement needs {len(c)} contrasts that are not tied to each other; the covariance of these "
                "is singular. Leave out those that follow from the others."
            )
        return cov

    @property
    def _joint_freedom(self) -> float:
        """Behind `cov` as a whole: draws of the bootstrap are about a known centre, so that each counts."""
        return self.freedom if self.deviations is None else float(len(self.deviations))

    def _level(self, level: float | None) -> float:
        return self.level if level is None else _checks.probability("level", level, fix="Use 0.95?")


def hotelling_radius2(level: float, dim: int, freedom: float) -> float:
    """The quantile of z' S^-1 z, z ~ N(0, Sigma), where S estimates Sigma with so many degrees of freedom."""
    below = freedom - dim + 1
    return float(stats.f.ppf(level, dim, below) * freedom * dim / below)


def _share_beyond(size: float, draws: FloatArray) -> float:
    """The level at which an interval by quantiles of |draws| just reaches out to `size`; 1 / (B + 1) at the least."""
    order = np.sort(np.abs(draws))
    below = np.interp(size, order, np.linspace(0.0, 1.0, len(order)))
    return max(1.0 - float(below), 1.0 / (len(order) + 1))


def checked_names(names: Sequence[str] | None, dim: int) -> tuple[str, ...]:
    """Names of d parameters; theta_1, theta_2, ... by default."""
    if names is None:
        return tuple(f"theta_{i + 1}" for i in range(dim))
    if len(names) != dim:
        raise ValueError(f"names must be {dim}, one a parameter; got {len(names)}.")
    if len(set(names)) < dim:
        twice = next(name for name in names if list(names).count(name) > 1)
        raise ValueError(f"names must differ; {twice!r} occurs more than once.")
    return tuple(str(name) for name in names)
