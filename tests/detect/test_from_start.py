"""`FromStart` on small federations, its features beside slow twins, its laws, and what it stores."""

import json

import numpy as np
import pytest

from fedgauss.detect.clients import from_start
from fedgauss.detect.clients.first_rounds import FEATURES, features_of, output_layer
from fedgauss.detect.clients.from_start import FromStart, law_of, laws
from fedgauss.detect.clients.root_rows import RootRows

CLASSES, INPUTS, CLIENTS = 6, 12, 10


def softmax(scores):
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    return likely / likely.sum(axis=1, keepdims=True)


class Federation:
    """Softmax regression on clouds of points; clients have different labels, and 20 steps a round."""

    def __init__(self, seed, act=lambda k, u, y: u, relabel=lambda k, y: y):
        rng = np.random.default_rng(seed)
        self.centres = rng.normal(size=(CLASSES, INPUTS))
        self.model = [0.01 * rng.normal(size=(INPUTS, CLASSES)), np.zeros(CLASSES)]
        self.act, self.rng = act, rng
        shares = rng.dirichlet(np.full(CLASSES, 1.0), CLIENTS)
        self.data = []
        for k in range(CLIENTS):
            y = rng.choice(CLASSES, 100, p=shares[k])
            self.data.append((self.points(y), relabel(k, y)))

    def points(self, y):
        return self.centres[y] + 0.7 * self.rng.normal(size=(len(y), INPUTS))

    def round(self):
        """What each client changed; the mean is taken."""
        moves = {}
        for k, (x, y) in enumerate(self.data):
            w, b = self.model
            for _ in range(20):
                rows = self.rng.integers(0, len(y), 16)
                off = softmax(x[rows] @ w + b) - np.eye(CLASSES)[y[rows]]
                w, b = w - 0.05 * x[rows].T @ off / 16, b - 0.05 * off.mean(axis=0)
            moves[k] = [w - self.model[0], b - self.model[1]]
        moves = {k: self.act(k, u, moves) for k, u in moves.items()}
        sent = self.model
        self.model = [a + np.mean([u[i] for u in moves.values()], axis=0) for i, a in enumerate(self.model)]
        return moves, sent

    def watched(self, watch, rounds=25):
        for _ in range(rounds):
            moves, sent = self.round()
            verdict = watch.update(moves, sent)
        return verdict


def flips(k, y):
    return (y + 1) % CLASSES if k < 2 else y


# --- who is found ---------------------------------------------------------------------------------------------------


def test_nobody_is_found_among_honest_clients():
    # Fixed seeds; the tests of power below fail where laws see nothing at all.
    for seed in range(3):
        verdict = Federation(seed).watched(FromStart())
        assert not verdict.unlike
        assert str(verdict) == ""


def test_labels_that_are_permuted():
    watch = FromStart()
    verdict = Federation(0, relabel=flips).watched(watch)
    assert {k: who.why for k, who in verdict.unlike.items()} == {0: "labels", 1: "labels"}
    assert all(who.chance <= watch.alpha / 2 and who.round in (6, 10, 15, 20, 25) for who in verdict.unlike.values())
    assert str(verdict).startswith("Client 0 moves as if its labels were permuted, as it did from its first rounds on.")


def test_signs_that_are_turned():
    def turned(k, u, moves):
        return [-a for a in u] if k < 2 else u

    verdict = Federation(1, act=turned).watched(FromStart())
    assert set(verdict.unlike) == {0, 1}
    assert {who.why for who in verdict.unlike.values()} <= {"direction", "labels"}  # a turned sign contradicts both


def test_copies_and_who_is_copied():
    def copied(k, u, moves):
        return moves[5] if k == 3 else u

    verdict = Federation(2, act=copied).watched(FromStart(), rounds=6)
    assert {k: who.why for k, who in verdict.unlike.items()} == {3: "copies", 5: "copies"}
    assert all(who.round == 6 for who in verdict.unlike.values())


def test_alike_clients_without_noise_are_no_copies():
    rng = np.random.default_rng(0)
    common, watch = rng.normal(size=200), FromStart()
    own = 0.02 * rng.normal(size=(CLIENTS, 200))  # cosines of .9996, the same in each round
    for _ in range(25):
        verdict = watch.update({k: common + own[k] for k in range(CLIENTS)})
    assert not verdict.unlike


