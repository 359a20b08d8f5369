"""Assumption 2.1 for every network, and a useful message for whatever breaks it."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fedgauss import networks

SIZES = [1, 2, 3, 4, 7, 10]
FACTORIES = {
    "ring": networks.ring,
    "path": networks.path,
    "star": networks.star,
    "complete": networks.complete,
    "torus": lambda k: networks.torus(2, k),
    "torus of one column": lambda k: networks.torus(k, 1),
    "lazy": lambda k: networks.lazy(k, 0.6),
    "erdos_renyi": lambda k: networks.erdos_renyi(k, 0.7, seed=3),
    "from_graph": lambda k: networks.from_graph(nx.wheel_graph(k)),
    "from_matrix": lambda k: networks.from_matrix(networks.path(k).matrix),
}


def satisfies_assumption(network: networks.Network) -> None:
    c, k = network.matrix, network.n_clients
    assert c.shape == (k, k)
    assert np.all(c >= 0)
    assert np.all(np.diag(c) > 0)
    np.testing.assert_array_equal(c, c.T)
    np.testing.assert_allclose(c.sum(axis=1), 1.0, rtol=0, atol=1e-14)
    eigenvalues = np.linalg.eigvalsh(c)  # ascending
    assert eigenvalues[-1] == pytest.approx(1.0, abs=1e-13)
    others = np.abs(eigenvalues[:-1]).max(initial=0.0)
    assert others < 1.0
    assert network.second_eigenvalue == pytest.approx(others, abs=1e-13)
    assert network.spectral_gap == 1.0 - network.second_eigenvalue
    assert network.edges == np.count_nonzero(np.triu(c, 1))


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("k", SIZES)
def test_every_factory_satisfies_assumption_2_1(name, k):
    satisfies_assumption(FACTORIES[name](k))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 25), probability=st.floats(0.05, 1.0), seed=st.integers(0, 10**6))
def test_metropolis_weights_of_any_connected_graph(n, probability, seed):
    graph = nx.gnp_random_graph(n, probability, seed=seed)
    nx.add_path(graph, range(n))
    graph.add_edge(0, 0)  # a self loop changes nothing
    network = networks.from_graph(graph)
    satisfies_assumption(network)
    graph.remove_edge(0, 0)
    expected = np.zeros((n, n))
    for i, j in graph.edges:
        expected[i, j] = expected[j, i] = 1 / (1 + max(graph.degree[i], graph.degree[j]))
    expected += np.diag(1 - expected.sum(axis=1))
    np.testing.assert_allclose(network.matrix, expected, rtol=0, atol=1e-15)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(2, 40), rho=st.floats(0.0, 0.999))
def test_second_eigenvalue_of_a_lazy_network_is_rho(n, rho):
    network = networks.lazy(n, rho)
    assert network.second_eigenvalue == pytest.approx(rho, abs=1e-13)
    assert network.uniform == 1.0 - rho


def test_matrices_known_by_hand():
    third = 1 / 3
    np.testing.assert_array_equal(networks.ring(1).matrix, [[1.0]])
    np.testing.assert_array_equal(networks.ring(2).matrix, np.full((2, 2), 0.5))
    np.testing.assert_allclose(
        networks.ring(4).matrix,
        [
            [third, third, 0, third],
            [third, third, third, 0],
            [0, third, third, third],
            [third, 0, third, third],
        ],
        atol=1e-15,
    )
    np.testing.assert_allclose(
        networks.path(3).matrix, [[2 / 3, third, 0], [third, third, third], [0, third, 2 / 3]], atol=1e-15
    )
    np.testing.assert_allclose(networks.star(5).matrix[0], np.full(5, 0.2), atol=1e-15)
    np.testing.assert_array_equal(networks.complete(4).matrix, np.full((4, 4), 0.25))
    assert networks.complete(4).second_eigenvalue == 0.0


def test_ring_has_its_closed_form_spectrum():
    assert networks.ring(10).second_eigenvalue == pytest.approx(1 / 3 + 2 / 3 * np.cos(2 * np.pi / 10), abs=1e-14)


def test_a_torus_counts_each_edge_once():
    assert networks.torus(1, 1).edges == 0
    assert networks.torus(2, 2).edges == 4
    assert networks.torus(2, 3).edges == 9
    assert networks.torus(3, 4).edges == 24
    np.testing.assert_array_equal(networks.torus(1, 6).matrix, networks.ring(6).matrix)
    grid = nx.grid_2d_graph(4, 5, periodic=True)
    np.testing.assert_allclose(
        networks.torus(4, 5).matrix > 0, nx.to_numpy_array(grid, nodelist=sorted(grid)) + np.eye(20) > 0
    )


def test_second_eigenvalue_counts_the_negative_end():
    c = np.array([[0.1, 0.9], [0.9, 0.1]])  # eigenvalues 1 and -0.8
    assert networks.from_matrix(c).second_eigenvalue == pytest.approx(0.8)
    n = 400  # two sides that average across: eigenvalues 1, 0.1 and -0.8
    own, across = 0.1 * np.eye(n), np.full((n, n), 0.9 / n)
    assert networks.from_matrix(np.block([[own, across], [across, own]])).second_eigenvalue == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (networks.ring(10_000), 1 / 3 + 2 / 3 * np.cos(2 * np.pi / 10_000)),
        (networks.path(4000), 1 / 3 + 2 / 3 * np.cos(np.pi / 4000)),
        (networks.torus(50, 60), 0.6 + 0.4 * np.cos(2 * np.pi / 60)),
        (networks.star(3000), 1 - 1 / 3000),
        (networks.complete(5000), 0.0),
        (networks.lazy(5000, 0.3), 0.3),
    ],
    ids=str,
)
def test_large_networks_have_their_closed_form_spectrum(network, expected):
    assert network.second_eigenvalue == pytest.approx(expected, abs=1e-12)


def test_large_random_network_agrees_with_the_dense_solver():
    network = networks.erdos_renyi(600, 0.02, seed=0)
    dense = np.linalg.eigvalsh(network.matrix)
    assert network.second_eigenvalue == pytest.approx(max(dense[-2], -dense[0]), abs=1e-12)


def test_the_negative_end_is_found_where_lanczos_stalls():
    """An even circle that hardly keeps its own: lambda_K = 2a - 1 outweighs lambda_2, both near 1."""
    n, a = 2000, 1e-6
    shift = sparse.csr_array((np.ones(n), (np.arange(n), np.roll(np.arange(n), -1))))
    network = networks.from_matrix(a * sparse.eye_array(n) + (1 - a) / 2 * (shift + shift.T))
    assert a + (1 - a) * np.cos(2 * np.pi / n) < 1 - 2 * a
    assert network.second_eigenvalue == pytest.approx(1 - 2 * a, abs=1e-12)


@pytest.mark.parametrize("rho", [0.0, 0.4])
def test_an_average_given_as_a_large_matrix(rho):
    network = networks.from_matrix(networks.lazy(400, rho).matrix)
    assert network.second_eigenvalue == pytest.approx(rho, abs=1e-12)


def test_ten_thousand_clients_stay_sparse():
    network = networks.ring(10_000)
    assert network.sparse.nnz == 30_000
    assert network.edges == 10_000
    assert networks.complete(10_000).sparse.nnz == 0
    assert networks.complete(10_000).edges == 49_995_000


def test_erdos_renyi_is_a_function_of_its_seed_with_the_right_density():
    first, again, other = (networks.erdos_renyi(200, 0.1, seed=s) for s in (5, 5, 6))
    np.testing.assert_array_equal(first.matrix, again.matrix)
    assert np.any(first.matrix != other.matrix)
    assert networks.erdos_renyi(30, 1.0, seed=0).edges == 435
    # 2 * 19,900 pairs at 0.1: six standard deviations are 359, false failure about 2e-9; a pair
    # drawn twice or a triangle of ranks cut short moves the mean by more.
    assert abs(first.edges + other.edges - 3980) < 359


def test_erdos_renyi_pairs_are_equally_likely():
    """1000 graphs of 6 clients: each of 15 pairs is Binomial(1000, 1/2); 6 sd = 95, false failure 3e-8."""
    counts = np.zeros((6, 6))
    for seed in range(1000):
        i, j = networks.graphs._random_pairs(6, 0.5, np.random.default_rng(seed))
        counts[i, j] += 1
    upper = counts[np.triu_indices(6, 1)]
    assert counts.sum() == upper.sum()
    assert np.all(np.abs(upper - 500) < 95)


def test_a_network_prints_itself():
    assert str(networks.ring(10)) == "Network ring: 10 clients, 10 edges, second eigenvalue 0.8727"
    assert str(networks.ring(900)).endswith("second eigenvalue 1 - 1.6e-05")


def test_matrix_is_read_only_and_the_input_is_left_alone():
    given_matrix = sparse.csr_array(networks.ring(5).matrix)
    network = networks.from_matrix(given_matrix)
    given_matrix.data[:] = 0.0
    np.testing.assert_array_equal(network.matrix, networks.ring(5).matrix)
    with pytest.raises(ValueError, match="read-only"):
        network.matrix[0, 0] = 2.0


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csr_matrix, sparse.coo_array, sparse.csc_matrix])
def test_scipy_sparse_matrices_are_taken(form):
    c = networks.star(6).matrix
    np.testing.assert_array_equal(networks.from_matrix(form(c)).matrix, c)


BAD_MATRICES = [
    (np.ones((2, 3)) / 3, r"square, K x K \(Assumption 2\.1\); got 2 x 3\. Use networks\.ring"),
    (np.ones((0, 0)), r"square, K x K \(Assumption 2\.1\); got 0 x 0"),
    (np.ones(3), r"shape \(any, any\); got \(3,\)\. Give a K x K matrix"),
    ([[1, 0], [np.nan, 1]], r"mixing must be finite; got nan at index \(1, 0\)"),
    (sparse.csr_array([[1, np.inf], [0, 1]]), r"finite \(Assumption 2\.1\); entry \(0, 1\) is inf"),
    ([[1.5, -0.5], [-0.5, 1.5]], r"nonnegative \(Assumption 2\.1\); entry \(0, 1\) is -0\.5.*Metropolis"),
    (
        [[0.5, 0.5], [0.2, 0.8]],
        r"symmetric \(Assumption 2\.1\); entry \(0, 1\) is 0\.5 but \(1, 0\) is 0\.2.*Metro",
    ),
    ([[0.500001, 0.5], [0.5, 0.5]], r"rows must sum to 1 \(Assumption 2\.1\); row 0 sums to 1\.000001"),
    ([[0, 1], [1, 0]], r"positive diagonal \(Section 2\.1\.1.*entry \(0, 0\) is 0\. Use \(C \+ I\) / 2"),
    (np.eye(3), r"connect .*\(Assumption 2\.1.*3 components, the first of clients 0\. .*networks\.ring\(3\)"),
]


@pytest.mark.parametrize(("matrix", "message"), BAD_MATRICES, ids=[message for _, message in BAD_MATRICES])
def test_a_bad_matrix_is_refused_with_rule_value_and_fix(matrix, message):
    with pytest.raises(ValueError, match=message):
        networks.from_matrix(matrix)


def test_the_path_that_was_meant_as_a_ring_gets_this_very_message():
    gap = np.abs(np.subtract.outer(np.arange(10), np.arange(10)))
    with pytest.raises(ValueError, match="mixing rows") as caught:
        networks.from_matrix((gap <= 1) / 3)
    assert str(caught.value) == (
        "mixing rows must sum to 1 (Assumption 2.1); row 0 sums to 0.667. Use networks.ring(n_clients)?"
    )


def test_the_first_component_is_listed():
    graph = nx.disjoint_union(nx.path_graph(3), nx.path_graph(30))
    with pytest.raises(ValueError, match=r"2 components, the first of clients 0, 1, 2\. "):
        networks.from_graph(graph)
    with pytest.raises(ValueError, match=r"first of clients 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \.\.\."):
        networks.from_graph(nx.disjoint_union(nx.path_graph(30), nx.path_graph(3)))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: networks.ring(0), "n_clients must be at least 1; got 0"),
        (lambda: networks.ring(2.5), "n_clients must be a whole number; got 2.5"),
        (lambda: networks.torus(3, 0), "cols must be at least 1; got 0"),
        (lambda: networks.lazy(3, 1.0), r"rho must lie in \[0, 1\) \(Assumption 2\.1.*got 1\. Use 0"),
        (lambda: networks.lazy(3, -0.1), r"rho must lie in \[0, 1\).*got -0\.1"),
        (lambda: networks.erdos_renyi(5, 0.0, 0), "probability must be greater than 0; got 0"),
        (lambda: networks.erdos_renyi(5, 1.5, 0), r"at most 1; got 1\.5\. Use networks\.complete\(5\)"),
        (
            lambda: networks.erdos_renyi(50, 0.01, 0),
            r"Assumption 2\.1.*none of 100 .*probability 0\.01.*log\(K\)/K = 0\.0782: use probability=0\.16",
        ),
        (lambda: networks.from_graph(nx.DiGraph([(0, 1)])), r"undirected.*Use graph\.to_undirected\(\)"),
        (lambda: networks.from_graph(nx.MultiGraph([(0, 1)])), r"multigraph\. Use networkx\.Graph\(graph\)"),
        (lambda: networks.from_graph(nx.Graph()), "at least one client; got 0 nodes"),
        (
            lambda: networks.Network("odd", sparse.eye_array(3), uniform=-0.1),
            r"uniform must lie in \[0, 1\].*-0\.1",
        ),
    ],
)
def test_a_bad_request_is_refused_with_rule_value_and_fix(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_as_network_takes_what_describes_a_network():
    network = networks.ring(6)
    assert networks.as_network(network, 6) is network
    for value in (network.matrix, network.matrix.tolist(), network.sparse, nx.cycle_graph(6)):
        np.testing.assert_allclose(networks.as_network(value, 6).matrix, network.matrix, atol=1e-15)
    np.testing.assert_array_equal(networks.as_network(None, 1).matrix, [[1.0]])


def test_as_network_refuses_with_rule_value_and_fix():
    with pytest.raises(ValueError, match="mixing must be K x K") as caught:
        networks.as_network(networks.ring(8).matrix, 10)
    assert str(caught.value) == (
        "mixing must be K x K with K = 10 clients (Assumption 2.1); got 8 x 8. Use networks.ring(10)?"
    )
    with pytest.raises(ValueError, match=r"K = 10 clients average; got None\. Use networks\.ring\(10\)\?"):
        networks.as_network(None, 10)
    with pytest.raises(ValueError, match=r"networkx graph; got 'ring'\. Use networks\.ring\(10\)\?"):
        networks.as_network("ring", 10)
