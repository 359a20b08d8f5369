"""An audit of private fits by a canary: how well can a row be seen in all that a fit tells?

    python benchmarks/privacy_audit.py --pairs 10000

A canary is a row whose score is as long as a score may be. Of each pair of runs one has it and the other has a row of
zeros in its place. Whoever knows all other rows sums up, over all parts of all answers, the likelihood ratio of what
was told with the canary and without. From how often that exceeds its median in either kind of run follows a lower bound
on mu of Gaussian differential privacy, with confidence .999, and from it one on epsilon. (A bound straight from the two
rates, by Clopper and Pearson, stands beside it: with 10,000 pairs it is blind to noise of half the standard deviation.)

"totals" is what the public sees, with the noise of all sites; "a site" is what a site sees that subtracts its own.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import dp_accounting
import numpy as np
from scipy import special, stats

from fedgauss.federated.plan import Heard, Question
from fedgauss.federated.privacy import Privacy
from fedgauss.federated.private_fit import private_program
from fedgauss.federated.private_rows import PrivateRows, answer

N_ROWS, N_SITES, DELTA, DOUBT = 2_000, 8, 1e-6, 1e-3
RANGES = {"x": (-3.0, 3.0), "y": (-6.0, 6.0)}
SITES = {"totals": N_SITES, "a site": N_SITES - 1}  # whose noise hides the canary


class Bound(NamedTuple):
    """Lower bounds on epsilon at the delta of the audit."""

    gaussian: float
    clopper_pearson: float


def silent(_: int, size: int) -> np.ndarray:
    return np.zeros(size)


def table(rng: np.random.Generator, family: str) -> tuple[PrivateRows, PrivateRows]:
    """All rows but one, and the canary: an unlikely response two standard deviations from the middle."""
    x = rng.normal(size=N_ROWS - 1)
    if family == "gaussian":
        return PrivateRows(x[:, None], 0.5 * x + rng.normal(size=len(x))), PrivateRows(
            np.array([[2.0]]), np.array([-6.0])
        )
    if family == "poisson":
        y = rng.poisson(np.exp(0.5 * x - 0.5)).astype(float)
        return PrivateRows(x[:, None], y), PrivateRows(np.array([[2.0]]), np.array([40.0]))
    y = (rng.random(len(x)) < special.expit(0.5 * x - 0.5)).astype(float)
    return PrivateRows(x[:, None], y), PrivateRows(np.array([[2.0]]), np.array([0.0]))


def ratio(rng: np.random.Generator, family: str, epsilon: float, sites: int, there: bool, deviation: float) -> float:
    """The log-likelihood ratio of a run; `deviation` is that of the noise, in units of what it should be."""
    rows, canary = table(rng, family)
    program = private_program(("x",), "y", family, RANGES, Privacy(epsilon, DELTA), N_SITES, N_ROWS)
    found = 0.0
    question: Question = next(program)
    try:
        while True:
            plain, own = answer(question, rows, silent), answer(question, canary, silent)
            told = {}
            for name, total in plain.items():
                variance = sites * question.content["noise"][name]
                noise = np.rint(rng.normal(0.0, deviation * math.sqrt(variance), len(total)))
                seen = there * own[name] + noise
                found += float(own[name] @ (seen - own[name] / 2.0)) / variance
                told[name] = total + seen
            question = program.send(Heard(told, {}, []))
    except (StopIteration, ValueError):  # a refusal tells no more than what led to it
        return found


def bound(with_it: np.ndarray, without: np.ndarray) -> Bound:
    """Where both kinds of run are split at the median of all."""
    n, middle = len(with_it), np.median(np.concatenate([with_it, without]))
    hits, alarms = int(np.sum(with_it > middle)), int(np.sum(without > middle))
    least = stats.beta.ppf(DOUBT / 2, hits, n - hits + 1)
    most = stats.beta.ppf(1 - DOUBT / 2, alarms + 1, n - alarms)
    mu = stats.norm.ppf(least) - stats.norm.ppf(most)
    gaussian = dp_accounting.get_epsilon_gaussian(1 / mu, DELTA) if mu > 0 else 0.0
    return Bound(gaussian, max(0.0, math.log(max(least - DELTA, 1e-300) / most)))


def audit(family: str, epsilon: float, sites: int, pairs: int, deviation: float = 1.0, seed: int = 0) -> Bound:
    rng = np.random.default_rng([seed, sites, int(100 * epsilon), int(100 * deviation)])
    one: Callable[[bool], Any] = lambda there: ratio(rng, family, epsilon, sites, there, deviation)  # noqa: E731
    found = np.array([(one(True), one(False)) for _ in range(pairs)])
    return bound(found[:, 0], found[:, 1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--families", default="gaussian,binomial,poisson")
    parser.add_argument("--epsilons", default="1,2,4")
    told = parser.parse_args()
    print("family    noise  seen by  stated  at least (Gaussian, Clopper-Pearson)")
    for family in told.families.split(","):
        for epsilon in map(float, told.epsilons.split(",")):
            for deviation in (1.0, 0.5):
                for who, sites in SITES.items():
                    found = audit(family, epsilon, sites, told.pairs, deviation)
                    verdict = "" if found.gaussian <= epsilon else "  more than stated"
                    print(
                        f"{family:<9} {deviation:4.1f}   {who:<7} {epsilon:5.1f}    {found.gaussian:.2f} "
                        f"{found.clopper_pearson:.2f}{verdict}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
