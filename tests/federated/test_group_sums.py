"""Sums over groups: exact, vouched for, and nobody who keeps the rules is blamed."""

import hashlib
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_parts import FIXED, key_of

from fedgauss.federated import group_sums as gs
from fedgauss.federated.keys import verify
from fedgauss.federated.refusal import Refused

SESSION = hashlib.sha256(b"session").hexdigest()[:32]
NAMES = ("1", "2", "3", "4")
TOLD = {"arrays": "digest"}
D = 50


def members(names=NAMES, size=3, most_groups=3, pinned=None):
    return {name: gs.Member(size, most_groups, pinned) for name in names}


def agreed(who, names=None, session=SESSION):
    """Let all introduce themselves and those named agree; the roster and the tags."""
    entries = [member.introduce(session, name, key_of(name)) for name, member in who.items()]
    names = list(who) if names is None else names
    return entries, {name: who[name].agree(entries, names, verify) for name in names}


def numbers(seed=0, names=NAMES):
    rng = np.random.default_rng(seed)
    changes = {name: rng.normal(scale=0.1, size=D) for name in names}
    model = [rng.normal(size=(5, 8)), rng.normal(size=10)]
    return changes, gs.directions_of(model)


def uploads(who, changes, directions, number=1, metrics=(0.5, 100.0)):
    return {
        name: member.upload(number, TOLD, changes[name], 10.0 + int(name), np.array(metrics), directions, key_of(name))
        for name, member in who.items()
    }


def test_the_sum_and_two_numbers_of_each_come_out_and_no_message_looks_like_its_change():
    """It would fail with masks that do not cancel, a sign the wrong way, or a fraction other than 24 bits."""
    who = members()
    agreed(who)
    changes, directions = numbers()
    sent = uploads(who, changes, directions)
    found = gs.summed(sent, directions)
    weights = {name: 10.0 + int(name) for name in NAMES}
    exact = sum(weights[name] * changes[name] for name in NAMES)
    assert np.abs(found.change - exact).max() <= 4 * 2.0**-25
    assert found.examples == sum(weights.values())
    assert found.metrics == pytest.approx([0.5 * found.examples, 100.0 * found.examples], rel=1e-12)
    length = np.linalg.norm(directions.astype(float), axis=1)
    for name in NAMES:
        assert found.scalars[name] == pytest.approx(directions @ changes[name] / length, abs=1e-6)
        as_numbers = sent[name].words.view(np.int64) / 2.0**24
        assert np.abs(as_numbers).min() > 100.0  # honest ones are at most 10; each is that small by chance 4e-10
    assert gs.disputes({name: upload.shared for name, upload in sent.items()}, NAMES) == []


def test_other_changes_with_the_same_sum_and_numbers_give_the_same_messages_under_words_that_are_as_likely(monkeypatch):
    """The theorem of the module's docstring, to the bit: it would fail if a message told anything more."""
    who = members()
    agreed(who)
    changes, directions = numbers()
    whole = {name: np.rint(np.ldexp(10.0 * change, 24)).astype(np.int64) for name, change in changes.items()}
    rng = np.random.default_rng(3)
    v = np.zeros(D, dtype=np.int64)  # whole numbers, at right angles to both directions: a vector in their null space
    a, b = directions[0, 40:42].tolist()  # the last ten are not in the second direction
    v[40:42] = [b, -a]
    assert (directions @ v == 0).all()
    assert v.any()
    words = {pair: rng.integers(0, 2**63, D).astype(np.uint64) for pair in itertools.combinations(NAMES, 2)}

    def message(name, x, words):
        total, shared = x.view(np.uint64), {}
        for other in NAMES:
            if other != name:
                r = words[tuple(sorted((name, other)))]
                total = total + r if name < other else total - r
                shared[other] = (r * directions.view(np.uint64)).sum(axis=1, dtype=np.uint64)
        return total, shared

    moved = whole | {"1": whole["1"] + v, "3": whole["3"] - v}
    turned = words | {("1", "3"): words["1", "3"] - v.view(np.uint64)}
    for name in NAMES:
        before, after = message(name, whole[name], words), message(name, moved[name], turned)
        assert np.array_equal(before[0], after[0])
        assert all(np.array_equal(before[1][other], after[1][other]) for other in before[1])
        drawn = {other: words[tuple(sorted((name, other)))] for other in NAMES if other != name}
        monkeypatch.setattr(gs.Masks, "short_words", lambda self, other, transcript, size, drawn=drawn: drawn[other])
        sent = who[name].upload(1, TOLD, whole[name] / 2.0**24 / 10.0, 10.0, np.empty(0), directions, key_of(name))
        assert np.array_equal(sent.words, before[0])  # the package sends what the theorem is about


