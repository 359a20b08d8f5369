"""Before a run: covariates in units of their own scale, and checks of what cannot be fitted.

Clients share counts, sums and sums of squares, never rows; results come back in the units of the frame. Refused are too
few rows, columns that are constant or collinear, and classes that are separable.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from fedgauss._types import BoolArray, FloatArray, IntArray
from fedgauss.families import Family
from fedgauss.inference.estimate import Readout
from fedgauss.inference.model_data import ModelData
from fedgauss.inference.tables import listed

_ROWS_A_CLIENT = 10
_ROWS_A_PARAMETER = 10
_RARE = 6.0  # steps are smaller where rows tell less than its inverse: for events rarer than one in five
_FULL = 4.0  # times the information of a row: one where half of the outcomes are ones
_TOLD = 30
_SAME = 1e-12  # of its size: the spread of a column that is constant but for rounding
_ROUNDING = 1e-6  # by which a row may lie on the wrong side of a plane: ten times what the solver allows
# Of a standard deviation, what is left of a column beside the others: less and a Hessian in single precision is lost.
_DEPENDENT = 3e-3
_ALL_BUT = 1e-6  # below that nothing is left but rounding


class Location(NamedTuple):
    """Means and scales of columns, (p,) each."""

    mean: FloatArray
    scale: FloatArray


@dataclass(frozen=True)
class Units:
    """How covariates and response are scaled for a run, and the way back. All clients share them."""

    columns: Location  # of the covariates
    response: Location | None  # of the response, (1,), where it is scaled
    intercept: bool

    @classmethod
    def of(cls, data: ModelData, columns: Location) -> Self:
        """Covariates of mean 0 and scale 1, and such a response where the family allows it."""
        about = locate(data.response[:, None], data) if data.family.additive else None
        return cls(columns, about, data.constant is not None)

    def unscaled(self) -> Self:
        """Units in which everything stays as it is."""
        columns = Location(np.zeros_like(self.columns.mean), np.ones_like(self.columns.scale))
        return replace(self, columns=columns, response=None)

    def rows(self, covariates: FloatArray) -> FloatArray:
        """Covariates in these units, with a column of ones first if there is an intercept."""
        scaled = (covariates - self.columns.mean) / self.columns.scale
        return np.column_stack([np.ones(len(scaled)), scaled]) if self.intercept else scaled

    def target(self, response: FloatArray) -> FloatArray:
        """The response in these units."""
        about = self.response
        return response if about is None else (response - about.mean[0]) / about.scale[0]

    def family(self, family: Family) -> Family:
        """The family in these units."""
        return family if self.response is None else family.rescaled(float(self.response.scale[0]))

    def readout(self, n_outputs: int, extra: int = 0) -> Readout:
        """From the parameters of a run in these units to those of the user's; extra parameters stay as they are."""
        mean, scale = self.columns
        matrix = np.diag(np.concatenate([np.ones(int(self.intercept)), 1.0 / scale]))
        offset = np.zeros(len(matrix))
        if self.intercept:
            matrix[0, 1:] = -mean / scale
        if self.response is not None:
            matrix = matrix * self.response.scale[0]
            offset[0] = self.response.mean[0] if self.intercept else 0.0
        whole = np.eye(len(matrix) * n_outputs + extra)
        whole[: len(whole) - extra, : len(whole) - extra] = np.kron(np.eye(n_outputs), matrix)
        return Readout(whole, np.concatenate([np.tile(offset, n_outputs), np.zeros(extra)]))


def locate(rows: FloatArray, data: ModelData) -> Location:
    """Means and standard deviations in two rounds of client sums: of x, then of (x - mean)^2.

    One round, of x and x^2, would lose all digits of a column such as a year. Without an intercept nothing can be
    centred, and the scale is the root mean square.
    """
    total = len(rows)
    mean = rows.sum(axis=0) / total if data.constant is not None else np.zeros(rows.shape[1])
    return Location(mean, np.sqrt(((rows - mean) ** 2).sum(axis=0) / total))


