"""Private fits of 20,000 rows at eight sites: coverage, and width over oracles and over no privacy at all.

    python benchmarks/private_fits.py --runs 2000
    python benchmarks/private_fits.py --runs 200 --rate 0.024     # rarer events

Columns are age, bmi, sex, smoker and a skewed value (log-normal, skewness 2.4, cut at 20); events 9 to 10 %. All is the
product's code but the noise: that of all sites is drawn at once as a rounded normal of the same variance, from which a
sum of discrete Gaussians of this size (standard deviations above 10^5) cannot be told.

Both oracles spend the whole budget on one score at the maximum of the likelihood and know all else. The first one's
score is bounded as the product's; the second's has the information of all rows, none of them clipped, and only the
noise of a bounded one: no private method can have both.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats

from fedgauss.federated.plan import Heard
from fedgauss.federated.privacy import Privacy
from fedgauss.federated.private_families import private_family
from fedgauss.federated.private_fit import PrivateFit, private_program, usual_length
from fedgauss.federated.private_rows import PrivateRows, answer

N_ROWS, N_SITES, DELTA = 20_000, 8, 1e-6
EPSILONS = (0.5, 1.0, 2.0, 4.0)
NAMES = ("age", "bmi", "sex", "smoker", "crp")
RANGES = {"age": (18, 95), "bmi": (12, 60), "sex": (0, 1), "smoker": (0, 1), "crp": (0, 20), "y": (40, 240)}
SLOPES = np.array([0.02, 0.03, 0.3, 0.4, 0.05])
CENTRE = np.array([58.0, 26.5, 0.5, 0.25, 2.7])
COMPARED = 100  # runs a cell in which oracles are computed


class Cell(NamedTuple):
    """What a family at an epsilon came to; (runs, 6) each, or (compared, 6)."""

    covered: np.ndarray
    over_bounded: np.ndarray
    over_all: np.ndarray
    over_none: np.ndarray
    refused: int
    warned: int
    warned_covered: np.ndarray
    seconds: float


def covariates(rng: np.random.Generator, n: int) -> np.ndarray:
    age = np.clip(rng.normal(58, 16, n), 18, 95).round()
    bmi = np.clip(rng.lognormal(np.log(26), 0.18, n), 12, 60)
    crp = np.minimum(rng.lognormal(0.7, 0.8, n), 20)
    return np.column_stack([age, bmi, rng.random(n) < 0.5, rng.random(n) < 0.25, crp])


def draw(rng: np.random.Generator, family: str, rate: float, n: int = N_ROWS) -> PrivateRows:
    x = covariates(rng, n)
    line = (x - CENTRE) @ SLOPES
    if family == "gaussian":
        return PrivateRows(x, 120 + 10 * line + rng.normal(0, 15, n))
    if family == "binomial":
        return PrivateRows(x, (rng.random(n) < special.expit(line + special.logit(rate))).astype(float))
    return PrivateRows(x, rng.poisson(np.exp(line + np.log(rate))).astype(float))


def truth(family: str, rate: float) -> np.ndarray:
    if family == "gaussian":
        return np.concatenate([[120 - 10 * CENTRE @ SLOPES], 10 * SLOPES])
    middle = special.logit(rate) if family == "binomial" else np.log(rate)
    return np.concatenate([[middle - CENTRE @ SLOPES], SLOPES])


def noise_of_all(rng: np.random.Generator) -> Callable[[int, int], np.ndarray]:
    """The noise of all sites together, given the variance of one site's."""
    return lambda variance, size: np.rint(rng.normal(0.0, np.sqrt(N_SITES * variance), size)).astype(np.int64)


def play(program: Any, rows: PrivateRows, noise: Callable[[int, int], Any]) -> PrivateFit:
    question = next(program)
    try:
        while True:
            question = program.send(Heard(answer(question, rows, noise), {}, []))
    except StopIteration as end:
        return end.value


def run(rng: np.random.Generator, family: str, rate: float, epsilon: float, rows: PrivateRows) -> PrivateFit:
    program = private_program(NAMES, "y", family, RANGES, Privacy(epsilon, DELTA), N_SITES, len(rows.y))
    return play(program, rows, noise_of_all(rng))


def maximum(family: str, rows: PrivateRows) -> tuple[np.ndarray, np.ndarray, float]:
    """Maximum likelihood by Newton steps: the estimate, its covariance, and the scale."""
    x, y = np.column_stack([np.ones(len(rows.y)), rows.x]), rows.y
    theta, scale = np.linalg.lstsq(x, y, rcond=None)[0], 1.0
    if family == "gaussian":
        scale = float(np.sqrt(np.sum((y - x @ theta) ** 2) / (len(y) - x.shape[1])))
        return theta, scale**2 * np.linalg.inv(x.T @ x), scale
    theta = np.zeros(x.shape[1])
    theta[0] = special.logit(y.mean()) if family == "binomial" else np.log(y.mean())
    for _ in range(10):
        mean = special.expit(x @ theta) if family == "binomial" else np.exp(x @ theta)
        information = (x * (mean * (1 - mean) if family == "binomial" else mean)[:, None]).T @ x
        theta = theta + np.linalg.solve(information, x.T @ (y - mean))
    return theta, np.linalg.inv(information), scale


