"""The search for combinations of columns that vanish but on few rows: what it finds and refuses, and its seconds.

OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/spans.py
"""

from __future__ import annotations

import time
from collections import Counter

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.federated.spans import extend, rows_apart, span_of
from fedgauss.federated.spans import search as search_in

FEW = 5
PLANTED = ("rescaled", "combined", "transformed", "one row less", "zeros and ones", "three runs")
SIZES = (300, 1000, 5000)


def model(rng: np.random.Generator, n: int, tails: str = "ordinary") -> FloatArray:
    """Columns of a logistic model, its outcome, and what its sums at one parameter rest on."""
    age, bmi = rng.normal(60, 12, n).round(), rng.lognormal(3.3, 0.15, n).round(1)
    level = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    x = [np.ones(n), age, bmi, rng.random(n) < 0.5, rng.random(n) < 0.2, level == 1, level == 2]
    if tails == "heavy-tailed":
        x += [rng.lognormal(2.0, 1.0, n), rng.standard_t(3, n)]
    elif tails == "without variance":
        x += [rng.lognormal(2.0, 1.5, n), rng.standard_t(2, n), rng.pareto(1.0, n)]
    design = np.column_stack([np.asarray(c, float) for c in x])
    z = (age - 60) / 12 * 0.5 + 0.4 * design[:, 4] - 2.0
    mean = 1.0 / (1.0 + np.exp(-z))
    y = (rng.random(n) < mean).astype(float)
    return np.column_stack([design, y, mean, (mean * (1.0 - mean))[:, None] * design])


def planted(rng: np.random.Generator, kind: str, n: int) -> tuple[FloatArray, set[int]]:
    """Columns of a model and of a later run that tells of one to four rows, and which these are."""
    columns = model(rng, n)
    rows = rng.choice(n, rng.integers(1, FEW), replace=False)
    change = np.zeros(n)
    change[rows] = rng.uniform(0.5, 1.0, len(rows)) * rng.choice([-1, 1], len(rows)) * 10.0 ** rng.uniform(-8, 0)
    age, bmi, smoker = columns[:, 1], columns[:, 2], columns[:, 4]
    if kind == "rescaled":
        later = [3.7 * (age + age.mean() * change) - 2.0]
    elif kind == "combined":
        later = [age - bmi, age + bmi + age.mean() * change]
    elif kind == "transformed":
        later = [np.log(age) ** 2, (np.log(age) - 1.0) ** 2 + change, np.log(age)]
    elif kind == "one row less":
        stays = np.isin(np.arange(n), rows, invert=True)
        later = [np.sqrt(bmi), np.where(stays, np.sqrt(bmi), 0.0)]
    elif kind == "zeros and ones":
        later = [np.where(change != 0.0, 1.0 - smoker, smoker)]
    else:
        later = [age * bmi, age * bmi + bmi**2, 2.0 * bmi**2 - age + bmi.mean() * change * age.mean()]
    return np.column_stack([columns, *later]), set(rows.tolist())


def main() -> None:
    """Planted cases, ordinary and heavy-tailed models, seconds."""
    rng, found, exact = np.random.default_rng(1), Counter[str](), 0
    for case in range(50 * len(PLANTED)):
        kind = PLANTED[case % len(PLANTED)]
        columns, rows = planted(rng, kind, int(rng.choice(SIZES)))
        search = rows_apart(columns, FEW)
        found[kind] += search.rows is not None
        exact += search.rows is not None and set(search.rows.tolist()) <= rows
    total = f"{sum(found.values())} of {50 * len(PLANTED)}"
    print(f"planted, few = {FEW}: {total} found ({dict(found)}), {exact} with their rows")
    for tails in ("ordinary", "heavy-tailed", "without variance"):
        refused, incomplete = Counter[int](), 0
        for case in range(360):
            n = SIZES[case % 3]
            search = rows_apart(model(rng, n, tails), FEW)
            refused[n] += search.rows is not None
            incomplete += not search.complete
        total = f"{sum(refused.values())} of 360"
        print(f"{tails} models: {total} refused ({dict(refused)}), {incomplete} not searched through")
    for few in (3, 5):
        for n, q in ((100_000, 20), (100_000, 40), (100_000, 200)):
            columns, began = rng.standard_normal((n, q)), time.process_time()
            rows_apart(columns, few)
            print(f"few = {few}, n = {n:,}, {q} columns: {time.process_time() - began:.2f} s of processor time")
    columns = rng.standard_normal((12_500, 220))
    before, began = span_of(columns[:, :200]), time.process_time()
    search_in(extend(before, columns[:, 200:]), FEW)
    print(f"20 columns more than 200 of 12,500 rows: {time.process_time() - began:.3f} s of processor time")


if __name__ == "__main__":
    main()
