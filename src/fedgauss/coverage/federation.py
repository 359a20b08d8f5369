"""Federations whose intervals are checked: a model, its clients, how they communicate, and for how long."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgauss import _checks, networks
from fedgauss._families import check_family

if TYPE_CHECKING:
    from fedgauss.problems.regression import Regression

_CENTRE = (1.0, -0.5, 0.5, 0.0, 0.25)  # repeated to d coefficients
_NETWORKS: dict[str, Callable[[int], networks.Network]] = {
    "ring": networks.ring,
    "path": networks.path,
    "star": networks.star,
    "complete": networks.complete,
}
_RANDOM: dict[str, Callable[[int], networks.Network]] = {
    "gossip": networks.gossip_pairs,
    "failing": lambda n_clients: networks.failing(networks.ring(n_clients), 0.3),
}


@dataclass(frozen=True)
class Federation:
    """One setting of the laboratory.

    Parameters
    ----------
    family : str
        The regression family.
    offsets : float
        Standard deviation of the clients' coefficients about their centre; 0 for identical clients.
    condition : float
        Condition number of the covariance of the covariates, whose trace is d.
    n_clients, sync_every : int
        Clients, and steps between two mixings.
    network : str
        ring, path, star or complete; ring^m mixes m times at each synchronisation; a number is the second eigenvalue
        rho of rho I + (1 - rho) J. gossip draws random pairs, and failing is a ring whose links are each down in three
        mixings of ten.
    beta : float
        Decay of the whitened steps.
    n_steps, dim : int
        Steps of each client, and covariates.
    draw : int
        Seed of the clients' coefficients and of the axes of the covariates.
    """

    family: str = "linear"
    offsets: float = 0.5
    condition: float = 1.0
    n_clients: int = 10
    sync_every: int = 10
    network: str = "ring"
    beta: float = 0.75
    n_steps: int = 2000
    dim: int = 5
    draw: int = 11

    def __post_init__(self) -> None:
        check_family(self.family)
        for name, least in {"offsets": 0, "condition": 1, "n_steps": 50, "sync_every": 1, "dim": 1}.items():
            if _checks.real(name, value := getattr(self, name)) < least:
                raise ValueError(f"{name} must be at least {least}; got {value:g}.")
        if not 0.5 < self.beta < 1.0:
            raise ValueError(f"beta must lie in (0.5, 1), for a normal limit; got {self.beta:g}. Use 0.75?")
        self.graph()

    def __str__(self) -> str:
        return (
            f"{self.family}, offsets {self.offsets:g}, condition {self.condition:g}, K = {self.n_clients}, "
            f"tau = {self.sync_every}, {self.network}, beta = {self.beta:g}, d = {self.dim}, n = {self.n_steps}"
        )

    def graph(self) -> networks.Network:
        """The network over which clients average."""
        name, _, power = self.network.partition("^")
        if name in _NETWORKS:
            times = int(power) if re.fullmatch(r"\d+", power) else (0 if power else 1)
            if times:
                return _NETWORKS[name](self.n_clients).repeated(times)
        elif self.network in _RANDOM:
            return _RANDOM[self.network](self.n_clients)
        elif re.fullmatch(r"0?\.\d+|0", self.network):
            return networks.lazy(self.n_clients, float(self.network))
        raise ValueError(
            f"network must be one of {', '.join(_NETWORKS)}, one of these with ^ and a number of mixings, "
            f"{' or '.join(_RANDOM)}, or a second eigenvalue in [0, 1); got {self.network!r}. Use ring^4 or 0.9?"
        )

    def problem(self) -> Regression:
        """The clients: x ~ N(0, H), coefficients about a common centre."""
        from fedgauss import families, problems

        family = families.family(self.family)
        generator, n_params = np.random.default_rng(self.draw), self.dim * family.n_outputs
        noise = generator.standard_normal((self.n_clients, n_params))
        beta = np.resize(_CENTRE, n_params) + self.offsets * noise
        axes, _ = np.linalg.qr(generator.standard_normal((self.dim, self.dim)))
        lengths = np.geomspace(1.0, 1.0 / self.condition, self.dim)
        design = None if self.condition == 1.0 else (axes * (self.dim * lengths / lengths.sum())) @ axes.T
        return problems.from_family(family, family.signal * beta, design_cov=design)


def federations(**options: Sequence[Any]) -> list[Federation]:
    """Every combination of the values given for the fields of a `Federation`."""
    return [Federation(**dict(zip(options, values, strict=True))) for values in product(*options.values())]
