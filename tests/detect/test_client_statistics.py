"""What a client monitor computes, against slow twins and the laws that it is said to have."""

import numpy as np
from scipy import stats

from fedgauss.detect.clients.features import FEATURES, Moves, rows_of, together
from fedgauss.detect.clients.groups import chance, groups
from fedgauss.detect.clients.naming import named
from fedgauss.detect.clients.sketch import Sketch
from fedgauss.detect.clients.surprise import Past, before, surprise, t2_of_mean, t2_of_round
from fedgauss.detect.clients.watch import ClientWatch
from fedgauss.detect.spending import spent

N_CLIENTS, DIM = 8, 30


def moves_of(u, directions=None):
    """One run's moves (K, d) as inner products, all clients present."""
    sizes = np.linalg.norm(u, axis=1)
    along = (
        np.full(len(u), np.nan) if directions is None else (u * directions).sum(1) / np.linalg.norm(directions, axis=1)
    )
    return round_of(np.arange(len(u))[None], (u @ u.T)[None], along[None], (np.abs(u).sum(1) / sizes)[None])


def round_of(who, products, along, evenness):
    return Moves(who, products, {"along_own": along, "evenness": evenness, "weights": np.full(who.shape, np.nan)})


def synthetic(rng, n_rounds, n_runs=1, bad=(), onset=None, n_clients=N_CLIENTS, act=np.negative):
    """Rounds of clients that pull in a common and an own direction, with noise; those in `bad` act from `onset` on."""
    own, common = rng.normal(size=(n_runs, n_clients, DIM)), rng.normal(size=(n_runs, 1, DIM))
    mean = np.zeros((n_runs, n_clients, DIM))
    for number in range(1, n_rounds + 1):
        u = 0.9**number * common + own + rng.normal(size=own.shape)
        if onset is not None and number >= onset:
            u[:, list(bad)] = act(u[:, list(bad)])
        length = np.linalg.norm(mean, axis=2)
        with np.errstate(invalid="ignore"):
            along = (u * mean).sum(2) / length
        sizes = np.linalg.norm(u, axis=2)
        who = np.broadcast_to(np.arange(n_clients), (n_runs, n_clients))
        yield round_of(who, u @ np.swapaxes(u, 1, 2), along, np.abs(u).sum(2) / sizes)
        mean = 0.9 * mean + 0.1 * u / sizes[..., None]


def test_features_are_those_of_a_slow_twin():
    rng = np.random.default_rng(0)
    u, past = rng.normal(size=(2, N_CLIENTS, DIM))
    kept = np.arange(N_CLIENTS) != 3

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    def row(k):
        others = [cosine(u[k], u[j]) for j in range(N_CLIENTS) if j != k and kept[j]]
        size = np.linalg.norm(u[k])
        return np.array(
            [
                np.arctanh(np.median(others)),
                np.arctanh(np.max(others)),
                np.log(size),
                np.arctanh(cosine(u[k], past[k])),
                np.log(np.abs(u[k]).sum() / size),
            ]
        )

    rows = np.array([row(k) for k in range(N_CLIENTS)])
    seen = rows_of(moves_of(u, past), kept[None], JOINT)
    assert np.allclose(seen.rows[0], rows - np.median(rows[kept], axis=0))  # the one left out has others, too
    assert np.isclose(seen.size[0], np.median(rows[kept, 2]))


def test_a_client_that_sends_nothing_has_features():
    u = np.random.default_rng(1).normal(size=(N_CLIENTS, DIM))
    u[2] = 0.0
    rows = rows_of(moves_of(np.where(u == 0, 1e-30, u), u + 1), np.ones((1, N_CLIENTS), bool), JOINT).rows
    assert np.isfinite(rows).all()
    assert rows[0, 2, 2] < -10


JOINT = FEATURES[:5]  # that are judged together


