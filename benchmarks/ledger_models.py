"""How many different models a table answers before its ledger refuses one.

    OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/ledger_models.py

A hospital's table, a first look at all of its columns, then the models of a textbook and after these, logistic and
other models of every set of covariates. A model tells its columns, its means at three parameters (what scores rest on),
and the columns times its weights (what matrices rest on): at each of these, or at the last one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.stats import norm

from fedgauss._types import FloatArray
from fedgauss.federated.budget import Budget
from fedgauss.federated.ledger import Admission, Ledger
from fedgauss.federated.refusal import Refused

Columns = dict[str, FloatArray]
PARAMETERS = 3
WIDE = Budget(tries=10_000, parameters=100_000, matrices=100_000)
SITES = [("a", "1"), ("b", "2")]


def hospital(n: int, seed: int) -> Columns:
    """Age, sex, bmi, smoker, stage, blood pressure, and who died (one in nine or so)."""
    rng = np.random.default_rng(seed)
    age, sex = rng.normal(62, 11, n).clip(20, 99).round(), (rng.random(n) < 0.5) * 1.0
    bmi, smoker = rng.lognormal(3.29, 0.16, n).round(1), (rng.random(n) < 0.22) * 1.0
    stage = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    sbp = (95 + 0.55 * age + 0.6 * (bmi - 27) + 4 * sex + rng.normal(0, 14, n)).round()
    eta = -3.2 + 0.05 * (age - 62) + 0.5 * smoker + 0.45 * stage
    died = (rng.random(n) < 1 / (1 + np.exp(-eta))) * 1.0
    return {
        "age": age, "sex": sex, "bmi": bmi, "smoker": smoker, **{f"stage{k}": (stage == k) * 1.0 for k in (1, 2, 3)},
        "sbp": sbp, "died": died, "high": (sbp > 140) * 1.0,
    }  # fmt: skip


def models() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Family, target and terms: those of a textbook, then all sets of covariates."""
    stage = ("stage1", "stage2", "stage3")
    every = ("age", "sex", "bmi", "smoker", *stage)
    yield from [
        ("gaussian", "sbp", ("age",)), ("gaussian", "sbp", ("age", "sex")), ("gaussian", "sbp", ("age", "sex", "bmi")),
        ("gaussian", "sbp", every), ("gaussian", "bmi", ("age", "smoker")),
        ("gaussian", "sbp", ("age", "age^2", "sex")),
        ("gaussian", "sbp", ("age", "sex", "age:sex")), ("gaussian", "log sbp", ("age", "log bmi")),
        ("logit", "died", ("age",)), ("logit", "died", ("age", "sex")), ("logit", "died", ("age", "smoker", *stage)),
        ("logit", "died", every), ("logit", "died", (*every, "sbp")), ("logit", "died", ("age", "age^2")),
        ("logit", "high", ("age", "sex", "bmi")), ("logit", "high", every), ("logit", "smoker", ("age", "sex")),
        ("probit", "died", ("age", "sex", "smoker")), ("poisson", "died", ("age", "sex", "smoker")),
        ("logit", "died", ("age", "smoker", "age:smoker")),
    ]  # fmt: skip
    blocks = [("age",), ("sex",), ("bmi",), ("smoker",), stage, ("sbp",)]
    for family in ("logit", "probit", "poisson"):
        for size in range(1, len(blocks) + 1):
            for chosen in combinations(blocks, size):
                yield family, "died", sum(chosen, ())


def term(table: Columns, name: str) -> FloatArray:
    """A column, its square or logarithm, or a product of two."""
    if name.startswith("log "):
        return np.log(table[name[4:]])
    if name.endswith("^2"):
        return table[name[:-2]] ** 2
    return np.prod([table[part] for part in name.split(":")], axis=0)


def mean_of(family: str, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The mean and the weight of each row."""
    if family == "poisson":
        return np.exp(eta), np.exp(eta)
    if family == "probit":
        mean = norm.cdf(eta)
        return mean, norm.pdf(eta) ** 2 / (mean * (1.0 - mean))
    mean = 1.0 / (1.0 + np.exp(-eta))
    return mean, mean * (1.0 - mean)


def told(table: Columns, family: str, target: str, names: tuple[str, ...], matrices: str) -> Columns:
    """All columns that the sums of a model rest on."""
    columns = {"1": np.ones(len(table["age"]))} | {name: term(table, name) for name in names}
    y = term(table, target)
    if family == "gaussian":
        return columns | {target: y}
    x = np.column_stack(list(columns.values()))
    centre, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-12)
    centre[0], scale[0] = 0.0, 1.0
    z, more = (x - centre) / scale, {}
    theta = np.zeros(z.shape[1])
    theta[0] = {"poisson": np.log(y.mean()), "probit": norm.ppf(y.mean())}.get(
        family, np.log(y.mean() / (1 - y.mean()))
    )
    for t in range(PARAMETERS + 1):  # at the first, with slopes of zero, both are combinations of the columns
        mean, weight = mean_of(family, z @ theta)
        if t:
            more[f"mean {t}"] = mean
        if t == PARAMETERS or (t and matrices == "each"):
            more |= {f"weight {t} {name}": weight * column for name, column in columns.items()}
        slope = weight if family != "probit" else np.sqrt(weight * mean * (1.0 - mean))
        score = z.T @ ((y - mean) * (slope / (mean * (1.0 - mean)) if family == "probit" else 1.0))
        theta = theta + np.linalg.solve((z.T * weight) @ z, score)
    return columns | {target: y} | more


def answers(n: int, seed: int, few: int, matrices: str, most: int) -> tuple[int, int]:
    """Models that were answered before the first that was refused, and of `most` models in all."""
    table = hospital(n, seed)
    with TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "table.ledger", few=few, budget=WIDE)
        numbers, answered, first = ledger.digests(table), 0, None
        asked = [("first look", table | {"1": np.ones(n)})]
        asked += [("/".join(map(str, one)), told(table, *one, matrices)) for one in list(models())[:most]]
        for count, (name, columns) in enumerate(asked):
            ledger.begin(name, "benchmark", SITES, "asker", {"model": name})
            try:
                ledger.admit(Admission(columns, numbers))
            except Refused as refusal:
                ledger.refuse([str(refusal)])
                first = count if first is None else first
            else:
                ledger.finish(answered=True)
                answered += 1
    return (len(asked) if first is None else first), answered


def main() -> None:
    """For tables of three sizes."""
    for n, seeds, most in ((300, 5, 60), (1000, 5, 60), (5000, 3, 60)):
        for few in (3, 5):
            for matrices in ("each", "last"):
                began = time.process_time()
                both = [answers(n, seed, few, matrices, most) for seed in range(seeds)]
                print(
                    f"{n:>5} rows, few = {few}, matrices at {matrices:<4}: {[one for one, _ in both]} before the first "
                    f"refusal, {[two for _, two in both]} of {most + 1}; {time.process_time() - began:.1f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
