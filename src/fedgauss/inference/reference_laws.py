"""Laws that errors are referred to, one class each: what a method changes about intervals and tests."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import special  # scipy.stats takes long to load

from fedgauss._types import FloatArray

_DRAWS = 100_000  # for simultaneous intervals: the 95 % point has an error of about .005


class ChiSquared(NamedTuple):
    """A statistic, its degrees of freedom and the chance of a larger one under the hypothesis."""

    statistic: float
    dof: int
    p_value: float

    def __str__(self) -> str:
        return f"chi2({self.dof}) = {self.statistic:.2f}, p = {self.p_value:.3g}"


class FisherF(NamedTuple):
    """Hotelling's test as an F: the statistic, its two degrees of freedom, and the chance of a larger one."""

    statistic: float
    dof: int
    dof_below: float
    p_value: float

    def __str__(self) -> str:
        return f"F({self.dof}, {self.dof_below:.4g}) = {self.statistic:.2f}, p = {self.p_value:.3g}"


class RandomScaled(NamedTuple):
    """A joint test by random scaling, whose statistic has a law of its own."""

    statistic: float
    parameters: int
    p_value: float

    def __str__(self) -> str:
        return f"random scaling, {self.parameters} parameters: {self.statistic:.2f}, p = {self.p_value:.3g}"


JointTest = ChiSquared | FisherF | RandomScaled


@dataclass(frozen=True)
class StudentT:
    """Student's t with the degrees of freedom of the covariance, normal if these are infinite; jointly Hotelling's."""

    dof: float

    or_more: ClassVar[str] = ""

    def p_values(self, params: FloatArray, errors: FloatArray) -> FloatArray:
        """Of the hypotheses that single parameters are zero, two-sided."""
        return 2.0 * t_below(-np.abs(params / errors), self.dof)

    def half_widths(self, errors: FloatArray, level: float) -> FloatArray:
        """Of intervals for single parameters."""
        return t_quantile(0.5 + level / 2, self.dof) * errors

    def simultaneous(self, cov: FloatArray, level: float, seed: int) -> FloatArray:
        """Half widths of intervals that cover all parameters at once: by the largest of correlated |z| or |t|."""
        errors = np.sqrt(np.diag(cov))
        return np.quantile(np.max(np.abs(self._errors_like(cov, seed) / errors), axis=1), level) * errors

    def _errors_like(self, cov: FloatArray, seed: int) -> FloatArray:
        """Draws of the estimate's error, (n, d)."""
        errors = np.sqrt(np.diag(cov))
        values, vectors = np.linalg.eigh(cov / np.outer(errors, errors))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        generator = np.random.default_rng(seed)
        draws = generator.standard_normal((_DRAWS, len(errors))) @ root.T * errors
        if np.isfinite(self.dof):
            draws /= np.sqrt(generator.chisquare(self.dof, (_DRAWS, 1)) / self.dof)
        return draws

    def joint_test(self, statistic: float, q: int) -> JointTest:
        """Of q contrasts at once, from z' S^-1 z."""
        f = self.dof
        if np.isfinite(f):
            scaled = statistic * (f - q + 1) / (f * q)
            return FisherF(scaled, q, f - q + 1, float(special.fdtrc(q, f - q + 1, scaled)))
        return ChiSquared(statistic, q, float(special.chdtrc(q, statistic)))

    def radius2(self, level: float, q: int) -> float:
        """Of the joint confidence set of q parameters."""
        finite = np.isfinite(self.dof)
        return hotelling_radius2(level, q, self.dof) if finite else float(special.chdtri(q, 1.0 - level))

    def check_joint(self, q: int) -> None:
        """Refuse a joint statement about more contrasts than the covariance has degrees of freedom."""
        if q > self.dof:
            raise ValueError(
                f"{self._sample()} allow joint statements about at most {int(self.dof)} parameters; {q} were asked "
                f"for. Use fewer rows in matrix{self.or_more}."
            )

    def _sample(self) -> str:
        """What the covariance was estimated from."""
        return f"{self.dof + 1:.3g} clients"


