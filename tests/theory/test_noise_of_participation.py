"""A share of clients a round: the noise of drawing them, exact moments, advice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedgauss import networks, problems, step_sizes
from fedgauss._linearization import linearization
from fedgauss.problems.linearize import linearize
from fedgauss.theory import advise, exact_moments, exact_path
from fedgauss.theory import covariances as cv

STEPS = step_sizes.polynomial(0.5, beta=0.75)


@pytest.mark.parametrize(("sync_every", "gap"), [(1, 0.06), (5, 0.02)])
def test_the_noise_of_sampled_clients_is_that_of_the_exact_recursion(sync_every: int, gap: float) -> None:
    # n Cov(Ybar_n) against Sigma_n with V in place of V_K, which differ by O(eta). With V_K itself, or V without its
    # factor tau, one of the two is off by more than .3.
    client_hessians = np.array([[[0.6]], [[1.0]], [[1.4]]])
    problem = problems.linear([[0.0], [1.0], [2.5]], 1.0, client_hessians, weights=[0.2, 0.35, 0.45])
    lin, n = linearize(problem), 600
    noise = cv.participation_noise(lin, 2, sync_every)
    sampled = replace(lin, client_noise_cov=lin.client_noise_cov * noise / lin.noise_cov)
    exact = exact_moments(problem, networks.complete(3), STEPS, n, sync_every, lin.optimum, participation=2)
    ratio = n * exact.cov_average / cv.average_covariance(sampled, STEPS, n)
    assert abs(float(ratio[0, 0]) - 1.0) < gap


def test_the_noise_of_sampled_clients_needs_their_gradients() -> None:
    lin = linearization(np.ones((3, 1, 1)), np.ones((3, 1, 1)))
    with pytest.raises(ValueError, match=r"gradients at the optimum, .* Use linearize\(problem\), or linearization\("):
        cv.participation_noise(lin, 2, 1)
    known = linearization(np.ones((3, 1, 1)), np.ones((3, 1, 1)), optimum=[0.0], gradients=np.eye(3, 1))
    everybody = cv.participation_noise(known, 3, 9)
    np.testing.assert_allclose(everybody, lin.noise_cov)


def test_exact_path_ends_in_exact_moments() -> None:
    problem = problems.random_effects(4, seed=1)
    common = (problem, networks.failing(networks.ring(4), 0.3), STEPS, 9, 4, np.zeros(2))
    path, last = (exact(*common, participation=0.5) for exact in (exact_path, exact_moments))
    np.testing.assert_allclose(path.cov_average[-1], last.cov_average)
    np.testing.assert_allclose(path.mean[-1], last.mean_last)
    np.testing.assert_allclose(path.disagreement[-1], last.disagreement)


def test_everybody_is_nobody_absent() -> None:
    problem = problems.random_effects(4, seed=1)
    for network in (networks.lazy(4, 0.3), networks.gossip_pairs(4)):
        some, all_of_them = (
            exact_moments(problem, network, STEPS, 9, 4, np.zeros(2), participation=share) for share in (1.0, None)
        )
        np.testing.assert_allclose(some.client_cov, all_of_them.client_cov, atol=1e-15)


def test_links_that_never_fail_are_those_of_the_network() -> None:
    problem, ring = problems.random_effects(4, seed=1), networks.ring(4)
    plain, random = (
        exact_moments(problem, network, STEPS, 9, 4, np.zeros(2)) for network in (ring, networks.failing(ring, 0.0))
    )
    np.testing.assert_allclose(random.client_cov, plain.client_cov, atol=1e-15)


def test_too_many_sets_of_clients_are_refused() -> None:
    problem = problems.random_effects(20, seed=1)
    with pytest.raises(
        ValueError, match=r"2,000 at most; 10 of 20 clients form 184,756. Use fewer clients, or simulate"
    ):
        exact_moments(problem, networks.complete(20), STEPS, 9, 4, np.zeros(2), participation=0.5)


def test_advice_counts_those_present() -> None:
    advice, few = advise(5000, 100, participation=0.1), advise(5000, 10)
    assert advice.limit == few.limit
    assert advice.best_beta == few.best_beta
    assert (advice.n_clients, advice.participants) == (100, 10)
    assert str(advice).startswith("10 of 100 clients a round and 5000 steps: K = n^c with c = 0.270.")
    assert "The paper supposes that everybody takes part" in str(advice)
    with pytest.raises(ValueError, match="participation must be at most 100; got 101"):
        advise(5000, 100, participation=101)
