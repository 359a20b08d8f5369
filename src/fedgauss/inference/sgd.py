"""`SGD`: the settings of a fit by the paper's way."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

if TYPE_CHECKING:
    from fedgauss._types import ArrayLike
    from fedgauss.inference.model import Model
    from fedgauss.networks import Network

Method = Literal["plugin", "bootstrap", "random_scaling", "batch_means"]
_BETWEEN = ("sync_every", "network", "seed", "weights", "standardise")  # what a pass between sites may choose


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Local SGD between clients, for rows that are read once and peers without a coordinator: `fit`'s other solver.

    Parameters
    ----------
    passes : int or "auto"
        1 reads every row once; more passes are for small data. "auto" reads rows until more passes would move no
        estimate by more than 0.1 standard errors, 100 times at most.
    sync_every : int
        Steps between two synchronisations.
    network : Network or (K, K) array_like, optional
        Who averages with whom, clients in the order of their labels; a ring by default.
    method : {"plugin", "bootstrap", "random_scaling", "batch_means"}
        As for `infer_run`; several passes need "plugin".
    seed : int
        Fixes the order in which rows are read.
    weights : {"rows", "equal"} or (K,) array_like
        "rows" for w_k = n_k / N, whose optimum is that of the pooled rows.
    standardise : bool
        Run on covariates of mean 0 and scale 1, and report on the scale of the frame all the same.
    clients : {"these", "population"}
        Whether intervals hold for these clients, or for other clients like these.
    correct_drift : bool
        Subtract the estimated bias of clients that drift apart between mixings, with methods other than the plug-in,
        whose Newton step removes it.
    bootstraps : int
        Number of chains of the bootstrap.
    finish : int
        Steps of scoring after the pass; from one or two on the estimate is the exact one, with its errors.

    Examples
    --------
    >>> SGD(passes=5).sync_every
    10
    """

    passes: int | Literal["auto"] = 1
    sync_every: int = 10
    network: Network | ArrayLike | None = None
    method: Method = "plugin"
    seed: int = 0
    weights: ArrayLike | Literal["rows", "equal"] = "rows"
    standardise: bool = True
    clients: Literal["these", "population"] = "these"
    correct_drift: bool = False
    bootstraps: int = 200
    finish: int = 0

    def check_model(self, model: Model) -> None:
        """Refuse what a pass without further steps of scoring cannot have."""
        if model.ridge != 0.0 or (model.errors != "HC0" and not self.finish):
            got = f"ridge={model.ridge!r}" if model.ridge != 0.0 else f"errors={model.errors!r}"
            raise ValueError(f"{got} belongs to solver='scoring'; the solver is SGD. Leave it out?")

    def check_between(self, n_sites: int, masked: bool) -> None:
        """Refuse what a pass between sites cannot have."""
        from fedgauss import _checks
        from fedgauss.networks.random_network import need_unchanging

        for part in fields(self):
            if part.name not in _BETWEEN and getattr(self, part.name) != part.default:
                raise ValueError(f"a pass between sites cannot have {part.name} yet. Leave it out.")
        _checks.whole("sync_every", self.sync_every)
        _checks.seed(self.seed)
        self.share(0, 1, n_sites, n_sites)
        if not isinstance(self.standardise, bool):
            raise ValueError(f"standardise must be True or False; got {self.standardise!r}.")
        graph = need_unchanging("a pass between sites", self.graph(n_sites, masked))
        if masked and not np.allclose(graph.matrix, 1.0 / n_sites, rtol=0.0, atol=1e-9):
            raise ValueError(
                f"under masks sites see means over all of them, and no neighbour's parameters; got {graph.name}. "
                "Leave the network out, or do not mask."
            )

    def graph(self, n_clients: int, masked: bool = False) -> Network:
        """Who averages with whom: by default a ring, and under masks everybody with everybody."""
        from fedgauss.networks import as_network, complete, ring

        usual = complete if masked else ring
        return usual(n_clients) if self.network is None else as_network(self.network, n_clients)

    def share(self, client: int, rows: int, n_rows: int, n_clients: int) -> float:
        """w_k of a client with so many of all rows."""
        from fedgauss import _checks

        if isinstance(self.weights, str):
            by_rows = _checks.one_of("weights", self.weights, ["rows", "equal"]) == "rows"
            return rows / n_rows if by_rows else 1.0 / n_clients
        return float(_checks.client_weights(self.weights, n_clients)[client])

    def to_wire(self, n_clients: int) -> dict[str, Any]:
        """What a pass between sites may choose, as plain fields."""
        network = None if self.network is None else self.graph(n_clients)
        weights = "equal" if self.weights is None else self.weights
        return {
            "sync_every": self.sync_every, "seed": self.seed, "standardise": self.standardise,
            "weights": weights if isinstance(weights, str) else np.asarray(weights, dtype=float),
            "network": None if network is None else {"name": network.name, "matrix": network.matrix},
        }  # fmt: skip

    @classmethod
    def from_wire(cls, held: dict[str, Any]) -> Self:
        """From plain fields that somebody else sent; `check_between` looks at what they say."""
        from scipy import sparse

        from fedgauss.networks import Network

        if held.keys() != set(_BETWEEN) or not isinstance(held["weights"], str | np.ndarray):
            raise ValueError(f"a pass between sites must have {', '.join(_BETWEEN)}, weights of clients among them.")
        network = held["network"]
        if network is not None:
            right = isinstance(network, dict) and network.keys() == {"name", "matrix"}
            name, matrix = (network["name"], network["matrix"]) if right else (None, None)
            if not isinstance(name, str) or not isinstance(matrix, np.ndarray) or matrix.ndim != 2:
                raise ValueError("the network of a pass must be a matrix with a name; it is something else.")
            network = Network(name, sparse.csr_array(matrix))
        return cls(**held | {"network": network})