def oracles(family: str, rows: PrivateRows, unit: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standard errors of the oracle with a bounded score, of that with all information, and without privacy."""
    theta, covariance, scale = maximum(family, rows)
    x = np.column_stack([np.ones(len(rows.y)), rows.x])
    mean = rows.y.mean()
    of_counts = (
        max(3.0, mean**-0.5) if family == "poisson" else min(mean, 1 - mean) ** -0.5 if family == "binomial" else 0
    )
    clip = 2.5 if family == "gaussian" else of_counts
    longest = usual_length(x.shape[1], len(x), [unit]) * clip
    s2 = (longest * unit) ** 2 * N_SITES / (N_SITES - 1)
    of = private_family(family, scale)
    z = x * of.root(x @ theta)[:, None]
    whiten = np.linalg.inv(np.linalg.cholesky(z.T @ z / len(z)))
    z = z @ whiten.T
    room = longest / np.linalg.norm(z, axis=1)
    terms = of.terms(x @ theta, rows.y, room)
    weight = np.minimum(1.0, room / terms.reach)
    a = (z * (weight * terms.slope)[:, None]).T @ z
    b = (z * (weight**2 * terms.spread)[:, None]).T @ z
    lever = whiten.T @ np.linalg.inv(a)
    bounded = lever @ (b + s2 * np.eye(len(a))) @ lever.T
    none = np.sqrt(np.diag(covariance))
    return np.sqrt(np.diag(bounded)), none * np.sqrt(1 + s2 / len(z)), none


def study(family: str, rate: float, epsilon: float, runs: int, seed: int) -> Cell:
    rng = np.random.default_rng([seed, int(100 * epsilon), int(1e4 * rate), len(family)])
    whole = Privacy(epsilon, DELTA).multipliers({"score": 1.0})["score"]
    covered, warned, ratios, refused = [], [], [], 0
    began = time.perf_counter()
    for _ in range(runs):
        rows = draw(rng, family, rate)
        try:
            found = run(rng, family, rate, epsilon, rows)
        except ValueError:
            refused += 1
            continue
        errors = np.asarray(found.fit.std_errors)
        inside = np.abs(np.asarray(found.fit.params) - truth(family, rate)) < stats.norm.ppf(0.975) * errors
        covered.append(inside)
        if any("cover a little less" in note for note in found.fit.notes):
            warned.append(inside)
        if len(ratios) < COMPARED:
            ratios.append([errors / one for one in oracles(family, rows, whole)])
    over = np.array(ratios).reshape(-1, 3, 6)
    return Cell(
        np.array(covered).reshape(-1, 6), over[:, 0], over[:, 1], over[:, 2], refused, len(warned),
        np.array(warned).reshape(-1, 6), time.perf_counter() - began,
    )  # fmt: skip


def line(family: str, rate: float, epsilon: float, cell: Cell) -> str:
    """One row of the table; the error of a mean over coefficients is that of runs, whose coefficients go together."""
    if not len(cell.covered):
        return f"{family:<9} {rate:5.3f} {epsilon:4.1f}  refused in all runs"
    each = cell.covered.mean(axis=0)
    error = cell.covered.mean(axis=1).std() / np.sqrt(len(cell.covered))
    bounded, all_rows, none = (np.median(one, axis=0) for one in (cell.over_bounded, cell.over_all, cell.over_none))
    warned = f"{cell.warned_covered.mean():.3f}" if cell.warned else "-"
    return (
        f"{family:<9} {rate:5.3f} {epsilon:4.1f}  {each.mean():.4f} +- {2.576 * error:.4f}  "
        f"{' '.join(f'{one:.3f}' for one in each)}  {bounded.mean():.3f} {bounded.max():.3f}  "
        f"{all_rows.mean():.3f} {all_rows.max():.3f}  {none.mean():.3f} {none.max():.3f}  "
        f"{cell.refused / (len(cell.covered) + cell.refused):.3f}  {cell.warned / len(cell.covered):.3f} {warned}  "
        f"{len(cell.covered)} runs, {cell.seconds:.0f} s"
    )


HEAD = (
    "family    rate   eps  coverage, 99 % interval  const age bmi sex smoker crp  over bounded oracle (mean, largest)  "
    "over oracle with all information  over no privacy  refused  warned, their coverage"
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=0.1, help="of events at the centre of the covariates")
    parser.add_argument("--families", default="gaussian,binomial,poisson")
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)))
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    print(HEAD, flush=True)
    for family in told.families.split(","):
        for epsilon in map(float, told.epsilons.split(",")):
            cell = study(family, told.rate, epsilon, told.runs, told.seed)
            print(line(family, told.rate, epsilon, cell), flush=True)


if __name__ == "__main__":
    main()
