"""Parties take the same steps from the same messages; what a site or the mailbox does to them ends the run by name."""

import copy
import json
import math

import numpy as np
import pytest
from protocol_parts import (
    HEAD,
    NAMES,
    SHAPES,
    Toy,
    asks_twice,
    commitments_to,
    entries_of,
    key_of,
    plan_of,
    roster_of,
    run_key_of,
    through_the_wire,
    words_alone,
)

from fedgauss.federated.fixed_point import to_words
from fedgauss.federated.keys import verify
from fedgauss.federated.masks import Masks
from fedgauss.federated.party import Party, RunRefused
from fedgauss.federated.plan import Question
from fedgauss.federated.refusal import Blamed, Refused
from fedgauss.federated.roster import Entry
from fedgauss.federated.wire import decode, encode
from fedgauss.inference.model import Model

SILENT = {name: {} for name in NAMES}


def asks_for_words():
    """A program without numbers: what each site says."""
    heard = yield Question("words", {}, {})
    return heard


def hear(toy, openings):
    """A round of one party alone."""
    party = toy.parties["the mailbox"]
    party.hear_commitments(commitments_to(openings, party.transcript))
    party.hear_openings(openings)
    return party


# ---- honest runs


@pytest.mark.parametrize("masked", [True, False])
def test_all_parties_take_the_same_steps(masked):
    toy = Toy(plan_of(masked=masked))
    questions = []
    for _ in range(3):
        asked = {name: (party.question.kind, party.question.content) for name, party in toy.parties.items()}
        assert len(set(map(str, asked.values()))) == 1
        questions.append(asked["a"])
        toy.play()
    assert questions == [("sums", {"at": 0.0}), ("sums", {"at": 6.0}), ("last", {})]
    for party in toy.parties.values():
        assert party.question is None
        first, second, words, (each, each_again) = party.result
        assert float(first["count"]) == float(second["count"]) == 6.0
        np.testing.assert_array_equal(first["score"], [6.0, -6.0])
        np.testing.assert_array_equal(second["score"], [24.0, -6.0])  # 3 sites move by 6
        np.testing.assert_array_equal(second["matrix"], [[6.0, 18.0], [18.0, 3.0]])
        assert words == {name: {"from": name} for name in NAMES}
        assert len(each) == (0 if masked else 3)
        for name, one in zip(NAMES, each_again, strict=False):
            np.testing.assert_array_equal(one["score"], toy.numbers(name, 6.0)["score"])
            np.testing.assert_array_equal(one["matrix"], toy.numbers(name, 6.0)["matrix"])


def test_the_total_is_the_exact_sum():
    """Parts that cancel to 1e-9: in floats their sum would depend on its order."""
    rng = np.random.default_rng(2)
    parts = rng.normal(size=(3, 2)) * [[1e20], [1e20], [1.0]]
    parts[1] = -parts[0] + 1e-9

    class Cancels(Toy):
        def numbers(self, name, at):
            return super().numbers(name, at) | {"score": parts[NAMES.index(name)]}

    def program():
        return (yield Question("sums", {"at": 0.0}, SHAPES)).total

    toy = Cancels(program=program)
    toy.play()
    wanted = [math.fsum(column) for column in parts.T]
    np.testing.assert_array_equal(toy.parties["a"].result["score"], wanted)


def test_one_site_alone_needs_no_masks():
    toy = Toy(plan_of(("a",), masked=False))
    for _ in range(3):
        toy.play()
    assert float(toy.parties["a"].result[0]["count"]) == 1.0


def test_words_need_no_numbers():
    toy = Toy(program=asks_for_words)
    toy.play(words_alone({name: {"n": i} for i, name in enumerate(NAMES)}))
    assert toy.parties["a"].result == (None, {"a": {"n": 0}, "b": {"n": 1}, "c": {"n": 2}}, [])


