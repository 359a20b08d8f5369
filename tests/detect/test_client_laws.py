"""Laws of features with atoms: lengths that a clip bounds, coordinates that are not sent, claims, little noise."""

import numpy as np
import pytest
from scipy.optimize import minimize

import fedgauss as fg
from fedgauss.detect.clients.directions import Directions
from fedgauss.detect.clients.features import FEATURES, Known, Moves, rows_of, together
from fedgauss.detect.clients.features.length import Length
from fedgauss.detect.clients.sketch import Sketch
from fedgauss.detect.clients.surprise import Past, before, t2_of_mean

K, D = 10, 60
LENGTH = [feature.name for feature in FEATURES].index("length")


def known_of(lengths, kept=None):
    """What the watch takes lengths to say, of clients that are orthogonal to each other."""
    lengths = np.asarray(lengths, float)
    kept = np.ones(len(lengths), bool) if kept is None else kept
    fields = {feature.field: np.ones((1, len(lengths))) for feature in FEATURES if feature.field}
    moves = Moves(np.arange(len(lengths))[None], np.diag(lengths**2)[None], fields)
    return rows_of(moves, np.asarray(kept)[None], FEATURES).known[0, :, LENGTH].tolist()


def test_a_length_that_most_share_bounds_theirs_and_the_median():
    spread = np.linspace(0.5, 0.9, 4)
    assert known_of([1.0] * 6 + [*spread]) == [Known.UNKNOWN] * 6 + [Known.AT_MOST] * 4
    assert known_of([1.0] * 3 + [*np.linspace(0.5, 0.9, 7)]) == [Known.AT_LEAST] * 3 + [Known.EXACTLY] * 7
    assert known_of(np.linspace(0.5, 1, 10)) == [Known.EXACTLY] * 10
    assert known_of([1.0] * 9 + [5.0])[-1] == Known.BEYOND
    assert known_of([0.0] * 10) == [Known.UNKNOWN] * 10


def test_colluders_with_one_length_make_no_clip_of_it_but_where_it_is_the_largest():
    """Equal lengths below the others' would otherwise let two of ten hide that they shrank."""
    others = [*np.linspace(0.8, 1.2, 8)]
    assert known_of([0.2, 0.2, *others]) == [Known.EXACTLY] * 10
    assert known_of([5.0, 5.0, *others])[:2] == [Known.AT_LEAST] * 2  # that they grew is seen
    assert known_of([5.0, 5.0, *[1.0] * 8])[:2] == [Known.BEYOND] * 2
    assert known_of([1.0] * 4 + [*np.linspace(0.5, 0.9, 6)], np.arange(10) > 3) == [Known.EXACTLY] * 10


def past_with(known, rng):
    """Forty rounds of four clients in five features, and what they say in the first one."""
    values = 0.1 * rng.normal(size=(1, 4, 38, 5))
    said = np.zeros(values.shape, np.int8)
    said[..., 0] = known
    return Past(values, said, np.ones((1, 4, 38), int), np.full((1, 4, 2, 1), np.nan), np.full((1, 5), 0.03))


