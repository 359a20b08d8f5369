"""Rounds on disk: what was kept comes back after a kill at any byte, and nothing else is taken for a round."""

import stat

import pytest
from protocol_parts import Toy, entries_of, key_of, plan_of, roster_of

from fedgauss.federated import journal as module
from fedgauss.federated.journal import Journal
from fedgauss.federated.roster import Roster
from fedgauss.federated.wire import decode, encode
from fedgauss.inference.model import Model

PLAN = plan_of()
ROSTER = roster_of(PLAN)


def played(path, plan=PLAN, rounds=2):
    """A journal of a run that was stopped."""
    journal = Journal(path)
    return journal, play(journal, plan, rounds)


def play(journal, plan, rounds):
    """So many rounds of a run that continues what the journal has."""
    toy = Toy(plan)
    past = journal.begin(plan, toy.roster)
    for party in toy.parties.values():
        for earlier in past:
            party.go_over(earlier)
    for _ in range(rounds):
        toy.play()
        journal.keep(toy.rounds[-1])
    return toy


def test_rounds_come_back_as_they_were(tmp_path):
    path = tmp_path / "rounds.jsonl"
    journal, toy = played(path)
    assert len(journal) == 2
    assert len(Journal(path)) == 2
    past = Journal(path).begin(plan_of(nonce="2"), roster_of(plan_of(nonce="2")))
    assert encode({"x": past}) == encode({"x": [toy.earlier()]})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("opened_anew", [True, False])
def test_a_run_that_was_stopped_twice_continues(tmp_path, opened_anew):
    path = tmp_path / "rounds.jsonl"
    journal, _ = played(path, rounds=1)
    for nonce, rounds in (("2", 0), ("3", 1), ("4", 1)):
        journal = Journal(path) if opened_anew else journal
        toy = play(journal, plan_of(nonce=nonce), rounds)
    assert toy.parties["a"].question is None
    assert len(journal) == len(Journal(path)) == 3


def test_a_new_journal_has_no_past(tmp_path):
    path = tmp_path / "rounds.jsonl"
    journal = Journal(str(path))
    assert not path.exists()
    assert len(journal) == 0
    assert journal.begin(PLAN, ROSTER) == []
    assert Journal(path).begin(plan_of(nonce="2"), roster_of(plan_of(nonce="2"))) == []  # it had no rounds


@pytest.mark.parametrize(
    ("plan", "change"),
    [
        (plan_of(masked=False), None), (plan_of(("a", "b")), None), (plan_of(model=Model("y ~ z")), None),
        (PLAN, "key"), (PLAN, "version"),
    ],
)  # fmt: skip
def test_a_journal_of_something_else_begins_anew(tmp_path, plan, change):
    path = tmp_path / "rounds.jsonl"
    played(path)
    entries = entries_of(plan)
    if change == "key":
        entries[0] = entries[0]._replace(key=key_of("d").public)
    elif change == "version":
        entries = [entry._replace(version="0.0.1") for entry in entries]
    journal = Journal(path)
    assert journal.begin(plan, Roster(plan.run, entries, lambda key, statement, signature: True)) == []
    assert len(journal) == len(Journal(path)) == 0
    assert len(path.read_text().splitlines()) == 1


def test_a_journal_whose_plan_was_changed_begins_anew(tmp_path):
    path = tmp_path / "rounds.jsonl"
    for plan, roster in (({}, ROSTER.to_wire()), (PLAN.to_wire(), [1]), (PLAN.to_wire(), [{}]), (PLAN.to_wire(), 5)):
        path.write_text(encode({"plan": plan, "roster": roster}) + "\n" + encode({"round": {}}) + "\n")
        assert len(Journal(path)) == 1
        assert Journal(path).begin(PLAN, ROSTER) == []


def test_a_kill_at_any_byte_loses_the_last_line_alone(tmp_path):
    path = tmp_path / "rounds.jsonl"
    played(path)
    text = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(text) if byte == 10]
    assert len(ends) == 3
    plan = plan_of(nonce="2")
    for cut in [*range(0, len(text), 397), *(end + by for end in ends for by in (-2, -1, 0))]:
        path.write_bytes(text[:cut])
        if 0 < cut < len(module._BEGINNING):
            continue
        whole = max(0, sum(end <= cut for end in ends) - 1)
        journal = Journal(path)
        assert len(journal) == whole
        journal.begin(plan, roster_of(plan))
        journal.keep({"new": cut})
        assert len(Journal(path)) == whole + 1  # not written behind half a line
        for line in path.read_text().splitlines():
            decode(line)


@pytest.mark.parametrize("line", ["nonsense", "{}", '{"round":{},"plan":{}}', '{"plan":{}}', '{"a":1}', "[]", ""])
def test_what_comes_after_a_line_that_is_none_is_left_out(tmp_path, line):
    path = tmp_path / "rounds.jsonl"
    played(path)
    beginning, first, second = path.read_text().splitlines()
    path.write_text("\n".join([beginning, first, line, second]) + "\n")
    assert len(Journal(path)) == 1
    assert path.read_text().splitlines() == [beginning, first]


@pytest.mark.parametrize("text", ["a,b\n1,2\n", '{"round":{}}\n', "x", "\n", '{"pla'])
def test_another_file_is_left_alone(tmp_path, text):
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"a journal must begin with a plan; .*data\.csv is another file"):
        Journal(path)
    assert path.read_text() == text


def test_an_empty_file_is_a_journal(tmp_path):
    path = tmp_path / "rounds.jsonl"
    path.touch()
    assert len(Journal(path)) == 0


def test_a_round_belongs_to_a_run(tmp_path):
    with pytest.raises(ValueError, match="a line of a journal must be a round"):
        Journal(tmp_path / "rounds.jsonl").keep({})


def test_a_fit_that_is_done_leaves_nothing(tmp_path):
    path = tmp_path / "rounds.jsonl"
    journal, _ = played(path)
    journal.remove()
    assert not path.exists()
    assert len(journal) == 0
    journal.remove()


def test_a_round_is_on_disk_before_the_next_begins(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", lambda handle: synced.append((tmp_path / "rounds.jsonl").read_text().count("\n")))
    played(tmp_path / "rounds.jsonl")
    assert synced == [1, 2, 3]
