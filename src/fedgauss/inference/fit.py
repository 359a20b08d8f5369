"""`fit`: a regression on a frame whose rows belong to clients, with a summary like statsmodels'."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any, Literal, ParamSpec

from fedgauss import _checks
from fedgauss.families import Family
from fedgauss.inference.fit_result import Fit
from fedgauss.inference.model import Errors, Model
from fedgauss.inference.model_data import read_model_data
from fedgauss.inference.sgd import SGD

P = ParamSpec("P")


def _with_advice(fit: Callable[P, Fit]) -> Callable[P, Fit]:
    """`fit`, which answers an option of `Model` or of `SGD` with the line to type."""
    own = inspect.signature(fit).parameters

    @wraps(fit)
    def call(*args: P.args, **options: P.kwargs) -> Fit:
        foreign = options.keys() - own.keys()
        for name, made in (("model", Model), ("solver", SGD)):
            if rare := [part.name for part in fields(made) if part.name in foreign]:
                line = _line(dict(zip(own, args, strict=False)) | options, name, made)
                raise TypeError(f"{rare[0]} is an option of fg.{made.__name__}: use {line}.")
        return fit(*args, **options)

    return call


def _line(given: dict[str, Any], name: str, made: type) -> str:
    """The call that was meant, with what belongs to a Model or to SGD inside it."""
    inside = {part.name for part in fields(made)}
    parts = [f"{key}={_short(value)}" for key, value in given.items() if key in inside and value is not None]
    rest = [f"{key}={_short(value)}" for key, value in given.items() if key not in {"frame", "solver", *inside}]
    if name == "solver":
        return ", ".join(["fg.fit(frame", *rest, f"solver=fg.SGD({', '.join(parts)}))"])
    written = f"fg.Model({', '.join(parts)})".replace("(target=", "(", 1)
    return ", ".join(["fg.fit(frame", written, *rest]) + ")"


def _short(value: Any) -> str:
    return repr(value) if isinstance(value, str) else reprlib.repr(value)


@_with_advice
def fit(
    frame: Any,
    target: str | Model | None = None,
    client: str | None = None,
    family: str | Family | None = None,
    features: Sequence[str] | None = None,
    formula: str | None = None,
    *,
    errors: Errors | None = None,
    missing: Literal["refuse", "drop"] | None = None,
    solver: SGD | Literal["scoring"] = "scoring",
    level: float = 0.95,
    progress: bool | None = None,
) -> Fit:
    """Fit a regression to rows that belong to clients, with standard errors and intervals.

    The fit is exact: the maximum-likelihood fit of all rows together, from sums over each client's rows in a few
    rounds.

    Parameters
    ----------
    frame : DataFrame or dict
        A pandas or polars DataFrame, or a dictionary of columns.
    target : str or Model
        The column to explain, or a formula such as "y ~ a*b + log(c) + C(d)", or a `Model`, which has all options of
        a regression: weights, exposures, links, penalties.
    client : str
        The column that says to whom a row belongs.
    family : str or Family, optional
        "gaussian", "binomial", "poisson", "gamma", "negative_binomial", "multinomial", "cox", "huber",
        "one_versus_rest", any other registered name, or an instance of a family (`fedgauss.families`). By default
        "gaussian" where the target is a number with more than two values.
    features : sequence of str, optional
        The covariates; by default all other columns. Text, categories and true/false columns become indicators, with
        the first level as base.
    formula : str, optional
        In place of `features`.
    errors : {"HC0", "HC1", "model", "cluster", "site"}, optional
        Standard errors: robust to a wrong variance, the default, the same with n / (n - d), by the model, or
        clustered, each client a cluster for "site".
    missing : {"refuse", "drop"}, optional
        What to do about rows with a missing value: refuse the fit, the default, or leave them out and say how many.
    solver : "scoring" or SGD
        "scoring" is exact. `SGD(...)` is the paper's: local SGD, for rows that are read once and peers without a
        coordinator.
    level : float
        Level of the intervals.
    progress : bool, optional
        Whether to show a progress bar; by default in a terminal and for long runs.

    Returns
    -------
    Fit

    Raises
    ------
    ValueError
        If the data cannot be fitted: missing values, collinear columns, separable classes and so on.

    Examples
    --------
    >>> import numpy as np
    >>> import fedgauss as fg
    >>> rng = np.random.default_rng(0)
    >>> patients = {"hospital": rng.integers(0, 3, 600), "dose": rng.normal(size=600)}
    >>> patients["readmitted"] = (rng.random(600) < 1 / (1 + np.exp(1 - patients["dose"]))).astype(int)
    >>> fit = fg.fit(patients, "readmitted ~ dose", client="hospital", family="binomial")
    >>> print(f"{fit.params['dose']:.3f} ({fit.std_errors[1]:.3f})")
    0.949 (0.114)
    >>> print(fit.wald("dose = 1"))
    chi2(1) = 0.20, p = 0.658
    """
    level = _checks.level(level)
    given = {"family": family, "features": features, "formula": formula, "errors": errors, "missing": missing}
    given = {name: value for name, value in given.items() if value is not None}
    if client is None:
        raise ValueError("client must name a column of the frame, that says to whom a row belongs; got None.")
    if isinstance(target, Model) and given:
        raise ValueError(f"{' and '.join(given)} must be given to the Model, where there is one.")
    model = target if isinstance(target, Model) else Model(target, **given)  # type: ignore[arg-type]
    if not isinstance(solver, SGD) and solver != "scoring":
        raise ValueError(f"solver must be 'scoring' or settings of the paper's pass, fg.SGD(); got {solver!r}.")
    data = read_model_data(frame, client, model)
    if isinstance(solver, SGD):
        from fedgauss.inference.fit_sgd import fit_by_sgd

        return fit_by_sgd(data, solver, model, level, progress)
    from fedgauss.inference.fit_exact import fit_exactly

    return fit_exactly(data, model.errors, level, model.ridge)
