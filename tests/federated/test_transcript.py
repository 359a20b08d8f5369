"""Every party of a run has the same signed history, or notices in the next round."""

import pytest
from protocol_parts import HEAD, NAMES, commitments_to, key_of, plan_of, roster_of, words_alone

from fedgauss.federated.keys import verify
from fedgauss.federated.party import Transcript
from fedgauss.federated.refusal import Blamed, Refused
from fedgauss.federated.wire import digest

ROSTER = roster_of(plan_of())
SAID = words_alone({name: {"x": 1} for name in NAMES})


def begun(past=""):
    return Transcript(ROSTER, verify, past)


def played(*rounds, past=""):
    transcript = begun(past)
    for openings in rounds:
        transcript.check_commitments(commitments_to(openings, transcript))
        transcript.check_openings(openings)
        transcript.advance()
    return transcript


def said(text):
    return words_alone({name: {"x": text} for name in NAMES})


def refuses(why, check, messages):
    with pytest.raises(Blamed, match=why) as blamed:
        check(messages)
    assert str(blamed.value).isprintable()
    assert isinstance(blamed.value, Refused)  # the other side may read it


def test_an_honest_round_is_taken():
    transcript = begun()
    assert transcript.round == 1
    before, context = transcript.digest, transcript.context
    transcript.check_commitments(commitments_to(SAID, transcript))
    assert (transcript.digest, transcript.context) == (before, context)  # sites commit to masked messages
    transcript.check_openings(dict(reversed(SAID.items())))
    transcript.advance()
    assert transcript.round == 2
    assert transcript.digest != before
    transcript.check_commitments(commitments_to(SAID, transcript))


def test_what_is_signed_has_every_part_of_it():
    transcript = begun()
    assert transcript.statement("c" * 64, HEAD, 7) == (
        f"fedgauss commitment 1 {transcript.digest} 1 {'c' * 64} {HEAD} 7".encode()
    )
    assert transcript.context == f"{transcript.digest} 1".encode()


def test_histories_that_differ_anywhere_have_different_digests():
    one, other = said("one"), said("other")
    changed = one | {"c": {"words": {"x": "one"}, "salt": "another"}}
    histories = [(), (one,), (other,), (changed,), (one, other), (other, one), (one, one), (one, other, one)]
    found = [played(*rounds, past=past) for rounds in histories for past in ("", "an earlier run")]
    other_roster = Transcript(roster_of(plan_of(nonce="2")), verify)
    assert len({transcript.digest for transcript in [*found, other_roster]}) == len(found) + 1
    assert len({transcript.context for transcript in [*found, other_roster]}) == len(found) + 1


@pytest.mark.parametrize("change", [{"head": "1" * 64}, {"length": 2}])
def test_what_is_signed_beside_a_commitment_is_in_the_history(change):
    """A site that shows two parties two states of its ledger is found out in the next round."""
    here, there = begun(), begun()
    for transcript, more in ((here, {}), (there, change)):
        signed = commitments_to(SAID, transcript)
        signed["a"] = commitments_to({"a": SAID["a"]}, transcript, **more)["a"]
        transcript.check_commitments(signed)
        transcript.check_openings(SAID)
        transcript.advance()
    refuses(
        "'a' in round 2 is not signed by its key over what this party",
        here.check_commitments,
        commitments_to(SAID, there),
    )


def test_a_party_that_was_shown_another_message_notices():
    """Site a signs two messages for one round, and the mailbox shows one to each party."""
    here, there = played(SAID), played(SAID | {"a": {"words": {"x": 2}, "salt": "0a"}})
    signed = commitments_to(SAID, here)
    refuses("the commitment of site 'b' in round 2 is not signed by its key over what this", there.check_commitments,
            {name: signed[name] for name in ("b", "a", "c")})  # fmt: skip


def test_old_and_foreign_commitments_are_refused():
    first, transcript = commitments_to(SAID, begun()), played(SAID)
    refuses("'a' in round 2 .* it was forged, is old", transcript.check_commitments, first)
    one_old = commitments_to(SAID, transcript) | {"b": first["b"]}
    refuses("'b' in round 2", transcript.check_commitments, one_old)
    other_run = Transcript(roster_of(plan_of(nonce="2")), verify)
    refuses("'a' in round 1", begun().check_commitments, commitments_to(SAID, other_run))
    refuses("'a' in round 1", begun().check_commitments, commitments_to(SAID, begun("an earlier run")))


def test_nobody_signs_for_another():
    signed = commitments_to(SAID, begun(), keys=lambda name: key_of("d" if name == "b" else name))
    refuses("'b' in round 1 is not signed by its key", begun().check_commitments, signed)
    honest = commitments_to(SAID, begun())
    refuses("'[ab]' in round 1 is not signed", begun().check_commitments, honest | {"a": honest["b"], "b": honest["a"]})


