"""What clients send before mixing, and where they began."""

from __future__ import annotations

import numpy as np
import pytest

import fedgauss as fg

STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)
PROBLEM, RING = fg.problems.random_effects(5, seed=2), fg.networks.ring(5)


def runs(every, n_steps=30, network=RING, **more):
    look = [*more.pop("observe", ()), fg.observers.uploads(every)]
    return fg.simulate(
        PROBLEM, network, STEPS, n_steps, sync_every=every, replicates=7, seed=3, keep="path", observe=look, **more
    )


def mixed(sent, network=RING):
    return np.einsum("rjkd,kl->rjld", sent.astype(float), network.matrix)


@pytest.mark.parametrize(
    "every", [4, pytest.param(1, marks=pytest.mark.study), pytest.param(10, marks=pytest.mark.study)]
)
def test_what_is_sent_is_mixed_into_where_the_next_block_begins(every):
    start = np.random.default_rng(0).standard_normal((5, 2))
    r = runs(every, start=start)
    assert r.began.shape == r.sent.shape == (7, 30 // every, 5, 2)
    np.testing.assert_array_equal(r.began[:, 0], np.broadcast_to(start.astype(np.float32), (7, 5, 2)))
    np.testing.assert_allclose(mixed(r.sent)[:, :-1], r.began[:, 1:], atol=2e-6)
    np.testing.assert_allclose(mixed(r.sent).mean(axis=2), r.path[:, every - 1 :: every], atol=2e-6)


def test_a_block_of_one_step_is_one_gradient():
    from oracles.data import regression_data

    r = runs(1)
    x, y = regression_data(PROBLEM, 30, 7, 3)
    for t in range(1, 31):
        began = np.moveaxis(r.began[:, t - 1].astype(float), 0, -1)
        gradient = x[t - 1] * ((x[t - 1] * began).sum(axis=1) - y[t - 1])[:, None]
        np.testing.assert_allclose(
            np.moveaxis(r.sent[:, t - 1], 0, -1), began - STEPS.eta(30)[t - 1] * gradient, atol=2e-5
        )


def test_uploads_are_seen_before_they_are_projected():
    """Clients pull out of a small box: what they send lies outside, where they begin next lies inside."""
    box = fg.projections.box(-0.5, 0.5)
    r = runs(3, projection=box)
    assert np.abs(r.sent).max() > 0.5
    assert np.abs(r.began).max() <= 0.5
    np.testing.assert_allclose(np.clip(mixed(r.sent), -0.5, 0.5)[:, :-1], r.began[:, 1:], atol=2e-6)


def test_the_message_is_seen_before_a_man_in_the_middle_forges_it():
    forged = fg.networks.man_in_the_middle(RING, 0, 1, start=9, shift=3.0)
    r = runs(3, network=forged)
    added = r.began[:, 1:] - mixed(r.sent)[:, :-1]
    expected = np.zeros((7, 9, 5, 2))
    expected[:, 2:, 1] = 1.0  # 3.0 by a weight of 1/3, from the third synchronisation on
    np.testing.assert_allclose(added, expected, atol=2e-6)


def test_a_block_that_does_not_end_is_left_out():
    long, short = runs(4, n_steps=30), runs(4, n_steps=28)
    np.testing.assert_array_equal(long.sent, short.sent)
    np.testing.assert_array_equal(long.began, short.began)


def test_looking_changes_nothing():
    plain = fg.simulate(PROBLEM, RING, STEPS, 30, sync_every=4, replicates=7, seed=3, keep="path")
    np.testing.assert_array_equal(runs(4).path, plain.path)
    np.testing.assert_array_equal(runs(4, memory_budget=1e4).sent, runs(4).sent)


def test_settings_run_together_see_their_own_uploads():
    look = [fg.observers.uploads(4)]
    others = [fg.problems.random_effects(5, seed=s) for s in (2, 8)]
    settings = [fg.Setting(p, RING, STEPS, 4, observe=look).keeping("path") for p in others]
    together = fg.simulate_together(settings, 30, replicates=7)
    for problem, found in zip(others, together, strict=True):
        alone = fg.simulate(problem, RING, STEPS, 30, sync_every=4, replicates=7, keep="path", observe=look)
        np.testing.assert_array_equal(found.sent, alone.sent)
        np.testing.assert_array_equal(found.began, alone.began)


def test_every_name_can_be_had_from_observers():
    assert set(fg.observers.__all__) <= set(dir(fg.observers))
    assert {"Average", "At", "CusumPath", "Path", "Step", "Sum", "Uploads", "uploads"} <= set(fg.observers.__all__)


def test_blocks_that_are_no_blocks_are_refused():
    with pytest.raises(ValueError, match=r"every must be at least 1; got 0\. Use the sync_every of the run"):
        fg.observers.uploads(0)
    with pytest.raises(ValueError, match="every must not exceed n_steps = 30, or nothing is kept; got 31"):
        runs(31)
