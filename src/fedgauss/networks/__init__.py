"""Who averages with whom: the mixing matrix C of Algorithm 1, random ones, and networks that a forger listens in on."""

from fedgauss.networks.changing import FailingNetwork, PairGossip, failing, gossip_pairs
from fedgauss.networks.graphs import (
    as_network,
    complete,
    erdos_renyi,
    from_graph,
    from_matrix,
    lazy,
    path,
    ring,
    star,
    torus,
)
from fedgauss.networks.network import Network
from fedgauss.networks.random_network import RandomNetwork
from fedgauss.networks.tampered import TamperedNetwork, man_in_the_middle

__all__ = [
    "FailingNetwork",
    "Network",
    "PairGossip",
    "RandomNetwork",
    "TamperedNetwork",
    "as_network",
    "complete",
    "erdos_renyi",
    "failing",
    "from_graph",
    "from_matrix",
    "gossip_pairs",
    "lazy",
    "man_in_the_middle",
    "path",
    "ring",
    "star",
    "torus",
]