def starting_point(data: ModelData, totals: FloatArray | None = None) -> FloatArray:
    """The model with an intercept alone, or zero where there is none; class by class, then extra parameters.

    `totals` are those of the family's `start_terms` over all rows; by default those of the rows at hand.
    """
    intercept = data.constant is not None
    sums = data.family.start_terms(data.mean_response).sum(axis=0) if totals is None else totals
    outputs = data.family.n_outputs
    found = data.family.start(sums, int(data.counts.sum()))
    start = np.zeros((outputs, len(data.names) + int(intercept)))
    if intercept:
        start[:, 0] = found[:outputs]
    return np.concatenate([start.ravel(), found[outputs:]])


def row_information(family: Family, start: FloatArray, intercept: bool) -> float:
    """h: how much a row tells about its predictor at the start, the expected second derivative of its loss.

    It is 1/4 for half of ones, .02 for one in fifty, and the mean for counts. 1 for additive families, whose loss is
    quadratic, or nearly so, at any distance.
    """
    if family.additive:
        return 1.0
    outputs = start.reshape(family.n_outputs, -1)
    predictor = outputs[:, :1] if intercept else np.zeros((family.n_outputs, 1))
    weight = family.weight(predictor, np.asarray(family.mean(predictor))[0])
    return float(np.min(weight if weight.ndim == 2 else np.einsum("ccn->cn", weight)))  # outputs may meet in a row


def largest_step(information: float, dim: int) -> float:
    """The largest eta_t of a run: min(1, 6 h) / (d + 2), with h as of `row_information`.

    A whitened step moves a row's own predictor by about eta (d / h) |residual|. Where h is small, as with rare events,
    residuals of order one are few, and each would throw the predictor far beyond where the loss is nearly quadratic.
    """
    return min(1.0, _RARE * information) / (dim + 2)


def told_little(information: float, n_rows: int, dim: int) -> tuple[str, ...]:
    """A note where outcomes are so rare that the rows of the window tell as much as fewer than 30 a parameter."""
    share = min(1.0, _FULL * information)
    alike = 0.8 * n_rows * share
    if share == 1.0 or alike >= _TOLD * dim:
        return ()
    return (
        f"Outcomes are rare: the rows of the window tell as much as {alike:.0f} rows with frequent ones, and {dim} "
        f"parameters need {_TOLD * dim}. The estimate is somewhat biased and its intervals are short. Use more rows, "
        "or fewer columns.",
    )


def check_rows(clients: Sequence[str], counts: IntArray, dim: int) -> None:
    """Every client needs a few rows of its own, and all together some for each parameter."""
    few = np.flatnonzero(counts < _ROWS_A_CLIENT).tolist()
    if few:
        who = [f"{clients[k]!r} ({counts[k]} rows)" for k in few]
        raise ValueError(
            f"each client must have at least {_ROWS_A_CLIENT} rows; these have fewer: {listed(who, quote=False)}. "
            "Merge small clients, or leave them out."
        )
    total = int(counts.sum())
    if total < _ROWS_A_PARAMETER * dim:
        raise ValueError(
            f"{dim} parameters need at least {_ROWS_A_PARAMETER * dim} rows; got {total}. Use fewer columns?"
        )


def check_constant(names: Sequence[str], columns: Location) -> None:
    """Columns that never vary, by name; without an intercept, columns of zeros."""
    flat = np.flatnonzero(columns.scale <= _SAME * (np.abs(columns.mean) + columns.scale)).tolist()
    if flat:
        which = [f"{names[j]!r} is constant ({columns.mean[j]:g})" for j in flat]
        raise ValueError(f"columns must vary; column {listed(which, quote=False)}. Leave it out.")


