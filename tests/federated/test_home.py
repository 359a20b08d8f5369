"""A table's key and ledger: where they are, what a table is known by, and a ledger that is paused."""

import stat

import numpy as np
import pytest

from fedgauss._files import key_place
from fedgauss.federated.home import Home, Pausable
from fedgauss.federated.ledger import Ledger
from fedgauss.federated.policy import Policy
from fedgauss.federated.refusal import Refused

TABLE = {
    "age": [61, 48, 61, 70], "died": [True, False, False, True], "ward": ["a", "b", "a", "ü\udc80"],
    "name": [None, 1, "x", "y"],
}  # fmt: skip


@pytest.fixture
def home(tmp_path):
    (tmp_path / "north.csv").touch()
    return Home.of(tmp_path / "north.csv", Policy())


def test_both_are_beside_the_table(home, tmp_path):
    assert home.ledger.path == tmp_path / "north.csv.ledger"
    assert key_place(tmp_path / "north.csv") == tmp_path / "north.csv.key"
    assert stat.S_IMODE((tmp_path / "north.csv.key").stat().st_mode) == 0o600
    assert Home.of(tmp_path / "north.csv", Policy()).key.public == home.key.public
    for name in ("north.csv.key", "north.csv.ledger"):
        assert (tmp_path / name).exists()


def test_a_table_that_is_no_file_has_them_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = Home.of("south", Policy())
    assert found.ledger.path == tmp_path / "fedgauss" / "south.ledger"
    assert key_place("south") == tmp_path / "fedgauss" / "south.key"


def test_the_ledger_has_the_rules_of_the_policy(tmp_path):
    (tmp_path / "north.csv").touch()
    policy = Policy(tries=7, epsilon=2.0, delta=1e-6, few=4, sites_apart=5)
    home = Home.of(tmp_path / "north.csv", policy)
    assert "tries: 0 of 7, 7 left" in home.ledger.report()
    assert "epsilon: 0 of 2 at delta 1e-06. all left" in home.ledger.report()
    assert (home.ledger._few, home.ledger._sites_apart) == (4, 5)
    assert "epsilon" not in Home.of(tmp_path / "north.csv", Policy(epsilon=0)).ledger.report()


def test_a_table_is_its_rows_in_any_order(home):
    order, known = [2, 0, 3, 1], home.digest(TABLE)
    assert len(known) == 32
    assert home.digest({name: [TABLE[name][i] for i in order] for name in reversed(TABLE)}) == known
    arrays = {name: np.array(own, dtype=object if name == "name" else None) for name, own in TABLE.items()}
    assert home.digest(arrays) == known
    assert home.digest(TABLE | {"age": [61.0, 48.0, 61.0, 70.0]}) == known


@pytest.mark.parametrize(
    "other",
    [
        TABLE | {"age": [61, 48, 61, 71]},  # a value
        TABLE | {"age": [48, 61, 61, 70]},  # values that are those of other rows
        TABLE | {"ward": ["b", "a", "a", "ü\udc80"]},
        TABLE | {"more": [0, 0, 0, 0]},
        {name: own for name, own in TABLE.items() if name != "ward"},
        {"year" if name == "age" else name: own for name, own in TABLE.items()},
        {name: own[:3] for name, own in TABLE.items()},
        {name: [*own, own[0]] for name, own in TABLE.items()},  # a row twice
    ],
)
def test_another_table_is_another_one(home, other):
    assert home.digest(other) != home.digest(TABLE)


def test_rows_of_numbers_or_of_words_alone(home):
    for names in (("age", "died"), ("ward",), ()):
        table = {name: TABLE[name] for name in names}
        assert home.digest(table) == home.digest({name: own[::-1] for name, own in table.items()})
    assert home.digest({"age": [1, 2]}) != home.digest({"age": [1, 3]})
    assert home.digest({"ward": ["a", "b"]}) != home.digest({"ward": ["a", "c"]})
    assert home.digest({"age": []}) != home.digest({"year": []})
    assert home.digest({"a": [1.0, 2.0], "b": [3.0, 4.0]}) != home.digest({"a": [1.0, 3.0], "b": [2.0, 4.0]})


def test_a_paused_ledger_writes_nothing(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    paused, about = Pausable(ledger), ("about", [("a", "key"), ("b", "other")], "asker", {})
    paused.paused = True
    before = ledger.path.read_bytes()
    paused.begin("run 1", *about)
    paused.note_asker("asker", "key")
    paused.finish(answered=True)
    assert paused.head == ledger.head
    assert ledger.path.read_bytes() == before
    paused.paused = False
    paused.begin("run 1", *about)
    assert ledger.path.read_bytes() != before
    with pytest.raises(Refused, match="one run at a time"):
        paused.begin("run 2", *about)
    paused.close()
    paused.begin("run 2", *about)
    paused.close()


def test_a_home_that_is_closed_lets_another_run_begin(home):
    home.ledger.begin("run 1", "about", [("a", "key"), ("b", "other")], "asker", {})
    home.close()
    home.ledger.begin("run 2", "about", [("a", "key"), ("b", "other")], "asker", {})
    home.close()
