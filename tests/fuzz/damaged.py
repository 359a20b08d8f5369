"""How a fuzz test is run, and how good input is made bad.

Whatever comes from elsewhere gives a valid result or the documented error, with words; never another exception, never
much memory, never a hang. A test runs twice: with few examples in `make test`, with many in `make study`. Examples are
the same every time; `pytest -m study tests/fuzz --hypothesis-seed 7` draws others.
"""

import copy
import io
import json
import math
import resource
import signal
import zipfile
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MEMORY = 300  # MB that one example may add to the most that the process ever had
HANG = 60  # seconds: no example takes one, and a machine that is busy is given time


def fuzzed(*strategies, few=25, many=3000):
    """The test with `few` examples, and marked as a study with `many`; it takes a folder and then the examples."""

    def decorate(test):
        @pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.study)])
        def both(examples, tmp_path, request):
            def one(drawn):
                with bounded():
                    test(tmp_path, *drawn)

            chosen = settings(
                max_examples=examples,
                derandomize=request.config.getoption("--hypothesis-seed") is None,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            )
            chosen(given(st.tuples(*strategies))(one))()

        both.__name__, both.__doc__, both.__module__ = test.__name__, test.__doc__, test.__module__
        return both

    return decorate


@contextmanager
def bounded():
    """An example that takes much memory, or does not end, is a failure."""

    def hung(*_):
        raise AssertionError(f"it has not ended after {HANG} seconds")

    before, handler = _peak(), signal.signal(signal.SIGALRM, hung)
    signal.alarm(HANG)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    assert _peak() - before < MEMORY


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def refused_or(call, *arguments, errors=ValueError):
    """What the call returns; None where it refuses in words that can be printed and are not endless."""
    try:
        return call(*arguments)
    except errors as error:
        words = str(error)
        assert words.strip()
        assert len(words) < 3000, words[:200]
        return None


# What JSON may hold in the place of something else.
NASTY = [
    None, True, False, 0, -1, 1, 3, 2**31, 2**63, 2**64, 10**15, 10**400, 0.5, -0.0, 1e-320, 1e308, -1e308,
    math.nan, math.inf, -math.inf, "", " ", "a", "0", "1e9", "NaN", "\x00", "\x1b[2J", "\ud800", "é", "x" * 500,
    [], {}, [[]], [None], ["a"], [0.0], [1, 2, 3], [1e308] * 4, [[1.0, 2.0], [3.0]], [[[[[[[[[[[[[[0]]]]]]]]]]]]]],
    {"a": 1}, {"$array": [[2], [1.0, 2.0]]}, {"$array": [[10**9, 10**9], []]}, {"$words": [[-1], ""]},
    {"$array": [[0], []]}, {"$array": None}, {"$": 1}, {"__class__": "os.system"},
]  # fmt: skip
nasty = st.one_of(
    st.sampled_from(NASTY),
    st.floats(),
    st.integers(),
    st.text(max_size=20),
    st.lists(st.floats(width=16), max_size=6),
    st.recursive(st.sampled_from([None, 1, "a"]), lambda inside: st.lists(inside, max_size=3), max_leaves=8),
)


@st.composite
def json_mutants(draw, *documents):
    """One of the documents with one to three parts replaced, taken out, repeated or added, as JSON."""
    whole = json.loads(json.dumps(documents[draw(st.integers(0, len(documents) - 1))]))
    for _ in range(draw(st.integers(1, 3))):
        whole = _mutated(draw, whole)
    return json.dumps(whole).encode("utf-8", "surrogatepass")


def _mutated(draw, whole):
    places = list(_places(whole))
    if not places:
        return copy.deepcopy(draw(nasty))
    parent, key = draw(st.sampled_from(places))
    action = draw(st.sampled_from(["replace", "replace", "replace", "drop", "repeat", "add", "swap"]))
    if action == "replace":
        parent[key] = copy.deepcopy(draw(nasty))
    elif action == "drop":
        del parent[key]
    elif action == "swap":
        other, name = draw(st.sampled_from(places))
        parent[key] = json.loads(json.dumps(other[name]))
    elif isinstance(parent, list):
        parent.insert(key, parent[key] if action == "repeat" else copy.deepcopy(draw(nasty)))
    else:
        parent[draw(st.text(max_size=8)) if action == "add" else f"{key} "] = copy.deepcopy(draw(nasty))
    return whole


def _places(value):
    """Every place in a document, as what holds it and where."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


@st.composite
def byte_mutants(draw, *wholes):
    """One of these byte strings with bytes changed, cut out, repeated or put in; now and then random bytes alone."""
    data = bytearray(wholes[draw(st.integers(0, len(wholes) - 1))])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        length = draw(st.integers(1, 16))
        action = draw(st.sampled_from(["flip", "set", "cut", "end", "repeat", "insert", "number", "random"]))
        if action == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif action == "set" and data:
            data[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x22, 0x2C]))
        elif action == "cut":
            del data[at : at + length]
        elif action == "end":
            del data[at:]
        elif action == "repeat":
            data[at:at] = data[at : at + length] * draw(st.integers(1, 8))
        elif action == "insert":
            data[at:at] = draw(st.binary(max_size=16))
        elif action == "number":
            wide = draw(st.sampled_from([0, 1, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1]))
            data[at : at + 4] = wide.to_bytes(4, draw(st.sampled_from(["little", "big"])))
        elif draw(st.integers(0, 20)) == 0:
            data = bytearray(draw(st.binary(max_size=64)))
    return bytes(data)


@st.composite
def archive_mutants(draw, *archives):
    """One of these zip files with one file in it damaged: its checksum is right, so that readers get to see it."""
    with zipfile.ZipFile(io.BytesIO(archives[draw(st.integers(0, len(archives) - 1))])) as packed:
        files = {name: packed.read(name) for name in packed.namelist()}
    name = draw(st.sampled_from(sorted(files)))
    files[name] = draw(byte_mutants(files[name][:200])) + files[name][200:]
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as packed:
        for each, content in files.items():
            packed.writestr(zipfile.ZipInfo(each), content)
    return whole.getvalue()


def text_mutants(*texts):
    """Texts of a grammar, damaged or joined with others and with characters that a tokenizer may not expect."""
    pieces = [piece for text in texts for piece in _pieces(text)]
    words = st.lists(st.sampled_from([*pieces, *"()`'\",=~:-+*/0. \x00\né", "**", "1e999"]), max_size=24).map("".join)
    damaged = byte_mutants(*(text.encode() for text in texts)).map(lambda data: data.decode("utf-8", "replace"))
    return st.one_of(words, damaged, st.text(max_size=40))


def _pieces(text):
    word = ""
    for letter in text:
        if letter.isalnum() or letter == "_":
            word += letter
            continue
        if word:
            yield word
        yield letter
        word = ""
    if word:
        yield word