def test_a_vector_gets_what_vectors_tell():
    rng = np.random.default_rng(3)
    common, watch = rng.normal(size=300), FromStart()
    for _ in range(25):
        moves = {k: common + 0.5 * rng.normal(size=300) for k in range(CLIENTS)}
        moves[4] = -moves[4]
        verdict = watch.update(moves)
    assert {k: who.why for k, who in verdict.unlike.items()} == {4: "direction"}
    fresh = FromStart()
    for _ in range(8):
        verdict = fresh.update({k: common + rng.normal(size=300) for k in range(CLIENTS)})
    assert "Labels are not judged: that takes moves by layer" in verdict.note


@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_noise_on_honest_moves_makes_nobody_unlike(noise):
    # As local privacy adds it, in units of the move's length. Fixed seeds; without the rule that the median client must
    # look honest, two to six clients are named at a noise of 3.
    for seed in range(2):
        rng = np.random.default_rng(seed)

        def noisy(k, u, moves, rng=rng):
            size = np.sqrt(sum((a**2).sum() for a in u) / sum(a.size for a in u))
            return [a + noise * size * rng.normal(size=a.shape) for a in u]

        verdict = Federation(seed, act=noisy).watched(FromStart())
        assert not verdict.unlike


def test_a_model_that_knows_nothing_contradicts_nobody():
    rng, watch = np.random.default_rng(4), FromStart()
    for _ in range(25):
        model = [rng.normal(size=(INPUTS, CLASSES)), np.zeros(CLASSES)]
        verdict = watch.update({k: [rng.normal(size=a.shape) for a in model] for k in range(CLIENTS)}, model)
        assert not verdict.unlike
        if watch.round == 20:
            assert "the model knows too little of them" in verdict.note


def test_root_rows_make_it_sharper():
    plain, rooted = Federation(0, relabel=flips), Federation(0, relabel=flips)
    labels = np.repeat(np.arange(CLASSES), 5)
    x = rooted.points(labels)
    plain.points(labels)
    watch, other = FromStart(root=RootRows(lambda model: x @ model[0] + model[1], labels)), FromStart()
    assert set(rooted.watched(watch).unlike) == {0, 1}
    plain.watched(other)
    best, right = (from_start.FEATURES.index(name) for name in ("best class", "right rows"))
    averages = np.array([watch.averages[k] for k in range(CLIENTS)])
    assert averages[:2, best].max() < np.median(averages[2:, best])
    assert averages[:2, right].max() < np.median(averages[2:, right])
    assert np.isnan(other.averages[0][best])


def test_clients_that_come_late_or_seldom_are_judged_by_their_own_rounds():
    federation, watch = Federation(0, relabel=flips), FromStart()
    for number in range(1, 40):
        moves, sent = federation.round()
        here = {k: u for k, u in moves.items() if k != 0 or number > 12}
        verdict = watch.update(here, sent)
        if number == 15:
            assert 0 not in verdict.unlike  # three rounds of its own
    assert set(verdict.unlike) == {0, 1}


def test_more_clients_have_a_chance_each():
    rng, chances = np.random.default_rng(5), []
    common = rng.normal(size=300)
    for n in (10, 40):
        watch = FromStart(alpha=0.9)
        for _ in range(6):
            moves = {k: common + 0.5 * np.random.default_rng([k, watch.round]).normal(size=300) for k in range(n)}
            moves[4] = -moves[4]
            verdict = watch.update(moves)
        chances.append(verdict.unlike[4].chance)
    assert chances[1] > 2 * chances[0]  # the mean of the others is sharper, but there are four times as many


def test_too_few_clients_are_not_compared():
    watch = FromStart()
    for _ in range(10):
        verdict = watch.update({k: np.arange(5.0) for k in range(4)})
    assert not verdict.unlike
    assert "5 or more" in verdict.note


@pytest.mark.filterwarnings("ignore:overflow")
def test_arrays_that_cannot_be_name_the_client_and_change_nothing():
    watch = FromStart()
    moves = {k: [np.ones((4, 3)), np.ones(3)] for k in range(6)}
    for _ in range(2):
        watch.update(moves)
    with pytest.raises(ValueError, match="client 2 has"):
        watch.update(moves | {2: [np.ones((4, 2)), np.ones(3)]})
    with pytest.raises(ValueError, match="in the same order"):
        watch.update(moves, model=[np.ones(3), np.ones((4, 3))])
    for wrong in (np.nan, np.inf, 1e200):
        with pytest.raises(ValueError, match="client 5 must be finite"):
            watch.update(moves | {5: [np.full((4, 3), wrong), np.ones(3)]})
    assert watch.round == 2
    assert not watch.averages


