"""Sizes that cannot work are refused before anything is allocated, in words about memory."""

import numpy as np
import pytest

import fedgauss as fg
from fedgauss import _memory
from fedgauss._memory import check_memory
from fedgauss.detect import Cusum, EProcess
from fedgauss.theory import exact_moments, half_space_distance

PROBLEM, RING, STEPS = (
    fg.problems.random_effects(10, seed=1907),
    fg.networks.ring(10),
    fg.step_sizes.polynomial(0.3, 0.75),
)
MANY = 10**15

TOO_LARGE = {
    "replicates": lambda: fg.simulate(PROBLEM, RING, STEPS, 100, replicates=MANY),
    "paths": lambda: fg.simulate(PROBLEM, RING, STEPS, 2_000_000, replicates=10**6, keep="path"),
    "steps": lambda: fg.simulate(PROBLEM, RING, fg.step_sizes.per_client([STEPS] * 10), 2**31 - 2),
    "chains": lambda: fg.infer_run(PROBLEM, RING, STEPS, 100, method="bootstrap", bootstraps=MANY),
    "ring": lambda: fg.networks.ring(10**9),
    "path": lambda: fg.networks.path(MANY),
    "star": lambda: fg.networks.star(MANY),
    "torus": lambda: fg.networks.torus(10**9, 10**9),
    "complete": lambda: fg.networks.complete(MANY),
    "lazy": lambda: fg.networks.lazy(MANY, 0.5),
    "matrix": lambda: fg.networks.complete(10**6).matrix,
    "random graph": lambda: fg.networks.erdos_renyi(10**8, 0.1, seed=0),
    "sparse random graph": lambda: fg.networks.erdos_renyi(10**9, 1e-3, seed=0),
    "clients": lambda: fg.problems.random_effects(10**12, seed=0),
    "dimensions": lambda: fg.problems.random_effects(10, dim=10**6, seed=0),
    "coefficients": lambda: fg.problems.linear(np.zeros((1, 10**6))),
    "losses": lambda: fg.problems.from_loss(lambda theta, xi: 0.0, lambda key, k: 0.0, dim=2, clients=MANY),
    "draws": lambda: fg.warm_up(PROBLEM, MANY, np.zeros(2)),
    "schedule": lambda: STEPS.eta(10**12),
    "warm schedule": lambda: fg.step_sizes.warm_start(0.1, MANY, 0.3, 0.75).eta(MANY),
    "mask": lambda: fg.step_sizes.sync_mask(5, MANY),
    "exact moments": lambda: exact_moments(PROBLEM, RING, STEPS, 10**12, 5, np.zeros(2)),
    "directions": lambda: half_space_distance(np.ones((5, 2)), np.zeros(2), np.eye(2), 1.0, directions=MANY),
    "sums": lambda: Cusum(MANY),
    "e-values": lambda: EProcess(MANY),
}


@pytest.mark.parametrize("call", TOO_LARGE.values(), ids=TOO_LARGE)
def test_what_cannot_fit_is_refused_in_words(call, monkeypatch):
    monkeypatch.setattr(_memory, "machine_memory", lambda: 64e9)  # so that it does not depend on the machine
    words = r"must fit into memory: about [\d,]+ GB are needed, and this machine has 64\.0 GB"
    with pytest.raises(ValueError, match=words):
        call()


def test_the_covariance_of_many_clients_is_refused_and_its_means_are_not(monkeypatch):
    monkeypatch.setattr(_memory, "machine_memory", lambda: 1e6)
    many = fg.problems.random_effects(300, seed=0)
    with pytest.raises(ValueError, match="Use mean_recursion for the means alone"):
        exact_moments(many, fg.networks.complete(300), STEPS, 3, 1, np.zeros(2))


def test_a_machine_has_memory_and_small_things_fit():
    assert 1e8 < _memory.machine_memory() < 1e16
    check_memory("a number", 8)
    assert fg.networks.complete(10**6).n_clients == 10**6
    with pytest.raises(ValueError, match="nothing must fit into memory"):
        check_memory("nothing", 10**400, "Use less.")
