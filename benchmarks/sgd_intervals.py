"""Intervals from SGD on the grid of HulC's paper: the default beside the plug-in, HulC, t-based and random scaling.

    python benchmarks/sgd_intervals.py --dim 5,20 --rows 1000,10000 --clients 1,10 --runs 200

Carter and Kuchibhotla (arXiv 2505.17300) have, after Chen, Lee, Tong and Zhang (2020), an intercept and d - 1
covariates N(0, S), S the identity, .5^|i - j| or .2 off the diagonal, coefficients spaced evenly from 0 to 1, unit
noise, steps c t^-.505, and a start by steps of .001 over the first third of the rows. T rows in all are shared by K
clients on a ring. Rows of the table go to a file as they come, one JSON object each; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import stats

import fedgauss as fg
from fedgauss._lanes import times
from fedgauss._progress import bar
from fedgauss.engine.simulate import simulate
from fedgauss.families import Family, family
from fedgauss.inference.accuracy import row_covariance, sandwich
from fedgauss.inference.methods import RandomScaling
from fedgauss.inference.passes import run_given_steps
from fedgauss.inference.reference_laws import StudentT, random_scaling_critical
from fedgauss.inference.solution import all_rows
from fedgauss.problems.base import pytree
from fedgauss.problems.family_problem import FamilyProblem, predictors

LEVEL, BETA, SYNC_EVERY = 0.95, 0.505, 10
STEPS = {100: (0.05, 0.2, 0.5, 1.0, 2.0)}  # of the paper's grids: .05 to 2 for d = 100, .01 to 2 below
FEWER = (0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
COVARIANCES = {
    "identity": lambda p: np.eye(p),
    "toeplitz": lambda p: 0.5 ** np.abs(np.subtract.outer(np.arange(p), np.arange(p))),
    "equicorrelated": lambda p: 0.8 * np.eye(p) + 0.2,
}


@dataclass(frozen=True)
class Setting:
    """A cell of the grid."""

    family: str
    design: str
    dim: int
    rows: int
    clients: int
    runs: int

    @property
    def truth(self) -> Any:
        return np.linspace(0.0, 1.0, self.dim)

    def problem(self) -> Any:
        """K equal clients."""
        root = np.zeros((self.dim, self.dim))
        root[1:, 1:] = np.linalg.cholesky(COVARIANCES[self.design](self.dim - 1))
        weights = np.full(self.clients, 1 / self.clients)
        return WithIntercept(self.truth, root, weights, family(self.family))

    @property
    def network(self) -> Any:
        return fg.networks.complete(1) if self.clients == 1 else fg.networks.ring(self.clients)

    def least(self) -> Any:
        """Wald's half widths with the true covariance A^-1 / T."""
        sigma = np.eye(self.dim)
        sigma[1:, 1:] = COVARIANCES[self.design](self.dim - 1)
        if self.family == "logistic":  # x'theta ~ N(0, s^2), and what of x is left given it has a constant variance
            z = np.linspace(-10.0, 10.0, 100_001)  # s is up to 23, and Gauss-Hermite points lie too far apart for that
            w = np.exp(-(z**2) / 2.0)
            s2, along = self.truth @ sigma @ self.truth, sigma @ self.truth
            h = 1.0 / (4.0 * np.cosh(np.sqrt(s2) * z / 2.0) ** 2)
            h0, h2 = (float(w @ (h * z**j) / w.sum()) for j in (0, 2))
            sigma = h0 * sigma + (h2 - h0) * np.outer(along, along) / s2
        return stats.norm.ppf(0.5 + LEVEL / 2) * np.sqrt(np.diag(np.linalg.inv(sigma)) / self.rows)


@pytree
class WithIntercept(FamilyProblem):
    """Rows (1, x) with x normal, the same at every client."""

    coefficients: Any  # (d,)
    root: Any  # of the covariance of the covariates, with a row and a column of zeros for the intercept; (d, d)
    weights: Any  # (K,)
    family: Family = field(metadata={"static": True})

    @property
    def dim(self) -> int:
        return int(np.shape(self.root)[0])

    def sample(self, noise: Any, t: Any) -> Any:
        x = times(self.root, noise.stream("design").normal(self.dim)).at[0].set(1.0)
        along = predictors(jnp.asarray(self.coefficients, jnp.float32)[:, None, None], x, 1)
        return x, self.family.respond(along, noise.stream("response"), jnp.ones(self.n_clients))


