"""Clients that are judged but do not count, and come back."""

import math

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.detect.clients.changes import changes
from fedgauss.detect.clients.quarantine import LET_BACK, WAIT, Held
from fedgauss.detect.clients.watch import ORDINARY

K, D = 10, 40


def rounds(n_rounds, acts, seed=0):
    """Moves (K, d); `acts(number, u)` changes them in place."""
    rng = np.random.default_rng(seed)
    own, common = rng.normal(size=(K, D)), rng.normal(size=D)
    for number in range(1, n_rounds + 1):
        u = 0.95**number * common + own + 0.5 * rng.normal(size=(K, D))
        acts(number, u)
        yield u


def flips(client, *spans):
    """Client sends the opposite in these rounds."""

    def act(number, u):
        if any(first <= number <= last for first, last in spans):
            u[client] *= -1

    return act


def after(strength, size, n_rounds, rng, spread=1.0):
    """The largest evidence over a run of rounds at so many times the change it was named for."""
    change = np.array([math.sqrt(size), 0.0])
    one = Held(0, 1, 0, 0.0, (0.0, 0.0), tuple(change), size)
    largest, at = 0.0, n_rounds
    for number in range(1, n_rounds + 1):
        one = one.after(strength * change + spread * rng.normal(size=2), 0.5, number)
        if one.evidence >= 1.0 / LET_BACK and at == n_rounds:
            at = number
        largest = max(largest, one.evidence)
    return largest, at


@pytest.mark.parametrize(("strength", "spread"), [(0.5, 1.0), (1.0, 1.0), (0.5, math.sqrt(2.0))])
@pytest.mark.parametrize("size", [2.0, 20.0])
def test_who_goes_on_half_as_far_is_hardly_ever_let_back(strength, spread, size):
    """300 runs of 120 rounds, .01 each at most: more than 12 have a chance below 1e-4. Without the tempering, rounds
    that vary twice as much as was thought let back more than that."""
    rng = np.random.default_rng(11)
    back = sum(after(strength, size, 120, rng, spread)[0] >= 1.0 / LET_BACK for _ in range(300))
    assert back <= 12


def test_who_has_gone_back_is_let_back_soon():
    """100 runs; each takes 8 to 40 rounds or so."""
    rng = np.random.default_rng(12)
    delays = [after(0.0, 20.0, 100, rng)[1] for _ in range(100)]
    assert np.median(delays) <= 12
    assert max(delays) < 60


def test_a_client_comes_back_when_it_behaves_and_not_before():
    monitor, returned = fg.ClientMonitor(horizon=200, seed=1), {}
    for u in rounds(90, flips(3, (31, 60))):
        verdict = monitor.update(u)
        if verdict.alarm:
            assert monitor.quarantine() == (3,)
            assert monitor.quarantined == (3,)
            assert not monitor.left_out
        returned |= dict.fromkeys(verdict.returned, verdict.round)
        if 40 < verdict.round <= 60:
            assert monitor.quarantined == (3,)
            assert verdict.watched == K - 1
            assert verdict.surprises[3] > -math.log10(ORDINARY)  # judged beside the others all the same
    assert list(returned) == [3]
    assert 60 + WAIT <= returned[3] <= 80
    assert not monitor.quarantined
    assert monitor.update(u).watched == K


def test_the_others_are_judged_as_if_it_had_been_excluded():
    held, gone = fg.ClientMonitor(horizon=200, seed=1), fg.ClientMonitor(horizon=200, seed=1)
    for u in rounds(60, flips(3, (31, 60))):
        one, other = held.update(u), gone.update(u)
        assert (one.alarm, one.statistic, one.suspects) == (other.alarm, other.statistic, other.suspects)
        if one.alarm:
            assert held.quarantine() == gone.exclude() == (3,)


def test_each_quarantine_takes_twice_as_long_to_leave():
    """An adversary who behaves until it is back, and then flips again: it counts in ever fewer of its bad rounds."""
    monitor, counted, waits, since = fg.ClientMonitor(horizon=400, seed=1), 0, [], None
    rng = np.random.default_rng(2)
    own = rng.normal(size=(K, D))
    for number in range(1, 200):
        u = own + 0.3 * rng.normal(size=(K, D))
        bad = number > 30 and since is None
        if bad:
            u[3] *= -1
        verdict = monitor.update(u)
        counted += bad
        if verdict.alarm:
            assert verdict.suspects == (3,)
            monitor.quarantine()
            since = number
        elif verdict.returned:
            waits.append(number - since)
            since = None
    assert len(waits) >= 3
    assert waits[0] >= WAIT
    assert waits[1] >= 2 * WAIT
    assert waits[2] >= 4 * WAIT
    assert counted <= 3 * (len(waits) + 1)


