"""An audit of private fits by a canary: how well can a row be seen in all that a fit tells?

    python benchmarks/privacy_audit.py --pairs 10000

Of each pair of runs one has the canary and the other a row that answers zeros in its place. Whoever knows all other
rows sums up, over all parts of all answers, the likelihood ratio of what was told with the canary and without. If a fit
is mu-Gaussian-DP, a ratio with it exceeds one without it with probability Phi(mu / sqrt 2) at most, whatever the law of
the noise (the area under the curve of any test). How often it does, over all ratios of either kind, gives a lower bound
on mu with confidence .999, and from it one on epsilon. Both runs of a pair draw the same noise, which leaves what is
estimated as it is, and makes the estimate ten times as sharp; bounds by Clopper and Pearson are blind to such factors.

The canary is the row of the box, responses up to its ends, of which a fit tells most: the largest sum over parts of
|what the row adds|^2 / variance, in 20 runs without it. Other rows stand on a grid: equal ones are answered once.

"totals" is what the public sees, with the noise of all sites; "a site" is what a site sees that subtracts its own.
Noise is drawn as normals and rounded; that sites draw it by its exact law is a matter of tests.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import dp_accounting
import numpy as np
from scipy import special, stats

from fedgauss.federated.plan import Heard, Question
from fedgauss.federated.privacy import Privacy
from fedgauss.federated.private_fit import private_program
from fedgauss.federated.private_rows import PrivateRows, answer, bounds, in_ranges, parts, whole

N_ROWS, N_SITES, DELTA, DOUBT = 4_000, 8, 1e-6, 1e-3
RANGES = {"x": (-8.0, 8.0), "y": (-8.0, 8.0)}
RESPONSES = {"gaussian": np.linspace(-8.0, 8.0, 33), "binomial": np.arange(2.0), "poisson": np.arange(33.0)}
SITES = {"totals": N_SITES, "a site": N_SITES - 1}  # whose noise hides the canary


class Setting(NamedTuple):
    """What is audited; `deviation` is that of the noise, in units of what it should be."""

    family: str
    epsilon: float
    sites: int
    deviation: float


class Others(NamedTuple):
    """All rows but the canary: different ones, and how many there are of each."""

    rows: PrivateRows
    counts: np.ndarray


def others(family: str) -> Others:
    rng = np.random.default_rng(1)
    x = np.rint(2 * rng.normal(size=N_ROWS - 1)) / 2
    if family == "gaussian":
        y = np.rint(2 * rng.normal(size=len(x))) / 2 + x / 2
    elif family == "poisson":
        y = rng.poisson(np.exp(x / 4 - 0.2)).astype(float)
    else:
        y = (rng.random(len(x)) < special.expit(x / 4 - 0.2)).astype(float)
    rows, counts = np.unique(np.column_stack([x, y]), axis=0, return_counts=True)
    return Others(PrivateRows(rows[:, :1], rows[:, 1]), counts.astype(float))


def box(family: str) -> PrivateRows:
    """Rows of which one will be the canary."""
    x, y = (one.ravel() for one in np.meshgrid(np.linspace(-8.0, 8.0, 65), RESPONSES[family]))
    return PrivateRows(x[:, None], y)


def added(question: Question, rows: PrivateRows) -> dict[str, np.ndarray]:
    """What each row adds to each part of an answer, (elements, rows)."""
    found = bounds(question.kind, question.content, rows.x.shape[1] + 1)
    vectors = parts(question, *in_ranges(question, rows.x, rows.y))
    return {name: whole(vectors[name], part.bound) for name, part in found.items()}


def run(
    rng: np.random.Generator, of: Setting, known: Others, canaries: PrivateRows, there: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Log-likelihood ratios, and their expectations' squared mu, of each canary; the first one may be there."""
    program = private_program(("x",), "y", of.family, RANGES, Privacy(of.epsilon, DELTA), N_SITES, N_ROWS)
    ratios, squares = np.zeros(len(canaries.y)), np.zeros(len(canaries.y))
    question = next(program)
    try:
        while True:
            rest, own, told = added(question, known.rows), added(question, canaries), {}
            for name, vectors in own.items():
                variance = of.deviation**2 * of.sites * question.content["noise"][name]
                seen = there * vectors[:, 0] + np.rint(rng.normal(0.0, np.sqrt(variance), len(vectors)))
                square = np.sum(vectors**2, axis=0) / variance
                ratios, squares = ratios + seen @ vectors / variance - square / 2.0, squares + square
                told[name] = rest[name] @ known.counts + seen
            question = program.send(Heard(told, {}, []))
    except (StopIteration, ValueError):  # a refusal tells no more than what led to it
        return ratios, squares


