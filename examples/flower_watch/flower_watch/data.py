"""Each client's own rows, and what poisoning makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Config = Mapping[str, Any]

DIM = 3
COEFFICIENTS = np.array([1.0, -0.5, 0.25])
_HETEROGENEITY = 0.2  # sd of what clients' coefficients differ by
_DRAWS = 200  # mini-batches behind a client's moments


class Rows(NamedTuple):
    """Features (n, d) and targets (n,)."""

    x: Floats
    y: Floats


def rows(config: Config, client: int) -> Rows:
    """Honest rows of a client: 300 to 600, y = x'b_k + noise with b_k near the common coefficients."""
    rng = np.random.default_rng([int(config["seed"]), client])
    n = int(rng.integers(300, 601))
    own = COEFFICIENTS + _HETEROGENEITY * rng.standard_normal(DIM)
    x = rng.standard_normal((n, DIM))
    return Rows(x, x @ own + rng.standard_normal(n))


def attackers(config: Config) -> list[int]:
    """Clients that will be poisoned."""
    return [int(k) for k in str(config["attackers"]).split(",") if k.strip()]


def rows_of_round(config: Config, client: int, server_round: int) -> Rows:
    """What a client trains on: from the attack on, the chosen ones add `shift` to every coefficient behind y."""
    honest = rows(config, client)
    if server_round > int(config["attack-after"]) and client in attackers(config):
        return Rows(honest.x, honest.y + float(config["shift"]) * honest.x.sum(axis=1))
    return honest


def batches(config: Config, client: int, server_round: int, n_rows: int) -> npt.NDArray[np.int64]:
    """Which rows the steps of a round see, (tau, batch); the same ones wherever the client runs."""
    rng = np.random.default_rng([int(config["seed"]), client, server_round])
    return rng.integers(n_rows, size=(int(config["local-steps"]), int(config["batch-size"])))


def moment_batches(config: Config, client: int, n_rows: int) -> npt.NDArray[np.int64]:
    """Mini-batches for a client's moments, of the size that it trains with, (m, batch)."""
    rng = np.random.default_rng([int(config["seed"]), client, 1_000_000])
    return rng.integers(n_rows, size=(_DRAWS, int(config["batch-size"])))