def test_a_group_without_one_of_its_clients_is_noise():
    who = members()
    agreed(who)
    changes, directions = numbers()
    sent = uploads(who, changes, directions)
    for left in NAMES:
        fewer = {name: upload for name, upload in sent.items() if name != left}
        words = np.sum([upload.words for upload in fewer.values()], axis=0, dtype=np.uint64)
        assert np.abs(words.view(np.int64) / 2.0**24).min() > 1000.0


def test_words_of_two_rounds_sessions_and_models_differ():
    who = members()
    agreed(who)
    changes, directions = numbers()
    other = gs.Member(3, 3)
    other.restore(who["1"].state())
    first, second = (uploads(who, changes, directions, number)["1"].words for number in (1, 2))
    told = {"arrays": "another"}
    other = other.upload(2, told, changes["1"], 11.0, np.empty(0), directions, key_of("1")).words
    agreed(who)
    again = uploads(who, changes, directions)["1"].words
    for one, two in itertools.combinations((first, second, again, other), 2):
        assert (one != two).all()


# ---- liars


def signed(who, upload, name, shared):
    """What a client claims, and its signature; the liar signs its lie."""
    claim = upload.claim() | {"shared": shared}
    return claim, key_of(name).sign(gs.statement(claim, who[name].transcript))


def shown_by(one, other, shared, who, sent):
    return who[one].show(other, *signed(who, sent[other], other, shared[other]), verify)


def blame(pair, shared, tags, who, sent, directions, shown=None):
    honest = pair[1]  # the other one is the liar, who shows what it likes
    keys = {honest: shown_by(honest, pair[0], shared, who, sent), pair[0]: who[pair[0]]._masks().key_with(honest).hex()}
    keys |= shown or {}
    transcript = bytes.fromhex(who[pair[0]].transcript)
    digest = who[pair[0]].digest
    return gs.liars(pair, keys, tags, digest, transcript, D, directions, shared)


@FIXED
@given(st.integers(1, 2**64 - 1), st.integers(0, 1), st.sampled_from(["2", "3", "4"]), st.booleans())
def test_who_lies_about_shared_words_is_named_and_its_peer_never_is(by, which, other, shows):
    """The liar 1 chooses what it says, and shows its key or another: each peer is honest and none is ever blamed."""
    who = members()
    _, tags = agreed(who)
    changes, directions = numbers()
    sent = uploads(who, changes, directions)
    shared = {name: {peer: p.copy() for peer, p in upload.shared.items()} for name, upload in sent.items()}
    shared["1"][other][which] += np.uint64(by)
    assert gs.disputes(shared, NAMES) == [("1", other)]
    shown = {} if shows else {"1": hashlib.sha256(str(by).encode()).hexdigest()}
    assert blame(("1", other), shared, tags, who, sent, directions, shown) == ["1"]


def test_a_liar_cannot_choose_a_key_for_its_lie():
    """It says what another key would give, and shows that one: the tag by which it agreed is of the right one alone."""
    who = members()
    _, tags = agreed(who)
    changes, directions = numbers()
    sent = uploads(who, changes, directions)
    shared = {name: dict(upload.shared) for name, upload in sent.items()}
    another = hashlib.sha256(b"another key").digest()
    words = gs.short_words(another, bytes.fromhex(who["1"].transcript), D)
    shared["1"]["2"] = (words * directions.view(np.uint64)).sum(axis=1, dtype=np.uint64)
    assert blame(("1", "2"), shared, tags, who, sent, directions, {"1": another.hex()}) == ["1"]


def test_who_shows_no_key_is_named():
    who = members()
    _, tags = agreed(who)
    changes, directions = numbers()
    sent = uploads(who, changes, directions)
    shared = {name: {peer: p.copy() for peer, p in upload.shared.items()} for name, upload in sent.items()}
    shared["1"]["2"] += np.uint64(1)
    assert blame(("1", "2"), shared, tags, who, sent, directions, {"1": ""}) == ["1"]


def test_keys_of_two_honest_clients_are_never_shown():
    """Whoever asks needs a signature of the other client under something else than this client says, of this round.

    The server has all that clients signed, and may have a client of the group on its side: no more than that one's own
    pairs are shown, which it knows already.
    """
    who = members()
    agreed(who)
    changes, directions = numbers()
    old = uploads(who, changes, directions)
    old_claims = {name: signed(who, old[name], name, old[name].shared) for name in NAMES}
    sent = uploads(who, changes, directions, number=2)
    honest = {name: upload.shared for name, upload in sent.items()}
    lies = {name: {peer: p + np.uint64(1) for peer, p in shared.items()} for name, shared in honest.items()}
    with pytest.raises(Refused, match="says the same"):
        shown_by("1", "2", honest, who, sent)
    with pytest.raises(Refused, match="last round alone"):
        who["1"].show("2", *old_claims["2"], verify)  # other words, but of another round
    claim, _ = signed(who, sent["2"], "2", lies["2"])
    for signature in (sent["2"].signature, signed(who, sent["3"], "3", lies["3"])[1], "0" * 128):
        with pytest.raises(Refused, match="last round alone"):
            who["1"].show("2", claim, signature, verify)
    with pytest.raises(Refused, match="last round alone"):
        who["1"].show("9", claim, sent["2"].signature, verify)
    assert shown_by("1", "4", lies, who, sent)  # 4 signed a lie, and has that key itself


