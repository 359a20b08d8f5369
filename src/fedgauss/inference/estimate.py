"""An estimate with its covariance, and what follows from the two: errors, intervals, tests, a summary."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from fedgauss import _checks
from fedgauss._deprecated import renamed_attribute
from fedgauss._shown import Shown
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.inference.reference_laws import BootstrapLaw, ChiSquared, JointTest, RandomScalingLaw, StudentT

_WIDTH = 78  # of a summary
_TIED = 1e-9  # the smallest eigenvalue of a correlation matrix: below that a contrast follows from the others


class Readout(NamedTuple):
    """How a parameter is reported: matrix @ theta + offset."""

    matrix: FloatArray  # (d, d)
    offset: FloatArray  # (d,)

    def of(self, theta: FloatArray) -> FloatArray:
        """The reported parameter."""
        return self.matrix @ theta + self.offset

    def cov(self, cov: FloatArray) -> FloatArray:
        """Its covariance."""
        return self.matrix @ cov @ self.matrix.T


@dataclass(frozen=True)
class Ellipsoid:
    """A joint confidence set: {theta: (theta - centre)' shape^-1 (theta - centre) <= radius2}.

    ``theta in ellipsoid`` says whether a parameter lies in it.
    """

    centre: FloatArray
    shape: FloatArray
    radius2: float

    def __contains__(self, theta: ArrayLike) -> bool:
        gap = _checks.real_array("theta", theta, shape=self.centre.shape) - self.centre
        return bool(gap @ np.linalg.solve(self.shape, gap) <= self.radius2)


@dataclass(frozen=True, repr=False)
class Estimate(Shown):
    """An estimate with standard errors, intervals and tests: what `infer` returns. Printed, it is a table.

    Attributes
    ----------
    params : (d,) ndarray
        The estimate.
    cov : (d, d) ndarray
        The covariance of the estimate.
    level : float
        Level of intervals, unless another is asked for.
    method : str
        How the covariance was found.
    names : tuple of str
        Names of the parameters.
    facts : dict
        What was run, in words by name.
    notes : tuple of str
        What a reader should know before trusting it.
    bias : (d,) ndarray or None
        Estimated bias in standard errors.
    predicted_coverage : (d,) ndarray or None
        What that bias leaves of the level.
    heterogeneity : ChiSquared or None
        Test of equal optima at all clients: `statistic`, `dof`, `p_value`.
    dof : float
        Degrees of freedom of Student's t for single parameters; infinite for a normal law.
    deviations : (B, d) ndarray or None
        Draws of the error, where the method makes them.
    """

    params: FloatArray
    cov: FloatArray
    level: float
    method: str
    names: tuple[str, ...]
    facts: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    bias: FloatArray | None = None
    predicted_coverage: FloatArray | None = None
    heterogeneity: ChiSquared | None = None
    dof: float = np.inf
    deviations: FloatArray | None = None

    freedom = renamed_attribute("freedom", "dof")

    @property
    def std_errors(self) -> FloatArray:
        """Standard errors, (d,)."""
        return np.sqrt(np.diag(self.cov))

    @property
    def z_values(self) -> FloatArray:
        """params / std_errors, (d,)."""
        return self.params / self.std_errors

    @property
    def p_values(self) -> FloatArray:
        """Two-sided p-values of the hypotheses that single parameters are zero, (d,)."""
        return self._law.p_values(self.params, self.std_errors)

    def conf_int(self, level: float | None = None) -> FloatArray:
        """Confidence intervals for single parameters.

        Parameters
        ----------
        level : float, optional
            That of the estimate by default.

        Returns
        -------
        (d, 2) ndarray
            Lower and upper ends.
        """
        return self._about(self._law.half_widths(self.std_errors, self._level(level)))

    def simultaneous(self, level: float | None = None, seed: int = 0) -> FloatArray:
        """Confidence intervals that cover all parameters at once with this level.

        By the largest of correlated |z|, or of |t| for a population of clients; for random scaling by Bonferroni.

        Parameters
        ----------
        level : float, optional
            That of the estimate by default.
        seed : int
            Of the draws that give the quantile.

        Returns
        -------
        (d, 2) ndarray
        """
        return self._about(self._law.simultaneous(self.cov, self._level(level), seed))

    def contrast(self, matrix: ArrayLike, level: float | None = None) -> Estimate:
        """Estimates of linear combinations of the parameters.

        Parameters
        ----------
        matrix : (q, d) or (d,) array_like
            A row for each combination.
        level : float, optional
            That of the estimate by default.

        Returns
        -------
        Estimate
            Of matrix @ theta.

        Examples
        --------
        >>> fit.contrast([0, 1, -1]).conf_int()
        """
        c = self._rows_of(matrix)
        draws = None if self.deviations is None else self.deviations @ c.T
        names = tuple(f"contrast {i + 1}" for i in range(len(c)))
        return Estimate(
            c @ self.params, c @ self.cov @ c.T, self._level(level), self.method, names, self.facts, self.notes,
            dof=self.dof, deviations=draws,
        )  # fmt: skip

    def wald(self, matrix: ArrayLike | None = None, value: ArrayLike | float = 0.0) -> JointTest:
        """Joint test of matrix @ theta = value.

        Parameters
        ----------
        matrix : (q, d) or (d,) array_like, optional
            By default the identity: all parameters at once.
        value : float or (q,) array_like
            The hypothesis.

        Returns
        -------
        ChiSquared, FisherF or RandomScaled
            Chi-squared; Hotelling's for a population of clients and for the bootstrap, whose covariance is of B chains;
            a law of its own for random scaling.
        """
        c = np.eye(len(self.params)) if matrix is None else self._rows_of(matrix)
        want = _checks.real_array("value", value)
        if want.shape not in ((), (len(c),)):
            raise ValueError(f"value must be a number, or {len(c)}, one for each row; got shape {want.shape}.")
        gap = c @ self.params - want
        return self._law.joint_test(float(gap @ np.linalg.solve(self._regular(c), gap)), len(c))

    def ellipsoid(self, level: float | None = None) -> Ellipsoid:
        """The joint confidence set of all parameters.

        Parameters
        ----------
        level : float, optional
            That of the estimate by default.
        """
        q = len(self.params)
        return Ellipsoid(self.params, self._regular(np.eye(q)), self._law.radius2(self._level(level), q))

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame with a row for each parameter."""
        try:
            import pandas  # type: ignore[import-untyped,unused-ignore]
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install 'fedgauss[frames]'.") from error
        low, high = self.conf_int().T
        columns = {"estimate": self.params, "std_error": self.std_errors, "z": self.z_values, "p": self.p_values}
        return pandas.DataFrame({**columns, "low": low, "high": high}, index=list(self.names))

    def summary(self) -> str:
        """The table as text, in the manner of statsmodels: facts, a row for each parameter, tests, notes."""
        cells = [f"{name}: {value}".ljust(_WIDTH // 2 - 1) for name, value in self.facts.items()]
        facts = ["  ".join(cells[i : i + 2]).rstrip() for i in range(0, len(cells), 2)]  # two a line
        name_width = max(12, *(len(name) for name in self.names))
        width = max(_WIDTH, name_width + 66)
        lines = ["Federated estimate".center(width).rstrip(), "=" * width, *facts, "=" * width]
        low, high = (1.0 - self.level) / 2, (1.0 + self.level) / 2
        heads = ["estimate", "std err", "z", "P>|z|", f"[{low:.3g}", f"{high:.3g}]"]
        lines += [" " * name_width + "".join(f"{head:>11}" for head in heads), "-" * width]
        columns = (self.params, self.std_errors, self.z_values, self.p_values, *self.conf_int().T)
        for name, value, error, z, p, *ends in zip(self.names, *columns, strict=True):
            interval = "".join(map(_number, ends))
            lines.append(f"{name.ljust(name_width)}{_number(value)}{_number(error)}{z:11.3f}{p:11.3f}{interval}")
        lines.append("=" * width)
        if self.heterogeneity is not None:
            lines.append(f"Heterogeneity test: {self.heterogeneity}")
        if self.bias is not None and self.predicted_coverage is not None:
            worst = int(abs(self.bias).argmax())
            lines.append(
                f"Largest bias: {self.bias[worst]:.2f} standard errors ({self.names[worst]}); its interval then "
                f"covers {self.predicted_coverage[worst]:.3f}"
            )
        for note in self.notes:
            lines += textwrap.wrap(note, _WIDTH)
        return "\n".join(lines)

    def with_notes(self, *notes: str) -> Estimate:
        """The same estimate with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<Federated estimate of {len(self.params)} parameters, {self.method}>"

    @property
    def _law(self) -> StudentT:
        """What the error is referred to: the one place where methods differ."""
        if self.deviations is not None:
            return BootstrapLaw(float(len(self.deviations)), self.deviations)
        return RandomScalingLaw(np.inf) if self.method == "random_scaling" else StudentT(self.dof)

    def _about(self, half: FloatArray) -> FloatArray:
        return np.column_stack([self.params - half, self.params + half])

    def _rows_of(self, matrix: ArrayLike) -> FloatArray:
        """Contrasts, (q, d)."""
        c = np.atleast_2d(_checks.real_array("matrix", matrix))
        if c.ndim != 2 or c.shape[1] != len(self.params):
            raise ValueError(f"matrix must have {len(self.params)} columns, one for each parameter; got {c.shape}.")
        if not np.all(np.any(c != 0.0, axis=1)):
            raise ValueError("matrix must have no row of zeros: such a contrast is always 0.")
        return c

    def _regular(self, c: FloatArray) -> FloatArray:
        """The covariance of c @ theta, where a joint statement can be made about it."""
        self._law.check_joint(len(c))
        cov = c @ self.cov @ c.T
        scale = np.sqrt(np.diag(cov))
        if np.linalg.eigvalsh(cov / np.outer(scale, scale))[0] < _TIED:
            raise ValueError(
                f"a joint statement needs {len(c)} contrasts that are not tied to each other; the covariance of these "
                "is singular. Leave out those that follow from the others."
            )
        return cov

    def _level(self, level: float | None) -> float:
        return self.level if level is None else _checks.level(level)


def checked_names(names: Sequence[str] | None, dim: int) -> tuple[str, ...]:
    """Names of d parameters; theta_1, theta_2, ... by default."""
    if names is None:
        return tuple(f"theta_{i + 1}" for i in range(dim))
    if len(names) != dim:
        raise ValueError(f"names must be {dim}, one for each parameter; got {len(names)}.")
    if len(set(names)) < dim:
        repeated = next(name for name in names if list(names).count(name) > 1)
        raise ValueError(f"names must differ; {repeated!r} occurs more than once.")
    return tuple(str(name) for name in names)


def _number(value: float) -> str:
    """Four decimals, or as many digits where these would show nothing."""
    return f"{value:11.4f}" if value == 0.0 or 1e-2 <= abs(value) < 1e5 else f"{value:11.3e}"
