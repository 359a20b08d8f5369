"""The client channel: against its definition, at its level, and on attacks that leave the mean alone."""

import numpy as np
import pytest
from scipy import stats

import fedgauss as fg
from fedgauss.detect import CHANNELS_WITH_UPLOADS, ClientChannel, client_innovations, watch_runs
from fedgauss.detect.channel import Conditions, RoundSeen

TAU, N_STEPS, N_CLIENTS = 20, 500, 8
STEPS = fg.step_sizes.polynomial(0.3, 0.75)
OWN = fg.problems.linear(np.random.default_rng(5).standard_normal((N_CLIENTS, 2)), np.ones(N_CLIENTS))
NETWORK = fg.networks.complete(N_CLIENTS)
WHEN = fg.problems.from_step(251)


def channel_of(lin, runs, horizon=N_STEPS):
    return ClientChannel().started(Conditions(lin.dim, runs, TAU, 1, lin=lin, horizon=horizon))


def test_it_is_its_definition():
    """One run of 30 rounds, client by client and window by window, with plain loops."""
    lin = fg.linearize(OWN)
    rng = np.random.default_rng(1)
    drawn = rng.standard_normal((30, N_CLIENTS, 2)) / np.sqrt(TAU)
    drawn[20:, 3] += 0.5
    pulls = np.einsum("kij,tkj->tki", np.linalg.cholesky(lin.client_noise_cov), drawn)
    channel = channel_of(lin, 1)
    for j in range(30):
        peak = channel.update(RoundSeen(np.zeros((2, 1)), float(TAU), TAU * j, pulls=pulls[j][..., None]))

    cap = stats.chi2.ppf(0.9999, 2)
    expected = 2 * stats.chi2.cdf(cap, 4) + cap * stats.chi2.sf(cap, 2)
    worth, p = 1 / (1 + 3 / TAU), np.ones(N_CLIENTS)
    for k in range(N_CLIENTS):
        root = np.linalg.cholesky(np.linalg.inv(lin.client_noise_cov[k])).T
        e = np.sqrt(TAU) * pulls[:, k] @ root.T
        q = [1.0] + [min(j / (j + 1) * ((e[j] - e[:j].mean(0)) ** 2).sum(), cap) / expected for j in range(1, 30)]
        for r in (1, 2, 4, 8, 16):
            n = 30 - r
            usual = (20 + sum(q[:n])) / (20 + n)
            t2 = r * n / (r + n) * ((e[n:].mean(0) - e[:n].mean(0)) ** 2).sum() / usual
            dof = (n + 20) * 2
            heavy = 1 / (1 / dof + 1 / (4 + TAU * r))
            size = stats.f(worth * r * 2, worth * dof)
            ratio = np.mean(q[n:]) / usual
            p[k] = min(p[k], stats.f(2, heavy).sf(t2 / 2), size.sf(ratio), size.cdf(ratio))
    p = np.minimum(15 * p, 1)
    ordered = np.sort(p)
    chance = min(
        2 * N_CLIENTS * ordered[0],
        *(stats.binom(N_CLIENTS, 0.5).pmf(j) * 2**N_CLIENTS * ordered[j - 1] ** ((j + 1) / 2) * 6 for j in (2, 3, 4)),
    )
    assert p.argmin() == 3
    assert np.isclose(peak.statistic[0], -np.log(chance * N_STEPS / TAU))
    assert (peak.step[0], peak.rounds[0]) in {(TAU * (30 - r), 30 - r) for r in (8, 16)}


def watched(problem, runs, seed):
    lin = fg.linearize(OWN)
    found = fg.simulate(
        problem, NETWORK, STEPS, N_STEPS, sync_every=TAU, replicates=runs, seed=seed, start=fg.near_optimum(0.25),
        observe=[fg.observers.path(TAU), fg.observers.uploads(TAU)],
    )  # fmt: skip
    pulls = client_innovations(found.began, found.sent, lin, STEPS, TAU)
    return watch_runs(lin, STEPS, found.path, TAU, horizon=N_STEPS, pulls=pulls)


@pytest.mark.study
def test_attacks_that_leave_the_mean_alone_are_seen():
    """100 runs each. Without the channel honest runs alarm in .05 and these attacks in .00 to .08.

    Honest: more than 16 of 100 have a chance of 1e-4 at most at the nominal .05. Shifts of 2 and -2 and a client that
    stops are seen in .99 and .9 of 1,000 runs, so fewer than 80 and 60 have a chance below 1e-4.
    """
    cancelling = fg.problems.mean_shift(OWN, range(4), 2.0 * np.array([[1, 1], [-1, -1]] * 2), WHEN)
    quiet = fg.problems.gradient_scaling(OWN, range(4), 0.0, WHEN)
    honest, shifted, stopped = (watched(problem, 100, 3) for problem in (OWN, cancelling, quiet))
    assert (honest.alarm_step > 0).sum() <= 16
    assert (shifted.alarm_step > 250).sum() >= 80
    assert (stopped.alarm_step > 250).sum() >= 60
    limit = -np.log(0.05 * 0.25 / sum(channel.share for channel in CHANNELS_WITH_UPLOADS))
    assert (shifted.statistics["clients"].max(axis=0) > limit).sum() >= 80


def test_it_joins_a_monitor_that_is_given_uploads_from_the_first_round_on(tmp_path):
    lin, rng = fg.linearize(OWN), np.random.default_rng(2)
    plain, joined = (fg.Monitor(lin, STEPS, TAU, horizon=N_STEPS) for _ in range(2))
    y = np.asarray(lin.optimum)
    for monitor, uploads in ((plain, None), (joined, y + 0.01 * rng.standard_normal((N_CLIENTS, 2)))):
        monitor.update(y, clients=uploads)
    assert [channel.name for channel in plain.channels] == ["mean", "spread", "quiet"]
    assert [channel.name for channel in joined.channels] == ["mean", "spread", "quiet", "clients"]
    assert joined.boundary.levels["mean"][0] > plain.boundary.levels["mean"][0]
    plain.update(y, clients=y + 0.01 * rng.standard_normal((N_CLIENTS, 2)))
    assert len(plain.channels) == 3  # too late: alpha is shared out from the first round on

    def go_on(monitor):
        draws = np.random.default_rng(3)
        rounds = (y + 0.02 * draws.standard_normal((N_CLIENTS, 2)) for _ in range(12))
        return [monitor.update(sent.mean(axis=0), clients=sent) for sent in rounds]

    fg.Monitor(lin, STEPS, TAU, horizon=N_STEPS).save(tmp_path / "fresh.npz")
    fresh = fg.Monitor.load(tmp_path / "fresh.npz")
    fresh.update(y, clients=np.tile(y, (N_CLIENTS, 1)))
    assert [channel.name for channel in fresh.channels] == ["mean", "spread", "quiet", "clients"]

    joined.save(tmp_path / "monitor.npz")
    assert go_on(fg.Monitor.load(tmp_path / "monitor.npz")) == go_on(joined)