@dataclass(frozen=True)
class BootstrapLaw(StudentT):
    """Quantiles of B draws of the error, (B, d). They are about a known centre, so that each is a degree of freedom."""

    deviations: FloatArray

    or_more = ", or more bootstraps"

    def p_values(self, params: FloatArray, errors: FloatArray) -> FloatArray:
        """The levels at which intervals just reach zero."""
        return np.array([_share_beyond(*pair) for pair in zip(np.abs(params), self.deviations.T, strict=True)])

    def half_widths(self, errors: FloatArray, level: float) -> FloatArray:
        """Quantiles of |deviation|."""
        return np.quantile(np.abs(self.deviations), level, axis=0)

    def _errors_like(self, cov: FloatArray, seed: int) -> FloatArray:
        return self.deviations

    def _sample(self) -> str:
        return f"{self.dof:.3g} chains"


@dataclass(frozen=True)
class RandomScalingLaw(StudentT):
    """The law of a statistic whose covariance is random; simultaneous intervals by Bonferroni."""

    def p_values(self, params: FloatArray, errors: FloatArray) -> FloatArray:
        """From simulated Brownian paths."""
        return random_scaling_p_value((params / errors) ** 2)

    def half_widths(self, errors: FloatArray, level: float) -> FloatArray:
        """From simulated Brownian paths."""
        return random_scaling_critical(level) ** 0.5 * errors

    def simultaneous(self, cov: FloatArray, level: float, seed: int) -> FloatArray:
        """Each with its share of the error."""
        return self.half_widths(np.sqrt(np.diag(cov)), 1.0 - (1.0 - level) / len(cov))

    def joint_test(self, statistic: float, q: int) -> JointTest:
        """In q dimensions."""
        return RandomScaled(statistic, q, float(random_scaling_p_value(statistic, q)))

    def radius2(self, level: float, q: int) -> float:
        """In q dimensions."""
        return random_scaling_critical(level, q)


@cache
def _random_scaling_draws(dim: int) -> FloatArray:
    """Sorted draws of W(1)' [int (W(r) - r W(1)) (W(r) - r W(1))' dr]^-1 W(1), W a Brownian motion in `dim` dimensions.

    By simulation with a fixed seed: 20,000 paths, of 1,000 steps in one dimension and fewer in more.
    """
    generator, steps = np.random.default_rng(20220901), max(200, 1000 // dim)
    draws: list[FloatArray] = []
    for _ in range(20):
        path = np.cumsum(generator.standard_normal((1000, steps, dim)), axis=1) / np.sqrt(steps)
        last = path[:, -1]
        bridge = path - np.arange(1, steps + 1)[:, None] / steps * last[:, None]
        scale = np.einsum("psi,psj->pij", bridge, bridge) / steps
        draws.append(np.einsum("pi,pi->p", last, np.linalg.solve(scale, last[..., None])[..., 0]))
    return np.sort(np.concatenate(draws))


def random_scaling_critical(level: float, dim: int = 1) -> float:
    """The `level` quantile of the statistic of a joint test of `dim` parameters.

    For one parameter its root is what an interval reaches out by: 6.75 at .95, with an error of about one per cent.
    """
    return float(np.quantile(_random_scaling_draws(dim), level))


def random_scaling_p_value(statistic: FloatArray | float, dim: int = 1) -> FloatArray:
    """The chance of a larger statistic under the hypothesis; the least that 20,000 draws can tell is 1 / 20,001."""
    draws = _random_scaling_draws(dim)
    return np.asarray((1.0 + len(draws) - np.searchsorted(draws, statistic)) / (1.0 + len(draws)), dtype=float)


def hotelling_radius2(level: float, dim: int, dof: float) -> float:
    """The quantile of z' S^-1 z, z ~ N(0, Sigma), where S estimates Sigma with so many degrees of freedom."""
    below = dof - dim + 1
    return float(special.fdtri(dim, below, level) * dof * dim / below)


def _share_beyond(size: float, draws: FloatArray) -> float:
    """The level at which an interval by quantiles of |draws| just reaches out to `size`; 1 / (B + 1) at the least."""
    order = np.sort(np.abs(draws))
    below = np.interp(size, order, np.linspace(0.0, 1.0, len(order)))
    return max(1.0 - float(below), 1.0 / (len(order) + 1))


def t_below(value: FloatArray, dof: float) -> FloatArray:
    """Student's distribution function."""
    return np.asarray(special.ndtr(value) if np.isinf(dof) else special.stdtr(dof, value))


def t_quantile(level: float, dof: float) -> float:
    """Student's quantile."""
    return float(special.ndtri(level) if np.isinf(dof) else special.stdtrit(dof, level))
