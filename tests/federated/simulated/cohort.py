"""Tables of sites, models about them, and the fit of all rows together by plain NumPy: what the auditor goes by."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedgauss.inference.model import Model

SECRET = "zz-rare-"  # of levels that so few rows have that nobody may hear of them
_LARGEST = 2.0**96
_FAR = 20.0  # a predictor of a logistic fit beyond which it may have no maximum
NUMBERS = ("age", "dose")
_NAMES = re.compile(r"\w+")
_STEPS = 200
_POOLED, _FEW = 5, 3


class Twin(NamedTuple):
    """A fit, or that none was found for certain."""

    params: np.ndarray
    cov: np.ndarray
    certain: bool  # of a maximum that is finite and well in sight


class Sums(NamedTuple):
    """At one parameter, over the rows of several sites."""

    log_likelihood: float
    score: np.ndarray
    information: np.ndarray
    answerable: bool  # whether each site's numbers are finite, and small enough to be masked
    size: float  # of what was added up: the scale of rounding
    score_size: np.ndarray


Table = dict[str, np.ndarray]


def tables(rng: np.random.Generator, sizes: Sequence[int], hard: bool) -> list[Table]:
    """One table a site; a hard one has heavy tails, over which steps are taken too far."""
    made = []
    shift, scale = rng.normal() * 10, 10 ** rng.uniform(-2, 2)
    slope, levels = rng.normal(size=2) * 0.4, rng.normal(size=3) * 0.4
    for site, n in enumerate(sizes):
        z = rng.normal(size=(n, 2))
        dose = np.exp(1.5 * z[:, 1]) if hard else z[:, 1]
        ward = rng.choice(3, n, p=[0.45, 0.35, 0.2])
        signal = 0.3 * rng.normal() + z @ slope + levels[ward]
        rate = np.exp(1.5 * z[:, 1] + signal) if hard else np.exp(0.5 + 0.5 * signal)
        town = np.array(["north", "south", "west"])[rng.choice(3, n)].astype(object)
        few = int(rng.choice([0, 0, 0, 1, 2, 4]))  # of four rows two levels are made, which together may be told of
        town[:few] = [f"{SECRET}{row // 2}" for row in range(few)]
        clinic = np.where(rng.random(n) < 0.5, "p", "q").astype(object)
        if hard and site == 0:  # the first step from the mean of all is far beyond what can be sent from here
            clinic[-4:], rate[-4:] = "r", 3e3 * rng.random(4)
        made.append(
            {
                "age": shift + scale * z[:, 0], "dose": dose, "ward": np.array(["u", "v", "w"])[ward], "town": town,
                "clinic": clinic,
                "patient": np.array([f"{SECRET}{i}" for i in range(n)]),
                "cost": 100 * signal + 30 * rng.normal(size=n) * (1 + np.abs(z[:, 0])),
                "died": (rng.random(n) < 1 / (1 + np.exp(-signal))).astype(float),
                "visits": rng.poisson(np.minimum(rate, 1e6)).astype(float),
            }
        )  # fmt: skip
    return made


def models(rng: np.random.Generator, count: int, hard: bool) -> list[Model]:
    """Different models, most of which the rules of a site allow."""
    found: dict[str, Model] = {}
    while len(found) < count:
        target = "visits" if hard and rng.random() < 0.7 else str(rng.choice(["cost", "died", "visits"]))
        family = {"cost": "gaussian", "died": "binomial", "visits": "poisson"}[target]
        terms = [str(name) for name in rng.permutation(["age", "dose", "ward", "ward"])[: rng.integers(1, 4)]]
        others: dict[str, Any] = {}
        if hard and rng.random() < 0.7:
            terms = ["clinic", *terms[: rng.integers(0, 2)]]
        if rng.random() < 0.06:
            terms.append("patient")
        elif rng.random() < 0.15:
            terms.append("town")
            others = {"pool_rare": _POOLED} if rng.random() < 0.7 else {}
        formula = f"{target} ~ {' + '.join(dict.fromkeys(terms))}"
        errors = str(rng.choice(["HC0", "HC1", "model"]))
        found[formula] = Model(formula, family=family, errors=errors, **others)
    return list(found.values())


def needed(tables: Sequence[Table], models: Sequence[Model]) -> list[Table]:
    """The tables with the columns that the models have."""
    names = {name for model in models for name in _NAMES.findall(str(model.formula))}
    return [{name: own for name, own in table.items() if name in names} for table in tables]


class Cohort:
    """The rows of some sites under one model.

    Parameters
    ----------
    model : Model
    tables : sequence of dict
        Of each site.
    """

    def __init__(self, model: Model, tables: Sequence[Table]) -> None:
        self.family = str(model.family)
        self._model = model
        terms = str(model.formula).split("~")[1].split("+")
        self.terms = sorted((term.strip() for term in terms), key=lambda name: name in NUMBERS)  # stable: factors first
        joined = {name: np.concatenate([one[name] for one in tables]) for name in [model.target, *self.terms]}
        self.y = joined[model.target]
        ends = np.cumsum([len(one[model.target]) for one in tables])
        self.pieces = [slice(end - len(one[model.target]), end) for one, end in zip(tables, ends, strict=True)]
        self.levels: dict[str, list[str]] = {}  # of each column of text, without those that are pooled
        columns = []
        for name in self.terms:
            values = joined[name]
            if values.dtype.kind == "f":
                columns.append(values)
                continue
            self.levels[name] = kept = self._levels(values)
            columns.extend((values == level).astype(float) for level in kept[1:])
            if model.pool_rare:
                rest = np.array([value not in kept for value in values], dtype=float)
                columns.extend([rest] if rest.any() else [])
        self.x = np.stack(columns, axis=1)

    def rows(self, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """A column of ones and all others in units of these means and scales."""
        return np.column_stack([np.ones(len(self.y)), (self.x - mean) / scale])

    def units(self, x: np.ndarray) -> np.ndarray:
        """Of each site the power of two below the root of the mean square of each column, or 1."""
        sizes = [np.sqrt(np.mean(x[piece] ** 2, axis=0)) for piece in self.pieces]
        return np.asarray(2.0 ** np.floor(np.log2(np.maximum(sizes, 1.0))))

    def sums(self, beta: np.ndarray, x: np.ndarray) -> Sums:
        """At a parameter of these rows."""
        with np.errstate(all="ignore"):
            eta = x @ beta
            mu, weight, loss = _parts(self.family, eta, self.y)
            rows = (self.y - mu)[:, None] * x
            score, information = rows.sum(axis=0), (x * weight[:, None]).T @ x
            starts = [piece.start for piece in self.pieces]
            each = [np.abs(np.add.reduceat(part, starts, axis=0)).max() for part in (loss, rows)]
        answerable = all(one <= _LARGEST for one in each)
        return Sums(
            -float(loss.sum()), score, information, answerable, float(np.abs(loss).sum()), np.abs(rows).sum(axis=0)
        )  # fmt: skip

    @np.errstate(all="ignore")  # of data without a maximum
    def fit(self) -> Twin:
        """The maximum, by Newton's method with steps halved; standard errors as the model says."""
        mean, scale = self.x.mean(axis=0), self.x.std(axis=0)
        n, p = self.x.shape
        dim = p + 1
        none = Twin(np.full(dim, np.nan), np.full((dim, dim), np.nan), False)
        if np.any(scale <= 1e-9 * (1 + np.abs(mean))) or n <= dim:
            return none
        x = np.column_stack([np.ones(n), (self.x - mean) / scale])
        if np.linalg.cond(x) > 1e5:
            return none
        beta = np.zeros(dim)
        if self.family != "gaussian":
            centre = self.y.mean()
            if not centre > 0 or (self.family == "binomial" and not centre < 1):
                return none
            beta[0] = np.log(centre / (1 - centre)) if self.family == "binomial" else np.log(centre)
        mu, weight, loss = _parts(self.family, x @ beta, self.y)
        for _ in range(_STEPS):
            score, information = (self.y - mu) @ x, (x * weight[:, None]).T @ x
            try:
                step = np.linalg.solve(information, score)
            except np.linalg.LinAlgError:
                return none
            if np.abs(step).max() <= 1e-13 * (1 + np.abs(beta).max()):
                break
            for _ in range(60):
                with np.errstate(all="ignore"):
                    there = _parts(self.family, x @ (beta + step), self.y)
                if there[2].sum() <= loss.sum() + 1e-12 * np.abs(loss).sum():
                    break
                step = step / 2
            beta, (mu, weight, loss) = beta + step, there
        information = (x * weight[:, None]).T @ x
        certain = self.family != "binomial" or np.abs(x @ beta).max() < _FAR
        if not certain or not np.all(np.isfinite(information)) or np.linalg.cond(information) > 1e10:
            return none
        bread = np.linalg.inv(information)
        if self._model.errors == "model":
            dispersion = float(np.sum((self.y - mu) ** 2)) / (n - dim) if self.family == "gaussian" else 1.0
            cov = dispersion * bread
        else:
            rows = (self.y - mu)[:, None] * x
            cov = bread @ (rows.T @ rows) @ bread * (n / (n - dim) if self._model.errors == "HC1" else 1.0)
        back = np.diag(np.concatenate([[1.0], 1 / scale]))
        back[0, 1:] = -mean / scale
        return Twin(back @ beta, back @ cov @ back.T, True)

    def _levels(self, values: np.ndarray) -> list[str]:
        """Of a column of text, without those that are pooled, in order. A site tells of no level of few rows."""
        told: Counter[str] = Counter()
        for piece in self.pieces:
            own = Counter(values[piece].tolist())
            told.update({level: n if n >= _FEW or not self._model.pool_rare else 0 for level, n in own.items()})
        return sorted(level for level, n in told.items() if n >= max(1, self._model.pool_rare))


def _parts(family: str, eta: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean, its derivative and the loss of each row."""
    if family == "gaussian":
        return eta, np.ones_like(eta), (y - eta) ** 2 / 2
    if family == "poisson":
        mu = np.exp(eta)
        return mu, mu, mu - y * eta
    mu = 1 / (1 + np.exp(-eta))
    return mu, mu * (1 - mu), np.logaddexp(0.0, eta) - y * eta


def same(left: Table, right: Table) -> bool:
    """Whether two tables have the same rows."""
    return all(np.array_equal(left[name], right[name]) for name in left)


def levels_of(table: Table, name: str) -> dict[str, int]:
    """How many rows have each level of a column of text."""
    return Counter(table[name].tolist())
