"""Which clients turned malicious, and how often honest ones are accused."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import stats

import fedgauss as fg
from fedgauss.detect.attribution import attribute, power_weights, q_values
from fedgauss.detect.client_rounds import client_innovations

STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)
TAU = 20
T0 = 250
BAD = (0, 1, 2, 3, 4)
LIN = fg.linearization(np.tile(np.eye(2), (6, 1, 1)), [(k + 1) * np.eye(2) for k in range(6)])


def noise(generator, rounds=20):
    """Honest innovations of LIN's clients, which differ in mean and size: (rounds, 6, 2)."""
    sizes = np.sqrt(np.arange(1, 7))[:, None] / np.sqrt(TAU)
    return np.arange(6)[:, None] + sizes * generator.standard_normal((rounds, 6, 2))


def test_innovations_of_a_client_show_its_own_data_and_nothing_else():
    # Without noise E is H_k beta_k exactly, wherever the client began, whatever the others did to that point.
    generator = np.random.default_rng(0)
    roots = generator.standard_normal((3, 2, 4))
    hessians, weights = roots @ roots.swapaxes(1, 2), np.array([0.2, 0.3, 0.5])
    beta = generator.standard_normal((3, 2))
    lin = fg.linearization(hessians, hessians, weights)
    began, sent = generator.standard_normal((2, 4, 3, 2)), np.empty((4, 3, 2))
    eta = fg.step_sizes.polynomial(0.05, beta=0.6)
    for j in range(4):
        for k in range(3):
            theta = began[0, j, k]
            for step in eta.eta(40)[10 + 5 * j : 15 + 5 * j]:
                theta = theta - step * 3 * weights[k] * hessians[k] @ (theta - beta[k])
            sent[j, k] = theta
    expected = np.einsum("kij,kj->ki", hessians, beta)
    for steps in (eta, eta.eta(40), np.tile(eta.eta(40)[:, None], 3)):
        shown = client_innovations(began[0], sent, lin, steps, 5, after=10)
        np.testing.assert_allclose(shown, np.broadcast_to(expected, shown.shape), rtol=1e-9)


def test_uploads_mix_into_the_starts_of_the_next_block():
    problem, ring = fg.problems.random_effects(4, seed=0), fg.networks.ring(4)
    runs = fg.simulate(problem, ring, STEPS, 60, sync_every=20, replicates=3, observe=[fg.observers.uploads(20)])
    mixed = np.einsum("rjkd,kl->rjld", runs.sent, ring.matrix)
    np.testing.assert_allclose(mixed[:, :-1], runs.began[:, 1:], atol=1e-5)


def test_the_malicious_are_found_and_ranked():
    rounds = noise(np.random.default_rng(1))
    rounds[12:, [1, 4]] += 2.0
    found = attribute(rounds, 12, 15, LIN)
    assert found.malicious == (1, 4)
    assert {row.client for row in found.table[:2]} == {1, 4}
    assert [row.q_value for row in found.table] == sorted(row.q_value for row in found.table)
    assert (found.baseline_rounds, found.rounds_after) == (11, 5)
    printed = str(found)
    assert printed.startswith("malicious: 1, 4 (false-discovery rate 0.1; 5 rounds after the alarm against 11")
    assert printed.count("*") == 2


def test_rounds_between_onset_and_alarm_are_not_looked_at():
    rounds = noise(np.random.default_rng(1))
    before = attribute(rounds, 10, 15, LIN)
    rounds[10:15] = 1e9
    assert attribute(rounds, 10, 15, LIN) == before


def test_a_single_attacker_is_found_without_company():
    rounds = noise(np.random.default_rng(2))
    rounds[12:, 3] += [3.0, -3.0]
    assert attribute(rounds, 12, 15, LIN).malicious == (3,)


@pytest.mark.study
def test_honest_clients_are_accused_no_more_often_than_stated():
    # Without any attack every discovery is false, so at most .10 of runs may have one. 600 runs: 87 or more have
    # chance below 1e-4 at .10. Catches a direction that includes the client itself, which accuses in a third of runs.
    generator = np.random.default_rng(3)
    accused = sum(bool(attribute(noise(generator), 12, 15, LIN).malicious) for _ in range(600))
    assert stats.binomtest(accused, 600, 0.10, alternative="greater").pvalue > 1e-4


@pytest.mark.study
def test_p_values_of_honest_clients_are_uniform_beside_attackers():
    # Kolmogorov-Smirnov over 600 runs, one honest client a run, at 1e-4.
    generator, p_values = np.random.default_rng(4), []
    for _ in range(600):
        rounds = noise(generator)
        rounds[12:, :2] += 1.0
        p_values += [row.p_value for row in attribute(rounds, 12, 15, LIN).table if row.client == 5]
    assert stats.kstest(p_values, "uniform").pvalue > 1e-4