@pytest.mark.parametrize(
    ("of_past", "of_window", "low", "high"),
    [
        (Known.EXACTLY, Known.AT_LEAST, True, False),
        (Known.EXACTLY, Known.AT_MOST, False, True),
        (Known.EXACTLY, Known.UNKNOWN, False, False),
        (Known.AT_LEAST, Known.EXACTLY, False, True),
        (Known.AT_LEAST, Known.AT_LEAST, False, False),
        (Known.AT_LEAST, Known.BEYOND, True, True),
        (Known.UNKNOWN, Known.BEYOND, True, True),
        (Known.UNKNOWN, Known.EXACTLY, False, False),
        (Known.AT_MOST, Known.AT_LEAST, True, False),
    ],
)
def test_t2_is_the_least_within_what_is_known(of_past, of_window, low, high):
    """Against a search over all changes that the bounds allow. Honest numbers are among them, so T^2 is never above
    what the numbers themselves would give, and a bound cannot make an honest client more surprising."""
    known = np.full(38, of_past)
    known[-3:] = of_window
    past = past_with(known, np.random.default_rng(4))
    (way,) = together(FEATURES[:5])
    history = past.of(way)
    reference = before(history, 3, np.ones((1, 4), bool))
    found = t2_of_mean(history, reference, 3, 1e9)[0]
    for client in range(4):
        values = past.values[0, client]
        rho = reference.correlation[0, 0]

        def of_mean(m, rho=rho):
            return ((1 + rho) / (1 - rho) - 2 * rho * (1 - rho**m) / (m * (1 - rho) ** 2)) / m

        spread = np.sqrt(of_mean(3.0) + of_mean(reference.counted[0, client]))
        c = reference.covariance[0, client] * np.outer(spread, spread) + 0.03**2 * np.eye(5)
        d = values[-3:].mean(0) - values[5:35].mean(0)
        inverse = np.linalg.inv(c)

        def t2(x, d=d, inverse=inverse):
            change = np.concatenate([x, d[1:]])
            return change @ inverse @ change

        bounds = (d[0] if low else None, d[0] if high else None)
        assert np.isclose(found[client], minimize(t2, d[:1], bounds=[bounds]).fun, rtol=1e-4)


def clipped(rng, n_rounds, clip, bad=(), act=lambda u: u, onset=10**9):
    """Clients whose moves shrink through a clip, each at its time."""
    own, common = rng.normal(size=(K, D)), rng.normal(size=D)
    scale = np.exp(0.4 * rng.normal(size=(K, 1)))
    for number in range(1, n_rounds + 1):
        u = scale * 0.97**number * (common + own + 0.7 * rng.normal(size=(K, D)))
        size = np.linalg.norm(u, axis=1, keepdims=True)
        u *= np.minimum(1.0, clip / size)
        if number >= onset:
            u[list(bad)] = act(u[list(bad)])
        yield u.astype(np.float32)


def test_honest_lengths_that_fall_below_a_clip_are_no_alarm():
    """8 runs at alpha = .05: more than 4 have a chance of 2e-5. With lengths taken as they are, 5 alarm."""
    alarms = 0
    for seed in range(8):
        monitor = fg.ClientMonitor(horizon=60, seed=1)
        alarms += any(monitor.update(u).alarm for u in clipped(np.random.default_rng(seed), 45, 5.0))
    assert alarms <= 4


@pytest.mark.parametrize("clip", [2.0, 5.0, 1e9])
def test_colluders_with_one_length_cannot_switch_length_off(clip):
    """Two send the same direction as before at five times a length that both agree on."""
    seen = 0
    for seed in range(3):
        monitor = fg.ClientMonitor(horizon=60, seed=1)
        agreed = 5.0 * min(clip, 10.0)
        act = lambda u, agreed=agreed: agreed * u / np.linalg.norm(u, axis=1, keepdims=True)  # noqa: E731
        for u in clipped(np.random.default_rng(seed), 36, clip, (2, 7), act, 31):
            verdict = monitor.update(u)
        seen += verdict.alarm and set(verdict.suspects) == {2, 7}
    assert seen == 3


def test_a_clip_is_known_again_in_sketches():
    """A sketch alone is off by a per cent in length, and no two clients would share one."""
    rng = np.random.default_rng(0)
    u = rng.normal(size=(5, 40_000)).astype(np.float32)
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    compared, _ = Directions(Sketch(8192, 1), FEATURES).compared(dict(enumerate(u)), {})
    length = 0.5 * np.log(np.diagonal(compared.products))
    assert np.abs(length).max() < 5e-5