# --- features -------------------------------------------------------------------------------------------------------


def cosine(a, b):
    size = np.linalg.norm(a) * np.linalg.norm(b)
    return (a * b).sum() / size if size > 0 else 0.0


def slow_features(moves, model):
    """As the docstring has them, for arrays (inputs, hidden), (hidden,), (hidden, classes), (classes,)."""
    rows = [u[2].T for u in moves]
    centred = [r - r.mean(axis=0) for r in rows]
    weights = model[2].T - model[2].T.mean(axis=0)
    table = []
    for k, u in enumerate(moves):
        others = [v for j, v in enumerate(moves) if j != k]
        flat = np.concatenate([a.ravel() for a in u])
        rest = sum(np.concatenate([a.ravel() for a in v]) for v in others)
        j = [i for i in range(len(moves)) if i != k]
        typical = [np.median([cosine(rows[k][c], rows[i][c]) for i in j]) for c in range(len(weights))]
        nearest = [max(cosine(centred[k][c], centred[i][c]) for i in j) for c in range(len(weights))]
        sizes = np.linalg.norm(centred[k], axis=1)
        agreement = sum(s * cosine(a, b) for s, a, b in zip(sizes, centred[k], weights, strict=True)) / sizes.sum()
        first = cosine(u[0], sum(v[0] for v in others))
        table.append([cosine(flat, rest), first, np.mean(typical), np.mean(nearest), agreement])
    return np.array(table)


def test_features_beside_a_slow_twin():
    rng = np.random.default_rng(6)
    shapes = [(5, 4), (4,), (4, 3), (3,)]
    moves = [[rng.normal(size=s) for s in shapes] for _ in range(7)]
    model = [rng.normal(size=s) for s in shapes]
    rows, products = features_of(moves, model, output_layer(shapes))
    np.testing.assert_allclose(rows, slow_features(moves, model), atol=1e-12)
    flat = np.array([np.concatenate([a.ravel() for a in u]) for u in moves])
    np.testing.assert_allclose(products, flat @ flat.T, atol=1e-12)
    assert rows.shape[1] == len(FEATURES)


def test_torch_has_classes_first():
    rng = np.random.default_rng(7)
    shapes = [(5, 4), (4,), (4, 3), (3,)]
    moves = [[rng.normal(size=s) for s in shapes] for _ in range(6)]
    model = [rng.normal(size=s) for s in shapes]

    def turned(arrays):
        return [arrays[0].T, arrays[1], arrays[2].T, arrays[3]]

    there = features_of([turned(u) for u in moves], turned(model), 2)[0]
    np.testing.assert_allclose(there, features_of(moves, model, 2)[0], atol=1e-12)


def test_agreement_is_the_score_of_the_label_less_what_is_expected():
    # <D, W> of one full step on logistic loss is the rate times the mean of z_y - sum_c p_c z_c.
    rng = np.random.default_rng(8)
    x, y, w = rng.normal(size=(50, 5)), rng.integers(0, 4, 50), rng.normal(size=(5, 4))
    z = x @ w
    move = -0.1 * x.T @ (softmax(z) - np.eye(4)[y]) / 50
    expected = 0.1 * np.mean(z[np.arange(50), y] - (softmax(z) * z).sum(axis=1))
    assert (move * w).sum() == pytest.approx(expected)
    centred = move - move.mean(axis=1, keepdims=True)
    assert (centred * (w - w.mean(axis=1, keepdims=True))).sum() == pytest.approx(expected)


def test_a_client_that_sends_nothing_is_compared_without_a_division():
    rng = np.random.default_rng(9)
    shapes = [(5, 4), (4,), (4, 3), (3,)]
    moves = [[rng.normal(size=s) for s in shapes] for _ in range(6)]
    moves[2] = [np.zeros(s) for s in shapes]
    rows, _ = features_of(moves, moves[2], 2)
    assert np.isfinite(rows).all()
    np.testing.assert_array_equal(rows[2], 0.0)