def test_clients_that_miss_rounds_are_judged_by_those_they_made():
    rounds = noise(np.random.default_rng(5))
    rounds[12:, [1, 4]] += 2.0
    rounds[::3, 4] = np.nan
    rounds[15:, 0] = np.nan  # never seen after the alarm
    rounds[3, 5] = np.inf
    rounds[16, 5] = 1e200
    found = attribute(rounds, 12, 15, LIN)
    assert found.malicious == (1, 4)
    assert next(row for row in found.table if row.client == 0).p_value == 1.0


def test_data_that_never_vary_accuse_only_those_that_moved():
    still = np.zeros((20, 6, 2))
    assert attribute(still, 12, 15, LIN).malicious == ()
    still[12:, 2] = 1.0
    assert 2 in attribute(still, 12, 15, LIN).malicious


def test_weights_have_mean_one_and_favour_moderate_effects():
    weights = power_weights(np.array([0.0, 2.0, 3.0, 12.0]), 0.10)
    assert weights.mean() == pytest.approx(1.0)
    assert weights[1] > weights[2] > weights[3]
    np.testing.assert_allclose(power_weights(np.full(5, 2.5), 0.10), 1.0)
    some = power_weights(np.array([np.nan, 2.0, 5.0]), 0.10)
    assert some[0] == 1.0
    assert some[1:].mean() == pytest.approx(1.0)


def test_q_values_are_benjamini_and_hochbergs_when_nothing_is_estimated():
    # With most p-values above 1/2 the share of honest clients is estimated as one, and equal weights drop out.
    p = np.array([0.004, 0.02, 0.6, 0.7, 0.8, 0.9])
    np.testing.assert_allclose(q_values(p, np.ones(6)), stats.false_discovery_control(p))


def test_the_table_turns_into_a_frame():
    pandas = pytest.importorskip("pandas")
    frame = attribute(noise(np.random.default_rng(1)), 12, 15, LIN).to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["client", "statistic", "p_value", "q_value", "malicious"]


def test_without_pandas_the_table_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"fedgauss\[frames\]"):
        attribute(noise(np.random.default_rng(1)), 12, 15, LIN).to_frame()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"innovations": np.zeros((20, 5, 2))}, r"innovations must have shape \(rounds, 6, 2\); got \(20, 5, 2\)"),
        ({"rate": 0.0}, "rate must lie strictly between 0 and 1; got 0"),
        ({"rate": np.nan}, "rate must be finite"),
        ({"onset": 2}, "onset must be at least 3; got 2. The baseline needs two rounds"),
        ({"onset": 16}, "onset must not come after the alarm, round 15; got 16"),
        ({"alarm": 20}, "attribution needs rounds after the alarm, round 20; there are 20 in all"),
        ({"alarm": 15.5}, "alarm must be a whole number"),
        ({"burn_in": -1}, "burn_in must be at least 0"),
    ],
)
def test_bad_questions_are_refused(changes, message):
    arguments = {"innovations": np.zeros((20, 6, 2)), "onset": 12, "alarm": 15, "lin": LIN} | changes
    with pytest.raises(ValueError, match=message):
        attribute(**arguments)


def test_uploads_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"shape \(rounds, 6, 2\): rounds, clients, dimensions; got \(4, 6, 2\)"):
        client_innovations(np.zeros((4, 6, 2)), np.zeros((3, 6, 2)), LIN, STEPS, TAU)


def first_alarm(innovations, lin, threshold=3.649, last=25):
    """Rounds at the alarm and before the onset, -1 without one: the tempered CUSUM of the mean over clients."""
    whitened = np.einsum("rjkd,k->rjd", innovations, lin.weights) @ np.linalg.inv(np.linalg.cholesky(lin.noise_cov)).T
    sums = TAU * np.cumsum(whitened[:, 1:], axis=1)
    alarm, onset = np.full((2, len(sums)), -1)
    for t in range(2, last):
        share = np.arange(1, t) / t
        mass = TAU * t * share * (1 - share)
        z2 = ((sums[:, : t - 1] - share[:, None] * sums[:, t - 1 : t]) ** 2).sum(axis=-1) / mass
        tempered = z2 / (1 + np.minimum(0.35 * z2 / mass, np.sqrt(z2 / mass)))
        rings = (tempered.max(axis=1) > threshold**2) & (alarm < 0)
        alarm[rings], onset[rings] = t + 1, tempered.argmax(axis=1)[rings] + 2
    return alarm, np.maximum(onset, 3)


