"""The battery for networks: every shipped one passes, and every rule finds a broken one."""

import sys

import networkx as nx
import numpy as np
import pytest
from broken_parts import expect_every_rule_has_a_mutant, expect_failure
from scipy import sparse as sp

from fedgauss import networks
from fedgauss.networks import Network
from fedgauss.testing import check_network, checks_for_network, network

SHIPPED = {
    "ring": networks.ring(5),
    "path": networks.path(5),
    "star": networks.star(5),
    "torus": networks.torus(2, 3),
    "complete": networks.complete(5),
    "lazy": networks.lazy(5, 0.3),
    "erdos_renyi": networks.erdos_renyi(5, 0.6, seed=0),
    "from_graph": networks.from_graph(nx.house_graph()),
    "from_matrix": networks.from_matrix(np.full((5, 5), 0.2)),
    "repeated": networks.ring(5).repeated(2),
    "one client": networks.complete(1),
    "mixed by a table": networks.ring(70),
    "mixed by a table and the mean": networks.lazy(70, 0.5),
    "mixed by edges": networks.star(70),
    "man_in_the_middle": networks.man_in_the_middle(networks.ring(5), 0, 1, start=1, factor=2.0),
    "failing": networks.failing(networks.ring(5), 0.4),
    "failing, all pairs": networks.failing(networks.lazy(4, 0.5), 0.2),
    "gossip_pairs": networks.gossip_pairs(5),
    "one pair": networks.gossip_pairs(6, pairs=1),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_networks_conform(name):
    report = check_network(SHIPPED[name])
    assert len(report.outcomes) == 12


class Unchecked(Network):
    """A network whose matrix nobody looked at."""

    def __post_init__(self):
        object.__setattr__(self, "sparse", sp.csr_array(np.asarray(self.sparse, float)))


def unchecked(matrix, kind=Unchecked):
    return checks_for_network(kind("broken", np.asarray(matrix)))


PAIR = [[0.5, 0.5], [0.5, 0.5]]


class Other(Unchecked):
    """One that answers otherwise than its matrix does."""

    second_eigenvalue = 0.25
    edges = 7
    matrix = property(lambda self: np.eye(2))


class Idle(Unchecked):
    """One that is mixed by its edges, since it is large, and says that it does nothing."""

    matrix = property(lambda self: np.eye(70))


class Once(Unchecked):
    def repeated(self, times):
        return self


class Wordy(Unchecked):
    def __repr__(self):
        return "Network\nof several lines"


@pytest.mark.parametrize(
    ("name", "matrix", "kind", "pattern"),
    [
        ("square", [[1.0, 0.0]], Unchecked, r"shape \(1, 2\) for 1 clients"),
        ("square", PAIR, Other, "can be written to"),
        ("square", [[np.nan]], Unchecked, "not finite"),
        ("symmetric", [[0.5, 0.5], [0.4, 0.6]], Unchecked, r"C 0\.1 away from its transpose"),
        ("doubly stochastic", [[0.5, 0.4], [0.4, 0.5]], Unchecked, r"row 0 that sums to 0\.9"),
        ("doubly stochastic", [[0.5, 0.5], [0.4, 0.6]], Unchecked, r"column 1 that sums to 1\.1"),
        ("doubly stochastic", [[1.5, -0.5], [-0.5, 1.5]], Unchecked, r"an entry of -0\.5"),
        ("doubly stochastic", [[0.0, 1.0], [1.0, 0.0]], Unchecked, "a diagonal entry of 0"),
        ("contracts", np.eye(2), Unchecked, "a norm of 1"),
        ("eigenvalue", PAIR, Other, r"0\.25, not 1"),
        ("edges", PAIR, Other, "7, not 0"),
        ("mixes by its matrix", networks.ring(70).matrix, Idle, "away from Theta C"),
        ("keeps the mean", [[0.5, 0.4], [0.5, 0.6]], Unchecked, "a mean that moved"),
        ("repeated", [[0.7, 0.3], [0.3, 0.7]], Once, r"C\^3 off by 0\.168"),
        ("shown", PAIR, Wordy, "several lines"),
    ],
)
def test_every_rule_finds_a_broken_network(name, matrix, kind, pattern):
    expect_failure(unchecked(matrix, kind), name, pattern)


class Rigid(networks.FailingNetwork):
    """One that says that its links never fail."""

    weight_cov = np.zeros(5)


class Reliable(networks.FailingNetwork):
    """One that is mixed with heavier links than its mean allows."""

    link_weights = np.full(5, 0.4)


class Heavy(networks.FailingNetwork):
    """One whose links take more than a client has."""

    link_weights = np.full(5, 0.6)


@pytest.mark.parametrize(
    ("name", "kind", "pattern"),
    [
        ("every draw is a mixing", Heavy, "an entry of -0.2"),
        ("mixes by its matrix", Reliable, r"`matrix` is .* draws average"),
        ("second moments", Rigid, r"E\[C M C\] by `spread` is .* draws average"),
    ],
)
def test_every_rule_finds_a_broken_random_network(name, kind, pattern):
    good = networks.failing(networks.ring(5), 0.4)
    broken = kind(good.name, good.sparse, links=good.links, probability=good.probability)
    expect_failure(checks_for_network(broken), name, pattern)


def test_every_rule_has_a_mutant():
    expect_every_rule_has_a_mutant(network._RULES, sys.modules[__name__])


def test_forged_messages_are_not_forgotten_by_repeating_a_network():
    with pytest.raises(ValueError, match=r"Use man_in_the_middle\(network\.repeated\(2\), \.\.\.\)"):
        SHIPPED["man_in_the_middle"].repeated(2)