def test_what_an_operator_accepts_is_the_new_normal():
    def act(number, u):
        if number > 30:
            u[3] *= 3.0

    monitor = fg.ClientMonitor(horizon=200, seed=1)
    with pytest.raises(ValueError, match=r"accept needs a client in quarantine; 3 is not\. In it are"):
        monitor.accept(3)
    for u in rounds(90, act):
        verdict = monitor.update(u)
        if verdict.alarm:
            assert verdict.round < 50
            monitor.quarantine()
        if verdict.round == 50:
            assert monitor.quarantined == (3,)
            monitor.accept(3)
            assert not monitor.quarantined
            assert not monitor.left_out
    assert not verdict.alarm
    assert verdict.watched == K
    assert [out.how for out in monitor.exclusions] == ["quarantined", "accepted"]


def test_saved_loaded_and_replayed_to_the_bit(tmp_path):
    monitor = fg.ClientMonitor(horizon=200, seed=1)
    saved, other = fg.ClientMonitor(horizon=200, seed=1), fg.ClientMonitor(horizon=200, seed=2)
    for number, u in enumerate(rounds(90, flips(3, (31, 50))), 1):
        verdict = monitor.update(u)
        assert saved.update(u) == verdict
        assert other.update(monitor.compared) == verdict
        if verdict.alarm:
            for each in (monitor, saved, other):
                each.quarantine()
        if number == 70:
            for each in (monitor, saved, other):
                each.quarantine([5])
        if number == 72:
            for each in (monitor, saved, other):
                each.accept(5)
        if number % 7 == 0:
            saved.save(tmp_path / "monitor")
            saved = fg.ClientMonitor.load(tmp_path / "monitor")
            assert saved.quarantined == monitor.quarantined
            assert saved.exclusions == monitor.exclusions
    assert not monitor.quarantined


def test_who_is_excluded_leaves_quarantine_and_does_not_return_to_it():
    monitor = fg.ClientMonitor(horizon=200, seed=1)
    for u in rounds(20, flips(3)):
        monitor.update(u)
    monitor.quarantine([3, 4])
    monitor.exclude([3])
    assert (monitor.quarantined, monitor.left_out) == ((4,), (3,))
    with pytest.raises(ValueError, match="quarantine needs clients that are not excluded; 3 is"):
        monitor.quarantine([3])
    monitor.reset()
    assert (monitor.quarantined, monitor.left_out) == ((4,), (3,))
    for u in rounds(30, flips(4)):
        verdict = monitor.update(u)
    assert verdict.round == 30


def test_how_far_a_client_is_from_its_past_is_what_means_and_scatters_say():
    """A slow twin of `changes`: rows beside all who are not named, their means before and since, and their scatter."""
    monitor = fg.ClientMonitor(horizon=200, seed=1)
    for u in rounds(34, flips(3, (31, 34)), seed=4):
        monitor.update(u)
    watch = monitor._watch
    (change,) = changes(watch, 0, [3], 31)
    out = np.zeros((1, K), dtype=bool)
    out[0, 3] = True
    past = watch.beside(np.array([0]), out)
    rows, numbers = past.values[0], past.numbers[0]
    before, since = rows[3][(numbers[3] > 0) & (numbers[3] < 31)], rows[3][numbers[3] >= 31]
    known = np.isfinite(before).all(axis=0)
    assert change.rounds == len(since) == 4
    np.testing.assert_array_equal(change.known, known)
    np.testing.assert_allclose(change.moved[known], since.mean(axis=0)[known] - before.mean(axis=0)[known])
    scatter, freedom = 0.0, 0
    for k in range(K):
        if k != 3:
            theirs = rows[k][(numbers[k] > 0) & (numbers[k] < 31)][:, known]
            scatter, freedom = scatter + np.cov(theirs.T, ddof=0) * len(theirs), freedom + len(theirs) - 1
    own = np.cov(before[:, known].T, ddof=0) * len(before)
    expected = (own + 8 * scatter / freedom) / (len(before) + 7) + 0.03**2 * np.eye(known.sum())
    np.testing.assert_allclose(change.covariance[np.ix_(known, known)], expected, rtol=1e-10)
