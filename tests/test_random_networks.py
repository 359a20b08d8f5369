"""Networks that are drawn anew at every mixing, against all draws there are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fedgauss import networks
from fedgauss.networks.network import DENSE


def link(n, i, j):
    ends = np.zeros(n)
    ends[i], ends[j] = 1.0, -1.0
    return np.outer(ends, ends)


def all_failures(network, probability):
    """(chance, links up with their weights) for each set of links."""
    matrix = network.matrix
    pairs = [(i, j) for i in range(len(matrix)) for j in range(i + 1, len(matrix)) if matrix[i, j] > 0]
    for up in product([0, 1], repeat=len(pairs)):
        chance = np.prod([1 - probability if u else probability for u in up])
        yield chance, [(i, j, matrix[i, j]) for u, (i, j) in zip(up, pairs, strict=True) if u]


def matchings(clients, pairs):
    if pairs == 0:
        yield []
    elif len(clients) >= 2 * pairs:
        first, *rest = clients
        for partner in rest:
            others = [k for k in rest if k != partner]
            yield from ([(first, partner, 0.5), *more] for more in matchings(others, pairs - 1))
        yield from matchings(rest, pairs)


def all_meetings(n, pairs):
    found = list(matchings(list(range(n)), pairs))
    return [(1 / len(found), met) for met in found]


CASES = {
    "ring": (networks.failing(networks.ring(5), 0.3), list(all_failures(networks.ring(5), 0.3))),
    "lazy": (networks.failing(networks.lazy(4, 0.5), 0.4), list(all_failures(networks.lazy(4, 0.5), 0.4))),
    "pairs": (networks.gossip_pairs(6), all_meetings(6, 3)),
    "pairs, odd": (networks.gossip_pairs(5), all_meetings(5, 2)),
    "one pair": (networks.gossip_pairs(5, 1), all_meetings(5, 1)),
    "some pairs": (networks.gossip_pairs(7, 2), all_meetings(7, 2)),
    "two clients": (networks.gossip_pairs(2), all_meetings(2, 1)),
    "three clients": (networks.gossip_pairs(3), all_meetings(3, 1)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("some", [False, True])
def test_moments_are_those_over_all_draws(case, some):
    network, draws = CASES[case]
    n = network.n_clients
    here = np.arange(n) % 3 != 1 if some else np.ones(n, bool)
    second = np.random.default_rng(0).standard_normal((2, n, n))
    mean, square, product_of = np.zeros((n, n)), np.zeros((n, n)), np.zeros((2, n, n))
    for chance, links in draws:
        c = np.eye(n) - sum((w * link(n, i, j) for i, j, w in links if here[i] and here[j]), np.zeros((n, n)))
        mean, square, product_of = mean + chance * c, square + chance * c @ c, product_of + chance * c @ second @ c
    np.testing.assert_allclose(network.among(here), mean, atol=1e-14)
    spread = network.spread(second, here if some else None)
    np.testing.assert_allclose(mean @ second @ mean + spread, product_of, atol=1e-14)
    if not some:
        np.testing.assert_allclose(network.matrix, mean, atol=1e-14)
        rho = np.sqrt(np.linalg.eigvalsh(square - 1 / n)[-1].clip(0))
        assert network.second_eigenvalue == pytest.approx(rho, abs=1e-7)
        assert network.edges == len(network.links)


def test_contraction_of_large_networks():
    """Beyond 300 clients no dense matrix is made; for a ring the eigenvectors are waves."""
    n, p = DENSE + 1, 0.3
    network = networks.failing(networks.ring(n), p)
    slow = 2 - 2 * np.cos(2 * np.pi / n)  # the least eigenvalue of the ring's Laplacian
    rho2 = (1 - (1 - p) * slow / 3) ** 2 + 2 * p * (1 - p) / 9 * slow
    assert network.second_eigenvalue**2 == pytest.approx(rho2, abs=1e-9)


@pytest.mark.parametrize("network", [networks.lazy(5, 0.4), networks.ring(5), networks.complete(5)], ids=str)
def test_weights_among_those_present(network):
    here = np.array([True, False, True, True, False])
    c = network.among(here)
    np.testing.assert_allclose(c.sum(axis=0), 1.0)
    assert c.min() >= 0.0
    if network.uniform == 1.0:
        np.testing.assert_allclose(c, np.repeat(here[:, None] / 3, 5, axis=1))
    if network.uniform == 0.0:
        np.testing.assert_allclose(c, c.T)
        np.testing.assert_array_equal(c[~here], np.eye(5)[~here])
    np.testing.assert_allclose(network.among(np.ones(5, bool)), network.matrix, atol=1e-15)


RING = networks.ring(5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: networks.failing(RING, 1.0), r"must lie in \[0, 1\); got 1. Use 0.1"),
        (lambda: networks.failing(RING, -0.1), r"must lie in \[0, 1\); got -0.1"),
        (lambda: networks.failing(np.eye(5), 0.1), r"made by fedgauss.networks; got ndarray. Use networks.from_matrix"),
        (
            lambda: networks.failing(networks.failing(RING, 0.1), 0.1),
            "failing needs a network that stays the same; got",
        ),
        (lambda: networks.failing(networks.man_in_the_middle(RING, 0, 1, 1), 0.1), "without forged messages"),
        (
            lambda: networks.man_in_the_middle(networks.gossip_pairs(5), 0, 1, 1),
            "man_in_the_middle needs a network that",
        ),
        (
            lambda: networks.failing(RING, 0.1).repeated(3),
            r"before it becomes random.*Use failing\(network.repeated\(3\)",
        ),
        (lambda: networks.gossip_pairs(1), "n_clients must be at least 2; got 1"),
        (
            lambda: networks.gossip_pairs(5, pairs=3),
            "pairs must be at most 2; got 3. With 5 clients there are at most 2",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_rule_value_and_fix(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_thresholds_of_a_random_network_are_its_own():
    """The mean of a random network is a network, too: what was computed for one must not serve the other."""
    from fedgauss._linearization import linearization
    from fedgauss.detect.paper_rule import Bootstrap

    lin, random = linearization(np.ones((5, 1, 1)), np.ones((5, 1, 1))), networks.failing(RING, 0.3)
    keys = [Bootstrap(lin, [0.1] * 9, 9, net)._key(0) for net in (random, networks.from_matrix(random.matrix))]
    assert keys[0] != keys[1]
