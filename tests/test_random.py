from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry2x32_p
from scipy import stats

from fedgauss._random import Noise, stage_key, threefry


def noise(first=0, replicates=8, clients=5, seed=0):
    return Noise(stage_key(seed, "data"), jnp.uint32(first), clients, replicates)


def test_threefry_is_the_hash_of_jax():
    rng = np.random.default_rng(0)
    key = tuple(jnp.asarray(rng.integers(0, 2**32, dtype=np.uint32)) for _ in range(2))
    counters = [jnp.asarray(rng.integers(0, 2**32, 1000, dtype=np.uint32)) for _ in range(2)]
    for ours, theirs in zip(threefry(key, *counters), threefry2x32_p.bind(*key, *counters), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_replicate_draws_the_same_numbers_in_any_chunk():
    whole = noise(replicates=10).at_step(jnp.int32(7)).normal(3)
    part = noise(first=4, replicates=3).at_step(jnp.int32(7)).normal(3)
    np.testing.assert_array_equal(whole[..., 4:7], part)


@pytest.mark.parametrize("other", ["step", "stream", "seed"])
def test_other_steps_streams_and_seeds_draw_other_numbers(other):
    # False failure: the largest of 60 absolute correlations over 20,000 pairs beyond 5.5 / sqrt(20,000): 2.3e-6.
    # Catches a key that ignores one of its parts (correlation 1).
    base = noise(replicates=20_000, clients=2).at_step(jnp.int32(1))
    different = {
        "step": noise(replicates=20_000, clients=2).at_step(jnp.int32(2)),
        "stream": base.stream("another"),
        "seed": noise(replicates=20_000, clients=2, seed=1).at_step(jnp.int32(1)),
    }[other]
    a, b = (np.asarray(x.normal(3)).reshape(6, -1) for x in (base, different))
    within = np.corrcoef(a)[np.triu_indices(6, 1)]
    across = np.corrcoef(a, b)[:6, 6:]
    assert np.abs(np.concatenate([within, across.ravel()])).max() < 5.5 / np.sqrt(20_000)


def test_normals_and_uniforms_have_their_distributions():
    # False failure: two Kolmogorov tests at 2.5e-5 each. Catches a scale wrong by 1 % or a missing tail.
    z = np.asarray(noise(replicates=100_000, clients=2).normal(1)).ravel()
    u = np.asarray(noise(replicates=100_000, clients=2).stream("u").uniform(1)).ravel()
    assert stats.kstest(z, "norm").pvalue > 2.5e-5
    assert stats.kstest(u, "uniform").pvalue > 2.5e-5
    assert u.min() > 0.0
    assert u.max() < 1.0


def test_an_odd_number_of_words_works():
    assert noise(clients=3, replicates=2).words(3).shape == (3, 3, 2)


@pytest.mark.parametrize("count", [1, 2, 3])  # 5, 10 and 15 words: an odd number leaves half a hash over
def test_some_clients_draw_what_they_draw_among_all(count):
    everybody = noise(first=3).at_step(jnp.int32(2)).stream("any")
    clients = np.array([[0, 1, 2, 3, 4, 0, 1, 2], [4, 4, 3, 0, 1, 2, 3, 1]])
    some = replace(everybody, clients=jnp.asarray(clients))
    for draw in ("words", "uniform", "normal"):
        wanted = np.take_along_axis(np.asarray(getattr(everybody, draw)(count)), clients[None], axis=1)
        np.testing.assert_array_equal(getattr(some, draw)(count), wanted)
    keys = jax.random.key_data(everybody.keys())[clients, np.arange(8)]
    np.testing.assert_array_equal(jax.random.key_data(some.keys()), keys)
    assert (everybody.shape, some.shape) == ((5, 8), (2, 8))


def test_a_table_is_read_for_those_who_draw():
    table = np.arange(30).reshape(5, 3, 2)
    clients = jnp.array([[0, 4], [3, 3]])
    of_all, of_some = (replace(noise(), clients=some).per_client(table) for some in (None, clients))
    assert (of_all.shape, of_some.shape) == ((3, 2, 5, 1), (3, 2, 2, 2))
    np.testing.assert_array_equal(of_all[..., 4, 0], table[4])
    np.testing.assert_array_equal(of_some[..., 0, 1], table[4])


def test_user_keys_are_one_for_each_client_and_replicate():
    keys = jax.random.key_data(noise().keys()).reshape(-1, 2)
    assert len(np.unique(np.asarray(keys), axis=0)) == 40


@pytest.mark.parametrize("seed", [-1, 1.5, "x"])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ValueError, match="seed must be"):
        stage_key(seed, "data")


@pytest.mark.parametrize("draw", ["words", "uniform", "normal"])
def test_accelerators_draw_the_same_numbers(draw, monkeypatch):
    here = getattr(noise(), draw)(3)
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    np.testing.assert_array_equal(here, getattr(noise(), draw)(3))
