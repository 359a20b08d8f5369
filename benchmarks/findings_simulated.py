"""Findings about the paper by simulation, with Monte-Carlo errors. See `paper_findings.py`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from finding_parts import Numbers, random_effects, slope
from scipy import stats

import fedgauss as fg
from fedgauss.detect.paper_rule import Bootstrap, family_wise_rate
from fedgauss.engine.observers import sup_partial_sum


def algorithm_2() -> Numbers:
    """The chance of any false alarm up to step n, on Gaussian paths, by Algorithm 2 and by a time-uniform rule."""
    lin, alpha, first = random_effects(10, 0, np.eye(2)), 0.05, 40
    bootstrap = Bootstrap(lin, fg.step_sizes.polynomial(0.3, beta=0.75), 2000, replicates=4000)
    table, fresh = bootstrap.cusum(), bootstrap.cusum(stream=1)
    quantiles = np.quantile(table, 1 - alpha, axis=0)
    quantiles[0] = np.inf  # R_1 = 0
    rows = []
    for n in (125, 250, 500, 1000, 2000):
        height = np.quantile((table[:, first:n] / quantiles[first:n]).max(axis=1), 1 - alpha)
        boundaries = {
            "printed": quantiles[:n] / lin.n_clients**0.5,
            "right scale": quantiles[:n],
            "time-uniform": np.where(np.arange(n) < first, np.inf, height * quantiles[:n]),
        }
        rates = {name: family_wise_rate(values, fresh[:, :n])._asdict() for name, values in boundaries.items()}
        at_n = family_wise_rate(quantiles[n - 1 : n], fresh[:, n - 1 : n])._asdict()
        rows.append({"n": n, "at n alone": at_n, **rates})
    quiet = [1 - row["right scale"]["share"] for row in rows]
    return {
        "paths": len(fresh),
        "rows": rows,
        "slope on n of the chance of no alarm": slope([r["n"] for r in rows], quiet),
    }


def one_law() -> Numbers:
    """Quantiles of U_n under Aggr-GA and Client-GA, in Figure 3's setting; and the covariance of both, exactly."""
    steps, n, tau, runs = fg.step_sizes.polynomial(0.7, beta=0.85), 500, 20, 8000
    levels = np.array([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])
    rng = np.random.default_rng(0)
    rows = []
    for k in (10, 25, 50):
        lin, watch = random_effects(k, 0, np.eye(2)), [sup_partial_sum(np.zeros(2))]
        ours = fg.approx.client(
            lin, fg.networks.ring(k), steps, n, sync_every=tau, replicates=runs, seed=2, observe=watch
        )
        theirs = fg.approx.aggregated(lin, steps, n, replicates=runs, seed=1, observe=watch)
        pair = [np.asarray(found.sup_partial_sum, float).ravel() for found in (ours, theirs)]
        ratio = np.divide(*(np.quantile(u, levels) for u in pair))
        again = [[np.quantile(rng.choice(u, runs), levels) for u in pair] for _ in range(200)]
        errors = np.std([np.divide(*one) for one in again], axis=0, ddof=1)
        rows.append({"K": k, "level": levels.tolist(), "ratio": ratio.tolist(), "error": errors.tolist()})
        rows[-1]["Kolmogorov-Smirnov p"] = float(stats.ks_2samp(*pair).pvalue)
    return {"runs": runs, "rows": rows, "covariances differ by": _covariance_difference(10, tau, steps.eta(n))}


def _covariance_difference(k: int, tau: int, eta: Any) -> float:
    """The largest relative difference of Var Y_t, t = 1..n, between the two, each by its own recursion; A = 1."""
    noise, mixing = np.random.default_rng(1).uniform(1, 5, k), fg.networks.ring(k).matrix
    client, aggregated, largest = np.zeros((k, k)), 0.0, 0.0
    for t, step in enumerate(eta, start=1):
        client = (1 - step) ** 2 * client + step**2 * np.diag(noise)
        client = mixing @ client @ mixing if t % tau == 0 else client
        aggregated = (1 - step) ** 2 * aggregated + step**2 * noise.sum() / k**2
        largest = max(largest, abs(client.mean() / aggregated - 1))
    return float(largest)


def reproduced() -> Numbers:
    """What `fedgauss reproduce phase_map unequal_hessians` says at the paper's sizes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fedgauss", "reproduce", "phase_map", "unequal_hessians", "--out", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        report = json.loads((Path(folder) / "results.json").read_text())
    return {
        result["name"]: {key: result[key] for key in ("verdict", "summary", "findings")} for result in report["results"]
    }
