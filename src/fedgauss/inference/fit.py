"""`fit`: a regression on a frame whose rows belong to clients, with a summary like statsmodels'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.families import Family
from fedgauss.inference.errors import Errors
from fedgauss.inference.estimate import Estimate
from fedgauss.inference.fit_result import Fit
from fedgauss.inference.frame_design import frame_design
from fedgauss.inference.model_data import ModelData, read_model_data
from fedgauss.inference.model_spec import ModelSpec

if TYPE_CHECKING:
    from fedgauss.networks import Network

Solver = Literal["scoring", "sgd"]
Method = Literal["plugin", "bootstrap", "random_scaling", "batch_means"]


@dataclass(frozen=True)
class SgdOptions:
    """What only solver='sgd' asks for; see `fit`."""

    passes: int | Literal["auto"] = 1
    sync_every: int = 10
    network: Network | ArrayLike | None = None
    method: Method = "plugin"
    seed: int = 0
    weights: ArrayLike | Literal["rows", "equal"] = "rows"
    standardise: bool = True
    clients: Literal["these", "population"] = "these"
    correct_drift: bool = False
    bootstraps: int = 200
    finish: int = 0

    @classmethod
    def given(cls, solver: Solver, **options: Any) -> SgdOptions:
        """Those that are not None; refused where they would do nothing."""
        chosen = {name: value for name, value in options.items() if value is not None}
        if chosen and solver != "sgd":
            names = " and ".join(chosen)
            raise ValueError(f"{names} belongs to solver='sgd'; the solver is {solver!r}, an exact fit. Leave it out?")
        return cls(**chosen)


def fit(
    frame: Any,
    target: str,
    client: str,
    family: str | Family | None = None,
    features: Sequence[str] | None = None,
    formula: str | None = None,
    *,
    intercept: bool = True,
    solver: Solver = "scoring",
    errors: Errors = "HC0",
    link: str | None = None,
    trials: str | None = None,
    event: str | None = None,
    offset: str | None = None,
    exposure: str | None = None,
    row_weights: str | None = None,
    cluster: str | None = None,
    site_effects: bool = False,
    missing: Literal["refuse", "drop"] = "refuse",
    ridge: float = 0.0,
    level: float = 0.95,
    passes: int | Literal["auto"] | None = None,
    sync_every: int | None = None,
    network: Network | ArrayLike | None = None,
    method: Method | None = None,
    seed: int | None = None,
    weights: ArrayLike | Literal["rows", "equal"] | None = None,
    standardise: bool | None = None,
    clients: Literal["these", "population"] | None = None,
    correct_drift: bool | None = None,
    bootstraps: int | None = None,
    finish: int | None = None,
    progress: bool | None = None,
) -> Fit:
    """Fit a regression to rows that belong to clients, with standard errors and intervals.

    Parameters
    ----------
    frame : DataFrame or dict
        A pandas or polars DataFrame, or a dictionary of columns.
    target : str
        The column to explain.
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
        In place of `features`: "y ~ a*b + log(c) + C(d) + ns(e, df=4)", with "- 1" for no intercept;
        `docs/regression.md` says what it may have.
    intercept : bool
        Whether the model has an intercept.
    solver : {"scoring", "sgd"}
        "scoring" is exact: the maximum-likelihood fit of all rows together, from sums over each client's rows in a few
        rounds. "sgd" is the paper's: local SGD, for rows that are read once and peers without a coordinator.
    errors : {"HC0", "HC1", "model", "cluster", "site"}
        Standard errors of an exact fit: robust to a wrong variance, the same with n / (n - d), by the model, or
        clustered, each client a cluster for "site".
    link : str, optional
        "identity", "log", "logit", "probit", "cloglog" or "inverse", where the family has it; its usual one by default.
    trials, event : str, optional
        A column beside the target: of how many trials it counts the successes ("binomial"), or whether the time that it
        is ends in an event, 1, or is censored, 0 ("cox").
    offset, exposure : str, optional
        Columns that are added to the predictor, the exposure as its logarithm.
    row_weights : str, optional
        A column that says what each row counts for: `var_weights` of statsmodels' GLM, and `weights` of R's. Rows of
        weight 0 are left out.
    cluster : str, optional
        A column whose values are clusters of rows that belong together, for errors="cluster". Clusters do not reach
        over clients.
    site_effects : bool
        Whether each client but the first has an intercept of its own.
    missing : {"refuse", "drop"}
        What to do about rows with a missing value: refuse the fit, or leave them out and say how many.
    ridge : float
        lambda of a penalty lambda / 2 sum_j (b_j s_j)^2 on an exact fit, s_j the standard deviation of a covariate.
    level : float
        Level of the intervals.
    passes : int or "auto", optional
        Of SGD, as all that follow. 1 reads every row once, the default; more passes are for small data. "auto" reads
        rows until more passes would move no estimate by more than 0.1 standard errors, 100 times at most.
    sync_every : int, optional
        Steps between two synchronisations; 10 by default.
    network : Network or (K, K) array_like, optional
        Who averages with whom, clients in the order of their labels; a ring by default.
    method : {"plugin", "bootstrap", "random_scaling", "batch_means"}, optional
        As for `infer`; several passes need "plugin", the default.
    seed : int, optional
        Fixes the order in which rows are read.
    weights : {"rows", "equal"} or (K,) array_like, optional
        "rows", the default, for w_k = n_k / N, whose optimum is that of the pooled rows.
    standardise : bool, optional
        Run on covariates of mean 0 and scale 1, and report on the scale of the frame all the same; true by default.
    clients : {"these", "population"}, optional
        Whether intervals hold for these clients, the default, or for other clients like these.
    correct_drift : bool, optional
        Subtract the estimated bias of clients that drift apart between mixings, with methods other than the plug-in,
        whose Newton step removes it.
    bootstraps : int, optional
        Number of chains of the bootstrap.
    finish : int, optional
        Steps of scoring after the pass; from one or two on the estimate is the exact one, with its errors.
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
    >>> fit = fg.fit(patients, target="readmitted", client="hospital", family="binomial")
    >>> print(f"{fit.params['dose']:.3f} ({fit.std_errors[1]:.3f})")
    0.949 (0.114)
    >>> print(fit.wald("dose = 1"))
    chi2(1) = 0.20, p = 0.658
    """
    level = _checks.level(level)
    _checks.one_of("solver", solver, get_args(Solver))
    options = SgdOptions.given(
        solver, passes=passes, sync_every=sync_every, network=network, method=method, seed=seed, weights=weights,
        standardise=standardise, clients=clients, correct_drift=correct_drift, bootstraps=bootstraps, finish=finish,
    )  # fmt: skip
    check_exact(solver, errors, ridge, options.finish)
    spec = ModelSpec(
        target, family, features, formula, intercept, offset, exposure, row_weights, cluster, trials, event,
        site_effects, missing, link,
    )  # fmt: skip
    data = read_model_data(frame, client, spec)
    if solver == "scoring":
        from fedgauss.inference.fit_exact import fit_exactly

        found = fit_exactly(data, errors, level, ridge)
    else:
        from fedgauss.inference.fit_sgd import fit_by_sgd

        found = fit_by_sgd(data, options, errors, level, progress)
    return replace(found, design=frame_design(data, spec, client), family=data.family)


def check_exact(solver: Solver, errors: Errors, ridge: float, finish: int = 0) -> None:
    """Refuse what only an exact fit has where there is none: a pass of SGD has errors of its own."""
    if solver == "sgd" and (ridge != 0.0 or (errors != "HC0" and not finish)):
        got = f"ridge={ridge!r}" if ridge != 0.0 else f"errors={errors!r}"
        raise ValueError(f"{got} belongs to solver='scoring'; the solver is 'sgd'. Leave it out?")


def as_fit(estimate: Estimate, data: ModelData, scales: FloatArray, settings: dict[str, str]) -> Fit:
    """The estimate with the facts of its data and settings, those of the run in between."""
    least, most = data.counts.min(), data.counts.max()
    facts = {
        "Target": data.target,
        "Family": data.family.describe(),
        "Rows": f"{int(data.counts.sum()):,}",
        "Rows per client": f"{least:,}" if least == most else f"{least:,} to {most:,}",
        **({"Rows dropped": f"{data.dropped.sum():,}"} if data.dropped.any() else {}),
        **estimate.facts,
        **settings,
    }
    each, n_outputs = len(data.one_output), data.family.n_outputs
    one = scales if data.constant is None else np.concatenate([[1.0], scales])
    intercepts = () if data.constant is None else tuple(range(0, each * n_outputs, each))
    inherited = {part.name: getattr(estimate, part.name) for part in fields(Estimate)}
    scales = np.concatenate([np.tile(one, n_outputs), np.ones(len(data.family.extra_names))])
    shapes = tuple(range(each * n_outputs, len(scales)))
    return Fit(**inherited | {"facts": facts, "intercepts": intercepts, "shapes": shapes}, scales=scales)
