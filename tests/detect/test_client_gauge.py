"""What verdicts say would be seen."""

import math
import warnings

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.detect.clients.gauge import Sending, WouldSee

K, D = 10, 40


def watched(noise, n_rounds=24, seed=0, clip=None, **options):
    """A monitor, and the verdict on its last round: clients with directions of their own, and noise."""
    rng = np.random.default_rng(seed)
    own, common = rng.normal(size=(K, D)), rng.normal(size=D)
    monitor = fg.ClientMonitor(horizon=80, seed=1, clip=clip, **options)
    for _ in range(n_rounds):
        u = common + own
        if clip is not None:
            u *= np.minimum(1.0, clip / np.linalg.norm(u, axis=1, keepdims=True))
        verdict = monitor.update(u + noise * rng.normal(size=(K, D)))
    return monitor, verdict


def test_sign_flips_are_said_to_be_seen_where_clients_have_directions_and_not_under_noise():
    clear = watched(0.3)[1].would_see
    assert list(clear.sign_flip) == [1, 2, 3]
    assert min(clear.sign_flip.values()) >= 0.9
    assert not clear.blind
    assert "label flips: unknown" in str(clear)
    noisy = watched(30.0)[1].would_see
    assert max(noisy.sign_flip.values()) < 0.5
    assert noisy.blind
    assert "BLIND." in str(noisy)
    assert "Less noise" in noisy.helps
    assert clear.label_flip is noisy.label_flip is None


@pytest.mark.study
def test_what_is_said_is_what_happens_in_rounds_that_do_not_change():
    """Without training and feedback the replay is exact: 30 runs each way, apart by .35 with a chance below 1e-4."""
    said, seen = [], []
    for seed in range(30):
        monitor, verdict = watched(2.2, seed=seed)
        said.append(verdict.would_see.sign_flip[2])
        rng = np.random.default_rng((seed, 1))
        drawn = np.random.default_rng(seed)
        own, common = drawn.normal(size=(K, D)), drawn.normal(size=D)
        alarm = False
        for _ in range(5):
            u = common + own + 2.2 * rng.normal(size=(K, D))
            u[:2] *= -1
            alarm |= monitor.update(u).alarm
        seen.append(alarm)
    assert 0.15 < np.mean(seen) < 0.9  # else nothing is compared
    assert abs(np.mean(said) - np.mean(seen)) < 0.35


def test_asking_changes_nothing_and_is_answered_once():
    asked, plain = fg.ClientMonitor(horizon=80, seed=1), fg.ClientMonitor(horizon=80, seed=1)
    rng = np.random.default_rng(3)
    own = rng.normal(size=(K, D))
    for number in range(1, 30):
        u = own + 0.5 * rng.normal(size=(K, D))
        if number > 26:
            u[4] *= -1
        verdict = asked.update(u)
        if number % 8 == 0:
            before = verdict.would_see
            assert verdict.would_see is before
        assert verdict == plain.update(u)
    assert verdict.alarm
    assert not verdict.would_see.known
    assert "an alarm stands" in str(verdict.would_see)


def test_an_old_verdict_does_not_keep_the_watch():
    monitor, verdict = watched(0.5)
    moves = np.random.default_rng(5).normal(size=(K, D))
    later = monitor.update(moves)
    assert not verdict.would_see.known
    assert "The run has gone on" in str(verdict.would_see)
    kept = later.would_see
    monitor.update(moves)
    assert later.would_see is kept
    assert kept.known


def test_before_anybody_is_judged_and_with_few_clients_it_is_not_known_or_says_why():
    early = watched(0.3, n_rounds=3)[1].would_see
    assert not early.known
    assert "Only 3 rounds" in str(early)
    soon = watched(0.3, n_rounds=8)[1].would_see
    assert soon.blind
    assert "0 of 10 clients of the last round have a past" in str(soon)
    few = fg.ClientMonitor().update(np.ones((3, 5))).would_see
    assert not few.known


def test_doubling_under_a_clip_that_nobody_told_of_is_unknown():
    """Lengths that are alike hide a clip; told, it is known that a doubling before it would change nothing."""
    hidden = watched(0.001, clip=None, seed=2)[1].would_see
    assert hidden.doubling[1] is not None  # lengths differ
    monitor, told = watched(0.0001, clip=1.0)
    assert max(told.would_see.doubling.values()) == 0.0
    monitor = fg.ClientMonitor(horizon=80, seed=1)
    rng = np.random.default_rng(0)
    own = rng.normal(size=(K, D))
    for _ in range(20):
        u = own + 0.3 * rng.normal(size=(K, D))
        verdict = monitor.update(u / np.linalg.norm(u, axis=1, keepdims=True))
    assert set(verdict.would_see.doubling.values()) == {None}
    assert "unknown" in str(verdict.would_see)
    assert verdict.would_see.sign_flip[2] > 0.5


@pytest.mark.parametrize(("clip", "noise"), [(None, 0.0), (1.0, 0.0), (5.0, 0.0), (1.0, 0.2), (2.0, 0.02)])
def test_a_doubled_move_is_as_long_as_the_equation_says(clip, noise):
    """Of 200 moves with 2,000 parameters, lengths before and after doubling, clip and noise; mean within 2 %."""
    rng = np.random.default_rng(7)
    moves = rng.normal(size=(200, 2000)) * rng.uniform(0.5, 1.5, size=(200, 1)) / math.sqrt(2000)
    drawn = noise * rng.normal(size=moves.shape)

    def sent(u):
        length = np.linalg.norm(u, axis=1, keepdims=True)
        return np.linalg.norm(u * np.minimum(1.0, (clip or np.inf) / length) + drawn, axis=1)

    scale = Sending(clip, noise, 2000).scale(sent(moves), 2.0)
    np.testing.assert_allclose(np.mean(scale), np.mean(sent(2 * moves) / sent(moves)), rtol=0.02)


def test_a_horizon_in_which_nobody_can_be_judged_is_a_warning():
    with pytest.warns(UserWarning, match=r"horizon must be at least 12 for anybody to be judged in it; got 3\. Use"):
        fg.ClientMonitor(horizon=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fg.ClientMonitor(horizon=12)


def test_clip_and_noise_are_saved(tmp_path):
    monitor = fg.ClientMonitor(clip=0.5, noise=0.01, seed=1)
    monitor.save(tmp_path / "monitor")
    again = fg.ClientMonitor.load(tmp_path / "monitor")
    assert (again.clip, again.noise) == (0.5, 0.01)
    for wrong in ({"clip": 0.0}, {"noise": -1.0}):
        with pytest.raises(ValueError, match="must be greater than 0"):
            fg.ClientMonitor(**wrong)


def test_unknown_is_neither_seen_nor_blind():
    nothing = WouldSee(3, {1: None}, {1: None}, 10, "Why.")
    assert not nothing.known
    assert not nothing.blind
    assert str(nothing) == "After round 3 it is not known what would be seen. Why."