def test_two_liars_in_one_group_can_only_move_a_number_from_one_to_the_other():
    """What the sum of a group leaves to colluders, no more: the sum of what is told of both stays what it is."""
    who = members()
    agreed(who)
    changes, directions = numbers()
    sent = uploads(who, changes, directions)
    shared = {name: {peer: p.copy() for peer, p in upload.shared.items()} for name, upload in sent.items()}
    lie = np.array([2**40, 0], dtype=np.uint64)
    shared["1"]["2"] += lie
    shared["2"]["1"] += lie
    assert gs.disputes(shared, NAMES) == []
    honest, told = gs.summed(sent, directions).scalars, gs.scalars(sent, shared, directions)
    assert abs(told["1"][0] - honest["1"][0]) > 0.01
    assert 11.0 * told["1"][0] + 12.0 * told["2"][0] == pytest.approx(11.0 * honest["1"][0] + 12.0 * honest["2"][0])
    assert np.array_equal(told["3"], honest["3"])
    assert np.array_equal(told["4"], honest["4"])


def test_random_directions_drawn_later_show_who_is_far_off_where_both_numbers_look_honest():
    """It is missed if eight Gaussian numbers of sd 655 are all below 5: by chance 2e-18."""
    who = members()
    agreed(who)
    changes, directions = numbers()
    wild = 100.0 * np.random.default_rng(7).normal(size=D)
    basis = np.linalg.qr(directions.T.astype(float))[0]
    changes["3"] = changes["3"] + wild - basis @ (basis.T @ wild)
    sent = uploads(who, changes, directions)
    assert max(np.abs(pair).max() for pair in gs.summed(sent, directions).scalars.values()) < 1.0
    seed = SESSION
    shared = {name: member.look(1, seed, D) for name, member in who.items()}
    assert gs.disputes(shared, NAMES) == []
    found = gs.scalars(sent, shared, gs.random_directions(seed, D))
    assert [name for name, one in found.items() if np.abs(one).max() > 5.0] == ["3"]


def test_clients_that_share_no_key_are_found_before_any_round():
    who = members()
    _, tags = agreed(who)
    assert gs.untagged(tags, NAMES) == []
    assert gs.untagged(tags | {"2": tags["2"] | {"4": "0" * 64}}, NAMES) == [("2", "4")]
    assert gs.untagged(tags | {"2": {}}, NAMES) == [("1", "2"), ("2", "3"), ("2", "4")]
    assert ("2", "3") in gs.untagged(tags | {"2": {}, "3": {}}, NAMES)


# ---- what a client refuses


def test_a_client_refuses_what_would_give_it_away():
    who = members(size=4, most_groups=2)
    entries, _ = agreed(who)
    changes, directions = numbers()
    uploads(who, changes, directions)
    one = who["1"]
    with pytest.raises(Refused, match="answered once"):
        one.upload(1, TOLD, changes["1"], 1.0, np.empty(0), directions, key_of("1"))
    with pytest.raises(Refused, match="one group"):
        one.agree(entries, NAMES, verify)
    one.look(1, SESSION, D)
    with pytest.raises(Refused, match="random direction"):
        one.look(1, SESSION, D)
    one.introduce(SESSION, "1", key_of("1"))
    with pytest.raises(Refused, match="own entry"):
        one.agree(entries, NAMES, verify)  # its key of an earlier session
    with pytest.raises(Refused, match="no group"):
        one.upload(5, TOLD, changes["1"], 1.0, np.empty(0), directions, key_of("1"))


def fresh_roster(one, names, others):
    mine = one.introduce(SESSION, "1", key_of("1"))
    return [mine, *(other.introduce(SESSION, name, key_of(name)) for name, other in others.items() if name in names)]


def test_a_client_joins_no_small_group_no_strangers_and_few_groups():
    names = [str(k) for k in range(1, 10)]
    who = members(names, size=4, most_groups=2)
    one, others = who["1"], {name: who[name] for name in names[1:]}
    roster = fresh_roster(one, names[:8], others)  # without 9
    with pytest.raises(Refused, match="4 to 64"):
        one.agree(roster, ["1", "2", "3"], verify)
    with pytest.raises(Refused, match="different clients"):
        one.agree(roster, ["1", "2", "3", "3"], verify)
    changes, directions = numbers(names=names)
    groups = (["1", "2", "3", "4"], ["1", "2", "3", "5"], ["1", "2", "3", "4"])
    for group in groups:  # the third is the first again
        one.agree(fresh_roster(one, names[:8], others), group, verify)
        one.upload(1, TOLD, changes["1"], 1.0, np.empty(0), directions, key_of("1"))
    with pytest.raises(Refused, match="2 different groups"):
        one.agree(fresh_roster(one, names[:8], others), ["1", "2", "3", "6"], verify)
    with pytest.raises(Refused, match="9 are not known"):
        one.agree(fresh_roster(one, names, others), ["1", "2", "3", "9"], verify)