def check_collinear(
    names: Sequence[str], rows: FloatArray, total: int, intercept: bool, least: float = _DEPENDENT
) -> None:
    """Columns that are sums of others, by name: pivoted QR of standardised rows, or of a root of their products.

    least   of a standard deviation, what must be left of a column beside the others
    """
    from scipy.linalg import qr, solve_triangular

    if not names:
        return
    joined, pivots = qr(rows, mode="r", pivoting=True)
    left = np.abs(np.diag(joined)) / np.sqrt(total)
    rank = int(np.sum(left > least))
    if rank == len(names):
        return
    made_of = solve_triangular(joined[:rank, :rank], joined[:rank, rank])
    exact = left[rank] < _ALL_BUT
    others = [names[pivots[i]] for i in np.flatnonzero(np.abs(made_of) > (1e-6 if exact else 1e-2))]
    constant = " and a constant" if intercept else ""
    nearly = "" if exact else f"all but {100 * left[rank]:.2g} % "
    raise ValueError(
        f"columns must not be collinear; {names[pivots[rank]]!r} is {nearly}made up of {listed(sorted(others))}"
        f"{constant}. Leave one out."
    )


def checked_columns(data: ModelData) -> Location:
    """Means and scales of the covariates, once none is constant and they are not collinear."""
    columns = locate(data.covariates, data)
    check_constant(data.names, columns)
    rows = (data.covariates - columns.mean) / columns.scale
    check_collinear(data.names, rows, len(rows), data.constant is not None)
    return columns


def check_separable(data: ModelData, rows: FloatArray) -> None:
    """Refuse rows that a plane separates without error: coefficients would have no finite optimum."""
    for what, side in data.sides.items():
        direction = _separated(rows, side)
        if direction is None:
            continue
        by_size = [j for j in np.argsort(-np.abs(direction)) if abs(direction[j]) > 1e-3]
        strong = [data.one_output[j] for j in by_size if data.one_output[j] != data.constant]
        raise ValueError(
            f"{what} is linearly separable: {data.family.separated} can be told apart without error by "
            f"{listed(strong)}, so coefficients grow without bound and have no estimate. Use fewer columns, or merge "
            "rare levels."
        )


def _separated(rows: FloatArray, side: FloatArray) -> FloatArray | None:
    """A direction v with side_i x_i'v >= 0 for all rows, not zero for all; x_i'v = 0 where side is 0.

    Cutting planes: find a direction for a few rows, add those that it gets most wrong, and repeat until none is left.
    The few have full rank: if no direction separates them, none separates all. (Rows that are all zero along some
    direction would say nothing about it.)
    """
    from scipy.linalg import qr

    spanning = qr(rows.T, mode="r", pivoting=True)[1][: rows.shape[1]]
    order = np.random.default_rng(0).permutation(len(rows))
    some = np.union1d(spanning, order[: 20 * rows.shape[1]])
    while True:
        direction = _best_direction(rows[some], side[some])
        if direction is None:
            return None
        along = rows @ direction
        wrong = np.where(side == 0.0, np.abs(along), -side * along)
        wrong[some] = 0.0
        worst = np.argsort(-wrong)[: len(some)]
        broken = worst[wrong[worst] > _ROUNDING]
        if not len(broken):
            return direction
        some = np.concatenate([some, broken])


def _best_direction(rows: FloatArray, side: FloatArray) -> FloatArray | None:
    """The linear programme: maximise sum_i side_i x_i'v over |v_j| <= 1 under those rules."""
    from scipy.optimize import linprog

    fixed: BoolArray = side == 0.0
    signed = side[~fixed, None] * rows[~fixed]
    solved = linprog(
        -signed.sum(axis=0),
        A_ub=-signed, b_ub=np.zeros(len(signed)),
        A_eq=rows[fixed] if fixed.any() else None, b_eq=np.zeros(int(fixed.sum())) if fixed.any() else None,
        bounds=(-1.0, 1.0), method="highs",
    )  # fmt: skip
    # The solver lets each rule be broken by 1e-7, which a direction of that length would use up.
    return solved.x if solved.status == 0 and -solved.fun > 1e-5 * len(rows) else None
