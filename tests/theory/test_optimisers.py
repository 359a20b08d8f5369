"""Where momentum, FedProx and unequal local steps lead, by exact moments of long runs."""

from __future__ import annotations

import numpy as np
import pytest

from fedgauss import Optimiser, networks, problems, step_sizes
from fedgauss.problems.linearize import linearize
from fedgauss.theory import average_covariance, exact_moments

N, TAU = 1500, 10
PROBLEM = problems.linear([[0.0], [1.0], [2.5]], 1.0, np.array([[[0.6]], [[1.0]], [[1.4]]]), weights=[0.2, 0.35, 0.45])
LIN, SERVER = linearize(PROBLEM), networks.complete(3)


def steps(eta0: float) -> step_sizes.Polynomial:
    return step_sizes.polynomial(eta0, beta=0.75)


def ratio(eta0: float, sync_every: int, optimiser: Optimiser) -> float:
    """n Cov(Ybar_n) over Sigma_n at effective steps of .5 t^-.75."""
    exact = exact_moments(PROBLEM, SERVER, steps(eta0), N, sync_every, LIN.optimum, optimiser=optimiser)
    return float((N * exact.cov_average / average_covariance(LIN, steps(0.5), N))[0, 0])


def test_kept_momentum_leaves_the_law_of_the_average() -> None:
    # Steps are 1 / (1 - mu) as long; the average forgets it. A buffer that mixing spoils would show.
    assert ratio(0.5 * (1 - 0.8), 1, Optimiser(momentum=0.8, keep_momentum=True)) == pytest.approx(1.0, abs=0.03)


def test_momentum_that_begins_anew_weighs_the_first_gradients_of_a_round_most() -> None:
    # The j-th of tau gradients counts c_j = 1 + mu + ... + mu^(tau - j); the variance grows by mean(c^2) / mean(c)^2.
    mu = 0.9
    c = (1 - mu ** (TAU - np.arange(TAU))) / (1 - mu)
    wanted = (c**2).mean() / c.mean() ** 2
    assert wanted == pytest.approx(1.180, abs=1e-3)
    assert ratio(0.5 / c.mean(), TAU, Optimiser(momentum=mu)) == pytest.approx(wanted, rel=0.06)


def test_unequal_local_steps_move_the_centre() -> None:
    # To the minimiser of sum_k w_k tau_k F_k; steps that make up for it lead back.
    counts = np.array([2, 10, 5])
    pulls = PROBLEM.weights * counts * PROBLEM.design_cov[:, 0, 0]
    moved = (pulls @ PROBLEM.coefficients[:, 0]) / pulls.sum()
    plain = exact_moments(PROBLEM, SERVER, steps(0.5), N, TAU, LIN.optimum, local_steps=counts)
    evened = step_sizes.per_client([steps(0.5 * TAU / count) for count in counts])
    even = exact_moments(PROBLEM, SERVER, evened, N, TAU, LIN.optimum, local_steps=counts)
    assert plain.mean_average[0] == pytest.approx(moved, abs=0.01)
    assert abs(LIN.optimum[0] - moved) > 0.09
    assert even.mean_average[0] == pytest.approx(LIN.optimum[0], abs=0.03)


def test_fedprox_keeps_clients_together() -> None:
    plain, pulled = (
        exact_moments(PROBLEM, SERVER, steps(0.5), 99, TAU, LIN.optimum, optimiser=optimiser).disagreement
        for optimiser in (None, Optimiser(proximal=2.0))
    )
    assert pulled < 0.9 * plain
