"""A roster has an entry of every site, signed for one run, and nobody is in it twice."""

import pytest
from protocol_parts import HEAD, NAMES, entries_of, key_of, plan_of, roster_of, run_key_of, through_the_wire

import fedgauss
from fedgauss.federated.keys import Key, fingerprint, verify
from fedgauss.federated.refusal import Refused
from fedgauss.federated.roster import Entry, Roster, is_ledger, is_name

PLAN = plan_of()
ENTRIES = entries_of(PLAN)


def signed(name, key=None, run_key=None, run=PLAN.run, head=HEAD, length=1):
    return Entry.signed(run, name, key or key_of(name), run_key or run_key_of(name, "1").public, head, length)


def wire_of(*entries):
    return through_the_wire({"roster": [entry._asdict() for entry in entries]})["roster"]


def test_a_roster_comes_back_as_it_was_in_any_order():
    roster = roster_of(PLAN)
    for told in (roster.to_wire(), roster.to_wire()[::-1]):
        found = Roster.from_wire(PLAN.run, through_the_wire({"roster": told})["roster"], verify)
        assert found.entries == roster.entries == tuple(ENTRIES)
        assert found.digest == roster.digest
        assert found.names == NAMES
        assert found.run == PLAN.run
    assert roster.entry("b") == ENTRIES[1]
    assert roster.keys == {name: key_of(name).public for name in NAMES}
    assert roster.run_keys == {name: run_key_of(name, "1").public for name in NAMES}
    assert roster.who == [(name, key_of(name).public, fedgauss.__version__) for name in NAMES]
    assert ENTRIES[0].version == fedgauss.__version__


def test_owners_see_names_and_fingerprints():
    lines = str(roster_of(PLAN)).splitlines()
    assert [line.split() for line in lines] == [[name, fingerprint(key_of(name).public)] for name in NAMES]


@pytest.mark.parametrize(
    "change",
    [
        {"name": "d"}, {"run_key": run_key_of("d").public}, {"head": "1" * 64}, {"length": 2}, {"version": "0"},
        {"key": key_of("d").public}, {"signature": "00" * 64}, {"signature": ENTRIES[0].signature}, {"signature": ""},
    ],
)  # fmt: skip
def test_an_entry_that_was_changed_is_refused_by_name(change):
    name = change.get("name", "b")
    with pytest.raises(Refused, match=f"the entry of site '{name}' must be signed by its key for this run; it is not"):
        Roster.from_wire(PLAN.run, wire_of(ENTRIES[0], ENTRIES[1]._replace(**change), ENTRIES[2]), verify)


def test_an_entry_of_another_run_is_refused():
    with pytest.raises(Refused, match="the entry of site 'a' must be signed by its key for this run"):
        Roster.from_wire(plan_of(nonce="2").run, wire_of(*ENTRIES), verify)


def test_every_field_of_an_entry_makes_another_roster():
    others = [
        signed("b", key=key_of("d")), signed("b", run_key=run_key_of("d").public), signed("b", head="1" * 64),
        signed("b", length=2), ENTRIES[1],
    ]  # fmt: skip
    digests = [Roster(PLAN.run, [ENTRIES[0], other, ENTRIES[2]], verify).digest for other in others]
    digests += [Roster(PLAN.run, ENTRIES[:2], verify).digest, roster_of(plan_of(nonce="2")).digest]
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize(
    ("second", "what", "who"),
    [
        (signed("a", key=key_of("d")), "name", "'a' and 'a'"),
        (signed("d", key=key_of("a")), "key", "'a' and 'd'"),
        (signed("d", run_key=run_key_of("a", "1").public), "run key", "'a' and 'd'"),
    ],
)
def test_nobody_is_in_a_roster_twice(second, what, who):
    with pytest.raises(Refused, match=f"every site must have a {what} of its own, .*; {who} have the same"):
        Roster.from_wire(PLAN.run, wire_of(*ENTRIES, second), verify)


def test_all_have_the_same_version():
    other = ENTRIES[1]._replace(version="9.9")
    other = other._replace(signature=key_of("b").sign(other.statement(PLAN.run)))
    with pytest.raises(Refused, match=rf"the same fedgauss, .*; 'a' has {fedgauss.__version__}, 'b' has 9\.9, 'c' has"):
        Roster.from_wire(PLAN.run, wire_of(ENTRIES[0], other, ENTRIES[2]), verify)


def test_of_several_names_that_stand_twice_the_first_is_named():
    second = [signed(name, key=key_of(f"{name}{name}"), run_key=run_key_of(name, "2").public) for name in "ba"]
    with pytest.raises(Refused, match=r"a name of its own, .*; 'a' and 'a' have the same"):
        Roster.from_wire(PLAN.run, wire_of(*ENTRIES, *second), verify)