@pytest.mark.parametrize("field", ["commitment", "head", "signature"])
def test_a_changed_commitment_is_refused(field):
    signed = commitments_to(SAID, begun())
    text = signed["c"][field]
    signed["c"][field] = text[:-1] + ("0" if text[-1] != "0" else "1")
    refuses("'c' in round 1 is not signed", begun().check_commitments, signed)
    signed = commitments_to(SAID, begun())
    signed["c"]["length"] += 1
    refuses("'c' in round 1 is not signed", begun().check_commitments, signed)


def test_nobody_repeats_a_message_that_it_has_not_seen():
    """Site c commits to what a committed to, to open a's message as its own once a has."""
    openings = SAID | {"c": SAID["a"]}
    refuses("sites 'a' and 'c' committed to one message in round 1: one repeats it", begun().check_commitments,
            commitments_to(openings, begun()))  # fmt: skip


def test_messages_that_are_missing_too_many_or_none_are_refused():
    for check, ready, what in (("check_commitments", False, "commitment"), ("check_openings", True, "message")):

        def checks(messages, check=check, ready=ready):
            transcript = begun()
            if ready:
                transcript.check_commitments(commitments_to(SAID, transcript))
            getattr(transcript, check)(messages)

        right = SAID if ready else commitments_to(SAID, begun())
        checks(right)
        refuses(f"the {what} of site 'b' in round 1 is missing", checks, {name: right[name] for name in ("a", "c")})
        refuses(f"the {what} of site 'a' in round 1 is missing", checks, {})
        refuses(f"'d' is not in the roster, and sent a {what} in round 1", checks, right | {"d": right["a"]})
        refuses("'d{60}' is not in the roster", checks, right | {"d" * 300: right["a"]})
        for none in (None, [], "abc", list(right)):
            refuses(f"round 1 must have a {what} of each site, by name; got", checks, none)


def test_everything_comes_once_and_in_turn():
    transcript = begun()
    refuses("round 1 has no commitments yet; openings come after them", transcript.check_openings, SAID)
    refuses("round 1 has no commitments yet; it cannot end", lambda none: transcript.advance(), None)
    signed = commitments_to(SAID, transcript)
    transcript.check_commitments(signed)
    refuses("round 1 has its commitments already; they came twice", transcript.check_commitments, signed)
    transcript.check_openings(SAID)
    transcript.advance()
    refuses("round 2 has no commitments yet; openings come", transcript.check_openings, SAID)


def test_commitments_that_were_refused_are_not_kept():
    transcript = begun()
    signed = commitments_to(SAID, transcript)
    refuses("not signed", transcript.check_commitments, signed | {"c": signed["c"] | {"length": 5}})
    refuses("no commitments yet", transcript.check_openings, SAID)


@pytest.mark.parametrize(
    "opening", [None, [], "x", {}, {"words": {}}, {"words": {"x": 1}, "salt": "0b", "more": 1}, SAID["a"]]
)
def test_a_message_that_is_not_the_one_committed_to_is_refused(opening):
    transcript = begun()
    transcript.check_commitments(commitments_to(SAID, transcript))
    refuses("the message of site 'b' in round 1 is not the one that it committed to", transcript.check_openings,
            SAID | {"b": opening})  # fmt: skip


def test_who_commits_to_what_is_no_message_is_blamed():
    transcript = begun()
    transcript.check_commitments(commitments_to(SAID | {"b": None}, transcript))
    refuses("the message of site 'b' in round 1 is not the one", transcript.check_openings, SAID | {"b": None})


@pytest.mark.parametrize(
    "change",
    [
        {"commitment": "0" * 63}, {"commitment": "G" * 64}, {"commitment": None}, {"commitment": ["0" * 64]},
        {"head": ""}, {"head": 0}, {"length": -1}, {"length": 1.0}, {"length": True}, {"length": 2**53 + 1},
        {"length": "1"}, {"signature": None}, {"signature": "0" * 129}, {"signature": 5},
    ],
)  # fmt: skip
def test_fields_are_checked_before_anything_is_done_with_them(change):
    transcript = Transcript(ROSTER, lambda key, statement, signature: True)
    signed = commitments_to(SAID, transcript)
    refuses("site 'b' must send digests, a length and a signature", transcript.check_commitments,
            signed | {"b": signed["b"] | change})  # fmt: skip
    transcript.check_commitments(signed | {"b": signed["b"] | {"signature": "0" * 128, "length": 0}})


@pytest.mark.parametrize("message", [None, [], "x", 5, {}, {"commitment": "0" * 64}])
def test_other_things_are_no_commitments(message):
    signed = commitments_to(SAID, begun())
    refuses("site 'b' sent something else than commitment, head, length, signature", begun().check_commitments,
            signed | {"b": message})  # fmt: skip
    refuses("site 'b' sent something else than", begun().check_commitments, signed | {"b": signed["b"] | {"more": 1}})


def test_what_changes_after_it_was_checked_changes_nothing():
    transcript, other = begun(), begun()
    signed = commitments_to(SAID, transcript)
    transcript.check_commitments(signed)
    other.check_commitments(commitments_to(SAID, other))
    signed["a"]["commitment"] = digest({})
    for one in (transcript, other):
        one.check_openings(SAID)
        one.advance()
    assert transcript.digest == other.digest