def test_coordinates_that_are_not_sent_are_missing():
    """The cosine is over what is sent; who sends only what it never sent has a cosine of 0, and is judged."""
    rng = np.random.default_rng(1)
    directions = Directions(Sketch(8192, 1), FEATURES)
    who = np.arange(3)
    directions.grow(3, 6)
    first = rng.normal(size=(3, 6)).astype(np.float32)
    first[0, :4] = 0.0
    directions.turn(who, first)
    second = rng.normal(size=(3, 6)).astype(np.float32)
    second[0, 4:] = 0.0  # nothing that client 0 ever sent
    second[1, :3] = 0.0
    second[2] = 0.0
    compared, _ = directions.compared(dict(enumerate(second)), {k: k for k in who})
    along = compared.fields["along_own"]
    assert along[0] == 0.0
    assert np.isclose(along[1], second[1, 3:] @ first[1, 3:] / np.linalg.norm(first[1, 3:]), rtol=1e-5)
    assert along[2] == 0.0
    before_turn = directions.table.copy()
    directions.turn(who, second)
    assert np.array_equal(directions.table[0, 4:], before_turn[0, 4:])


def weighed(times, rounds=36, random=0.0, seed=0):
    """The verdict of a run in which client 3 claims so many times its examples from round 31 on."""
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(K, D))
    monitor = fg.ClientMonitor(horizon=60, seed=1)
    counts = np.round(100.0 ** (1 + rng.random(K)))
    for number in range(1, rounds + 1):
        claimed = counts * rng.uniform(1 - random, 1 + random, K)
        claimed[3] *= times if number > 30 else 1.0
        verdict = monitor.update(own + 0.5 * rng.normal(size=(K, D)), weights=dict(enumerate(claimed)))
        if verdict.alarm:
            break
    return verdict


@pytest.mark.parametrize("times", [2.0, 0.2, 100.0])
def test_a_claim_that_jumps_is_an_alarm(times):
    verdict = weighed(times)
    assert verdict.suspects == (3,)
    assert 31 <= verdict.round <= 33
    assert verdict.onset == 31


def test_a_claim_that_grows_a_little_or_varies_is_none():
    assert not weighed(1.4).alarm
    assert not weighed(1.0, random=0.2).alarm
    assert weighed(2.0, rounds=40, random=0.2).suspects == (3,)


def test_weights_travel_and_are_checked():
    rng, monitor, other = np.random.default_rng(0), fg.ClientMonitor(seed=1), fg.ClientMonitor(seed=1)
    u = rng.normal(size=(K, D))
    monitor.update(u)  # without weights
    monitor.update(u, weights={k: k + 1.0 for k in range(K)})
    assert monitor.compared.fields["weights"].tolist() == [k + 1.0 for k in range(K)]
    other.update(monitor.compared)
    for wrong, words in (({0: 1.0}, "client that is there; 1 has none"), (dict.fromkeys(range(K), -1.0), "between 0")):
        with pytest.raises(ValueError, match=words):
            monitor.update(u, weights=wrong)
    assert monitor.round == 2


def test_clients_nearly_alike_without_noise_are_no_alarm():
    """One client leaves its line by a per cent in round 31: 6 of 8 runs alarmed without tolerance.

    Of 8 runs at alpha = .05, more than 4 have a chance of 2e-5.
    """
    alarms = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        common, own, drift = rng.normal(size=D), 0.3 * rng.normal(size=(K, D)), 0.01 * rng.normal(size=(K, D))
        monitor = fg.ClientMonitor(horizon=60, seed=1)
        for number in range(1, 46):
            u = common + own + 0.0005 * rng.normal(size=(K, D))
            u[0] += (number > 30) * drift[0]
            alarms += (first := monitor.update(u).alarm)
            if first:
                break
    assert alarms <= 6


def test_a_clip_needs_two_and_a_fifth():
    assert Length().known is not None
    assert known_of([1.0, *np.linspace(0.5, 0.9, 9)]) == [Known.EXACTLY] * 10
    assert known_of([1.0] * 2 + [*np.linspace(0.5, 0.9, 10)]) == [Known.EXACTLY] * 12
