"""A loud attacker drags the model far away, and honest clients are not named for it."""

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.detect.client_rounds import ClientInnovations, as_weighted_steps

K, DIM, TAU, BATCH, ETA = 10, 3, 10, 8, 0.05
STEPS, BAD, ROUNDS, BEGINS = fg.step_sizes.constant(ETA), 2, 60, 30


def regression(draw):
    """Weights of FedAvg and coefficients, as in the Flower example, and the exact linearisation of y = x'b + e."""
    generator = np.random.default_rng([7, draw])
    examples = generator.integers(300, 601, K)
    weights, beta = examples / examples.sum(), [1.0, -0.5, 0.25] + 0.2 * generator.standard_normal((K, DIM))
    optimum = weights @ beta
    noise = [((1 + g @ g) * np.eye(DIM) + np.outer(g, g)) / BATCH for g in optimum - beta]
    hessians = np.tile(np.eye(DIM), (K, 1, 1))
    return beta, fg.linearization(hessians, noise, weights, optimum=optimum, gradients=optimum - beta)


def fedavg(beta, lin, replicates, shift, seed):
    """Y and uploads after each round; one client of ten adds `shift` to every coefficient from round 31 on."""
    generator = np.random.default_rng(seed)
    y, means, uploads = np.tile(lin.optimum, (replicates, 1)), [], []
    for j in range(ROUNDS):
        theta, target = np.repeat(y[:, None], K, axis=1), beta.copy()
        target[BAD] += shift * (j >= BEGINS)
        for _ in range(TAU):
            x = generator.standard_normal((replicates, K, BATCH, DIM))
            error = np.einsum("rkbd,rkd->rkb", x, theta - target) - generator.standard_normal((replicates, K, BATCH))
            theta = theta - ETA * np.einsum("rkbd,rkb->rkd", x, error) / BATCH
        y = np.einsum("k,rkd->rd", lin.weights, theta)
        means.append(y)
        uploads.append(theta)
    return np.stack(means, axis=1), np.stack(uploads, axis=1)


def named(draws, replicates, shift, after=20):
    """Those named, `after` rounds after the alarm, in each run."""
    rows = []
    for draw in range(draws):
        beta, lin = regression(draw)
        for means, uploads in zip(*fedavg(beta, lin, replicates, shift, draw), strict=True):
            monitor = fg.Monitor(lin, STEPS, TAU, alpha=0.01, horizon=ROUNDS * TAU, start=lin.optimum)
            left = after
            for y, theta in zip(means, uploads, strict=True):
                began = np.broadcast_to(monitor.mean, theta.shape)
                now = monitor.step
                sent = as_weighted_steps(began, theta, lin, STEPS, now, now + TAU)
                left -= monitor.alarm is not None
                monitor.update(y, clients=sent)
                if not left:
                    break
            rows.append(monitor.suspects())
    return rows


def wrong_and_found(rows):
    """The share of honest clients among all names, and that of runs in which the attacker is named."""
    total = sum(len(row.malicious) for row in rows)
    found = sum(BAD in row.malicious for row in rows)
    return (total - found) / max(total, 1), found / len(rows)


def test_a_loud_attacker_is_named_and_nobody_else():
    """Shift 10, 10 runs. Measured over 200: .005 of names wrong, 1.000 found; before, .54 of names were honest.

    At a true .005, 3 or more wrong names among 12 have chance 3e-5. It would fail if uploads were scaled by K w_k, if
    the noise before stood for the noise after, or if a far way were taken to change nothing.
    """
    rows = named(2, 5, 10.0)
    wrong, found = wrong_and_found(rows)
    assert found == 1.0
    assert wrong <= 0.2
    assert all("The model moved far" in str(row) for row in rows)


@pytest.mark.study
@pytest.mark.parametrize(("shift", "after"), [(10.0, 5), (10.0, 20), (10.0, 27), (4.0, 20), (2.0, 20)])
def test_names_are_right_however_loud_the_attacker(shift, after, capsys):
    """200 runs. What `suspects` promises is the rate, the mean over runs of the share of honest clients among names.

    Wrong names come several at a time, so that their share of all names is larger: at shifts of 2 and 4 it is .15 and
    .13 at rates of .08 and .06. At 10, where they were framed, that share must be at most .10, too. False failure if
    the rate were exactly .10: 3.7 standard errors, 1e-4.
    """
    rows = named(8, 25, shift, after)
    wrong, found = wrong_and_found(rows)
    share = np.array([len(set(row.malicious) - {BAD}) / max(len(row.malicious), 1) for row in rows])
    rate, error = share.mean(), share.std() / np.sqrt(len(share))
    with capsys.disabled():
        print(
            f"\nshift {shift:g}, {after} rounds after the alarm: rate {rate:.3f} ({error:.3f}), {wrong:.3f} of names "
            f"wrong, found in {found:.3f}"
        )
    assert rate <= 0.10 + 3.7 * error
    assert wrong <= 0.10 or shift < 10.0
    assert found >= 0.98


@pytest.mark.study
@pytest.mark.parametrize("after", [1, 2])
def test_one_or_two_rounds_are_too_few(after, capsys):
    """200 runs: .11 and .19 of names are wrong, as docs/limits.md says; it would fail if that page were out of date."""
    wrong, found = wrong_and_found(named(8, 25, 10.0, after))
    with capsys.disabled():
        print(f"\nshift 10, {after} rounds after the alarm: {wrong:.3f} of names wrong, found in {found:.3f}")
    assert 0.05 < wrong < 0.3
    assert found > 0.85


def test_as_weighted_steps_shows_the_same_innovations():
    beta, lin = regression(0)
    began, sent = np.random.default_rng(0).standard_normal((2, K, DIM))
    alike = ClientInnovations(lin, STEPS, np.full(K, 1 / K)).of_round(began, sent, 0, TAU)
    again = ClientInnovations(lin, STEPS).of_round(began, as_weighted_steps(began, sent, lin, STEPS, 0, TAU), 0, TAU)
    np.testing.assert_allclose(again, alike, rtol=1e-9)
    # Without noise, an honest client shows H_k beta_k wherever it begins: H_k = I here.
    theta = began
    for _ in range(TAU):
        theta = theta - ETA * (theta - beta)
    shown = ClientInnovations(lin, STEPS).of_round(began, as_weighted_steps(began, theta, lin, STEPS, 0, TAU), 0, TAU)
    np.testing.assert_allclose(shown, beta, rtol=1e-9)
