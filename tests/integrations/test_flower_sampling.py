"""Clients that are left out are not sampled, and as many as before are."""

import pytest

pytest.importorskip("flwr")

from flower_coming import FIRST, N, protected, run
from flwr.serverapp.strategy import FedAvg

from fedgauss.integrations.flower.sampling import as_many


def test_half_of_ten_without_two_are_still_five():
    """It would fail if nodes that are left out were sampled, or counted among those of whom half are sampled."""
    strategy = protected(fraction=0.5)
    strategy._standing.out.update({2: "", 7: ""})
    strategy._roster.take_up({k: f"node {FIRST + k}" for k in range(N)})
    before = dict(vars(strategy.strategy))
    grid, _ = run(strategy, 37)
    assert {len(asked) for asked in grid.asked.values()} == {5}
    assert set().union(*grid.asked.values()) == {FIRST + k for k in range(N)} - {FIRST + 2, FIRST + 7}
    assert vars(strategy.strategy) == before


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("out", [1, 2, 4])
def test_as_many_are_sampled_as_before(fraction, out):
    inner = FedAvg(fraction_train=fraction, min_train_nodes=3, min_available_nodes=N)
    with as_many(inner, N - out, out):
        found = max(int((N - out) * inner.fraction_train), inner.min_train_nodes)
        assert found == min(max(int(N * fraction), 3), N - out)
        assert inner.min_available_nodes == N - out
    assert (inner.fraction_train, inner.min_train_nodes, inner.min_available_nodes) == (fraction, 3, N)
