"""The round by which 95 % of runs should have alarmed, by Gaussian paths of the run itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedgauss import Linearization, Monitor, step_sizes
from fedgauss.detect import watch_runs
from flower_watch.data import Config, Floats, attackers

_PATHS = 2_000


def predicted_round(
    lin: Linearization, monitor: Monitor, config: Config, began: int, power: float = 0.95
) -> int | None:
    """The first round by which a share `power` of attacked runs has alarmed; None where there is none.

    The mean of an attacked run is, in law and to first order (Theorem 3.1),

        Y_t = Y_{t-1} - eta (A Y_{t-1} - b_t) + eta Z_t,    Z_t ~ N(0, V_K),

    about the honest optimum, with b_t = 0 before the attack and b_t = sum over attackers of w_k H_k shift after it.
    `began` is the round after which the monitor began to watch.
    """
    tau, eta = int(config["local-steps"]), float(config["rate"])
    chosen = attackers(config)
    pull = np.einsum("k,kij->i", lin.weights[chosen], lin.client_hessians[chosen]) * float(config["shift"])
    n_rounds = int(config["n-rounds"]) - began
    first = int(config["attack-after"]) - began
    means = _paths(lin, eta, tau, n_rounds, first, pull)
    centred = replace(lin, optimum=np.zeros(lin.dim))
    seen = watch_runs(centred, step_sizes.constant(eta), means, tau, monitor.boundary, start=np.zeros(lin.dim))
    honest = ~seen.alarms[:first].any(axis=0)
    alarmed_by = np.maximum.accumulate(seen.alarms[:, honest], axis=0).mean(axis=1)
    enough = np.flatnonzero(alarmed_by >= power)
    return began + int(enough[0]) + 1 if enough.size else None


def _paths(lin: Linearization, eta: float, tau: int, n_rounds: int, first: int, pull: Floats) -> Floats:
    """Y after each round, (paths, rounds, d)."""
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(lin.noise_cov)
    y, means = np.zeros((_PATHS, lin.dim)), np.zeros((_PATHS, n_rounds, lin.dim))
    for j in range(n_rounds):
        b = pull if j >= first else np.zeros(lin.dim)
        for _ in range(tau):
            y = y - eta * (y @ lin.hessian - b) + eta * rng.standard_normal(y.shape) @ root.T
        means[:, j] = y
    return means
