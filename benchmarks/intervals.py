"""What inference costs beside the run alone, and beside scikit-learn and statsmodels on as many rows, on one core."""

from __future__ import annotations

import resource
from collections.abc import Callable
from functools import partial
from typing import Any

import common
import numpy as np
from common import Figure, Say

N_STEPS, N_CLIENTS, DIM, SYNC_EVERY, BOOTSTRAPS = 10_000, 10, 5, 10, 200
# The published R package sgd, with a C++ core, by its authors' account: 10 ms with inference, 8 ms without.
PUBLISHED_ROWS, PUBLISHED_RATIO = 26_120, 10 / 8


def problem() -> Any:
    """Logistic regression of clients that differ, x ~ N(0, I)."""
    import fedgauss as fg

    offsets = 0.5 * np.random.default_rng(11).standard_normal((N_CLIENTS, DIM))
    return fg.problems.logistic(np.array([1.0, -0.5, 0.5, 0.0, 0.25]) + offsets)


def rows(count: int, seed: int) -> tuple[Any, Any]:
    """As many rows of one such regression, pooled."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((count, DIM))
    chance = 1 / (1 + np.exp(-x @ np.array([1.0, -0.5, 0.5, 0.0, 0.25])))
    return x, (generator.random(count) < chance).astype(float)


def in_turn(jobs: dict[str, Callable[[int], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of every job, one after the other, `repeats` times; the first round compiles and does not count."""
    for job in jobs.values():
        job(0)
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for seed in range(1, repeats + 1):
        for name, job in jobs.items():
            times[name].append(common.seconds(partial(job, seed)))
    return times


def runs(n_steps: int, repeats: int) -> dict[str, list[float]]:
    """The run alone, and with each method; with step sizes of one's own and with whitened steps."""
    import fedgauss as fg

    clients, ring, steps = problem(), fg.networks.ring(N_CLIENTS), fg.step_sizes.polynomial(0.3, 0.75)
    plan = {"n_steps": n_steps, "sync_every": SYNC_EVERY, "progress": False}
    jobs: dict[str, Callable[[int], Any]] = {"alone": lambda s: fg.simulate(clients, ring, steps, **plan, seed=s)}
    jobs["plugin"] = partial(_infer, clients, ring, None, "plugin", plan)  # takes no steps
    for method in ("random_scaling", "batch_means"):
        for name, eta in (("", steps), (", whitened", None)):
            jobs[method + name] = partial(_infer, clients, ring, eta, method, plan)
    for name, eta in (("", steps), (", whitened", None)):
        jobs[f"plugin about the average{name}"] = partial(_infer, clients, ring, eta, "plugin", {**plan, "every": 7})
    return in_turn(jobs, repeats)


def _infer(clients: Any, ring: Any, steps: Any, method: str, plan: dict[str, Any], seed: int) -> Any:
    import fedgauss as fg

    return fg.infer_run(clients, ring, steps, method=method, seed=seed, bootstraps=BOOTSTRAPS, **plan)


def chains(repeats: int) -> dict[str, Any]:
    """The bootstrap beside the run alone, with the memory that each adds at its height."""
    import fedgauss as fg

    clients, ring, steps = problem(), fg.networks.ring(N_CLIENTS), fg.step_sizes.polynomial(0.3, 0.75)
    plan = {"n_steps": N_STEPS, "sync_every": SYNC_EVERY, "progress": False}
    alone = partial(fg.simulate, clients, ring, steps, **plan)
    alone(seed=0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    own = partial(_infer, clients, ring, steps, "bootstrap", plan)
    times = in_turn({"alone": lambda s: alone(seed=s), "bootstrap": own}, repeats)
    return {**times, "memory": 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)}


def others(repeats: int) -> dict[str, list[float]]:
    """scikit-learn's SGD for one pass and statsmodels' GLM, on as many rows, beside `infer_run` with the plug-in."""
    import statsmodels.api as sm
    from sklearn.linear_model import SGDClassifier

    import fedgauss as fg

    clients, ring = problem(), fg.networks.ring(N_CLIENTS)
    plan = {"n_steps": N_STEPS, "sync_every": SYNC_EVERY, "progress": False}
    data = {seed: rows(N_STEPS * N_CLIENTS, seed) for seed in range(repeats + 1)}

    def sgd(seed: int) -> Any:
        return SGDClassifier(loss="log_loss", max_iter=1, tol=None, average=True).fit(*data[seed])

    def glm(seed: int) -> Any:
        x, y = data[seed]
        return sm.GLM(y, x, family=sm.families.Binomial()).fit(cov_type="HC0")

    return in_turn({"plugin": partial(_infer, clients, ring, None, "plugin", plan), "sgd": sgd, "glm": glm}, repeats)


def figures(say: Say) -> list[Figure]:
    """The figures of this benchmark."""
    say("the run alone and with each method, one core")
    times = {name: common.spread(t) for name, t in fresh("runs", n_steps=N_STEPS, repeats=25).items()}
    alone = times.pop("alone")
    found = [
        Figure(f"the run alone (n = {N_STEPS:,}, K = {N_CLIENTS}, d = {DIM}), minimum of 25", 1e3 * alone[0], "ms")
    ]
    goals = {"plugin": "<= 3", "plugin about the average": "<= 2", "random_scaling": "<= 1.7"}
    for name, (least, median) in times.items():
        found.append(Figure(f"{name} over the run alone, minima", least / alone[0], "x", goals.get(name, "")))
        found.append(Figure(f"{name} over the run alone, medians", median / alone[1], "x", goals.get(name, "")))
    say(f"bootstrap with {BOOTSTRAPS} chains, one core")
    boot = fresh("chains", repeats=5)
    data = 4.0 * N_STEPS * N_CLIENTS * (DIM + 1)
    found += [
        Figure(f"bootstrap, B = {BOOTSTRAPS}, over the run alone", _least(boot, "bootstrap", "alone"), "x", "<= 60"),
        Figure("memory that it adds, over the data of the run", boot["memory"] / data, "x", f"< {BOOTSTRAPS}"),
    ]
    say(f"{PUBLISHED_ROWS:,} rows, one core")
    short = {n: common.spread(t) for n, t in fresh("runs", n_steps=PUBLISHED_ROWS // N_CLIENTS, repeats=25).items()}
    found.append(
        Figure(
            f"plugin over the run alone at {PUBLISHED_ROWS:,} rows (R/C++ package: {PUBLISHED_RATIO:g})",
            short["plugin"][0] / short["alone"][0], "x",
        )
    )  # fmt: skip
    say("scikit-learn and statsmodels, one core")
    beside = {name: common.spread(t) for name, t in fresh("others", repeats=9).items()}
    names = {
        "plugin": "infer with the plug-in",
        "sgd": "scikit-learn SGD, one pass, no errors",
        "glm": "statsmodels GLM, HC0",
    }
    found += [
        Figure(f"{names[name]}, {N_STEPS * N_CLIENTS:,} rows", 1e3 * least, "ms") for name, (least, _) in beside.items()
    ]
    return found


def fresh(measure: str, **arguments: Any) -> dict[str, Any]:
    """In a process of its own, on one core."""
    return common.fresh("intervals", measure, arguments, one_core=True)


def _least(times: dict[str, Any], name: str, other: str) -> float:
    """The ratio of two minima."""
    return min(times[name]) / min(times[other])