@pytest.mark.parametrize("numbers", [{}, {"numbers": None}])
def test_a_site_that_cannot_answer_voids_the_round_for_all(numbers):
    def program():
        return (yield Question("sums", {"at": 0.0}, SHAPES))

    toy = Toy(program=program)
    toy.play(toy.openings(b={"words": {"from": "b"}, "salt": "1", **numbers}))
    for party in toy.parties.values():
        assert party.result == (None, {name: {"from": name} for name in NAMES}, [])


# ---- refusals


def test_all_reasons_of_all_sites_are_told():
    toy = Toy(program=asks_for_words)
    openings = words_alone(
        {"a": {"refused": ["too few rows.", "no\x1bmasks."]}, "b": {"reasons": ["a rare level."]}, "c": {}}
    )
    with pytest.raises(
        RunRefused, match=r"site 'a': too few rows\. no\\x1bmasks\. site 'b': a rare level\.$"
    ) as refused:
        hear(toy, openings)
    assert refused.value.reasons == {"a": ["too few rows.", "no\\x1bmasks."], "b": ["a rare level."]}
    assert isinstance(refused.value, Refused)


@pytest.mark.parametrize("reasons", [None, [], "no", 5, [5], [["no"]], {}])
def test_a_site_that_refuses_without_a_reason_is_named(reasons):
    with pytest.raises(RunRefused, match="site 'b': it refuses, and gave no reason"):
        hear(Toy(program=asks_for_words), words_alone({"a": {}, "b": {"refused": reasons}, "c": {}}))


def test_reasons_without_a_refusal_end_no_run():
    toy = Toy(program=asks_for_words)
    assert hear(toy, words_alone({"a": {"reasons": ["x"]}, "b": {}, "c": {}})).question is None


def test_reasons_are_cut():
    many = {"refused": ["x" * 1000, "y" * 1001, "\x1b" * 1000, *map(str, range(60))]}
    with pytest.raises(RunRefused) as refused:
        hear(Toy(program=asks_for_words), words_alone({"a": many, "b": {}, "c": {}}))
    told = refused.value.reasons["a"]
    assert told[:3] == ["x" * 1000, "y" * 1000, "\\x1b" * 250]
    assert len(told) == 50
    assert told[-1] == "46"


# ---- dishonest sites


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"words": {}}, "must send words, salt and numbers alone"),
        ({"salt": "1"}, "must send words, salt and numbers alone"),
        ({"words": [], "salt": "1"}, "must send words, salt and numbers alone"),
        ({"words": {}, "salt": 1}, "must send words, salt and numbers alone"),
        ({"words": {}, "salt": "1", "more": 1}, "must send words, salt and numbers alone"),
        ({"words": {}, "salt": "1", "numbers": 5}, "must send 7 numbers of 4 words"),
        ({"words": {}, "salt": "1", "numbers": [1.0] * 7}, "must send 7 numbers of 4 words"),
        ({"words": {}, "salt": "1", "numbers": np.zeros((7, 4))}, "must send 7 numbers of 4 words"),
        ({"words": {}, "salt": "1", "numbers": np.zeros((6, 4), np.uint64)}, "must send 7 numbers of 4 words"),
        ({"words": {}, "salt": "1", "numbers": np.zeros((8, 4), np.uint64)}, "must send 7 numbers of 4 words"),
        ({"words": {}, "salt": "1", "numbers": np.zeros((7, 3), np.uint64)}, "must send 7 numbers of 4 words"),
        ({"words": {}, "salt": "1", "numbers": np.zeros(28, np.uint64)}, "must send 7 numbers of 4 words"),
    ],
)
def test_a_site_that_sends_something_else_is_blamed_by_name(message, why):
    toy = Toy()
    with pytest.raises(Blamed, match=f"site 'b' {why}"):
        hear(toy, toy.openings(b=through_the_wire(message)))


