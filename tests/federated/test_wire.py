"""Messages have one text, come back as they were, and nothing that somebody sends is more than refused."""

import hashlib
import io
import json
import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_parts import FIXED

from fedgauss.federated import wire
from fedgauss.federated.wire import (
    EndlessLine,
    decode,
    digest,
    encode,
    lines_of,
    order_line,
    printable,
    read_order,
    serve_lines,
)

NAMES = st.text(max_size=4) | st.sampled_from(["$array", "$words", "$", "$$", "$$array", "x"])
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ARRAYS = st.builds(np.array, st.lists(FLOATS, max_size=3)) | st.builds(
    lambda numbers, shape: np.array(numbers, np.uint64).reshape(shape),
    st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6), st.sampled_from([(6,), (2, 3), (1, 6, 1)]),
)  # fmt: skip
PLAIN = st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=5)
PARTS = st.recursive(
    PLAIN | ARRAYS, lambda parts: st.lists(parts, max_size=3) | st.dictionaries(NAMES, parts, max_size=3), max_leaves=8
)
MESSAGES = st.dictionaries(NAMES, PARTS, max_size=4)


def same(left, right):
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and repr(left) == repr(right)


@FIXED
@given(MESSAGES)
def test_messages_come_back_as_they_were(message):
    text = encode(message)
    assert text.isascii()
    assert "\n" not in text
    assert same(decode(text), message)
    assert same(decode(text.encode()), message)
    assert encode(decode(text)) == text


def test_a_message_has_one_text_and_one_digest():
    words = np.arange(4, dtype=np.uint64)
    message = {"b": 1, "a": [1.5, {"$x": None}], "words": words}
    assert encode(message) == (
        '{"a":[1.5,{"$$x":null}],"b":1,"words":{"$words":[[4],"AAAAAAAAAAABAAAAAAAAAAIAAAAAAAAAAwAAAAAAAAA="]}}'
    )
    assert encode({"x": np.array([[1.0, -0.0]])}) == '{"x":{"$array":[[1,2],[1.0,-0.0]]}}'
    assert encode({"x": np.float64(1.5), "y": (np.int64(2), np.bool_(True))}) == '{"x":1.5,"y":[2,true]}'
    assert digest(message) == digest(dict(reversed(message.items())))
    assert digest(message) == hashlib.sha256(encode(message).encode()).hexdigest()
    assert digest(message) != digest(message | {"b": 2})
    assert digest({"x": words[::2]}) == digest({"x": words[::2].copy()})


@pytest.mark.parametrize("value", [np.nan, np.inf, np.array([1.0, -np.inf])])
def test_only_finite_numbers_are_sent(value):
    with pytest.raises(ValueError, match="Out of range float"):
        encode({"x": value})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("[1]", "a message must be a JSON object; got list"),
        ("", "one line of JSON"),
        ("{", "one line of JSON"),
        ('{"a":NaN}', "one line of JSON"),
        ('{"a":-Infinity}', "one line of JSON"),
        ('{"a":1e999}', "'a' must hold finite"),
        ('{"a":[[1e999]]}', "'a' must hold finite"),
        ('{"$a":1}', "must begin with two; got '\\$a'"),
        ('{"x":{"$":1}}', "must begin with two"),
        ('{"x":{"$array":[[0],[]],"y":1}}', "must begin with two"),
        ("[" * 100_000, "one line of JSON"),
        ('{"a":' + "1" * 5000 + "}", "one line of JSON"),
        ('{"a":"\x00"}', "one line of JSON"),
        ("{'a':1}", "one line of JSON"),
        ("null", "got NoneType"),
    ],
)
def test_what_is_no_message_is_refused(value, why):
    for text in (value, value.encode()):
        with pytest.raises(ValueError, match=why) as refused:
            decode(text)
        assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "array",
    [
        None, [], [[1]], [[1], [1.0], 0], [[1], []], [[2], [1.0]], [[1], ["1.0"]], [[1], [True]], [[1], [None]],
        [[1], [[1.0]]], [[1], {"0": 1.0}], [[1], "1"], [[1], 1.0], [[1.0], [1.0]], [[True], [1.0]], [[-1], [1.0]],
        [1, [1.0]], [[10**9, 10**9], []], [[1] * 13, [1.0]], [[64_000_001, 0], []], [["1"], [1.0]], [[1], [10**400]],
        [[-1, -1], [1.0]], [{"0": 1}, [1.0]], [[1], [{}]], [[1], [1e999]],
    ],
)  # fmt: skip
def test_arrays_that_are_none_are_refused(array):
    text = json.dumps({"m": {"$array": array}}).replace("Infinity", "1e999")
    with pytest.raises(ValueError, match=r"'m' must hold (finite )?numbers"):
        decode(text)


