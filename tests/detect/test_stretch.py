"""A stretch of rounds judged at once: verdicts and states of one update after the other, to the bit."""

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.detect.stretch import take_stretch
from fedgauss.step_sizes import Polynomial, WarmStart

WARM_START = WarmStart(0.1, 100, Polynomial(0.5, 0.6))


def monitors(dim=2, tau=20, steps=None, dof=None, **options):
    """Two of a kind."""
    rng = np.random.default_rng(dim)
    factors = rng.normal(size=(3, dim, 2 * dim))
    hessians = np.einsum("kij,klj->kil", factors, factors) / (2 * dim) + np.eye(dim)
    lin = fg.linearization(hessians, np.stack([np.eye(dim) * (k + 1.0) for k in range(3)]), optimum=np.ones(dim))
    schedule = fg.step_sizes.polynomial(0.3, 0.75, 0.37) if steps is None else steps
    return [fg.Monitor(lin, schedule, tau, start=np.ones(dim), **options) for _ in range(2)]


def run_of(watched, count, seed=0, onset=None, shift=1.0):
    """Y after each round of the linearised mean."""
    rng, lin, tau = np.random.default_rng(seed), watched.lin, watched.sync_every
    root, eta = np.linalg.cholesky(lin.noise_cov), watched.steps.eta(count * tau)
    y, path = lin.optimum, []
    for t in range(count * tau):
        drift = shift * (onset is not None and t >= onset * tau)
        y = y - eta[t] * (lin.hessian @ (y - lin.optimum) + drift + root @ rng.normal(size=lin.dim))
        if (t + 1) % tau == 0:
            path.append(y)
    return np.array(path)


def state(watched):
    words, arrays = watched.state()
    return repr(words), {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


def caught_up(watched, means, pieces):
    """Feed stretches where they are taken, and single rounds elsewhere; statistic and threshold of every round."""
    ratios, at, alone, rings = [], 0, 0, False
    while at < len(means):
        given = means[at : at + pieces]
        stretch = take_stretch(watched, given, rings)
        ratios += zip(stretch.statistic.tolist(), stretch.threshold.tolist(), strict=True)
        at += len(stretch.statistic)
        if len(stretch.statistic) < len(given):
            verdict = watched.update(means[at])
            ratios.append((verdict.statistic, verdict.threshold))
            at, alone, rings = at + 1, alone + 1, verdict.alarm
    return ratios, alone


@pytest.mark.parametrize("pieces", [1, 7, 256])
@pytest.mark.parametrize(
    ("dim", "tau", "steps"),
    [
        (1, 20, None),
        (2, 20, None),
        (3, 13, fg.step_sizes.constant(0.05)),
        (5, 40, WARM_START),
        (2, 10, fg.step_sizes.from_array(np.full(20_000, 0.02))),
        (40, 20, None),
    ],
)
def test_a_stretch_is_what_single_updates_are_to_the_bit(dim, tau, steps, pieces):
    one, other = monitors(dim, tau, steps)
    means = run_of(one, 300)
    wanted = [(verdict.statistic, verdict.threshold) for verdict in map(one.update, means)]
    ratios, alone = caught_up(other, means, pieces)
    assert ratios == wanted
    assert state(other) == state(one)
    assert alone < 10


@pytest.mark.parametrize("shift", [0.6, 3.0])
def test_alarms_come_in_their_round_and_rounds_after_them_are_stretches_too(shift):
    one, other = monitors()
    means = run_of(one, 400, onset=150, shift=shift)
    wanted = [(verdict.statistic, verdict.threshold) for verdict in map(one.update, means)]
    ratios, alone = caught_up(other, means, 128)
    assert ratios == wanted
    assert state(other) == state(one)
    assert one.alarm is not None
    assert alone < 20


def test_what_is_not_finite_or_not_plausible_ends_a_stretch_before_it():
    for bad in (np.nan, np.inf, 1e300):
        _, watched = monitors()
        means = run_of(watched, 60)
        for y in means[:10]:
            watched.update(y)
        means[30, 1] = bad
        assert len(take_stretch(watched, means[10:], False).statistic) == 20
        assert watched.update(means[30]).invalid
        assert watched.update(means[31], step=32 * 20).round == 31


def test_monitors_that_must_be_fed_one_round_at_a_time_take_no_stretch():
    class Late(fg.detect.Channel):
        name, share, alarm_words, saved = "late", 0.1, "nothing moved", ()

        def begin(self, conditions):
            pass

        def update(self, seen):
            return fg.detect.channel.no_peak(1)

        def threshold(self, p):
            return 5.0

    _, fresh = monitors()
    means = run_of(fresh, 30)
    assert not len(take_stretch(fresh, means, False).statistic)  # the first rounds are left out
    _, toy = monitors(channels=(*fg.detect.watch.DEFAULT_CHANNELS, Late()))
    _, told = monitors()
    _, quick = monitors(tau=5)
    for y in means[:10]:
        toy.update(y)
        told.update(y, clients=np.tile(y, (3, 1)))
        quick.update(y)
    for watched in (toy, told, quick):
        before = state(watched)
        assert not len(take_stretch(watched, means[10:], False).statistic)
        assert state(watched) == before