@pytest.mark.parametrize("masked", [True, False])
def test_masks_that_do_not_cancel_end_the_run(masked):
    toy = Toy(plan_of(masked=masked))
    toy.play()
    false = toy.message("b")
    false["numbers"] = false["numbers"].copy()
    false["numbers"][0, 2] += np.uint64(1)  # the 1 of a site is 2
    with pytest.raises(Blamed, match="the masks of 3 sites must cancel; in round 2 they do not"):
        hear(toy, toy.openings(b=false))


def test_masks_over_another_history_do_not_cancel():
    toy = Toy()
    toy.masks["b"] = Masks(run_key_of("b", "1"), toy.roster.run_keys, "b", b"another roster")
    with pytest.raises(Blamed, match="masks of 3 sites must cancel"):
        hear(toy, toy.openings())


def test_a_masked_message_says_nothing_without_the_others():
    """The 1 of each site is hidden too: by chance a masked number is below 1e9 once in 2^98."""
    toy = Toy()
    hidden = [toy.message(name)["numbers"] for name in NAMES]
    assert not any((one == to_words(np.ones(1))).all(axis=-1).any() for one in hidden)


# ---- a dishonest mailbox


def test_a_round_is_heard_once_and_in_turn():
    toy = Toy()
    party = toy.parties["a"]
    openings = toy.openings()
    with pytest.raises(Blamed, match="openings come after them"):
        party.hear_openings(openings)
    commitments = commitments_to(openings, toy.transcript)
    party.hear_commitments(commitments)
    with pytest.raises(Blamed, match="they came twice"):
        party.hear_commitments(commitments)
    party.hear_openings(openings)
    with pytest.raises(Blamed, match="openings come after them"):
        party.hear_openings(openings)
    with pytest.raises(Blamed, match="the commitment of site 'a' in round 2 is not signed"):
        party.hear_commitments(commitments)


def test_an_ended_run_has_no_further_round():
    toy = Toy(program=asks_for_words)
    toy.play(words_alone(SILENT))
    with pytest.raises(Blamed, match="this run has ended; there is no further round"):
        hear(toy, words_alone(SILENT, salt="2"))


def test_a_party_that_was_shown_another_history_notices_in_the_next_round():
    """Site c signs two messages, and site a is shown the other one than b and the mailbox."""
    toy = Toy(plan_of(masked=False))
    honest = toy.openings()
    other = toy.message("c") | {"salt": "other"}
    for party, openings in ((toy.parties["a"], honest | {"c": other}), (toy.parties["b"], honest)):
        party.hear_commitments(commitments_to(openings, party.transcript))
        party.hear_openings(openings)
    openings = toy.openings()
    signed_by_a = commitments_to(openings, toy.parties["a"].transcript)
    signed_by_b = commitments_to(openings, toy.parties["b"].transcript)
    with pytest.raises(
        Blamed, match="the commitment of site 'a' in round 2 is not signed by its key over what this party"
    ):
        toy.parties["b"].hear_commitments(signed_by_b | {"a": signed_by_a["a"]})
    with pytest.raises(Blamed, match="the commitment of site 'b' in round 2"):
        toy.parties["a"].hear_commitments(signed_by_a | {"b": signed_by_b["b"]})


@pytest.mark.parametrize("other", [plan_of(nonce="2"), plan_of(("a", "b")), plan_of(masked=False)])
def test_a_roster_must_be_that_of_the_plan(other):
    with pytest.raises(Refused, match="the roster must be of the sites of this run, and signed for it"):
        Party(plan_of(), roster_of(other), verify, asks_twice())
    plan = plan_of()
    fewer = type(roster_of(plan))(plan.run, entries_of(plan)[:2], verify)
    with pytest.raises(Refused, match="the roster must be of the sites of this run"):
        Party(plan, fewer, verify, asks_twice())


STRANGE = [
    None, True, 0, -1, 0.5, 1e308, 10**400, "", "x", "a", "\x1b[31m", "\ud800", [], {}, [[]], [1, "x"], "0" * 64,
    {"$array": [[1], [0.0]]}, {"$words": [[1], "AAAAAAAAAAA="]}, {"$words": [[0, 4], ""]}, {"refused": 5},
    {"words": {}},
]  # fmt: skip