def test_arrays_at_the_limits_are_read():
    assert decode('{"m":{"$array":[[1,1,1,1,1,1,1,1,1,1,1,1],[3]]}}')["m"].shape == (1,) * 12
    assert decode('{"m":{"$array":[[],[3]]}}')["m"].shape == ()
    assert decode('{"m":{"$array":[[0,64000000],[]]}}')["m"].shape == (0, 64_000_000)
    assert decode('{"m":{"$array":[[2],[3,4]]}}')["m"].dtype == float


def test_shapes_that_no_array_can_have_are_refused():
    with pytest.raises(ValueError, match=r"too big|maximum"):
        decode(json.dumps({"m": {"$array": [[0] + [64_000_000] * 11, []]}}))


@pytest.mark.parametrize(
    "words",
    [
        [[1], "AAAA"], [[1], "AAAAAAAAAAB="], [[1], "AAAAAAAAAAA"], [[1], "AAAAAAAAAAA=\n"], [[1], "AAAAAA*AAAA="],
        [[1], 0], [[1], None], [[1], ["AAAAAAAAAAA="]], [[-1], "AAAAAAAAAAA="], [[1.0], "AAAAAAAAAAA="],
        [[True], "AAAAAAAAAAA="], [1, "AAAAAAAAAAA="], [[2**32, 2**32], ""], [[1] * 13, "AAAAAAAAAAA="],
        [[1], "ÄAAAAAAAAAA="], [[0], None], [[0], 0], [[1]], None, [[2], "AAAAAAAAAAA="], [[0], "AAAAAAAAAAA="],
    ],
)  # fmt: skip
def test_words_that_are_none_are_refused(words):
    with pytest.raises(ValueError, match="'m' must hold 64-bit words in base64, as many as its shape says"):
        decode(json.dumps({"m": {"$words": words}}))


def nested(depth, brackets="[]"):
    return '{"a":' + brackets[0] * depth + brackets[1] * depth + "}"


def test_messages_are_nested_twelve_deep_and_no_deeper():
    assert decode(nested(13))["a"] == [[[[[[[[[[[[[]]]]]]]]]]]]]
    with pytest.raises(ValueError, match="a message may be nested 12 deep; 'a' is deeper"):
        decode(nested(14))
    dicts = '{"a":' * 13 + "1" + "}" * 13
    assert encode(decode(dicts)) == dicts
    with pytest.raises(ValueError, match="12 deep"):
        decode('{"a":' * 14 + "1" + "}" * 14)


def test_sizes_are_bounded(monkeypatch):
    """On both sides of each limit; the real ones are made smaller, or the tests would need their memory."""
    monkeypatch.setattr(wire, "LONGEST", 20)
    assert decode('{"a":"' + "b" * 12 + '"}')
    with pytest.raises(ValueError, match="at most 20 characters; got 21"):
        decode('{"a":"' + "b" * 13 + '"}')
    monkeypatch.setattr(wire, "_MOST_PARTS", 4)
    assert decode('{"a":[{},1]}')["a"] == [{}, 1]
    for text in ('{"a":[{},1,2]}', '{"a":[{},[]]}', '{"a":[{},{}]}'):
        with pytest.raises(ValueError, match="at most 4 parts"):
            decode(text)


