"""Clients that share only what methods say: a federation of objects gives the engine's numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedgauss as fg
from fedgauss._random import Noise, stage_key
from fedgauss.inference.accuracy import average_covariance
from fedgauss.inference.client_sums import THINNED
from fedgauss.inference.methods import SPREAD, Chains, bootstrap_deviations
from fedgauss.inference.passes import run_whitened, schedule
from oracles.federation import Federation

pytestmark = pytest.mark.study  # one slow fixture behind all of them

K, D, N, TAU, CHAINS, SEED = 4, 3, 300, 10, 20, 3
RING = fg.networks.ring(K)


def make_problem():
    generator = np.random.default_rng(1)
    x = generator.standard_normal((K * N, D))
    y = (generator.random(K * N) < 1 / (1 + np.exp(-x @ [1.0, -0.5, 0.2]))).astype(float)
    return fg.problems.from_arrays(x, y, np.arange(K * N) % K, "logistic", order="replacement")


def rows_and_signs(problem):
    """Every client's rows in the order in which it draws them, and the multipliers of its chains."""
    noise = Noise(stage_key(SEED, "data"), jnp.uint32(0), K, CHAINS + 1)
    chains = Chains(problem, np.uint32(0), np.zeros((D, K, 1)))
    sample = jax.jit(lambda t: chains.sample(noise.at_step(t), t))
    drawn = [sample(jnp.int32(t)) for t in range(1, N + 1)]
    x = np.stack([np.asarray(data[0])[:, :, 0].T for data, _ in drawn], axis=1)  # (K, n, d)
    y = np.stack([np.asarray(data[1])[:, 0] for data, _ in drawn], axis=1)
    multipliers = np.stack([np.asarray(u) for _, u in drawn], axis=1)  # (K, n, B + 1)
    return [(x[k].astype(float), y[k].astype(float)) for k in range(K)], (multipliers[:, :, 1:] - 1.0) / SPREAD


@pytest.fixture(scope="module")
def both():
    problem = make_problem()
    rows, signs = rows_and_signs(problem)
    whole = run_whitened(problem, RING, N, TAU, seed=SEED)
    pulls = whole.clients.gradients_at(np.asarray(whole.runs.average, dtype=float))[0]
    federation = Federation(rows, signs, pulls, RING.matrix, CHAINS)
    plan = schedule(N, D)
    warm = max(10, int(np.ceil(40 * D / K)))
    found = federation.run(plan.eta, plan.burn_in, TAU, warm, THINNED)
    deviations = bootstrap_deviations(problem, RING, whole, TAU, CHAINS, SEED)
    return federation, found, whole, deviations


def test_the_plugin_is_that_of_the_federation(both):
    _, found, whole, _ = both
    np.testing.assert_allclose(found["average"][0], whole.runs.average[0], atol=2e-5)
    np.testing.assert_allclose(found["second"], whole.second[0], rtol=1e-3, atol=1e-3)
    for k, told in enumerate(found["sums"]):
        hessian = told["h"] / told["count"]
        np.testing.assert_allclose(hessian, whole.clients.hessians[0, k], atol=1e-5)
        centred = told["gg"] / told["count"] - np.outer(told["g"], told["g"]) / told["count"] ** 2
        noise = centred * told["count"] / (told["count"] - 1)
        np.testing.assert_allclose(noise, whole.clients.noise_cov[0, k], atol=1e-5)
        for name, means in (("g", "gradients"), ("reference", "references"), ("at", "places"), ("bend", "bends")):
            np.testing.assert_allclose(told[name] / told["count"], getattr(whole.clients, means)[0, k], atol=1e-5)
    assert np.isfinite(average_covariance(whole)).all()


def test_the_bootstrap_is_that_of_the_federation(both):
    _, found, _, deviations = both
    chains = found["average"]
    np.testing.assert_allclose((chains[1:] - chains[0]) / SPREAD, deviations, atol=2e-4)


def test_nothing_but_parameters_and_d_by_d_sums_leaves_a_client(both):
    federation, _, _, _ = both
    kinds = {}
    for sender, receiver, kind, shape in federation.channel.messages:
        kinds.setdefault(kind, set()).add(shape)
        if kind in ("parameters", "a reference"):
            assert RING.matrix[sender, receiver] > 0  # neighbours only
    assert kinds == {
        "parameters": {(CHAINS + 1, D)},
        "a reference": {(D,)},
        "Hessian": {(D, D)},
        "count": {()},
        "g": {(D,)},
        "gg": {(D, D)},
        "h": {(D, D)},
        "at": {(D,)},
        "reference": {(D,)},
        "bend": {(D,)},
        "average": {(D,)},
    }
    said = [kind for sender, receiver, kind, _ in federation.channel.messages if sender == 0 and receiver == "all"]
    told = ["Hessian", "Hessian", "count", "g", "gg", "h", "at", "reference", "bend", "average"]
    assert sorted(said) == sorted(told)
