"""How much of each neighbour a peer takes over, from what the two ends of an edge know."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedgauss import _checks
from fedgauss.networks import Network


def shares(degree: int, degrees: Mapping[int, int]) -> dict[int, float]:
    """c_ij = 1 / (1 + max(deg_i, deg_j)) for each neighbour j that was heard; peer i keeps 1 - sum_j c_ij of its own.

    The degrees are those that both ends of an edge have just sent each other, so both come to the same c_ij: C is
    symmetric in every round where two peers hear each other or neither does, and its rows sum to 1 in any. A neighbour
    that fell silent leaves its share with peer i for this round, since deg_i still counts it; from the next on deg_i
    does not, and weights are Metropolis weights on the graph of survivors.
    """
    return {neighbour: 1.0 / (1.0 + max(degree, theirs)) for neighbour, theirs in degrees.items()}


def neighbours_of(client: int, network: Network) -> tuple[int, ...]:
    """Whom a peer talks to, after a check that C has Metropolis weights: others could not be agreed on by two peers."""
    k = _checks.whole("client", client, at_least=0, at_most=network.n_clients - 1)
    linked = (network.matrix > 0.0) & ~np.eye(network.n_clients, dtype=np.bool_)
    degree = linked.sum(axis=1)
    wanted = linked / (1.0 + np.maximum(degree, degree[:, None]))
    i, j = np.unravel_index(np.argmax(np.abs(np.where(linked, network.matrix, 0.0) - wanted)), wanted.shape)
    if not np.isclose(network.matrix[i, j], wanted[i, j], rtol=1e-6) and i != j:
        raise ValueError(
            "gossip needs Metropolis weights, c_ij = 1 / (1 + max(deg_i, deg_j)), so that survivors can share out the "
            f"weight of a lost peer; {network.name} has c_{i}{j} = {network.matrix[i, j]:.3g} and not "
            f"{wanted[i, j]:.3g}. Use networks.ring, path, star, torus, complete or from_graph?"
        )
    return tuple(int(neighbour) for neighbour in np.flatnonzero(linked[k]))
