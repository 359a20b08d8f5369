"""What an adaptive attacker of a federation needs, whatever the protocol: tables, models, and readers of rows.

Tables have what tempts an attacker: ages of one patient, columns that differ from others in one row, rare levels,
missing values, values in cents. Models are drawn from the whole grammar of formulas. A reader is given all numbers that
an attacker saw and the rows that it should not know, and says which it read: to 1e-3 of their scale, and in more than
luck, since whoever tries enough guesses hits a row of few columns by chance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls
from scipy.spatial import KDTree

Table = dict[str, np.ndarray]

CLOSE = 1e-3  # of a column's standard deviation: what is nearer than that was read
LUCK = 1e-4  # chance of so good a match among all guesses, above which it is taken for one
_RANK = 1e-10  # of the largest singular value
_FACTORS = (1.0, -1.0, 2.0, 0.5, 10.0, 0.1, 100.0, 0.01, 1000.0, 0.001)  # of units and codings
_MOST_FOR_TRIPLES = 60


# Tables and models


def random_table(rng: np.random.Generator, n: int) -> Table:
    """Rows of a hospital: columns of all kinds, outcomes for all families, and what tempts an attacker."""
    z = rng.normal(size=(n, 4))
    signal = 0.5 * z[:, 0] - 0.3 * z[:, 1] + 0.3 * z[:, 2]
    years = rng.uniform(0.5, 3.0, n)
    mean = np.exp(0.4 + 0.5 * signal)
    table: Table = {
        "age": np.clip(np.round(58 + 14 * z[:, 0]), 18, 104),  # of whole years, some of one patient
        "dose": 3 + z[:, 1],
        "bmi": 26 + 4 * z[:, 2],
        "marker": rng.lognormal(1.0, 1.0, n),  # skewed
        "income": np.round(np.exp(10 + 0.5 * z[:, 3]), 2),  # to the cent
        "sex": (rng.random(n) < 0.5).astype(float),
        "smoker": (rng.random(n) < 0.15).astype(float),
        "ward": rng.choice(np.array(["east", "north", "south", "west"]), n, p=[0.45, 0.35, 0.17, 0.03]),
        "code": rng.choice(np.array(["A", "B", "C", "D"]), n, p=[0.6, 0.3, 0.09, 0.01]),  # with a rare level
        "years": years,
        "weight": rng.uniform(0.5, 2.0, n),
        "shift": 0.2 * rng.normal(size=n),
        "cost": 1000 + 300 * signal + 100 * rng.standard_t(4, n),
        "error": signal + rng.standard_t(3, n),
        "died": (rng.random(n) < 1 / (1 + np.exp(-signal))).astype(float),
        "visits": rng.poisson(mean * years).astype(float),
        "stay": rng.gamma(3.0, mean / 3.0) + 1e-3,
        "blood": np.array(["A", "B", "O"])[(rng.gumbel(size=(n, 3)) + np.outer(signal, [0, 1, -1])).argmax(axis=1)],
        "months": np.ceil(12 * rng.exponential(np.exp(-0.5 * signal))),
        "ended": (rng.random(n) < 0.7).astype(float),
    }
    table["dose2"], table["sex2"], table["lab"] = table["dose"].copy(), table["sex"].copy(), table["bmi"].copy()
    one, another, *few = rng.choice(n, 5, replace=False)
    table["dose2"][one] += 0.25  # corrected in one row
    table["sex2"][another] = 1 - table["sex2"][another]
    table["lab"][few[: rng.integers(1, 4)]] = np.nan  # not measured
    return table


NUMBERS = ("age", "dose", "bmi", "marker", "income", "sex", "smoker", "years", "dose2", "sex2", "lab")
POSITIVE = ("age", "marker", "income", "years")
MANY_VALUES = ("age", "dose", "bmi", "marker", "income", "dose2", "lab")
LEVELS = ("ward", "code", "age")
TARGETS = {
    "gaussian": "cost", "huber": "error", "binomial": "died", "poisson": "visits", "negative_binomial": "visits",
    "gamma": "stay", "multinomial": "blood", "cox": "months",
}  # fmt: skip


def random_models(rng: np.random.Generator, table: Table) -> Iterator[dict[str, Any]]:
    """Models without end, as the fields of a model by name; a target may be the covariate of another model."""
    while True:
        family = str(rng.choice(list(TARGETS)))
        target = str(rng.choice(["died", "sex", "smoker"])) if family == "binomial" else TARGETS[family]
        terms = list(dict.fromkeys(_term(rng, table, target) for _ in range(rng.integers(1, 5))))
        inside = {name for name in LEVELS if any(f"C({name}" in term for term in terms)}  # levels, and never numbers
        terms = [term for term in terms if term.startswith("C(") or not inside & set(re.findall(r"\w+", term))]
        model: dict[str, Any] = {"family": family, "missing": "drop"}
        if family == "cox":
            model["event"] = "ended"
        elif rng.random() < 0.1:
            terms.append("- 1")
        if family == "poisson" and rng.random() < 0.5:
            terms.append("offset(log(years))") if rng.random() < 0.5 else model.update(exposure="years")
        for role, column, share in (("offset", "shift", 0.1), ("row_weights", "weight", 0.15)):
            if family != "multinomial" and rng.random() < share:
                model[role] = column
        used = f"{target} ~ " + " + ".join(terms).replace("+ - ", "- ")
        if "exposure" in model and "years" in used:
            del model["exposure"]
        yield model | {"formula": used}


def _term(rng: np.random.Generator, table: Table, target: str) -> str:
    def one(names: Sequence[str]) -> str:
        return str(rng.choice([name for name in names if name != target]))

    kinds = (
        lambda: one(NUMBERS),
        lambda: f"{rng.choice(['log', 'sqrt', 'log2'])}({one(POSITIVE)})",
        lambda: f"I({one(NUMBERS)} * {rng.choice([2, 2.54, 1000])} + {rng.integers(0, 9)})",
        lambda: f"{one(MANY_VALUES)}**2",
        lambda: f"{one(NUMBERS)}:{one(LEVELS[:2])}",
        lambda: f"{one(MANY_VALUES)}*{one(('sex', 'smoker', 'sex2'))}",
        lambda: f"{rng.choice(['scale', 'center'])}({one(MANY_VALUES)})",
        lambda: f"ns({one(MANY_VALUES)}, df={rng.integers(2, 6)})",
        lambda: _knots(rng, table, one(("age", "dose", "bmi"))),
        lambda: one(LEVELS[:2]),
        lambda: f"C({one(LEVELS)})",
        lambda: f"C(ward, Treatment('{rng.choice(['east', 'north', 'west'])}'))",
    )
    return kinds[rng.integers(len(kinds))]()


def _knots(rng: np.random.Generator, table: Table, name: str) -> str:
    low, one, two, high = np.round(np.sort(rng.choice(np.unique(table[name]), 4, replace=False)), 2)
    return f"ns({name}, knots=[{one}, {two}], bounds=[{low}, {high}])"


# Readers


class Read(NamedTuple):
    """What an attacker has."""

    who: tuple[int, ...]  # rows, or sites
    error: float  # in standard deviations of the worst column
    chance: float  # that guesses of no merit, as many as were made, hit one so well


def match(guesses: np.ndarray, rows: np.ndarray, tries: int | None = None, fixed: Sequence[int] = ()) -> list[Read]:
    """Those rows that a guess is close to in all columns, by more than luck.

    Parameters
    ----------
    guesses, rows : array, shape (g, k) and (n, k)
    tries : int, optional
        Guesses that were made, those thrown away among them; g by default.
    fixed : sequence of int, optional
        Columns that a guess has right by construction, and that are no evidence.

    Notes
    -----
    A guess of no merit is as close as e to a given row in column j with a chance of about the share of other rows that
    are, and at least e.
    """
    guesses = guesses[np.isfinite(guesses).all(axis=1)]
    if not len(guesses):
        return []
    scale = np.where(rows.std(axis=0) > 0.0, rows.std(axis=0), 1.0)
    errors, whose = KDTree(rows / scale).query(guesses / scale, p=np.inf, distance_upper_bound=CLOSE)
    best: dict[int, Read] = {}
    evidence = [j for j in range(rows.shape[1]) if j not in fixed]
    for i, error in zip(whose[errors <= CLOSE].tolist(), errors[errors <= CLOSE].tolist(), strict=True):
        near = np.abs(rows - rows[i])[:, evidence] <= max(error, 1e-12) * scale[evidence]
        shares = np.maximum((near.sum(axis=0) - 1) / len(rows), max(error, 1e-12))
        chance = (len(guesses) if tries is None else tries) * len(rows) * float(np.prod(shares))
        if chance < LUCK and (i not in best or chance < best[i].chance):
            best[i] = Read((i,), error, chance)
    return [best[i] for i in sorted(best)]


def rows_in_span(left: np.ndarray, tolerance: float = CLOSE) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """All sets of one or two rows outside of which some combination of columns vanishes, and the combinations.

    With Q an orthonormal basis of the columns there is a unit vector on rows S if and only if the largest eigenvalue of
    Q_S Q_S' is 1. What is left outside of S has the length sqrt(1 - eigenvalue), which `tolerance` bounds. Every pair
    is looked at: this is the slow and certain search.

    Parameters
    ----------
    left : array, shape (n, m)
        One column for each vector whose products with others were told.

    Returns
    -------
    list of (rows, combination)
        `combination` has a coefficient for each column.
    """
    size = np.linalg.norm(left, axis=0)
    kept = np.flatnonzero(size > 0.0)
    u, values, v = np.linalg.svd(left[:, kept] / size[kept], full_matrices=False)
    good = values > _RANK * values.max(initial=0.0)
    q, back = u[:, good], v[good].T / values[good]
    least, high = 1.0 - tolerance**2, np.einsum("ij,ij->i", q, q)
    found: list[tuple[tuple[int, ...], np.ndarray]] = [
        ((i,), np.array([1.0])) for i in np.flatnonzero(high >= least).tolist()
    ]
    alone = {rows[0] for rows, _ in found}
    for i in np.flatnonzero(high >= least / 2).tolist():
        both = q @ q[i]
        half = (high[i] - high) / 2
        largest = (high[i] + high) / 2 + np.sqrt(half**2 + both**2)
        for j in np.flatnonzero(largest >= least).tolist():
            if i in alone or j in alone or i == j or (high[j] >= least / 2 and j < i):
                continue
            weights = np.linalg.eigh(np.array([[high[i], both[j]], [both[j], high[j]]]))[1][:, -1]
            found.append(((i, j), weights))
    told = []
    for rows, weights in found:
        combination = np.zeros(left.shape[1])
        combination[kept] = back @ (weights @ q[list(rows)]) / size[kept]
        told.append((rows, combination))
    return told


def read_by_span(left: np.ndarray, right: np.ndarray, totals: np.ndarray) -> list[Read]:
    """Rows that an attacker reads who guesses the best combination of all that it was told: the worst there is.

    The combination may depend on the rows, so that a find is no attack yet. Where none is found there is none. Honest
    runs have some if they tell a matrix in every round: products of weights with columns are like powers of these, and
    powers are largest in single rows.

    Parameters
    ----------
    left, right : array, shape (n, m) and (n, k)
        Totals are of products of a vector on the left with one on the right.
    totals : array, shape (m, k)
        As they were seen, with rounding and noise: left'right if there was none.

    Returns
    -------
    list of Read
        One row, or two of which a combination was read.
    """
    scale, read = np.where(right.std(axis=0) > 0.0, right.std(axis=0), 1.0), []
    for rows, combination in rows_in_span(left):
        weights = (left @ combination)[list(rows)]
        apart = combination @ totals - weights @ right[list(rows)]
        error = float(np.max(np.abs(apart) / (np.linalg.norm(weights) * scale)))
        if error <= CLOSE:
            read.append(Read(rows, error, 0.0))
    return read


def read_by_differences(
    totals: np.ndarray, rows: np.ndarray, values: Mapping[int, Sequence[float]] | None = None
) -> list[Read]:
    """Rows that an attacker reads who knows no row, by differences of what it was told.

    If two vectors u and f v differ in one row, (u - f v)'x over (u - f v)'1 is that row's x. The factor f is guessed;
    or it is solved for, where a column of the row can only have few values: (u - f v)'x = value (u - f v)'1.

    Parameters
    ----------
    totals : array, shape (m, 1 + k)
        Of m vectors, each with its products with ones and with k columns: rows of information matrices with an
        intercept, scores, sums, of all rounds and runs.
    rows : array, shape (n, k)
        What was to stay secret.
    values : mapping of int to sequence of float, optional
        Columns whose few values are known.
    """
    m = len(totals)
    first, second = (np.array(part, dtype=int) for part in zip(*combinations(range(m), 2), strict=True))
    read: list[Read] = []

    def look(differences: np.ndarray, tries: int, fixed: Sequence[int] = ()) -> None:
        size = np.abs(totals[:, 0]).max()
        told = differences[np.abs(differences[:, 0]) > 1e-9 * size]
        read.extend(match(told[:, 1:] / told[:, :1], rows, tries, fixed))

    plain = [totals, *(totals[first] - f * totals[second] for f in _FACTORS)]
    if m <= _MOST_FOR_TRIPLES:
        triples = np.array(list(combinations(range(m), 3)), dtype=int).reshape(-1, 3)
        for signs in ((1, -1, -1), (1, -1, 1), (1, 1, -1)):
            plain.append(np.einsum("s,tsj->tj", np.array(signs, dtype=float), totals[triples]))
    solved = [(j, value) for j, known in (values or {}).items() for value in known]
    tries = sum(map(len, plain)) + len(first) * len(solved)
    for differences in plain:
        look(differences, tries)
    u, v = totals[first], totals[second]
    for j, value in solved:
        with np.errstate(divide="ignore", invalid="ignore"):
            f = (u[:, 1 + j] - value * u[:, 0]) / (v[:, 1 + j] - value * v[:, 0])
        good = np.isfinite(f)
        look(u[good] - f[good, None] * v[good], tries, [j])
    best = {one.who: one for one in sorted(read, key=lambda one: -one.chance)}
    return [best[who] for who in sorted(best)]


def read_by_value(kernels: np.ndarray, totals: np.ndarray, rows: np.ndarray) -> list[Read]:
    """Rows that have a value of a column for themselves, from sums whose weights depend on that column alone.

    The totals are A M: A has the weight of each value in each round, which whoever knows the parameters knows, and M
    for each value the number of its rows and the sums of their columns. Numbers are whole and not negative: with that
    there is a solution where least squares has none.

    Parameters
    ----------
    kernels : array, shape (rounds, values)
    totals : array, shape (rounds, 1 + k)
        Sums of weights, and of weights times columns.
    rows : array, shape (n, k)
    """
    size = np.abs(totals[:, :1]) + np.finfo(float).tiny
    a, b = kernels / size, totals / size
    try:
        there = np.rint(nnls(a, b[:, 0], maxiter=100 * a.shape[1])[0]) > 0
    except RuntimeError:  # it did not settle
        return []
    if not there.any():
        return []
    sums = np.linalg.lstsq(a[:, there], b, rcond=1e-16)[0]
    alone = sums[np.abs(sums[:, 0] - 1.0) < 0.01]
    return match(alone[:, 1:] / alone[:, :1], rows, len(sums))


def read_sites(rosters: np.ndarray, totals: np.ndarray, own: np.ndarray) -> list[Read]:
    """Sites whose own sums follow from totals over several rosters.

    Parameters
    ----------
    rosters : array, shape (m, K)
        How often each site's table is in each total.
    totals : array, shape (m, q)
        Of one question, or of questions that differ little.
    own : array, shape (K, q)
        What was to stay secret: each site's sums.
    """
    scale, read = np.where(own.std(axis=0) > 0.0, own.std(axis=0), 1.0), []
    for k, wanted in enumerate(np.eye(rosters.shape[1])):
        combination = np.linalg.lstsq(rosters.T.astype(float), wanted, rcond=None)[0]
        error = float(np.max(np.abs(combination @ totals - own[k]) / scale))
        if error <= CLOSE:
            read.append(Read((k,), error, 0.0))
    return read