def test_what_a_site_saw_of_other_ledgers_comes_through_the_wire():
    seen = {"ab" * 32: (HEAD, 7)}
    entry = Entry.signed(PLAN.run, "a", key_of("a"), run_key_of("a", "1").public, HEAD, 1, seen)
    (read,) = Roster.from_wire(PLAN.run, wire_of(entry), verify).entries
    assert read == entry
    assert read.seen == {"ab" * 32: [HEAD, 7]}


def accept_all(key, statement, signature):
    return True


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"length": True}, "'length' of an entry must be int; it is bool"),
        ({"length": 1.0}, "'length' of an entry must be int"),
        ({"name": 1}, "'name' of an entry must be str; it is int"),
        ({"head": None}, "'head' of an entry must be str"),
        ({"version": 3}, "'version' of an entry must be str"),
        ({"signature": None}, "'signature' of an entry must be str"),
        ({"key": []}, "'key' of an entry must be str"),
        ({"run_key": {}}, "'run_key' of an entry must be str"),
        ({"name": ""}, "names and versions must be 1 to 200"),
        ({"name": "a" * 201}, "names and versions must be"),
        ({"name": "a\n  b   abcde"}, "names and versions must be"),
        ({"version": "\x1b[31m"}, "names and versions must be"),
        ({"version": "1" * 201}, "names and versions must be"),
        ({"name": "a\u202e"}, "names and versions must be"),
        ({"key": "ab" * 31}, "the keys of site 'a' must have 64"),
        ({"run_key": "AB" * 32}, "the keys of site 'a' must have 64"),
        ({"head": "x"}, "the ledger of site 'a' must have"),
        ({"length": -1}, "the ledger of site 'a' must have"),
        ({"length": 2**53 + 1}, "the ledger of site 'a' must have"),
        ({"seen": []}, "'seen' of an entry must be dict"),
        ({"seen": {"b": [HEAD, 1]}}, "what site 'a' saw of other ledgers must be"),
        ({"seen": {"ab" * 32: [HEAD]}}, "what site 'a' saw of other ledgers must be"),
        ({"seen": {"ab" * 32: "xy"}}, "what site 'a' saw of other ledgers must be"),
        ({"seen": {"ab" * 32: [HEAD, -1]}}, "what site 'a' saw of other ledgers must be"),
        ({"seen": {"ab" * 32: {HEAD: 1, HEAD[::-1]: 2}}}, "what site 'a' saw of other ledgers must be"),
        ({"more": 1}, "an entry must have name, key"),
    ],
)
def test_fields_are_checked_before_anything_is_done_with_them(change, why):
    with pytest.raises(Refused, match=why) as refused:
        Roster.from_wire(PLAN.run, [ENTRIES[0]._asdict() | change], accept_all)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("told", [None, {}, "a", 5])
def test_other_things_are_no_rosters(told):
    with pytest.raises(Refused, match="a roster must be a list of at most 1,000 entries"):
        Roster.from_wire(PLAN.run, told, verify)


@pytest.mark.parametrize("entry", [None, [], "a", {}, {"name": "a"}])
def test_other_things_are_no_entries(entry):
    with pytest.raises(Refused, match="an entry must have name, key, run_key, head, length, seen, version, signature"):
        Roster.from_wire(PLAN.run, [entry], verify)


def test_a_roster_has_at_most_a_thousand_entries():
    told = [ENTRIES[0]._asdict() | {"name": str(i), "key": f"{i:064x}", "run_key": f"{i:064x}"} for i in range(1001)]
    assert len(Roster.from_wire(PLAN.run, told[:1000], accept_all).names) == 1000
    with pytest.raises(Refused, match="at most 1,000 entries"):
        Roster.from_wire(PLAN.run, told, accept_all)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("a", True), ("é 1", True), ("a" * 200, True), ("a" * 201, False), ("", False), ("a\n", False),
        ("a ", False), (" a", False), ("a b", True),
        ("\ud800", False), (None, False), (["a"], False),
    ],
)  # fmt: skip
def test_names_are_short_text_that_can_be_printed(text, is_one):
    assert is_name(text) == is_one


@pytest.mark.parametrize(
    ("length", "is_one"), [(0, True), (2**53, True), (2**53 + 1, False), (-1, False), (True, False), (1.0, False)]
)
def test_ledgers_have_a_digest_and_a_length(length, is_one):
    assert is_ledger(HEAD, length) == is_one
    assert not is_ledger("", length)
    assert not is_ledger(None, length)


def test_nobody_needs_to_know_a_private_key_to_check_an_entry():
    stranger = Key.fresh()
    entry = Entry.signed("run", "a", stranger, run_key_of("a").public, HEAD, 0)
    assert Roster("run", [entry], verify).entry("a").key == stranger.public