def past_of(history, scores=None, tolerances=None):
    """Rounds (R, K, H, 5) as the watch has them, without scores of single rounds by default."""
    scores = np.full((*history.shape[:2], 2), np.nan) if scores is None else scores
    known = np.zeros(history.shape, np.int8)
    tolerances = np.full((len(history), 5), 0.03) if tolerances is None else tolerances
    return Past(history, known, np.ones(history.shape[:3], int), scores[..., None], tolerances)


def judged(history, kept=None):
    """Surprise without scores of the past."""
    return surprise(past_of(history), np.ones(history.shape[:2], bool) if kept is None else kept, JOINT).p


def test_t2_is_that_of_a_slow_twin():
    rng = np.random.default_rng(2)
    one, alone = 0.1 * rng.normal(size=(1, 1, 33, 5)), np.ones((1, 1), bool)
    rounds, last = one[0, 0, :30], one[0, 0, 30:]
    residual = rounds - rounds.mean(0)
    scatter = residual.T @ residual
    v = (scatter + 8 * scatter / 29) / 37  # the only client is also all clients
    rho = np.clip((residual[1:] * residual[:-1]).sum(0) / (residual**2).sum(0), 0, 0.9)
    tolerated = 0.03**2 * np.eye(5)

    def variance_of_mean(m):
        lags = np.arange(1, m)
        return (1 + 2 * ((1 - lags[:, None] / m) * rho ** lags[:, None]).sum(0)) / m

    def t2(d, spread):
        return d @ np.linalg.solve(np.sqrt(np.outer(spread, spread)) * v + tolerated, d)

    (way,) = together(JOINT)
    history = past_of(one).of(way)
    most = 4 * np.sqrt(np.diag(v + tolerated))
    d = np.clip(last - rounds.mean(0), -most, most).mean(0)
    found = t2_of_mean(history, before(history, 3, alone), 3)[0, 0]
    assert np.isclose(found, t2(d, variance_of_mean(3) + variance_of_mean(30)))
    found = t2_of_round(history, before(history, 3, alone), 2)[0, 0]
    assert np.isclose(found, t2(last[1] - rounds.mean(0), 1 + variance_of_mean(30)))


def test_p_values_of_gaussian_rounds_are_not_too_small():
    """1,600 clients with independent Gaussian features: at most x of p-values below x.

    A binomial bound at 1e-5 for each x. It would catch a wrong F law, or a variance that forgets the mean before the
    window.
    """
    history = np.random.default_rng(1).normal(size=(200, 8, 38, 5))
    p = judged(history).ravel()
    for x in (0.3, 0.1, 0.01):
        assert (p <= x).sum() <= stats.binom.isf(1e-5, len(p), x)


def test_a_change_that_all_clients_share_is_not_surprising():
    rng = np.random.default_rng(3)
    history = rng.normal(size=(50, 8, 38, 5))
    history[:, :, -2:] += 6.0
    shared = np.nanmin(judged(history), axis=1)
    assert np.median(shared) > 0.01
    history[:, 0, -2:] += 60.0  # and one client more than the others
    assert np.median(judged(history)[:, 0]) < 1e-4


def test_clients_that_do_not_count_change_nothing_for_the_others():
    history = np.random.default_rng(13).normal(size=(5, 8, 38, 5))
    kept = np.broadcast_to(np.arange(8) < 6, (5, 8))
    p = judged(history, kept)
    assert np.allclose(p[:, :6], judged(history[:, :6]))
    history[:, 6] *= 100.0
    assert np.array_equal(judged(history, kept)[:, [0, 1, 2, 3, 4, 5, 7]], p[:, [0, 1, 2, 3, 4, 5, 7]])


