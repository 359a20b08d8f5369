"""Monte-Carlo moments against the exact recursion in federations as they are: as in `test_moments`.

Of Ybar_n, and of the last iterate of one client, in which links and partners that were drawn show most.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import fedgauss as fg
from fedgauss.inference.passes import LastClients

SEEDS, REPLICATES, N, TAU, K = 40, 2000, 60, 4, 6
STEPS = fg.step_sizes.polynomial(0.12, beta=0.75)  # larger ones have tails too heavy for z-scores of 2,000 runs
RING, SERVER = fg.networks.ring(K), fg.networks.complete(K)


def clients():
    """Clients that differ in everything, and by more than their noise: who is drawn matters."""
    rng = np.random.default_rng(11)
    root = rng.standard_normal((K, 2, 4))
    cov = root @ np.swapaxes(root, 1, 2) / 4 + 0.2 * np.eye(2)
    weights = np.array([0.1, 0.1, 0.15, 0.15, 0.2, 0.3])
    return fg.problems.linear(1.5 * rng.standard_normal((K, 2)), 1.0, cov, weights)


CASES = {
    "a ring with failing links": (fg.networks.failing(RING, 0.5), {}),
    "pairwise gossip": (fg.networks.gossip_pairs(K), {}),
    "a third of the clients": (SERVER, {"participation": 1 / 3}),
    "unequal local steps": (RING, {"local_steps": [1, 4, 2, 3, 1, 4]}),
    "momentum": (fg.networks.gossip_pairs(K), {"optimiser": fg.Optimiser(momentum=0.6)}),
    "kept momentum and FedProx": (
        fg.networks.failing(RING, 0.5),
        {"optimiser": fg.Optimiser(momentum=0.6, keep_momentum=True, proximal=0.5), "local_steps": [1, 4, 2, 3, 1, 4]},
    ),
    "server momentum and FedProx": (
        SERVER,
        {"participation": 3, "optimiser": fg.Optimiser(proximal=0.5, server_momentum=0.5)},
    ),
    "half of the clients on a ring that fails": (fg.networks.failing(RING, 0.3), {"participation": 3}),
}
QUICK = {"half of the clients on a ring that fails"}  # the others go with the studies
MARKED = [case if case in QUICK else pytest.param(case, marks=pytest.mark.study) for case in CASES]


def z_scores(sample, mean, cov):
    """Of means and of covariances, for a sample (R, 2) whitened by its exact covariance."""
    z = (sample.astype(float) - mean) @ np.linalg.inv(np.linalg.cholesky(cov)).T
    products = np.stack([z[:, 0] ** 2 - 1, z[:, 1] ** 2 - 1, z[:, 0] * z[:, 1]], axis=1)
    root = np.sqrt(len(z))
    return z.mean(axis=0) * root, products.mean(axis=0) / products.std(axis=0) * root


@pytest.mark.parametrize("case", MARKED)
def test_mean_and_covariance_agree_with_the_exact_recursion(case):
    # As in `test_moments`: z-scores over 40 seeds have mean 0 and variance 1. False failure: eight two-sided tests at
    # 1e-5 each, 8e-5. Catches a bias of 0.016 standard deviations, or a variance wrong by 2 %: without the second
    # moments of what is drawn, that of the client's last iterate is wrong by more in every case.
    network, more = CASES[case]
    problem = clients()
    exact = fg.theory.exact_moments(problem, network, STEPS, N, TAU, np.ones(2), **more)
    found = {name: [] for name in ("means", "covariances", "means of a client", "covariances of a client")}
    first = SEEDS * list(CASES).index(case)  # data of its own
    for seed in range(first, first + SEEDS):
        runs = fg.simulate(
            problem, network, STEPS, N, sync_every=TAU, replicates=REPLICATES, seed=seed, start=np.ones(2),
            observe=[LastClients()], **more,
        )  # fmt: skip
        of_average = z_scores(runs.average, exact.mean_average, exact.cov_average)
        of_client = z_scores(runs.last_clients[:, 0], exact.client_means[0], exact.client_cov[0, :, 0])
        for name, z in zip(found, (*of_average, *of_client), strict=True):
            found[name].append(z)
    for what, scores in found.items():
        z = np.concatenate(scores)
        print(f"{case}: {z.size} z-scores of {what} have mean {z.mean():+.3f} and sd {z.std():.3f}")  # shown by -rP
        assert abs(stats.norm.ppf(5e-6)) > abs(z.sum() / np.sqrt(z.size))
        assert 5e-6 < stats.chi2.cdf((z**2).sum(), z.size) < 1 - 5e-6
