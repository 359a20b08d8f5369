from __future__ import annotations

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from fedgauss import networks
from fedgauss._random import Noise, stage_key
from fedgauss.engine.mixing import DenseMixing, EdgeMixing, NeighbourMixing, mixing_of

CASES = {
    "few clients": (networks.path(10), DenseMixing),
    "ring": (networks.ring(200), NeighbourMixing),
    "torus": (networks.torus(9, 11), NeighbourMixing),
    "complete": (networks.complete(150), NeighbourMixing),
    "lazy": (networks.lazy(150, 0.3), NeighbourMixing),
    "star": (networks.star(150), EdgeMixing),
    "scale-free": (networks.from_graph(nx.barabasi_albert_graph(300, 2, seed=1)), EdgeMixing),
}


@pytest.mark.parametrize("case", CASES)
def test_every_way_of_mixing_is_the_matrix_product(case):
    network, kind = CASES[case]
    mixing = mixing_of(network, dim=3)
    assert isinstance(mixing, kind)
    theta = np.random.default_rng(0).standard_normal((3, network.n_clients, 4)).astype(np.float32)
    expected = np.einsum("dkr,kj->djr", theta, network.matrix)
    noise = Noise(stage_key(0, "data"), jnp.uint32(0), network.n_clients, 4)
    mix = jax.jit(lambda theta: mixing.mix(theta, jnp.int32(1), noise))
    np.testing.assert_allclose(mix(theta), expected, atol=2e-6)