def mutant(rng, message):
    """A message through the wire with one part changed, left out, doubled or renamed."""
    plain = json.loads(encode(message))

    def places(value):
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        return [(value, key) for key, _ in inner] + [place for _, part in inner for place in places(part)]

    place, key = (found := places(plain))[rng.integers(len(found))]
    what = rng.integers(4)
    if what == 0 and isinstance(place, dict):
        del place[key]
    elif what == 1 and isinstance(place, dict):
        place[str(rng.choice(["extra", "a", "$array", "numbers"]))] = place[key]
    elif what == 2 and isinstance(place[key], str):
        place[key] = place[key][::-1] if rng.random() < 0.5 else place[key] + place[key][:4]
    else:
        place[key] = copy.deepcopy(STRANGE[rng.integers(len(STRANGE))])
    found = decode(json.dumps(plain))
    return mutant(rng, message) if encode(found) == encode(message) else found


@pytest.mark.parametrize("what", ["commitments", "openings", "message", "past"])
def test_mutated_messages_are_refused_in_words(what):
    """300 mutants of each kind; those of a site are committed to and signed, as a dishonest site would."""

    def program():
        return (yield Question("sums", {"at": 0.0}, SHAPES))

    rng, taken, words, toy = np.random.default_rng(14), 0, [], Toy(program=program)
    toy.play()
    for _ in range(300):
        party = Party(toy.plan, toy.roster, verify, program())
        one = toy.rounds[0]
        try:
            if what == "past":
                party.go_over(mutant(rng, toy.earlier()))
            elif what == "message":
                openings = one["openings"] | {"b": mutant(rng, one["openings"]["b"])}
                party.hear_commitments(commitments_to(openings, party.transcript))
                party.hear_openings(openings)
            else:
                party.hear_commitments(mutant(rng, one["commitments"]) if what == "commitments" else one["commitments"])
                party.hear_openings(mutant(rng, one["openings"]) if what == "openings" else one["openings"])
            taken += 1
        except ValueError as error:  # of the wire, too: what is no message reaches no party
            words.append(str(error))
    assert taken <= {"commitments": 0, "openings": 0, "message": 200, "past": 0}[what]
    assert all(text.isprintable() and len(text) < 1200 for text in words)


# ---- runs that go on from an earlier one


def continued(toy, nonce="2", **changes):
    return Toy(plan_of(nonce=nonce, **changes))


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_run_continues_an_earlier_one(masked, kept):
    whole = Toy(plan_of(masked=masked))
    for _ in range(3):
        whole.play()
    toy = continued(whole, masked=masked, asker="another")
    before = toy.transcript.digest
    for party in toy.parties.values():
        asked = []
        party.go_over(whole.earlier(kept), asked.append)
        assert [question.content for question in asked] == [{"at": 0.0}, {"at": 6.0}][:kept]
        assert party.transcript.round == 1
        assert party.transcript.digest != before
    for _ in range(3 - kept):
        toy.play()
    assert encode({"x": toy.parties["a"].result[1]}) == encode({"x": whole.parties["a"].result[1]})


def test_a_run_continues_two_earlier_ones():
    first = Toy()
    first.play()
    second = continued(first)
    for party in second.parties.values():
        party.go_over(first.earlier())
    second.play()
    third = continued(second, "3")
    for party in third.parties.values():
        party.go_over(first.earlier())
        party.go_over(second.earlier())
    third.play()
    assert third.parties["b"].question is None
    alone = continued(second, "4").parties["a"]
    with pytest.raises(Blamed, match="the commitment of site 'a' in round 1 is not signed"):
        alone.go_over(second.earlier())  # which was signed as going on from the first