def test_root_rows_beside_a_slow_twin():
    rng = np.random.default_rng(10)
    labels, x = np.array([0, 0, 1, 1, 2, 2]), rng.normal(size=(6, 5))
    model = [rng.normal(size=(5, 3))]
    moves = [[0.1 * rng.normal(size=(5, 3))] for _ in range(4)]
    found = RootRows(lambda arrays: x @ arrays[0], labels).features_of(model, moves)

    def losses(w):
        return -np.log(softmax(x @ w))[np.arange(6), labels].reshape(3, 2).mean(axis=1)

    for (u,), (best, right) in zip(moves, found, strict=True):
        assert best == pytest.approx(max(losses(model[0]) - losses(model[0] + u)))
        change = (x @ u).reshape(3, 2, 3).mean(axis=1)
        change = change - change.mean(axis=0) - change.mean(axis=1, keepdims=True) + change.mean()
        off = change[~np.eye(3, dtype=bool)]
        assert right == pytest.approx((np.diag(change).max() - off.max()) / np.linalg.norm(change))


@pytest.mark.parametrize("labels", [[1, 1, 1], [0.5, 1.5], [[0, 1]]])
def test_root_rows_need_labels(labels):
    with pytest.raises(ValueError, match="labels must be whole numbers of at least two classes"):
        RootRows(lambda model: model, labels)


def test_root_rows_need_scores_of_their_classes():
    rows = RootRows(lambda model: np.ones((3, 2)), [0, 1, 4])
    with pytest.raises(ValueError, match=r"3 rows and 5 classes or more; got shape \(3, 2\)"):
        rows.features_of([], [])


# --- laws and what is stored ----------------------------------------------------------------------------------------


def test_laws_that_ship():
    assert {(law.why, len(law.features)) for law in laws()} == {
        ("direction", 1),
        ("direction", 4),
        ("labels", 3),
        ("labels", 5),
    }
    for law in laws():
        assert list(law.scores) == sorted(law.scores)
        assert list(law.chances) == sorted(law.chances, reverse=True)
        assert set(law.features) <= set(from_start.FEATURES)


def test_a_chance_is_that_of_the_table_and_falls():
    law = law_of(
        {"why": "labels", "features": ["others"], "weights": [1], "constant": 0, "scores": [1, 2, 3]}
        | {"chances": [0.2, 0.1, 0.05]}
    )
    means = np.zeros(len(from_start.FEATURES))
    place = from_start.FEATURES.index("others")

    def chance(score):
        means[place] = score
        return law.chance(means)

    np.testing.assert_allclose([chance(s) for s in (0.9, 1, 2, 3, 4)], [1, 0.2, 0.1, 0.05, 0.025])
    assert chance(2.5) == pytest.approx(np.sqrt(0.1 * 0.05))


def test_stored_it_goes_on_to_the_bit():
    whole, first, second = FromStart(), FromStart(), FromStart()
    federation = Federation(0, relabel=flips)
    for number in range(1, 26):
        moves, sent = federation.round()
        expected = whole.update(moves, sent)
        if number == 12:
            words, arrays = first.state()
            second.restore(json.loads(json.dumps(words)), arrays)
        found = (first if number < 12 else second).update(moves, sent) if number != 12 else None
        if number == 12:
            second.update(moves, sent)
    assert found == expected
    assert second.averages.keys() == whole.averages.keys()
    for k, row in whole.averages.items():
        np.testing.assert_array_equal(second.averages[k], row)


@pytest.mark.parametrize(
    "broken",
    [
        lambda words, arrays: words["clients"].append("b"),
        lambda words, arrays: words["clients"].__setitem__(0, 1),
        lambda words, arrays: arrays["sums"].__setitem__((0, 0), np.inf),
        lambda words, arrays: arrays["counts"].__setitem__(0, 0),
        lambda words, arrays: words["unlike"].append(["nobody", "labels", 0.01, 3]),
        lambda words, arrays: words["unlike"].append([0, "envy", 0.01, 3]),
        lambda words, arrays: words["same"].append([0, "nobody", 3]),
    ],
)
def test_what_cannot_be_is_refused(broken):
    watch = FromStart()
    Federation(0).watched(watch, rounds=4)
    words, arrays = watch.state()
    broken(words, arrays)
    with pytest.raises(ValueError, match=r"must|unlike by"):
        FromStart().restore(words, arrays)