def judged(setting: Setting, method: str, c: float | None, low: Any, high: Any, began: float) -> dict[str, Any]:
    """A row of the table: coverage over coordinates and runs with its error, the worst coordinate, width by Wald's."""
    covered = (low <= setting.truth) & (setting.truth <= high)
    return {
        **asdict(setting), "method": method, "c": c,
        "coverage": float(covered.mean()),
        "error": float(covered.mean(axis=1).std(ddof=1) / np.sqrt(len(covered))),
        "lowest": float(covered.mean(axis=0).min()), "highest": float(covered.mean(axis=0).max()),
        "width": float(np.nanmean((high - low) / 2 / setting.least())),
        "seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def about(centre: Any, half: Any) -> tuple[Any, Any]:
    return centre - half, centre + half


def errors(cov: Any) -> Any:
    return np.sqrt(np.einsum("rii->ri", np.asarray(cov, dtype=float)))


def default(setting: Setting, correct_bias: bool = False) -> tuple[Any, Any]:
    """`infer` as it is: sums over rows, which know of no c."""
    problem, n = setting.problem(), setting.rows // setting.clients
    solution = all_rows(problem, n, setting.runs, 1, np.zeros(setting.dim), False, correct_bias)
    cov, dof = row_covariance(solution, problem.weights)
    quantile = [StudentT(each).half_widths(np.ones(1), LEVEL) for each in dof]
    return about(solution.params, np.array(quantile) * errors(cov))


def started(setting: Setting, n: int, runs: int) -> Any:
    """Where clients are after steps of .001 over the first third of their rows: the paper's start."""
    first = fg.networks.complete(setting.clients)
    return simulate(
        setting.problem(), first, [0.001] * (n // 3), n // 3, sync_every=1, replicates=runs, seed=1, progress=False
    ).last  # fmt: skip


def averages(setting: Setting, c: float, n: int, runs: int, **options: Any) -> Any:
    """A pass of averaged SGD with steps c t^-.505."""
    steps, start = fg.step_sizes.polynomial(c, BETA), np.repeat(started(setting, n, runs)[:, None], setting.clients, 1)
    return run_given_steps(
        setting.problem(), setting.network, steps, n, SYNC_EVERY, start=start, replicates=runs, seed=1, progress=False,
        **options,
    )  # fmt: skip


def plugin_and_scaling(setting: Setting, c: float) -> dict[str, tuple[Any, Any]]:
    """Chen, Lee, Tong and Zhang (2020): A^-1 S A^-1 about the average; Lee, Liao, Seo and Shin (2022)."""
    n = setting.rows // setting.clients
    done = averages(setting, c, n, setting.runs, every=7, observe=[RandomScaling()])
    centre, normal = np.asarray(done.runs.average, dtype=float), stats.norm.ppf(0.5 + LEVEL / 2)
    scaled = errors(done.runs.random_scaling) / np.sqrt(n)
    return {
        "plug-in": about(centre, normal * errors(sandwich(done))),
        "random scaling": about(centre, random_scaling_critical(LEVEL) ** 0.5 * scaled),
    }


def by_batches(setting: Setting, c: float) -> dict[str, tuple[Any, Any]]:
    """HulC, the hull of B averages over T / B rows each, and t-based: their mean with Student's t, B - 1 degrees.

    For a median that is unbiased the hull of B misses with chance 2^(1 - B): B is 5 in six runs of ten and 6 in the
    others, so that the chance is .05.
    """
    hull, student = [], []
    for batches, runs in ((5, round(0.6 * setting.runs)), (6, setting.runs - round(0.6 * setting.runs))):
        n = setting.rows // setting.clients // batches
        steps, start = fg.step_sizes.polynomial(c, BETA), started(setting, n, runs * batches)
        start = np.repeat(start[:, None], setting.clients, 1)
        found = simulate(
            setting.problem(), setting.network, steps, n, sync_every=SYNC_EVERY, replicates=runs * batches, start=start,
            seed=1, progress=False,
        ).average  # fmt: skip
        each = np.asarray(found, dtype=float).reshape(runs, batches, setting.dim)
        hull.append(np.stack([each.min(axis=1), each.max(axis=1)]))
        half = stats.t.ppf(0.5 + LEVEL / 2, batches - 1) * each.std(axis=1, ddof=1) / np.sqrt(batches)
        student.append(np.stack(about(each.mean(axis=1), half)))
    return {"HulC": tuple(np.concatenate(hull, axis=1)), "t-based": tuple(np.concatenate(student, axis=1))}


def drawn(setting: Setting, generator: Any) -> tuple[Any, Any]:
    """All T rows of a run and their responses."""
    x = np.ones((setting.rows, setting.dim))
    root = np.linalg.cholesky(COVARIANCES[setting.design](setting.dim - 1))
    x[:, 1:] = generator.standard_normal((setting.rows, setting.dim - 1)) @ root.T
    along = x @ setting.truth
    if setting.family == "logistic":
        return x, generator.random(len(x)) < 1 / (1 + np.exp(-along))
    return x, along + generator.standard_normal(len(x))


def pooled(setting: Setting) -> tuple[Any, Any]:
    """Least squares or maximum likelihood of all T rows with HC1 errors: the most that any pass can reach."""
    generator, ends, logistic = np.random.default_rng(1), [], setting.family == "logistic"
    for _ in range(setting.runs):
        x, y = drawn(setting, generator)
        theta = np.zeros(setting.dim)
        for _ in range(25 if logistic else 1):
            mean = 1 / (1 + np.exp(-x @ theta)) if logistic else x @ theta
            h = mean * (1 - mean) if logistic else np.ones(len(x))
            bread = np.linalg.pinv((x * h[:, None]).T @ x)
            step = bread @ (x.T @ (mean - y))
            theta = theta - step
            if np.abs(step).max() < 1e-8:
                break
        residual = (1 / (1 + np.exp(-x @ theta)) if logistic else x @ theta) - y
        scores = x * residual[:, None]
        cov = bread @ (scores.T @ scores) @ bread * len(x) / (len(x) - setting.dim)
        half = stats.norm.ppf(0.5 + LEVEL / 2) * np.sqrt(np.diag(cov))
        ends.append(about(theta, half))
    low, high = np.moveaxis(np.array(ends), 1, 0)
    return low, high


def firth(setting: Setting) -> tuple[Any, Any]:
    """Firth's (1993) logistic fit of all T rows, score + h (1/2 - p) x with leverages h, with errors by the model."""
    generator, ends = np.random.default_rng(1), []
    for _ in range(setting.runs):
        x, y = drawn(setting, generator)
        theta, step = np.zeros(setting.dim), np.ones(setting.dim)
        while np.abs(step).max() > 1e-7:
            p = 1 / (1 + np.exp(-x @ theta))
            weight = p * (1 - p)
            bread = np.linalg.inv((x * weight[:, None]).T @ x)
            leverage = weight * np.einsum("ti,ij,tj->t", x, bread, x)
            step = bread @ (x.T @ (y - p + leverage * (0.5 - p)))
            step *= min(1.0, 2.0 / np.abs(step).max())  # from zero the first ones go too far
            theta = theta + step
        ends.append(about(theta, stats.norm.ppf(0.5 + LEVEL / 2) * np.sqrt(np.diag(bread))))
    low, high = np.moveaxis(np.array(ends), 1, 0)
    return low, high


METHODS = {
    "default": lambda setting, c: {"default": default(setting)},
    "corrected": lambda setting, c: {"corrected": default(setting, correct_bias=True)},
    "plug-in": plugin_and_scaling,
    "HulC": by_batches,
    "pooled": lambda setting, c: {"pooled fit": pooled(setting)},
    "Firth": lambda setting, c: {"Firth": firth(setting)},
}
SWEPT = ("plug-in", "HulC")


def main() -> None:
    """Run what the file does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    lists = {"family": "linear,logistic", "design": ",".join(COVARIANCES), "dim": "5,20", "rows": "1000,10000"}
    for name, value in {**lists, "clients": "1,10", "method": ",".join(METHODS), "c": ""}.items():
        parser.add_argument(f"--{name}", default=value, help=f"default: {value or 'a grid by d'}")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/sgd_intervals.jsonl"))
    said = parser.parse_args()
    for name, known in (("method", METHODS), ("design", COVARIANCES)):
        if unknown := set(getattr(said, name).split(",")) - set(known):
            parser.error(f"--{name} must be some of {', '.join(known)}; got {', '.join(sorted(unknown))}.")
    said.out.parent.mkdir(parents=True, exist_ok=True)
    held = [json.loads(line) for line in said.out.read_text().splitlines()] if said.out.exists() else []
    done = {
        tuple(row[key] for key in ("family", "design", "dim", "rows", "clients", "runs", "job", "c")) for row in held
    }
    jobs = []
    split = {name: getattr(said, name).split(",") for name in ("family", "design", "dim", "rows", "clients", "method")}
    for method, name, design, dim, rows, clients in product(*(split[k] for k in ("method", *lists, "clients"))):
        setting = Setting(name, design, int(dim), int(rows), int(clients), said.runs)
        grid = [float(c) for c in said.c.split(",")] if said.c else STEPS.get(setting.dim, FEWER)
        if method in ("pooled", "Firth") and setting.clients > 1:
            continue  # clients are alike: the rows are those of one
        if method == "Firth" and setting.family != "logistic":
            continue
        for c in grid if method in SWEPT else (None,):
            if (*asdict(setting).values(), method, c) not in done:
                jobs.append((method, setting, c))
    with bar() as tick, said.out.open("a") as file:
        for i, (method, setting, c) in enumerate(jobs):
            tick(f"{method}, {setting.family}, d = {setting.dim}, T = {setting.rows:,}", i, len(jobs))
            began = time.process_time()
            try:
                ends = METHODS[method](setting, c)
                rows = [judged(setting, each, c, *pair, began) for each, pair in ends.items()]
            except (ArithmeticError, np.linalg.LinAlgError) as error:  # DivergedError, or sums beyond float32
                rows = [{**asdict(setting), "method": method, "c": c, "failed": type(error).__name__}]
            for row in rows:
                file.write(json.dumps({**row, "job": method}) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
