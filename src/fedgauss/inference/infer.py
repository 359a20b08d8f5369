"""`infer`: an estimate from rows that are read once, its covariance, and whether clients are alike."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike
from fedgauss.engine.simulate import need_rows
from fedgauss.inference.client_steps import steps_with_rows
from fedgauss.inference.estimate import Estimate, Readout, checked_names, checked_readout
from fedgauss.inference.pass_estimate import Request
from fedgauss.inference.row_estimate import estimate_from_rows
from fedgauss.inference.solution import all_rows
from fedgauss.networks import Network
from fedgauss.problems.base import Problem, checked_problem

_DRAWN = 5000  # rows of each client, where a problem draws as many as one likes


def infer(
    problem: Problem,
    n_rows: int | None = None,
    level: float = 0.95,
    seed: int = 0,
    *,
    target: Literal["optimum", "population"] = "optimum",
    correct_bias: bool = False,
    start: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    readout: Readout | None = None,
    progress: bool | None = None,
) -> Estimate:
    """Estimate theta*_K with its covariance, reading every row once but for a few that are kept.

    The estimate is where the mean gradient of all rows vanishes, by Newton steps from sums that clients keep
    (`inference.solution`). It takes no steps of SGD, so that no network, step size or drift can bias it. Clients keep
    their first rows, more where these tell little, and all where one row outweighs the others. Intervals from a run of
    local SGD are those of `infer_run`.

    Parameters
    ----------
    problem : Problem
        What clients minimise; see `fedgauss.problems`.
    n_rows : int, optional
        Rows that each client reads: by default all there are, and 5,000 of a problem that draws them.
    level : float
        Level of the intervals.
    seed : int
        Fixes which rows are drawn.
    target : {"optimum", "population"}
        theta*_K of these clients, or the mean over all clients like these.
    correct_bias : bool
        Subtract from the estimate its bias of order 1 / n, which the pooled fit has, too. It matters where there are
        few rows for so many parameters, and a note says so.
    start : (d,) array_like, optional
        Where Newton steps start; zero by default.
    names : sequence of str, optional
        Names of the parameters.
    readout : Readout, optional
        Report this affine map of theta in place of theta itself.
    progress : bool, optional
        Whether to show a progress bar; by default in a terminal and for long runs.

    Returns
    -------
    Estimate
        Its intervals have the width of the pooled fit's, and are Student's with `dof` degrees of freedom.

    Examples
    --------
    >>> import fedgauss as fg
    >>> problem = fg.problems.random_effects(n_clients=10, seed=1907)
    >>> estimate = fg.infer(problem, n_rows=2000)
    >>> estimate.conf_int().round(2)
    array([[ 1.7 ,  1.77],
           [-2.4 , -2.33]])
    """
    checked_problem(problem)
    _checks.one_of("target", target, ["optimum", "population"])
    level = _checks.level(level)
    if isinstance(n_rows, Network):
        raise ValueError(f"n_rows must be a number: infer takes no network; got {n_rows!r}. Use fg.infer_run?")
    n_rows = problem.max_steps() or _DRAWN if n_rows is None else _checks.step_number("n_rows", n_rows)
    need_rows(problem, n_rows, "n_rows")
    _check_rows(n_rows, problem)
    begin = np.zeros(problem.dim) if start is None else _checks.real_array("start", start, shape=(problem.dim,))
    request = Request(
        "plugin", level, checked_names(names, problem.dim), checked_readout(readout, problem.dim), "average", target,
        correct_bias=correct_bias,
    )  # fmt: skip
    solution = all_rows(problem, n_rows, 1, seed, begin, progress, correct_bias)
    return estimate_from_rows(solution, request, np.asarray(problem.weights), steps_with_rows(problem, n_rows))


def _check_rows(n_rows: int, problem: Problem) -> None:
    """Require two rows that count alike for each parameter: n / sum_k w_k^2, fewer than n K if weights differ."""
    share = float(np.sum(np.asarray(problem.weights, dtype=float) ** 2))
    needed = math.ceil(2 * problem.dim * share)
    if n_rows < needed:
        raise ValueError(
            f"n_rows must be at least {needed} to infer {problem.dim} parameters with these weights, which make "
            f"{problem.n_clients} clients worth {1 / share:.1f}; got {n_rows}. Use more rows."
        )