def test_a_long_name_is_cut_in_words_about_it():
    for text, shown in (('{"%s":1e999}', "n" * 60), ('{"$%s":1}', "$" + "n" * 59), ("%s", "n" * 60)):
        with pytest.raises(ValueError, match=r"n{50}") as refused:
            decode(text % ("n" * 1000))
        assert f"'{shown}'" in str(refused.value)


@FIXED
@given(st.text(max_size=30) | st.binary(max_size=30))
def test_any_text_is_a_message_or_refused(text):
    with suppress(ValueError):
        assert isinstance(decode(text), dict)


def test_what_is_shown_takes_no_terminal_over():
    assert printable("é a\x1b[31m\n\u202e\ud800\x9b") == "é a\\x1b[31m\\n\\u202e\\ud800\\x9b"
    assert printable("plain") == "plain"


# ---- lines


class Endless(io.RawIOBase):
    """A line without an end, that counts how much of it was read."""

    taken = 0

    def readable(self):
        return True

    def readinto(self, room):
        room[:] = b"a" * len(room)
        self.taken += len(room)
        return len(room)


def never(order, content):
    raise AssertionError(order)


def test_a_line_without_an_end_is_given_up():
    source = Endless()
    with pytest.raises(EndlessLine, match="a line of at most 1,000 bytes; this one goes on"):
        next(lines_of(io.BufferedReader(source), longest=1_000))
    assert source.taken < 100_000


def test_a_site_says_so_and_ends():
    replies, log = io.StringIO(), io.StringIO()
    serve_lines(never, lines_of(io.BufferedReader(Endless()), longest=1_000), replies, log)
    assert replies.getvalue().count("\n") == 1
    assert decode(log.getvalue())["order"] == "unreadable"
    assert "this one goes on" in decode(replies.getvalue())["error"]


def test_lines_up_to_the_limit_are_whole():
    text = b"a" * 999 + b"\n" + b"b" * 998 + b"\n" + b"c" * 500
    assert [len(line) for line in lines_of(io.BytesIO(text), longest=1_000)] == [1_000, 999, 500]
    assert next(lines_of(io.BytesIO(b"\xff{}\n"))) == "\ufffd{}\n"


class Replies(io.StringIO):
    """Where replies go, which notes how much of the log was there when each left."""

    def __init__(self, log):
        super().__init__()
        self.log, self.logged, self.flushed = log, [], 0

    def write(self, text):
        self.logged.append(self.log.flushed)
        return super().write(text)

    def flush(self):
        self.flushed = len(self.getvalue())


class Log(io.StringIO):
    """A log that knows how much of it is safe."""

    flushed = 0

    def flush(self):
        self.flushed = self.getvalue().count("\n")


def test_orders_are_answered_in_turn_and_logged_before_replies_leave():
    log = Log()
    replies = Replies(log)
    orders = [order_line("first", {"x": 1}), "nonsense\n", '{"order":1,"content":{}}\n', '{"order":"x","content":[]}\n',
              '{"content":{}}\n', order_line("second", {})]  # fmt: skip
    serve_lines(lambda order, content: {"heard": order, **content}, orders, replies, log)
    said = [decode(line) for line in replies.getvalue().splitlines()]
    assert said[0] == {"heard": "first", "x": 1}
    assert said[-1] == {"heard": "second"}
    assert "one line of JSON" in said[1]["error"]
    assert all("an order must have a name and its content" in one["error"] for one in said[2:5])
    assert replies.logged == [1, 2, 3, 4, 5, 6]
    assert replies.flushed == len(replies.getvalue())
    logged = [decode(line) for line in log.getvalue().splitlines()]
    assert [line["order"] for line in logged] == ["first", *["unreadable"] * 4, "second"]
    assert [line["sent"] for line in logged] == said
    assert logged[0]["asked"] == {"x": 1}
    assert logged[1]["asked"] is None
    assert logged[0]["time"].endswith("+00:00")
    assert read_order(order_line("a", {"x": None})) == ("a", {"x": None})


def test_replies_leave_without_a_log_too():
    replies = io.StringIO()
    serve_lines(lambda order, content: content, [order_line("a", {"x": math.pi})], replies)
    assert replies.getvalue() == encode({"x": math.pi}) + "\n"
