"""Rounds of exact fits between sites, and how many of them tell a matrix, beside those of plain Newton steps.

`python benchmarks/rounds.py`: the data sets of the tests, and simulated ones with rare events. Sites answer with the
digits that they give along a path (`federated.path`). Newton's steps, which ask for an information in every round and
are told all digits, are those that fits took before matrices were few.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "inference"))

import test_exact_datasets as data_sets

import exact_fits
from fedgauss import families
from fedgauss.federated.path import Path as Steps
from fedgauss.inference import asks, scoring


class Count(NamedTuple):
    """Of one fit."""

    rounds: int
    matrices: int


def counted(fit: Callable[[], Any], digits: bool, apart: bool = False) -> Count:
    """The questions of a fit, with the digits of sites or all; those beside others count as rounds where `apart`."""
    asked: list[str] = []
    ordinary, answer = exact_fits.run, asks.answer

    def run(program: Any, family: Any, sites: Any) -> Any:
        paths = {id(rows): Steps(family, rows, bool(np.all(rows.x[:, 0] == 1.0))) for rows in sites}

        def rounded(family: Any, rows: Any, ask: Any) -> Any:
            if ask.kind not in ("score", "sums") or id(rows) not in paths:
                return answer(family, rows, ask)
            step = paths[id(rows)].step(ask)
            told = None if step is None else answer(family, rows, ask)
            return paths[id(rows)].rounded(told, step) if told and step else told

        asks.answer = rounded if digits else answer

        def listening() -> Any:
            told = None
            while True:
                try:
                    ask = program.send(told)
                except StopIteration as end:
                    return end.value
                asked.extend([ask.kind, *(["beside"] if apart and ask.beside is not None else [])])
                told = yield ask

        return ordinary(listening(), family, sites)

    exact_fits.run = run
    try:
        fit()
    finally:
        exact_fits.run, asks.answer = ordinary, answer
    return Count(len(asked), sum(kind in ("sums", "final") for kind in asked))


def fits() -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Family, data, and a fit."""
    fit = exact_fits.fit_split
    for case in data_sets.CASES:
        data, _ = data_sets.pooled(case)
        site = data_sets.split(3, "random", data.x)
        yield data.family.describe(), case.__name__, partial(fit, data.family, data.x, data.y, site, **data.more)
    x, y, _ = data_sets._negative_binomial()
    yield "negative_binomial", "randhie", partial(fit, families.NegativeBinomial(), x, y, np.arange(len(y)) % 3)
    x, y, _ = data_sets._multinomial()
    yield "multinomial", "anes96", partial(fit, families.Multinomial(6), x, y, np.arange(len(y)) % 3)
    heart = data_sets._of("heart")
    x = np.column_stack([heart.age, (heart.age - 45.0) ** 2 / 100.0])
    site = np.arange(len(x)) % 3
    yield "cox", "heart", partial(fit, families.Cox(), x, heart.survival, site, beside=heart.censors)
    data = data_sets.diabetes()
    for threshold in (20.0, 80.0):
        family = families.Huber(threshold)
        yield family.describe(), "diabetes", partial(fit, family, data.x, data.y, np.arange(len(data.y)) % 3)
    for n, p, share, size in (
        (2000, 5, 0.3, 0.5), (2000, 5, 0.05, 0.5), (2000, 5, 0.05, 1.0), (2000, 20, 0.05, 0.3), (5000, 10, 0.02, 0.6),
        (20000, 20, 0.05, 0.3), (800, 5, 0.045, 0.7),
    ):  # fmt: skip
        for skewed in (False, True):
            x, y = rare(n, p, share, size, skewed)
            words = f"{n} rows, {p} columns{' (some skewed)' if skewed else ''}, {100 * y.mean():.1f} % events"
            yield "binomial", words, partial(fit, families.Logistic(), x, y, np.arange(n) % 8)
    generator = np.random.default_rng(3)
    x, site = generator.standard_normal((2000, 5)), np.arange(2000) % 8
    for base in (-2.0, 1.0):
        y = generator.poisson(np.exp(base + x @ np.full(5, 0.4))).astype(float)
        yield "poisson", f"simulated, mean {y.mean():.2g}", partial(fit, families.Poisson(), x, y, site)
    time, event = generator.exponential(np.exp(-x @ np.full(5, 0.5))), (generator.random(2000) < 0.1).astype(float)
    yield "cox", "simulated, 10 % events", partial(fit, families.Cox(), x, time, site, beside=event)


def rare(n: int, p: int, share: float, size: float, skewed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Columns, and events of about this share; slopes are of this size."""
    generator = np.random.default_rng([n, p, int(1000 * share), int(10 * size)])
    x = generator.standard_normal((n, p))
    if skewed:
        x[:, ::2] = np.exp(x[:, ::2])
        x[:, 1] = x[:, 1] > 1.0
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    eta = x @ (size * np.where(np.arange(p) == 1, 1.0, generator.choice([-1.0, 1.0], p)))  # both values have events
    low, high = -20.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if (1.0 / (1.0 + np.exp(-eta - middle))).mean() < share else (low, middle)
    return x, (generator.random(n) < 1.0 / (1.0 + np.exp(-eta - low))).astype(float)


def newton(fit: Callable[[], Any]) -> Count:
    """The same with an information in every round, and rounds of their own for what is asked beside another now."""
    now = asks.MOST_MATRICES, scoring._SLOW
    asks.MOST_MATRICES, scoring._SLOW = scoring.MOST_ROUNDS, -np.inf
    try:
        return counted(fit, digits=False, apart=True)
    finally:
        asks.MOST_MATRICES, scoring._SLOW = now


if __name__ == "__main__":
    print(f"{'family':<26} {'data':<58} {'rounds':>7} {'Newton':>7} {'ratio':>6} {'matrices':>9} {'Newton':>7}")
    for family, data, fit in fits():
        now, then = counted(fit, digits=True), newton(fit)
        print(
            f"{family:<26} {data:<58} {now.rounds:>7} {then.rounds:>7} {now.rounds / then.rounds:>6.2f} "
            f"{now.matrices:>9} {then.matrices:>7}"
        )
