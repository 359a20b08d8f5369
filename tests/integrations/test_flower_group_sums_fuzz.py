"""What clients and servers may send under `GroupSums`: parts of a good message, each replaced by anything."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord
from hypothesis import strategies as st

from fedgauss.federated import group_sums as gs
from fedgauss.federated.keys import Key, verify
from fedgauss.integrations.flower.group_round import read
from fedgauss.integrations.flower.group_sums_mod import RECORD, WORDS
from fuzz.damaged import byte_mutants, fuzzed, nasty, refused_or

NAMES, SESSION, D = ["1", "2", "3"], "ab" * 16, 5
KEYS = {name: Key(bytes([int(name)]) * 32) for name in NAMES}
GOOD = {
    "shared": {"$a": 1}, "examples": 3.0, "metrics": {"$words": [[0, 4], ""]}, "signature": "0" * 128,
    "layout": {"arrays": "a", "metrics": "m"}, "names": [],
}  # fmt: skip
WHOLE = Array(np.zeros(D, dtype=np.uint64)).data
words = st.one_of(st.just(WHOLE), byte_mutants(WHOLE), st.binary(max_size=100))
part = st.one_of(nasty, st.dictionaries(st.sampled_from([*NAMES, "arrays", "metrics"]), nasty, max_size=3))


@fuzzed(st.dictionaries(st.sampled_from(list(GOOD)), part), words, few=80, many=10_000)
def test_a_reply_is_an_upload_a_fault_in_words_or_nothing(folder, changes, data):
    text = json.dumps(GOOD | changes)
    array = Array(dtype="uint64", shape=(D,), stype="numpy.ndarray", data=data)
    content = {RECORD: ConfigRecord({"content": text}), WORDS: ArrayRecord({"words": array})}
    found = read(SimpleNamespace(content=content, has_content=lambda: True))
    if found is not None:
        assert isinstance(found.form, str)
        assert isinstance(gs.fault(found.upload, "1", NAMES, D, len(found.metrics)), str)


@fuzzed(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["name", "key", "run_key", "signature", "x"]), nasty)), nasty
)
def test_a_roster_and_a_group_are_agreed_on_or_refused(folder, changes, group):
    who = {name: gs.Member(3, 2) for name in NAMES}
    entries = [dict(member.introduce(SESSION, name, KEYS[name])) for name, member in who.items()]
    for place, field, value in changes:
        entries[place][field] = value
    names = group if isinstance(group, list) and all(isinstance(name, str) for name in group) else NAMES
    tags = refused_or(who["1"].agree, entries, names, verify)
    assert tags is None or (not changes and tags.keys() == {"2", "3"}) or set(tags) == {"2", "3"}


@fuzzed(st.dictionaries(st.sampled_from(["words", "shared", "examples", "metrics"]), part), st.text(max_size=200))
def test_no_key_is_shown_for_nonsense(folder, claim, signature):
    who = {name: gs.Member(3, 2) for name in NAMES}
    entries = [member.introduce(SESSION, name, KEYS[name]) for name, member in who.items()]
    for member in who.values():
        member.agree(entries, NAMES, verify)
    assert refused_or(who["1"].show, "2", claim, signature, verify) is None