def canary(of: Setting, known: Others) -> tuple[PrivateRows, float]:
    """The row of which most is told, and the root mean square of mu with which it is."""
    rows = box(of.family)
    squares = np.mean([run(np.random.default_rng([2, k]), of, known, rows, False)[1] for k in range(20)], axis=0)
    best = [int(np.argmax(squares))]
    return PrivateRows(rows.x[best], rows.y[best]), float(np.sqrt(squares[best[0]]))


def check_sums(of: Setting, known: Others) -> None:
    """Rows that are answered once and multiplied are those of the product's answer."""
    program = private_program(("x",), "y", of.family, RANGES, Privacy(of.epsilon, DELTA), N_SITES, N_ROWS)
    question, counts = next(program), known.counts.astype(int)
    rows = PrivateRows(np.repeat(known.rows.x, counts, axis=0), np.repeat(known.rows.y, counts))
    for name, total in answer(question, rows, lambda _, size: np.zeros(size)).items():
        assert np.array_equal(total, added(question, known.rows)[name] @ known.counts)


def least_mu(with_it: np.ndarray, without: np.ndarray) -> float:
    """A lower bound from pairs, which may depend on one another within a pair but not between."""
    n = len(with_it)
    above = (np.searchsorted(np.sort(without), with_it) - (with_it > without)) / (n - 1)  # of other pairs
    below = (n - np.searchsorted(np.sort(with_it), without, side="right") - (with_it > without)) / (n - 1)
    area = above.mean() - stats.norm.ppf(1 - DOUBT) * np.std(above + below) / np.sqrt(n)
    return float(np.sqrt(2.0) * stats.norm.ppf(area))


def audit(of: Setting, pairs: int, seed: int = 0) -> str:
    """A line of the table."""
    began, known = time.process_time(), others(of.family)
    check_sums(of, known)
    row, expected = canary(of, known)
    found = np.array(
        [
            [run(np.random.default_rng([seed, k]), of, known, row, there)[0][0] for there in (True, False)]
            for k in range(pairs)
        ]
    )
    mu, stated = least_mu(*found.T), 1.0 / dp_accounting.get_sigma_gaussian(of.epsilon, DELTA)
    epsilon = dp_accounting.get_epsilon_gaussian(1 / mu, DELTA) if mu > 0 else 0.0
    return (
        f"x {row.x[0, 0]:5.2f} y {row.y[0]:4.1f}  {stated:.3f} {expected:.3f} {mu:.3f}  {mu / stated:.2f}  "
        f"{epsilon:.2f}{'  more than stated' if epsilon > of.epsilon else '':<18}  {time.process_time() - began:.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--families", default="gaussian,binomial,poisson")
    parser.add_argument("--epsilons", default="1")
    told = parser.parse_args()
    print("family   noise seen by  epsilon  canary  mu: stated, of the canary, at least  over stated  epsilon at least")
    for family in told.families.split(","):
        for epsilon in map(float, told.epsilons.split(",")):
            for deviation in (1.0, 0.5):
                for who, sites in SITES.items():
                    line = audit(Setting(family, epsilon, sites, deviation), told.pairs)
                    print(f"{family:<9} {deviation:3.1f}  {who:<7} {epsilon:6.1f}   {line}", flush=True)


if __name__ == "__main__":
    main()