def test_one_leap_is_no_alarm_where_clients_leap():
    """Features with t(3) tails in 40 runs of 60 rounds. By the F law alone more than half of the runs would alarm."""
    rng = np.random.default_rng(4)
    history = rng.standard_t(3, size=(40, 8, 98, 5))
    scores, smallest = np.full((40, 8, 30), np.nan), np.ones(40)
    for t in range(38, 98):
        p, score = surprise(past_of(history[:, :, t - 38 : t], scores), np.ones((40, 8), bool), JOINT)
        scores = np.concatenate([scores[:, :, 1:], score], axis=2)
        smallest = np.minimum(smallest, 8 * p.min(axis=1))
    assert (smallest * 60 <= 0.05).sum() <= stats.binom.isf(1e-4, 40, 0.05)


def test_a_group_is_judged_as_if_it_had_never_been_there():
    """Three of eight clients turn round: the groups found, against a watch of the other five and one of the group."""
    rounds = list(synthetic(np.random.default_rng(14), 41, bad=(1, 4, 6), onset=41))
    watch = ClientWatch(1, N_CLIENTS)
    for moves in rounds:
        p = watch.update(moves).p
    found = groups(watch, np.array([0]))
    assert [group.p.shape for group in found] == [(1, 1), (1, 2), (1, 3)]
    three = found[2]
    assert set(three.clients[0]) == {1, 4, 6}
    assert np.isclose(three.chance[0], 56 * three.p[0].max() ** 2 / 0.25)  # binom(8, 3), and half of the half
    assert chance(watch, p)[0] == min(group.chance[0] for group in found)

    client = three.clients[0, 0]
    beside = np.array([0, 2, 3, 5, 7, client])
    others = ~np.isin(np.arange(8), (1, 4, 6))[None]
    rows = np.array([rows_of(moves, others, JOINT).rows[0, beside] for moves in rounds[3:]])
    history = np.swapaxes(rows, 0, 1)[None]
    past = past_of(history, watch.scores[..., 0][:, beside, :-1], watch.tolerances[:, :5])
    assert np.isclose(surprise(past, np.arange(6)[None] < 5, JOINT).p[0, 5], three.p[0, 0])


def test_what_rounds_spend_is_alpha_in_all():
    assert np.isclose(sum(spent(0.05, 80, t) for t in range(1, 200)), 0.05)
    total = sum(spent(0.05, None, t) for t in range(1, 200_000))
    rest = 0.05 * np.log(10) / np.log(200_009)  # the integral beyond
    assert 0.045 < total + rest <= 0.05


def test_a_sketch_keeps_inner_products():
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(2, 100_000)) + 1.0

    def small(move, seed=7):
        return Sketch(4096, seed)([move]).short[0]

    cosine = x @ y / np.linalg.norm(x) / np.linalg.norm(y)
    sx, sy = small(x).astype(float), small(y).astype(float)
    assert len(sx) == 4096
    assert abs(sx @ sy / np.linalg.norm(sx) / np.linalg.norm(sy) - cosine) < 5 / 64  # five deviations
    assert np.isclose(sx @ sx, x @ x, rtol=1e-5)  # as long as the move is
    seen = Sketch(4096, 7)([x, y])
    assert np.allclose(seen.length, [np.linalg.norm(x), np.linalg.norm(y)], rtol=1e-5)
    assert np.allclose(seen.total, [np.abs(x).sum(), np.abs(y).sum()], rtol=1e-5)
    assert np.array_equal(seen.short[0], small(x))
    assert not np.array_equal(small(x, seed=8), small(x))
    assert np.array_equal(small(x[:8192]), x[:8192].astype(np.float32))


