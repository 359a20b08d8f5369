"""What claims of examples are worth."""

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_coming import N, after, protected, run
from flwr.serverapp.strategy import FedAvg

from fedgauss.integrations.flower.rounds import Upload
from fedgauss.integrations.flower.weights import Claims


@pytest.mark.parametrize("times", [10.0, 2.0])
def test_a_claim_counts_for_at_most_so_many_times_the_median(times, caplog):
    """From the first round on. Unbounded, they would move w to 6; the client has times / (times + 9) of the mean."""
    strategy = protected(largest_claim=times)
    _, path = run(strategy, 25, bad={2: after(0, target=6.0, examples=10**14)})
    share = times / (times + N - 1)
    _, honest = run(FedAvg(), 25)
    np.testing.assert_allclose(path[-5:], 1.0 + 5.0 * share, atol=0.06)
    assert abs(honest[-1] - 1.0) < 0.03
    assert f"client 2 claims 1e+14 examples, the median client 10: from now on it counts for at most {times:g}" in (
        caplog.text
    )


def test_sizes_of_one_to_ten_times_the_median_count_as_they_are():
    """To the bit: sizes 1:100 about a median of 10."""
    sizes = (1, 2, 4, 7, 10, 10, 13, 25, 50, 100)
    bad = {k: after(0, examples=size) for k, size in enumerate(sizes)}
    _, path = run(protected(), 8, bad=bad)
    _, bare = run(FedAvg(), 8, bad=bad)
    assert np.array_equal(path, bare)


def test_a_lie_moves_the_median_by_one_place():
    claims = Claims(10.0)
    uploads = [Upload(k, {}, size, {}) for k, size in enumerate((10.0, 20.0, 30.0, 1e15))]
    assert claims.weights(uploads, 1) == {3: 250.0}
    assert claims.weights(uploads[:1], 2) == {}  # by what the others claimed last
    claims.forget([3])
    assert claims.weights([Upload(4, {}, 1e15, {})], 3) == {4: 250.0}
    assert Claims(10.0).weights(uploads[2:], 1) == {}  # of two, nobody knows which one lies
    with pytest.raises(ValueError, match="largest_claim must be at least 1"):
        Claims(0.5)
