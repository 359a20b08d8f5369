"""`SGD`: the settings of a fit by the paper's way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fedgauss._types import ArrayLike
    from fedgauss.networks import Network

Method = Literal["plugin", "bootstrap", "random_scaling", "batch_means"]


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
        As for `infer`; several passes need "plugin".
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