def test_parties_that_were_given_different_pasts_notice():
    whole = Toy()
    whole.play()
    whole.play()
    toy = continued(whole)
    toy.parties["a"].go_over(whole.earlier(1))
    toy.parties["b"].go_over(whole.earlier(2))
    openings = words_alone(SILENT)
    signed = commitments_to(openings, toy.parties["a"].transcript)
    with pytest.raises(Blamed, match="not signed by its key over what this party has seen"):
        toy.parties["b"].hear_commitments(signed)


def changed(toy, **changes):
    return toy.earlier() | changes


def other_version():
    """An earlier run in which all sites had another fedgauss, as it would be signed."""
    toy = Toy()
    entries = [entry._replace(version="0.0.1") for entry in entries_of(toy.plan)]
    signed = [entry._replace(signature=key_of(entry.name).sign(entry.statement(toy.plan.run))) for entry in entries]
    return toy.earlier() | {"roster": [entry._asdict() for entry in signed]}


def other_key():
    toy = Toy()
    own = key_of("d")
    entry = Entry.signed(toy.plan.run, "a", own, run_key_of("a", "1").public, HEAD, 1)
    return toy.earlier() | {"roster": [entry._asdict(), *toy.earlier()["roster"][1:]]}


PAST = "an earlier run must have its plan, its roster and its rounds"
ANOTHERS = "this past is another's"


@pytest.mark.parametrize(
    ("earlier", "why"),
    [
        (None, PAST),
        ([], PAST),
        ({}, PAST),
        (changed(Toy(), more=1), PAST),
        (changed(Toy(), plan={}), "a plan must have"),
        (changed(Toy(), roster={}), "a roster must be a list"),
        (changed(Toy(), roster=[]), "the roster must be of the sites"),
        (changed(Toy(), roster=Toy(plan_of(nonce="3")).earlier()["roster"]), "the entry of site 'a' must be signed"),
        (Toy(plan_of(masked=False)).earlier(), ANOTHERS),
        (Toy(plan_of(("a", "b"))).earlier(), ANOTHERS),
        (Toy(plan_of(model=Model("y ~ z"))).earlier(), ANOTHERS),
        (other_version(), ANOTHERS),
        (other_key(), ANOTHERS),
        (changed(Toy(), rounds=None), "the rounds of an earlier run must be a list"),
        (changed(Toy(), rounds={"0": {}}), "the rounds of an earlier run must be a list"),
        (changed(Toy(), rounds=[None]), "a round of an earlier run must have commitments and openings"),
        (changed(Toy(), rounds=[{}]), "a round of an earlier run must have commitments and openings"),
        (changed(Toy(), rounds=[{"commitments": [], "openings": {}}]), "round 1 must have a commitment of each site"),
        (
            changed(Toy(), rounds=[{"commitments": {}, "openings": {}}]),
            "the commitment of site 'a' in round 1 is missing",
        ),
    ],
)
def test_a_past_that_is_none_is_refused(earlier, why):
    party = continued(Toy()).parties["a"]
    with pytest.raises(Refused, match=why):
        party.go_over(earlier)


def test_a_past_with_a_round_left_out_turned_round_or_repeated_is_refused():
    whole = Toy()
    for _ in range(3):
        whole.play()
    first, second, last = whole.earlier()["rounds"]
    for rounds, at in (([second, last], 1), ([first, last], 2), ([second, first], 1), ([first, first], 2)):
        party = continued(whole).parties["a"]
        with pytest.raises(Blamed, match=f"the commitment of site 'a' in round {at} is not signed"):
            party.go_over(whole.earlier() | {"rounds": rounds})
    party = continued(whole).parties["a"]
    with pytest.raises(Refused, match="a run that ended cannot be continued; ask again without its past"):
        party.go_over(whole.earlier() | {"rounds": [first, second, last, first]})


def test_a_past_that_ended_gives_its_result():
    whole = Toy()
    for _ in range(3):
        whole.play()
    party = continued(whole).parties["a"]
    party.go_over(whole.earlier())
    assert party.question is None
    assert party.result[2] == {name: {"from": name} for name in NAMES}