def outcomes(mu, draws, replicates, bad=BAD, df=None):
    """True and false discoveries in every run with an alarm after the attack, 100 steps after that alarm."""
    rows = []
    for draw in range(draws):
        beta = np.array([2.0, -3.0]) + np.random.default_rng(1900 + draw).standard_normal((10, 2))
        honest = fg.problems.linear(beta, np.tile([1.0, 4.0, 9.0, 16.0, 25.0], 2), df=df)
        lin = fg.linearize(honest)
        attack = fg.problems.mean_shift(honest, bad, mu, T0)
        runs = fg.simulate(
            attack, fg.networks.ring(10), STEPS, 600, sync_every=TAU, replicates=replicates, seed=1900 + draw,
            start=fg.near_optimum(0.25), observe=[fg.observers.uploads(TAU)],
        )  # fmt: skip
        shown = [client_innovations(b, s, lin, STEPS, TAU) for b, s in zip(runs.began, runs.sent, strict=True)]
        innovations = np.stack(shown)
        alarm, onset = first_alarm(innovations, lin)
        for r in np.flatnonzero((alarm * TAU >= T0) | ((mu == 0) & (alarm > 0))):
            named = attribute(innovations[r, : alarm[r] + 5], onset[r], alarm[r], lin).malicious
            rows.append((len(set(named) & set(bad)), len(set(named) - set(bad))))
    return np.array(rows).T


def rates(true, false, n_bad):
    """(value, standard error) of precision, recall and false-discovery rate; runs are independent, clients are not."""
    found = true + false
    wrong = false / np.maximum(found, 1)

    def mean(x):
        return x.mean(), x.std() / np.sqrt(len(x))

    return mean(1 - wrong[found > 0]), mean(true / n_bad), mean(wrong)


@pytest.mark.study
def test_precision_recall_and_false_discovery_rate_at_mu_one(capsys):
    # The goal: precision and recall at least .90, false-discovery rate at most .10, 100 steps after the alarm. Measured
    # .945, .917 and .055 with standard errors of .001, .002 and .001 on seeds used for nothing else: the nearest limit
    # is eight of them away.
    (precision, recall, rate) = rates(*outcomes(1.0, draws=6, replicates=1000), 5)
    with capsys.disabled():
        print(f"\nmu = 1: precision {precision[0]:.3f} ({precision[1]:.3f}), recall {recall[0]:.3f} ({recall[1]:.3f}), "
              f"false-discovery rate {rate[0]:.3f} ({rate[1]:.3f})")  # fmt: skip
    assert precision[0] >= 0.90
    assert recall[0] >= 0.90
    assert rate[0] <= 0.10


@pytest.mark.study
@pytest.mark.parametrize(("mu", "bad", "df"), [(0.5, BAD, None), (2.0, BAD, None), (4.0, (4,), None), (1.0, BAD, 5.0)])
def test_the_false_discovery_rate_holds_elsewhere(mu, bad, df, capsys):
    # False failure if the rate were exactly .10: 3.7 standard errors, 1e-4.
    (precision, recall, rate) = rates(*outcomes(mu, draws=6, replicates=200, bad=bad, df=df), len(bad))
    with capsys.disabled():
        print(f"\nmu = {mu}, {len(bad)} of 10, df {df}: precision {precision[0]:.3f} ({precision[1]:.3f}), recall "
              f"{recall[0]:.3f} ({recall[1]:.3f}), false-discovery rate {rate[0]:.3f} ({rate[1]:.3f})")  # fmt: skip
    assert rate[0] <= 0.10 + 3.7 * rate[1]


def test_estimated_covariances_are_allowed_for_and_too_short_warm_ups_refused():
    """Honest clients, d = 5, every client's covariance from a warm-up of its own: p-values are not too small.

    2,000 p-values below .05 at a true .05 are fewer than 138 but with chance 1e-4; without the correction 400 were.
    """
    generator = np.random.default_rng(3)
    identity, small = np.repeat(np.eye(5)[None], 10, axis=0), 0
    for _ in range(200):
        gradients = generator.standard_normal((10, 20, 5))
        covariances = np.stack([np.cov(g.T) for g in gradients])
        lin = fg.linearization(identity, covariances, n_warmup=20, kurtosis=[1.0] * 10)
        rows = attribute(generator.standard_normal((30, 10, 5)), 12, 15, lin).table
        small += sum(row.p_value < 0.05 for row in rows)
    assert small < 138
    short = fg.linearization(identity, identity, n_warmup=10, kurtosis=[1.0] * 10)
    with pytest.raises(
        ValueError, match="at least 14 degrees of freedom in 5 dimensions; a warm-up of 10 steps gives 9"
    ):
        attribute(generator.standard_normal((30, 10, 5)), 12, 15, short)
