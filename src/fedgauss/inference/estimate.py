"""An estimate with its covariance, and what follows from the two: errors, intervals, tests, a summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np

from fedgauss import _checks
from fedgauss._shown import Shown
from fedgauss._types import ArrayLike, FloatArray, IntArray
from fedgauss.inference.coefficient_table import CoefficientTable, Named, summary_html, summary_text
from fedgauss.inference.hypotheses import Combinations, read_combinations, read_hypotheses
from fedgauss.inference.reference_laws import BootstrapLaw, ChiSquared, JointTest, RandomScalingLaw, StudentT

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
    """An estimate with standard errors, intervals and tests, of `infer` and `infer_run`. Printed, it is a table.

    Attributes
    ----------
    params : (d,) ndarray
        The estimate; ``params["age"]`` is found by name, and so are `std_errors`, `z_values` and `p_values`.
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
    intercepts : tuple of int
        Which parameters are intercepts.
    shapes : tuple of int
        Which parameters are no coefficients, such as log(alpha) of a negative binomial family.
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
    intercepts: tuple[int, ...] = ()
    shapes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if getattr(self.params, "names", None) != self.names:
            object.__setattr__(self, "params", Named(self.params, self.names))

    @property
    def std_errors(self) -> FloatArray:
        """Standard errors, (d,); NaN where a variance is lost in rounding, as with rows that are fitted exactly."""
        with np.errstate(invalid="ignore"):
            return Named(np.sqrt(np.diag(self.cov)), self.names)

    @property
    def z_values(self) -> FloatArray:
        """params / std_errors, (d,)."""
        return self.params / self.std_errors

    @property
    def p_values(self) -> FloatArray:
        """Two-sided p-values of the hypotheses that single parameters are zero, (d,)."""
        return Named(self._law.p_values(np.asarray(self.params), np.asarray(self.std_errors)), self.names)

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
        return self._about(self._law.half_widths(np.asarray(self.std_errors), self._level(level)))

    def simultaneous(self, level: float | None = None, seed: int = 0) -> FloatArray:
        """Confidence intervals that cover all parameters at once with this level.

        By the largest of correlated |z|, or of |t| where `dof` is finite; for random scaling by Bonferroni.

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

    def contrast(self, matrix: Combinations, level: float | None = None) -> Estimate:
        """Estimates of linear combinations of the parameters.

        Parameters
        ----------
        matrix : str, mapping, sequence of these, or (q, d) or (d,) array_like
            Combinations in words, as weights by name, or a row for each.
        level : float, optional
            That of the estimate by default.

        Returns
        -------
        Estimate
            Of matrix @ theta.

        Raises
        ------
        ValueError
            If a text is no combination such as "age - 2*dose", or has a name that no parameter has.

        Examples
        --------
        >>> estimate = Estimate([0.5, 0.2], [[0.04, 0.0], [0.0, 0.05]], 0.95, "plugin", ("age", "dose"))
        >>> estimate.contrast("age - dose")
        <Federated estimate of 1 parameters, plugin>
        >>> estimate.contrast({"age": 10, "dose": -1}).params
        10*age - dose   4.8
        >>> estimate.contrast([1, -1]).conf_int().round(2)
        array([[-0.29,  0.89]])
        """
        rows, names = read_combinations(matrix, self.names)
        c = self._rows_of(rows)
        draws = None if self.deviations is None else self.deviations @ c.T
        return Estimate(
            c @ self.params, c @ self.cov @ c.T, self._level(level), self.method, names, self.facts, self.notes,
            dof=self.dof, deviations=draws,
        )  # fmt: skip

    def wald(self, matrix: Combinations | None = None, value: ArrayLike | float = 0.0) -> JointTest:
        """Joint test of matrix @ theta = value.

        Parameters
        ----------
        matrix : str, mapping, sequence of these, or (q, d) or (d,) array_like, optional
            Hypotheses in words, such as "age = dose" or ["age", "dose = 1"]; weights by name; or a row for each
            hypothesis. By default the identity: all parameters at once.
        value : float or (q,) array_like
            The right-hand side, where no text has one.

        Returns
        -------
        ChiSquared, FisherF or RandomScaled
            Chi-squared; Hotelling's where `dof` is finite, and for the bootstrap, whose covariance is of B chains; a
            law of its own for random scaling.

        Raises
        ------
        ValueError
            If a text is no hypothesis, or hypotheses are tied to each other.

        Examples
        --------
        >>> estimate = Estimate([0.5, 0.2], [[0.04, 0.0], [0.0, 0.05]], 0.95, "plugin", ("age", "dose"))
        >>> print(estimate.wald("age = dose"))
        chi2(1) = 1.00, p = 0.317
        >>> print(estimate.wald(["age", "dose"]))
        chi2(2) = 7.05, p = 0.0295
        """
        read = read_hypotheses(np.eye(len(self.params)) if matrix is None else matrix, self.names)
        c = self._rows_of(read.matrix)
        want = _checks.real_array("value", value)
        if want.shape not in ((), (len(c),)):
            raise ValueError(f"value must be a number, or {len(c)}, one for each row; got shape {want.shape}.")
        if read.equated and want.any():
            raise ValueError(f"value must be left out where a hypothesis has its own right-hand side; got {value!r}.")
        gap = c @ self.params - read.value - want
        return self._law.joint_test(float(gap @ np.linalg.solve(self._regular(c), gap)), len(c))

    def ellipsoid(self, level: float | None = None) -> Ellipsoid:
        """The joint confidence set of all parameters.

        Parameters
        ----------
        level : float, optional
            That of the estimate by default.
        """
        q = len(self.params)
        return Ellipsoid(np.asarray(self.params), self._regular(np.eye(q)), self._law.radius2(self._level(level), q))

    def to_frame(self, exp: bool = False) -> Any:
        """The table as a pandas DataFrame with a row for each parameter, by name.

        Parameters
        ----------
        exp : bool
            Whether to show exponentials: odds, rate or hazard ratios. Ends of intervals are then exponentials too, the
            standard error is by the delta method, `z` and `p` stay those of the coefficient, and intercepts and
            shapes, whose exponential is no ratio, are left out.

        Returns
        -------
        pandas.DataFrame
            Columns estimate, std_error, z, p, low and high.
        """
        return CoefficientTable.of(self, exp).frame()

    def to_latex(self, exp: bool = False) -> str:
        """The table as a LaTeX tabular, with the rules of the package booktabs.

        Parameters
        ----------
        exp : bool
            As in `to_frame`.
        """
        return CoefficientTable.of(self, exp).latex()

    def plot(self, exp: bool = False) -> Any:
        """A figure of the coefficients with their intervals; all others are left out unless there is nothing else.

        Parameters
        ----------
        exp : bool
            Whether to show exponentials: odds, rate or hazard ratios on a logarithmic axis.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from fedgauss.inference.figures import coefficient_figure

        return coefficient_figure(self, exp)

    def summary(self) -> str:
        """The table as text, in the manner of statsmodels: facts, a row for each parameter, tests, notes."""
        return summary_text(self)

    def shown_facts(self) -> dict[str, str]:
        """The facts of a summary."""
        return self.facts

    def site_lines(self) -> list[str]:
        """What a summary says about the sites' own estimates."""
        return []

    def site_html(self) -> str:
        """The same as HTML."""
        return ""

    def slopes(self) -> IntArray:
        """Which parameters are neither intercepts nor shapes; all of them, if there is nothing else."""
        every = np.arange(len(self.names))
        rest = np.setdiff1d(every, np.asarray(self.intercepts + self.shapes, dtype=int))
        return rest if len(rest) else every

    def with_notes(self, *notes: str) -> Self:
        """The same estimate with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return summary_html(self)

    def __repr__(self) -> str:
        return f"<Federated estimate of {len(self.params)} parameters, {self.method}>"

    @property
    def _law(self) -> StudentT:
        return self.law_of(self.deviations)

    def law_of(self, deviations: FloatArray | None) -> StudentT:
        """What an error is referred to, given draws of it where there are any: the one place where methods differ."""
        if deviations is not None:
            return BootstrapLaw(float(len(deviations)), deviations)
        return RandomScalingLaw(np.inf) if self.method == "random_scaling" else StudentT(self.dof)

    def _about(self, half: FloatArray) -> FloatArray:
        centre = np.asarray(self.params)
        return np.column_stack([centre - half, centre + half])

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


def checked_readout(readout: Readout | None, dim: int) -> Readout:
    """A map of d parameters to as many; theta itself by default."""
    if readout is None:
        return Readout(np.eye(dim), np.zeros(dim))
    fix = "Leave readout out, and multiply params and cov of the estimate by a matrix that picks some?"
    matrix = _checks.real_array("the matrix of readout", readout.matrix, shape=(dim, dim), fix=fix)
    return Readout(matrix, _checks.real_array("the offset of readout", readout.offset, shape=(dim,)))


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
