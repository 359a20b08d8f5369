"""The channels against their definitions, over several runs at once."""

import numpy as np
import pytest

from fedgauss.detect.candidates import combined
from fedgauss.detect.channel import Conditions, RoundSeen
from fedgauss.detect.mean_channel import MeanChannel, tempered
from fedgauss.detect.spread_channel import QuietChannel, SpreadChannel, capped_mean, floored_mean
from fedgauss.detect.watch import DEFAULT_CHANNELS, Watch, rounds_to_drop
from oracles.detection import mean_statistic, spread_statistic


def started(channel, dim, replicates=1, first=1, sync_every=20):
    return channel.started(Conditions(dim, replicates, sync_every, first))


def watch_of(dim, sync_every, replicates=1):
    return Watch(DEFAULT_CHANNELS, Conditions(dim, replicates, sync_every, rounds_to_drop(sync_every)))


def some_innovations(rounds=140, dim=3, replicates=4):
    generator = np.random.default_rng(11)
    weights = generator.uniform(0.5, 3.0, rounds)  # as after missed rounds and absent clients
    x = 5.0 + generator.standard_normal((rounds, dim, replicates)) / np.sqrt(weights)[:, None, None]
    x[80:, :, 1] += 0.5
    x[60:, :, 2] *= 1.3
    x[70:, :, 3] = 5.0 + 0.5 * (x[70:, :, 3] - 5.0)
    return x, weights


@pytest.mark.parametrize("first", [1, 4])
def test_mean_channel_is_its_definition(first):
    x, weights = some_innovations()
    channel = started(MeanChannel(), 3, 4, first)
    got = np.array([channel.update(RoundSeen(x[j], weights[j], j)).statistic for j in range(len(x))])
    wanted = np.stack([mean_statistic(x[:, :, r], weights, first) for r in range(4)], axis=1)
    np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", [SpreadChannel, QuietChannel])
@pytest.mark.parametrize(("group", "sync_every"), [(1, 20), (3, 4)])
def test_spread_and_quiet_channel_are_their_definitions(group, sync_every, kind):
    x, weights = some_innovations()
    channel = started(kind(), 3, 4, sync_every=sync_every)
    assert channel.group == group
    got = np.array([channel.update(RoundSeen(x[j], weights[j], j)).statistic for j in range(len(x))])
    wanted = np.stack([spread_statistic(x[:, :, r], weights, group, kind is QuietChannel) for r in range(4)], axis=1)
    closing = got[group - 1 :: group][1:]  # the first group has no past to differ from
    np.testing.assert_allclose(closing[: len(wanted)], wanted, rtol=1e-6, atol=1e-6)


def test_the_onset_is_the_step_before_the_change():
    x = np.zeros((60, 2, 1))
    x[40:] = 3.0
    channel = started(MeanChannel(), 2)
    for j in range(48):
        peak = channel.update(RoundSeen(x[j], 20.0, 20 * j))
    assert (peak.step[0], peak.rounds[0]) == (800, 40)


@pytest.mark.parametrize(("kind", "factor"), [(SpreadChannel, 3.0), (QuietChannel, 0.3), (QuietChannel, 0.0)])
def test_the_onset_of_noise_or_of_quiet_is_found(kind, factor):
    generator = np.random.default_rng(3)
    x = generator.standard_normal((400, 2, 1))
    x[200:] *= factor
    channel = started(kind(), 2, sync_every=1)
    for j in range(400):
        peak = channel.update(RoundSeen(x[j], 1.0, j))
    assert peak.statistic[0] > 4.0
    assert abs(peak.step[0] - 200) <= 20
    assert peak.step[0] == peak.rounds[0]


def test_neither_of_them_sees_what_the_other_is_for():
    """Noise that doubles leaves the quiet channel below its threshold of about 4, noise that halves the spread one."""
    x = np.random.default_rng(4).standard_normal((400, 2, 1))
    for kind, factor in ((SpreadChannel, 0.5), (QuietChannel, 2.0)):
        channel = started(kind(), 2, sync_every=1)
        for j in range(400):
            peak = channel.update(RoundSeen(x[j] * (factor if j >= 200 else 1.0), 1.0, j))
        assert peak.statistic[0] < 3.5


def test_combined_evidence_is_the_largest_and_a_little_more():
    """3 log sum exp(e / 3) lies between the largest e and 3 log C above it, and does not overflow."""
    evidence = np.array([[1.0, 5e5, 0.0], [4.0, 1.0, 0.0], [9.0, 5e5, 0.0]])
    found = combined(evidence, evidence.max(axis=0))
    np.testing.assert_allclose(found[1:], [5e5 + 3 * np.log(2.0), 3 * np.log(3.0)], rtol=1e-12)
    assert found[0] == pytest.approx(3 * np.log(np.exp([1 / 3, 4 / 3, 3.0]).sum()), rel=1e-12)
    np.testing.assert_array_equal(combined(evidence.T, evidence.max(axis=0), axis=1), found)


def test_tempering_is_unbounded_and_fades_on_long_segments():
    z2 = np.array([1.0, 16.0, 1e4, 1e12])
    t2 = tempered(z2, np.array(20.0))
    assert np.all(np.diff(t2) > 0)
    assert np.all(t2 < z2)
    assert t2[-1] > 1e6
    np.testing.assert_allclose(tempered(z2[:2], np.array(1e9)), z2[:2], rtol=1e-6)


@pytest.mark.parametrize("dim", [1, 2, 40])
def test_capped_mean(dim):
    draws = np.random.default_rng(1).chisquare(dim, 400_000)
    cap, expected = capped_mean(dim)
    values = np.minimum(draws, cap)
    # Five standard errors: fails wrongly once in 1.7 million.
    assert abs(values.mean() - expected) < 5 * values.std() / np.sqrt(len(values))
    floor, more = floored_mean(dim)
    raised = np.clip(draws, floor, cap)
    assert abs(raised.mean() - expected - more) < 5 * raised.std() / np.sqrt(len(raised))


def test_replicates_do_not_touch_one_another():
    """Each column of many runs is the run by itself, to the last digits: an axis mixed up would show."""
    x, weights = some_innovations()
    together = watch_of(3, 5, replicates=4)
    alone = [watch_of(3, 5) for _ in range(4)]
    for j in range(len(x)):
        many = together.update(RoundSeen(x[j], weights[j], j))
        for r, watch in enumerate(alone):
            one = watch.update(RoundSeen(x[j][:, r : r + 1], weights[j], j))
            for a, b in zip(many, one, strict=True):
                np.testing.assert_allclose(a.statistic[r], b.statistic[0], rtol=1e-9, atol=1e-12)


def test_the_first_twenty_steps_are_left_out():
    assert [rounds_to_drop(tau) for tau in (1, 3, 5, 20, 50)] == [20, 7, 4, 1, 1]
    wild, calm = watch_of(1, 5), watch_of(1, 5)
    generator = np.random.default_rng(0)
    for j in range(40):
        x = generator.standard_normal((1, 1))
        a = wild.update(RoundSeen(1e6 * x if j < 4 else x, 5.0, 5 * j))
        b = calm.update(RoundSeen(x, 5.0, 5 * j))
        assert a[0].statistic == b[0].statistic
