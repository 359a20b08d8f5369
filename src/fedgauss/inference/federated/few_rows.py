"""Sums that would tell of few rows: which designs, values and parameters a site refuses.

Of its rows x_i a site tells X'WX, X'r and the like. Whoever has X'WX has the sum of w_i (x_i'v) x_i for every v, and
that tells of few rows where x_i'v is large in few of them only:

- v that is non-zero in one row: the sum is that row. It exists if and only if that row has leverage h_i = 1, and in
  general max_v (x_i'v)^2 / |Xv|^2 = h_i. Two 0/1 columns that differ in one row are a case of it.
- v that is non-zero in a few rows T: h_i summed over T is at least 1. Such sets are looked for by leaving out one row
  of high leverage after the other (`rows_apart`).
- one value that outweighs all others of its column: the column's products with the others, divided by it, are its row.
- an entry of X'WX for two 0/1 columns that are both 1 in one row is that row's weight. Weights at several parameters
  tell its predictor at each, and with as many parameters as columns, the row.
- parameters at which few rows have nearly all the weight.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from fedgauss._types import FloatArray, IntArray
from fedgauss.inference.federated.disclosure import FEWEST, Refused
from fedgauss.inference.tables import listed

CELL = 3  # rows in a cell of two columns
SHARE = 0.75  # of a sum of squares that one row may make up
TOGETHER = 0.99  # that fewer than FEWEST rows may
LEVERAGE = 0.95  # of one row, in combinations of columns
_WEIGHTED = 0.99  # the same with weights, which in an honest fit may be small for all other rows of a level
_ROUNDING = 1e-9  # relative to the largest singular value
_NEARLY = 1e-6  # share of a combination's squares outside the rows where it is taken to be non-zero
_MOST_SETS = 4_000  # of rows to leave out: a second or so


def check_design(
    x: FloatArray, names: Sequence[str], response: Mapping[str, FloatArray] | None = None, *,
    row_weights: FloatArray | None = None, share: float = SHARE, fewest: int = FEWEST, in_a_cell: int = CELL,
) -> None:  # fmt: skip
    """Refuse a design whose sums would tell of few rows, whatever else is asked.

    Parameters
    ----------
    x : array, shape (n, p)
        Columns as they enter the sums, that of ones included.
    names : sequence of str
        Of the columns.
    response : mapping of str to array, shape (n,), optional
        The response by name: its products with the columns are told as well. Its cells are not looked at.
    row_weights, share
        As for `check_shares`.
    fewest : int, optional
        Two 0/1 columns must differ in so many rows, and combinations of columns must be non-zero in so many.
    in_a_cell : int, optional
        Cells of two columns must have so many rows, or none. Not for masked sums, where the cells of all sites count.

    Raises
    ------
    Refused
        With the columns, and no value of a row.

    Notes
    -----
    Sets of two and more rows are looked for among 4,000 at most, those of the highest leverage first: where there are
    about three rows for each column the search may end before it has seen all. Single rows and pairs of 0/1 columns are
    always found.
    """
    covariates = len(names)
    if response:
        x, names = np.column_stack([x, *response.values()]), [*names, *response]
    _check_pairs(x, names, fewest, in_a_cell, covariates)
    check_shares(dict(zip(names, x.T, strict=True)), row_weights, share=share, fewest=fewest)
    rows = rows_apart(x, fewest - 1)
    if rows is not None:
        raise Refused(
            f"combinations of columns must be non-zero in at least {fewest} rows at this site, or sums would reveal "
            f"single rows; one of {listed(_involved(x, names, rows))} is not. Leave one of these columns out."
        )


def check_shares(
    columns: Mapping[str, FloatArray], row_weights: FloatArray | None = None, *, share: float = SHARE,
    fewest: int = FEWEST,
) -> None:  # fmt: skip
    """Refuse columns of which a single row makes up nearly all of the sum of squares about the middle.

    Whoever has sums and sums of squares can work out squares about any point.

    Parameters
    ----------
    columns : mapping of str to array, shape (n,)
        Covariates with their interactions, the response and the offset by name.
    row_weights : array, shape (n,), optional
        Of the rows, which must not be dominated either.
    share : float, optional
        The largest share of one row. If it is s, sums tell other columns of that row to sqrt((1 - s) / s) standard
        deviations or so.
    fewest : int, optional
        Fewer rows than this may make up .99 together.

    Raises
    ------
    Refused
        With the column, and no value of it.
    """
    weights = np.ones(len(next(iter(columns.values())))) if row_weights is None else row_weights
    if row_weights is not None:
        _check_share("the row weights", weights, share, fewest)
    for name, values in columns.items():
        # The median stays with the many rows; a mean would move towards the few, and make them look smaller.
        about = values - float(np.median(values[weights > 0.0]))
        size = float(np.abs(about).max(initial=0.0))
        if size > 0.0:
            _check_share(repr(name), weights * (about / size) ** 2, share, fewest)


def check_clusters(clusters: IntArray, fewest: int = FEWEST) -> None:
    """Refuse clusters whose squared scores would tell of few rows.

    sum_g s_g s_g' is told beside sum_i s_i s_i' and s s'. Where few rows share a cluster with others the first two
    differ by products of these rows' scores; where few are outside of one cluster, the last two do.

    Parameters
    ----------
    clusters : array, shape (n,)
        The cluster of each row.
    fewest : int, optional
        So many rows must share their cluster with others, or none; and so many be outside of the largest, or none.

    Raises
    ------
    Refused
        With no label of a cluster.
    """
    counts = np.unique(clusters, return_counts=True)[1]
    shared, outside = int(counts[counts > 1].sum()), len(clusters) - int(counts.max(initial=0))
    if 0 < shared < fewest or 0 < outside < fewest:
        raise Refused(
            f"at least {fewest} rows must share their cluster with others at this site, and as many be outside of the "
            "largest cluster, or squares of scores would reveal single rows; fewer do. Use errors='HC0'."
        )


def check_round(
    x: FloatArray, weights: FloatArray, residuals: FloatArray, *, share: float = SHARE, fewest: int = FEWEST
) -> None:
    """Refuse parameters at which the sums X'WX and X'r would rest on few rows.

    The coordinator chooses the parameters. Where a Poisson mean exp(x'theta) is large for one row, or the probabilities
    of a logistic model are 0 or 1 for all others, these sums are that row's.

    Parameters
    ----------
    x : array, shape (n, p)
    weights : array, shape (n,)
        W at the parameters that came with the order, row weights included.
    residuals : array, shape (n,)
        r at the same.
    share : float, optional
        Of the squares of the residuals that one row may make up.
    fewest : int, optional
        (sum w)^2 / sum w^2, the number of rows that count, must be at least this, and at least p.

    Raises
    ------
    Refused
        With no value of a row.
    """
    if not np.any(weights) and not np.any(residuals):
        return  # sums of zeros, as of times without an event, tell of no row
    w = np.abs(weights) / max(float(np.abs(weights).max(initial=0.0)), math.ulp(0.0))
    counting = float(w.sum()) ** 2 / max(float(w @ w), math.ulp(0.0))
    few = max(fewest, x.shape[1])
    if counting < few:
        raise Refused(
            f"at least {few} rows must count at the parameters of an order, or sums would reveal single rows; at these "
            "nearly all the weight is with fewer. Is a coefficient very large?"
        )
    if _quick_leverages(x * np.sqrt(w)[:, None]).max(initial=0.0) > _WEIGHTED:
        raise Refused(
            "no row may outweigh all others in a combination of columns at the parameters of an order, or sums would "
            "reveal it; at these one does. Is a coefficient very large, or a level without both outcomes?"
        )
    size = float(np.abs(residuals).max(initial=0.0))
    if size > 0.0:
        _check_share("the residuals at these parameters", (residuals / size) ** 2, share, fewest)


def rows_apart(x: FloatArray, most: int) -> IntArray | None:
    """At most `most` rows outside of which some combination of columns vanishes; None if none are found.

    If u = Xv has length 1 and vanishes outside of T, the largest u_i^2 is at least 1 / |T|, and the leverage h_i is no
    less. Once that row is left out, the same holds for the rest of T and 1 / (|T| - 1), and so on: only rows of such
    leverage need be tried.
    """
    basis = _orthonormal(x)
    top = leverages(basis)
    if len(top) and top.max() > LEVERAGE:
        return np.array([int(top.argmax())])
    tried: set[frozenset[int]] = set()
    found = _searched(basis, frozenset(), most, tried)
    return None if found is None else np.array(sorted(found))


def leverages(basis: FloatArray) -> FloatArray:
    """Of each row, given an orthonormal basis of the columns."""
    return np.einsum("ij,ij->i", basis, basis)


def _quick_leverages(x: FloatArray) -> FloatArray:
    """Leverages from X'X: half the digits, but faster, and every round needs them."""
    size = np.sqrt(np.einsum("ij,ij->j", x, x))
    scaled = x[:, size > 0.0] / size[size > 0.0]
    values, vectors = np.linalg.eigh(scaled.T @ scaled)
    kept = values > 1e-12 * values.max(initial=0.0)
    return leverages(scaled @ (vectors[:, kept] / np.sqrt(values[kept])))


def _searched(basis: FloatArray, out: frozenset[int], most: int, tried: set[frozenset[int]]) -> frozenset[int] | None:
    """Rows `out` are left out already, and the basis is orthonormal on the others."""
    top = leverages(basis)
    top[list(out)] = 0.0
    order = np.argsort(-top)
    if top[order[0]] >= 1.0 - _NEARLY and out:
        return out | {int(order[0])}
    if most == 1:
        return None
    for row in order[top[order] >= (1.0 - _NEARLY) / most].tolist():
        without = out | {row}
        if without in tried:
            continue
        if len(tried) >= _MOST_SETS:
            return None
        tried.add(without)
        found = _searched(_left_out(basis, row), without, most - 1, tried)
        if found is not None:
            return found
    return None


def _left_out(basis: FloatArray, row: int) -> FloatArray:
    """Orthonormal on the other rows: U (I - a a')^(-1/2) with a the row that goes."""
    a = basis[row]
    size = float(a @ a)
    factor = (1.0 / math.sqrt(1.0 - size) - 1.0) / size
    return basis + factor * np.outer(basis @ a, a)


def _orthonormal(x: FloatArray) -> FloatArray:
    """A basis of the space of the columns, each of which counts the same whatever its unit."""
    size = np.sqrt(np.einsum("ij,ij->j", x, x))
    basis, triangle = np.linalg.qr(x[:, size > 0.0] / size[size > 0.0])
    left, values, _ = np.linalg.svd(triangle, full_matrices=False)
    return basis @ left[:, values > _ROUNDING * values.max(initial=0.0)]


def _involved(x: FloatArray, names: Sequence[str], rows: IntArray) -> list[str]:
    """The columns whose combination vanishes outside of these rows."""
    size = np.sqrt(np.einsum("ij,ij->j", x, x))
    scaled = x / np.where(size > 0.0, size, 1.0)
    outside = np.delete(scaled, rows, axis=0)
    # Columns that are collinear everywhere vanish in these rows as well: what counts is the ratio.
    inner, ridge = scaled[rows].T @ scaled[rows], 1e-13 * np.eye(len(names))
    half = np.linalg.cholesky(outside.T @ outside + ridge)
    whitened = np.linalg.solve(half, np.linalg.solve(half, inner).T)
    v = np.linalg.solve(half.T, np.linalg.eigh(whitened)[1][:, -1])
    return [name for name, part in zip(names, np.abs(v), strict=True) if part > 1e-3 * np.abs(v).max()]


def _check_pairs(x: FloatArray, names: Sequence[str], fewest: int, in_a_cell: int, covariates: int) -> None:
    """Columns must differ in enough rows from constants and from each other, and cells of two must have enough."""
    apart, two = np.empty(x.shape), np.empty(len(names), dtype=bool)
    for j, column in enumerate(x.T):
        values, counts = np.unique(column, return_counts=True)
        apart[:, j], two[j] = column != values[counts.argmax()], len(values) == 2
    n, both = len(x), apart.T @ apart
    own = np.diag(both)
    rare = [name for name, count in zip(names, own, strict=True) if 0 < count < fewest]
    if rare:
        raise Refused(
            f"at least {fewest} rows must differ from the others in a column of the design at this site, or sums would "
            f"reveal single rows; in {listed(rare)} fewer do. Leave it out, or merge rare levels."
        )
    either = np.where(two, 1.0, np.nan)  # nan where the opposite of a column is no column
    only_first = (own[:, None] - both) * either[None, :]
    neither = (n - own[:, None] - own[None, :] + both) * either[:, None] * either[None, :]
    differ = only_first + only_first.T
    for j, k in combinations(range(len(names)), 2):
        pair = f"{names[j]!r} and {names[k]!r}"
        if 0 < differ[j, k] < fewest or 0 < n - differ[j, k] < fewest:
            raise Refused(
                f"columns of two values must differ in at least {fewest} rows at this site, or sums would reveal "
                f"single rows; {pair} do not. Leave one of them out."
            )
        cells = (both[j, k], only_first[j, k], only_first[k, j], neither[j, k])
        if k < covariates and any(0 < cell < in_a_cell for cell in cells):
            raise Refused(
                f"cells of two columns must have at least {in_a_cell} rows or none at this site, or sums would reveal "
                f"single rows; some of {pair} have fewer. Merge rare levels, leave a column out, or mask the sums."
            )


def _check_share(what: str, parts: FloatArray, share: float, fewest: int) -> None:
    """One of these non-negative numbers, or a few, must not be nearly all of their sum."""
    total = float(parts.sum())
    top = np.sort(parts)[::-1][: fewest - 1]
    if total <= 0.0 or (top[0] <= share * total and top.sum() <= TOGETHER * total):
        return
    who = "one row makes up more" if top[0] > share * total else f"fewer than {fewest} rows make up .99"
    raise Refused(
        f"one row may make up at most {share:g} of a sum of squares at this site, and few rows not nearly all, or sums "
        f"would reveal them; of {what} {who}. Is a value wrong? Else take logarithms, or leave it out."
    )