def test_honest_runs_are_left_alone_and_bad_clients_named():
    """30 honest runs of 50 rounds, and 20 with two clients that turn round in round 41; alpha = .05.

    At the nominal level more than 9 alarms in 30 have a chance of 1e-5. Recall below .8 would show that clients are
    judged beside those already named, wrong names above .15 that honest ones are framed.
    """
    rng = np.random.default_rng(6)
    watch, alarms = ClientWatch(30, N_CLIENTS), np.zeros(30, bool)
    for number, moves in enumerate(synthetic(rng, 50, 30), 1):
        alarms |= chance(watch, watch.update(moves).p) <= spent(0.05, 60, number)
    assert alarms.sum() <= 9

    watch, seen = ClientWatch(20, N_CLIENTS), np.zeros(20, int)
    right = wrong = early = 0
    for number, moves in enumerate(synthetic(rng, 46, 20, bad=(1, 5), onset=41), 1):
        p = watch.update(moves).p
        if number < 41:
            continue
        new = (chance(watch, p) <= spent(0.05, 60, number)) & (seen == 0)
        for run in np.flatnonzero(new):
            seen[run] = number
            found = named(watch, int(run), 0.1)
            right += len({1, 5} & set(found.clients))
            wrong += len(set(found.clients) - {1, 5})
            early += found.earliest <= 41
    count = (seen > 0).sum()
    assert count >= 17
    assert np.median(seen[seen > 0]) <= 42
    assert right >= 0.8 * 2 * count
    assert wrong <= 0.15 * (right + wrong)
    assert early >= 0.9 * count


def test_who_was_copied_is_not_named():
    rng = np.random.default_rng(7)
    watch = ClientWatch(1, N_CLIENTS)
    own, mean = rng.normal(size=(N_CLIENTS, DIM)), np.zeros((N_CLIENTS, DIM))
    for number in range(1, 43):
        u = own + 0.3 * rng.normal(size=own.shape)
        if number > 40:
            u[[0, 1]] = u[7]
        with np.errstate(invalid="ignore"):
            watch.update(moves_of(u, mean))
        mean = 0.9 * mean + 0.1 * u / np.linalg.norm(u, axis=1, keepdims=True)
    assert set(named(watch, 0, 0.1).clients) == {0, 1}


def test_leaving_a_client_out_is_as_if_it_had_never_been_there():
    rng = np.random.default_rng(8)
    rounds = list(synthetic(rng, 40))
    others = np.arange(N_CLIENTS) != 2
    with_it, without = ClientWatch(1, N_CLIENTS), ClientWatch(1, N_CLIENTS - 1)
    for moves in rounds[:30]:
        with_it.update(moves)
        without.update(_less(moves, others))
    with_it.leave_out(0, [2], back_to=30)
    for moves in rounds[30:]:
        there = with_it.update(moves).p[0]
        never = without.update(_less(moves, others)).p[0]
        assert np.isnan(there[2])
    assert np.allclose(with_it.values[0, others], without.values[0], equal_nan=True)
    assert np.allclose(with_it.numbers[0, others], without.numbers[0])
    assert np.allclose(there[others] > 0.05, never > 0.05)  # not equal: scores of the past were taken with it


def _less(moves, others):
    fields = {name: values[:, others] for name, values in moves.fields.items()}
    return Moves(np.arange(others.sum())[None], moves.products[:, others][:, :, others], fields)


def test_a_rollback_undoes_rounds():
    watch = ClientWatch(1, N_CLIENTS)
    for moves in synthetic(np.random.default_rng(9), 30):
        watch.update(moves)
    watch.leave_out(0, [0], back_to=25)
    assert watch.numbers[0, 1:].max() == 25
    assert (watch.numbers[0, 1:, -1] == 25).all()
    assert np.isfinite(watch.values[0, 1:, -1, :5]).all()


def test_a_jump_that_all_share_is_noticed():
    watch = ClientWatch(1, N_CLIENTS)
    for number, moves in enumerate(synthetic(np.random.default_rng(10), 30), 1):
        scale = 0.1 if number > 20 else 1.0
        fields = moves.fields | {"along_own": scale * moves.fields["along_own"]}
        jumped = watch.update(Moves(moves.who, scale**2 * moves.products, fields)).jumped
        assert bool(jumped[0]) == (number == 21)
        watch.forget(jumped)
        if number == 21:
            assert (watch.numbers[0] > 0).sum() == N_CLIENTS
