"""Rounds: the steps between two mixings, who takes part in them, how many steps each takes, and by which rule."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._types import ArrayLike, BoolArray, Int32Array
from fedgauss.networks import Network


def participants(participation: Any, n_clients: int) -> int:
    """How many clients take part in a round: a float is a share of all K, a whole number a count."""
    fix = f"Use a share such as 0.3, or a count such as {max(2, n_clients // 3)}."
    if isinstance(participation, numbers.Integral) and not isinstance(participation, bool):
        if participation == 1 and n_clients > 1:
            raise ValueError(
                "participation must say whether it is a share or a count; got 1, which may be either. "
                f"Use 1.0 for all clients, or {1 / n_clients:.3g} for one of {n_clients}."
            )
        return _checks.whole("participation", participation, at_most=n_clients, fix=fix)
    share = _checks.real("participation", participation, fix=fix)
    if not 0.0 < share <= 1.0:
        raise ValueError(f"participation as a share of clients must lie in (0, 1]; got {share:g}. {fix}")
    count = round(share * n_clients)
    if count == 0:
        raise ValueError(
            f"participation must leave at least one client in a round; {share:g} of {n_clients} leaves none. {fix}"
        )
    return count


def round_numbers(mask: BoolArray) -> Int32Array:
    """The number of the round that step t belongs to: how many mixings came before it, (n,)."""
    return (np.cumsum(mask) - mask).astype(np.int32)


def need_rounds(what: str, mask: BoolArray) -> None:
    """Require that clients mix at all."""
    if not mask.any():
        raise ValueError(f"{what} needs rounds, which end where clients mix; they never do. Use sync_every=20?")


@dataclass(frozen=True)
class Optimiser:
    """How clients and the server use gradients, if not by plain steps: momentum, FedProx, server momentum.

    With g_k client k's gradient, b_k its parameter when the round began, and W_r what the server sent before round r,

        M_k  <-  momentum M_k + g_k + proximal (theta_k - b_k)              takes the place of g_k in G_t
        W_{r+1}  =  (mean of the clients)  +  server_momentum (W_r - W_{r-1})

    Parameters
    ----------
    momentum : float, optional
        In [0, 1). Each client has a buffer M_k of its own, which is empty when a round begins, as for an optimiser that
        is made anew in each round.
    keep_momentum : bool
        Keep M_k from one round to the next; a client that does not work keeps it as it is.
    proximal : float, optional
        FedProx (Li et al. 2020): clients minimise F_k + proximal / 2 |theta - b_k|^2, which keeps them together.
    server_momentum : float, optional
        In [0, 1). FedAvgM (Hsu, Qi and Brown 2019), for `networks.complete`, where there is a server.

    Examples
    --------
    >>> import fedgauss as fg
    >>> problem, server = fg.problems.random_effects(10, seed=1907), fg.networks.complete(10)
    >>> fedprox = fg.Optimiser(proximal=0.1)
    >>> runs = fg.simulate(problem, server, [0.1] * 100, 100, sync_every=20, replicates=50, optimiser=fedprox)
    >>> runs.average.shape
    (50, 2)
    """

    momentum: float | None = None
    keep_momentum: bool = False
    proximal: float | None = None
    server_momentum: float | None = None

    def __post_init__(self) -> None:
        for name in ("momentum", "server_momentum"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= _checks.real(name, value) < 1.0:
                raise ValueError(f"{name} must lie in [0, 1), or nothing is ever forgotten; got {value:g}. Use 0.9?")
        if self.proximal is not None and _checks.real("proximal", self.proximal) < 0.0:
            raise ValueError(f"proximal must not be negative, or it drives clients apart; got {self.proximal:g}.")
        if self.keep_momentum and self.momentum is None:
            raise ValueError("keep_momentum needs momentum; got none. Use Optimiser(momentum=0.9, keep_momentum=True).")

    def check(self, network: Network, mask: BoolArray) -> None:
        """Raise if this has no meaning on a network, or with rounds that end where `mask` holds."""
        if self.server_momentum is not None:
            if network.uniform != 1.0:
                raise ValueError(
                    f"server_momentum needs a server, networks.complete({network.n_clients}); got {network.name}. "
                    "Use momentum for clients that have none."
                )
            need_rounds("server_momentum", mask)
        if self.proximal is not None:
            need_rounds("proximal", mask)
        if self.momentum is not None and not self.keep_momentum and mask.all():
            raise ValueError(
                "momentum begins anew in every round, so that it does nothing in rounds of one step. Use "
                "keep_momentum=True, or a larger sync_every."
            )


def working(local_steps: ArrayLike, mask: BoolArray, n_clients: int) -> BoolArray:
    """Whether client k works at step t, (n, K): it takes the first local_steps[k] steps of each round."""
    need_rounds("local_steps", mask)
    check_memory(f"{len(mask):,} steps of {n_clients:,} clients", 20 * len(mask) * n_clients, "Use fewer steps.")
    fix = "Give one whole number for each client, such as its steps in a round."
    counts = _checks.real_array("local_steps", local_steps, shape=(n_clients,), fix=fix)
    if np.any(counts != np.round(counts)) or np.any(counts < 1):
        k = int(np.argmax((counts != np.round(counts)) | (counts < 1)))
        raise ValueError(f"local_steps must be whole numbers from 1 on; client {k} has {counts[k]:g}. {fix}")
    numbers = round_numbers(mask)
    first = np.searchsorted(numbers, numbers)  # the index of the first step of the round
    return (np.arange(len(mask)) - first)[:, None] < counts
