"""The e-process is a martingale that starts at 1, reaches 1/alpha rarely under the null, and sees a change."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import fedgauss as fg
from fedgauss.detect.eprocess import EFFECTS, EProcess, e_process_paths
from fedgauss.detect.innovations import innovations


def null_runs(n_runs, weights, dim, seed):
    noise = np.random.default_rng(seed).standard_normal((n_runs, len(weights), dim))
    return 3.0 + noise / np.sqrt(weights)[:, None]


@pytest.mark.parametrize("t", [2, 3, 13, 14, 15, 26, 40, 75])
def test_one_more_round_changes_nothing_on_average(t):
    # E[M_t | r_2, ..., r_{t-1}] = M_{t-1} by quadrature over r_t ~ N(0, 1), to ten digits. Before round 14 no candidate
    # has been merged, later many have. Catches any error in E_{s,t}, in the prior capital or in the inheritance.
    rng = np.random.default_rng(t)
    weights = rng.uniform(0.5, 2.0, t)
    past = rng.standard_normal((1, t - 1, 1)) * 1.5
    before = e_process_paths(past, weights[:-1], effects=[0.1, 1.0])[0, -1]
    total = weights[:-1].sum()
    mean = (weights[:-1] * past[0, :, 0]).sum() / total
    r = np.linspace(-60.0, 60.0, 2001)
    newest = mean + r * np.sqrt((total + weights[-1]) / (total * weights[-1]))
    runs = np.concatenate([np.repeat(past, len(r), axis=0), newest[:, None, None]], axis=1)
    after = e_process_paths(runs, weights, effects=[0.1, 1.0])[:, -1]
    average = np.exp(after + stats.norm.logpdf(r)).sum() * (r[1] - r[0])
    assert average == pytest.approx(np.exp(before), rel=1e-10)


def test_is_the_likelihood_ratio_of_the_residuals():
    # Up to 12 rounds every s is a candidate, so the mixture can be written out: r ~ N(0, I) against
    # r ~ N(0, I + g a a') in each coordinate, with a_j = W_s b_j after s and 0 before.
    rng = np.random.default_rng(0)
    n, dim = 10, 2
    w, x = rng.uniform(0.5, 3.0, n), rng.standard_normal((n, dim))
    total = w.cumsum()
    mean = (w[:, None] * x).cumsum(axis=0) / total[:, None]
    r = np.sqrt(w[1:] * total[:-1] / total[1:])[:, None] * (x[1:] - mean[:-1])
    b = np.sqrt(1.0 / total[:-1] - 1.0 / total[1:])

    spare = np.append(1.0, (1.0 + total / 100.0) ** -0.5)
    value = spare[n - 1]
    for s in range(1, n):
        a = np.where(np.arange(2, n + 1) > s, total[s - 1] * b, 0.0)
        for g in EFFECTS:
            law = stats.multivariate_normal(np.zeros(n - 1), np.eye(n - 1) + g * np.outer(a, a))
            ratio = sum(law.logpdf(r[:, i]) - stats.norm.logpdf(r[:, i]).sum() for i in range(dim))
            value += (spare[s - 1] - spare[s]) / len(EFFECTS) * np.exp(ratio)
    assert e_process_paths(x[None], w)[0, -1] == pytest.approx(np.log(value), rel=1e-10)


def test_seldom_reaches_the_bound_under_the_null():
    # Ville: P(some M_t >= 10) <= .1. Fails wrongly with chance <= 1e-4, if the rate is the bound; it is lower. Catches
    # weights that are too large by a factor 2. E[min(M_n, 20)] <= 1 has standard error .02, 4 of them 3e-5.
    weights = np.full(60, 5.0)
    x = null_runs(2000, weights, 2, seed=1)
    log_e = e_process_paths(x, weights)
    alarms = int((log_e.max(axis=1) >= np.log(10)).sum())
    assert stats.binomtest(alarms, 2000, 0.1, alternative="greater").pvalue > 1e-4
    value = np.minimum(np.exp(log_e[:, -1]), 20.0)
    assert value.mean() <= 1.0 + 4 * value.std() / np.sqrt(2000)
    wrong = e_process_paths(x, 2.0 * weights)
    alarms = int((wrong.max(axis=1) >= np.log(10)).sum())
    assert stats.binomtest(alarms, 2000, 0.1, alternative="greater").pvalue < 1e-4


def test_round_by_round_is_the_batch_and_the_level_is_free():
    rng = np.random.default_rng(3)
    w, x = rng.uniform(0.5, 2.0, 150), rng.standard_normal((150, 3))
    batch = e_process_paths(np.stack([x, x + 100.0]), w)
    np.testing.assert_allclose(batch[0], batch[1], atol=1e-9)
    watch = EProcess(3)
    online = [watch.update(row, weight) for row, weight in zip(x, w, strict=True)]
    np.testing.assert_allclose([v.log_e for v in online], batch[0], rtol=1e-12, atol=1e-12)
    assert [v.round for v in online] == list(range(1, 151))
    assert online[0].log_e == pytest.approx(0.0, abs=1e-15)


def test_candidates_grow_with_the_logarithm():
    watch = EProcess(1)
    rng = np.random.default_rng(4)
    counts = []
    for x in rng.standard_normal((3000, 1)):
        watch.update(x)
        counts.append(len(watch._capital._places))
    assert counts[-1] <= 12 + 6 * np.log2(3000 / 12) + 1
    assert counts[-1] - counts[299] <= 6 * np.log2(10) + 2


def test_a_change_is_seen_and_named():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((300, 2))
    x[200:] += 1.0
    watch = EProcess(2)
    verdicts = [watch.update(row) for row in x]
    first = next(v for v in verdicts if v.alarm)
    assert 200 < first.round < 250
    assert abs(verdicts[-1].onset - 200) <= 8
    assert "alarm" in str(first)
    assert "no alarm" in str(verdicts[0])
    assert first.log_e >= first.threshold


def test_bad_input():
    for alpha in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="alpha"):
            EProcess(2, alpha=alpha)
    with pytest.raises(ValueError, match="effects"):
        EProcess(2, effects=[0.0])
    with pytest.raises(ValueError, match="shape"):
        EProcess(2).update([1.0])
    with pytest.raises(ValueError, match="finite"):
        EProcess(2).update([1.0, np.inf])
    with pytest.raises(ValueError, match=r"at most 1e.100; got 1e.200"):
        EProcess(2).update([1e200, 0.0])
    with pytest.raises(ValueError, match="weight"):
        EProcess(2).update([1.0, 2.0], 0.0)
    with pytest.raises(ValueError, match="round 2"):
        e_process_paths(np.zeros((1, 2, 1)), [1.0, 0.0])


@pytest.mark.study
def test_on_federated_runs():
    # Base setting of the detection study, server's view, 2,000 runs: false alarms .003 or fewer were measured, so more
    # than 20 has chance 2e-6 at .003; power at mu = 1 was .98, so fewer than 1,930 has chance 5e-6.
    sd = np.array([1.0, 2.0, 3.0, 4.0, 5.0] * 2)
    offsets = np.random.default_rng(1907).standard_normal((10, 2))
    steps, ring = fg.step_sizes.polynomial(0.3, beta=0.75), fg.networks.ring(10)
    before = fg.problems.linear(offsets, sd**2)
    view = innovations(fg.linearize(before), steps)
    blocks = [view.block(20 * j, 20 * j + 20) for j in range(1, 25)]  # the first round is dropped
    weights = np.array([block.weight for block in blocks])

    def log_e(shift):
        moved = offsets + shift * (np.arange(10) < 5)[:, None]
        problem = fg.problems.change_at(before, fg.problems.linear(moved, sd**2), 250) if shift else before
        start = fg.near_optimum(0.25)
        observe = [fg.observers.path(20)]
        runs = fg.simulate(
            problem, ring, steps, 500, sync_every=20, replicates=2000, seed=2027, start=start, observe=observe
        )
        y = runs.path.astype(float).transpose(1, 2, 0)
        x = np.stack([view.whiten(block, y[j], y[j + 1]) for j, block in enumerate(blocks)])
        return e_process_paths(x.transpose(2, 0, 1), weights)

    null = (log_e(0.0) >= np.log(20)).any(axis=1)
    assert null.sum() <= 20
    attacked = log_e(1.0) >= np.log(20)
    late = attacked[:, 11:]  # rounds 13, 14, ...: steps 260, 280, ...
    delay = 20.0 * (late.argmax(axis=1)[late.any(axis=1)] + 13) - 250
    print(f"false alarms {null.mean():.4f}, power {late.any(axis=1).mean():.3f}, delay {delay.mean():.0f}")
    assert late.any(axis=1).sum() >= 1930