def test_a_server_that_invents_clients_is_refused_where_keys_are_pinned():
    pinned = [key_of(name).public for name in NAMES]
    who = members(pinned=pinned)
    entries = [member.introduce(SESSION, name, key_of(name)) for name, member in who.items()]
    invented = gs.Member(3, 3).introduce(SESSION, "2", key_of("an invention"))
    with pytest.raises(Refused, match="2 are not known"):
        who["1"].agree([entries[0], invented, *entries[2:]], NAMES, verify)
    forged = entries[1] | {"run_key": invented["run_key"]}  # its words would be known
    with pytest.raises(Refused, match="signed"):
        who["1"].agree([entries[0], forged, *entries[2:]], NAMES, verify)
    assert who["1"].agree(entries, NAMES, verify)


def test_a_client_goes_on_from_its_state():
    who = members()
    agreed(who)
    changes, directions = numbers()
    copy = gs.Member(3, 3)
    copy.restore(json.loads(json.dumps(who["1"].state())))
    sent = [m.upload(1, TOLD, changes["1"], 5.0, np.ones(1), directions, key_of("1")) for m in (who["1"], copy)]
    assert np.array_equal(sent[0].words, sent[1].words)
    assert sent[0].signature == sent[1].signature


@pytest.mark.parametrize(
    ("change", "examples", "words"),
    [(np.full(D, 5000.0), 1.0, "4,096"), (np.full(D, np.nan), 1.0, "4,096"), (np.zeros(D), 0.0, "examples"),
     (np.zeros(D), 2.0**21, "examples"), (np.full(D, 4000.0), 2.0**20, "wrap")],
)  # fmt: skip
def test_numbers_that_would_wrap_round_are_refused_before_anything_leaves(change, examples, words):
    who = members()
    agreed(who)
    with pytest.raises(Refused, match=words):
        who["1"].upload(1, TOLD, change, examples, np.empty(0), numbers()[1], key_of("1"))


# ---- forms


@pytest.mark.parametrize(
    "broken",
    [
        {"words": np.zeros(D + 1, np.uint64)},
        {"words": np.zeros(D)},
        {"words": "text"},
        {"metrics": np.zeros((2, 3), np.uint64)},
        {"shared": {}},
        {"shared": {name: np.zeros(3, np.uint64) for name in NAMES[1:]}},
        {"shared": {name: [1, 2] for name in NAMES[1:]}},
        {"examples": float("nan")},
        {"examples": 0.0},
        {"examples": 1e-300},
        {"examples": True},
        {"examples": "10"},
        {"examples": 2.0**30},
    ],
)
def test_what_is_no_upload_is_a_fault_in_words(broken):
    who = members()
    agreed(who)
    changes, directions = numbers()
    good = uploads(who, changes, directions)["1"]
    assert gs.fault(good, "1", NAMES, D, 2) == ""
    assert gs.fault(good._replace(**broken), "1", NAMES, D, 2)


# ---- what groups tell


def test_how_far_groups_determine_a_client():
    """Closed forms: 1 / sqrt(g) for fixed groups; 1 once every client can be solved for."""
    fixed = np.kron(np.eye(5), np.ones(4))
    assert gs.determined(fixed) == pytest.approx(0.5)
    one_changed = np.vstack([fixed, np.roll(fixed, 1, axis=1)])
    assert (gs.determined(one_changed) > 0.5).all()
    rng = np.random.default_rng(0)
    many = np.vstack([fixed[:, rng.permutation(20)] for _ in range(10)])
    assert gs.determined(many) == pytest.approx(1.0)


def test_the_figure_is_the_cosine_of_the_best_guess():
    """20 clients with means of 2,000 independent numbers: cosines vary by about .02, and are asked to within .1."""
    rng = np.random.default_rng(1)
    fixed = np.kron(np.eye(5), np.ones(4))
    means = rng.normal(size=(20, 2000))
    for x in (fixed, np.vstack([fixed, fixed[:, rng.permutation(20)]])):
        guess = np.linalg.pinv(x) @ (x @ means)
        cosines = (guess * means).sum(1) / np.linalg.norm(guess, axis=1) / np.linalg.norm(means, axis=1)
        assert cosines == pytest.approx(gs.determined(x), abs=0.1)
