"""Masks cancel exactly, hide everything but the total, and are never used twice."""

import itertools
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from fedgauss.inference.federated.disclosure import Refused
from fedgauss.inference.federated.fixed_point import LARGEST, added, from_words, negated, to_words
from fedgauss.inference.federated.keys import Keys
from fedgauss.inference.federated.lines import decoded, encoded
from fedgauss.inference.federated.masks import Mask, check_masked, total
from fedgauss.inference.federated.site import Site
from scipy import stats

NAMES = ("a", "b", "c")
WORDS = "fedgauss.inference.federated.masks.key_stream"
RNG = np.random.default_rng(5)


def federation(names=NAMES, run="run 1", **options):
    """Masks of sites whose private keys are fixed: what they send is the same in every run of the tests."""
    keys = [Keys(name, bytes([i + 1] * 32).hex()) for i, name in enumerate(names)]
    publics = {own.name: own.public for own in keys}
    return [Mask(own, publics, run, **options) for own in keys]


def sent(masked, parts, order="score", round=1, asked=None, **options):
    """What each site sends, as it comes out of a line of JSON."""
    asked = {"theta": np.zeros(2)} if asked is None else asked
    messages = [
        mask.hide(order, round, {"x": part}, asked=asked, **options) for mask, part in zip(masked, parts, strict=True)
    ]
    return [decoded(encoded(message)) for message in messages]


# ---- numbers modulo 2^256


def integer(words):
    return sum(int(word) << 64 * place for place, word in enumerate(words))


@pytest.mark.parametrize("exponent", [-160, -128, -64, -20, 0, 40, 64, 90])
def test_words_are_the_nearest_integers(exponent):
    values = RNG.normal(size=50) * 2.0**exponent
    for value, words in zip(values, to_words(values), strict=True):
        top, bottom = float(value).as_integer_ratio()
        exact = divmod(abs(top) << 128, bottom)
        nearest = exact[0] + (2 * exact[1] > bottom)
        assert integer(words) == (nearest if value > 0 else -nearest) % 2**256
    if exponent >= -64:
        np.testing.assert_array_equal(from_words(to_words(values)), values)  # no bit is lost


def test_sums_and_signs_are_those_of_python_integers():
    left, right = RNG.integers(0, 2**64, (2, 200, 4), dtype=np.uint64)
    left[:50, :3], right[:50, 0] = 2**64 - 1, 1  # carries all the way
    for a, b, c, d in zip(left, right, added(left, right), negated(left), strict=True):
        assert integer(c) == (integer(a) + integer(b)) % 2**256
        assert integer(d) == -integer(a) % 2**256


@pytest.mark.parametrize("value", [LARGEST * 1.01, -1e200, np.inf, np.nan])
def test_what_could_wrap_round_is_refused(value):
    with pytest.raises(OverflowError, match=r"at most 2\^96"):
        to_words(np.array([0.0, value]))
    with pytest.raises(Refused, match=r"some of 'x' are larger at this site.* Measure columns in larger units"):
        federation()[0].hide("score", 1, {"x": [value]}, asked={})


def test_totals_of_the_largest_numbers_do_not_wrap_round():
    parts = [np.full(2, LARGEST)] * 3
    np.testing.assert_array_equal(total(sent(federation(), parts))["x"], 3 * parts[0])


# ---- totals


def test_totals_are_the_exact_sums_rounded_once():
    """A log-likelihood of 1e5, a score that vanishes, an information of 1e24, small numbers: in one message."""
    names = [f"site {i}" for i in range(7)]
    scores = RNG.normal(size=(7, 3)) * 1e5
    scores[-1] = -scores[:-1].sum(axis=0)
    arrays = [
        {"loglik": -1e5 * RNG.random(), "score": score, "information": RNG.normal(size=(2, 2)) * 1e24,
         "small": RNG.normal(size=4) * 1e-15, "empty": np.zeros((0, 3))}
        for score in scores
    ]  # fmt: skip
    replies = [
        mask.hide("score", 1, own, asked={}) for mask, own in zip(federation(names), arrays, strict=True)
    ]  # fmt: skip
    found = total(replies)
    assert list(found) == sorted(arrays[0])
    for name in arrays[0]:
        parts = np.array([own[name] for own in arrays])
        exact = np.array([math.fsum(column) for column in parts.reshape(7, -1).T]).reshape(parts.shape[1:])
        np.testing.assert_array_equal(found[name], exact)
    assert np.abs(found["score"]).max() < 1e-9
    total_again = total(list(reversed(replies)))
    np.testing.assert_array_equal(total_again["score"], found["score"])  # in any order


def test_a_masked_fit_is_the_fit():
    """Poisson regression by scoring with raw units, masked and not, to 1e-12 of each other."""
    ages, dose = RNG.uniform(20, 90, 300), RNG.normal(size=300) * 1e-3
    x = np.column_stack([np.ones(300), ages, dose])
    y = RNG.poisson(np.exp(0.1 + 0.01 * ages + 200 * dose))
    rows = np.array_split(np.arange(300), [40, 130])

    def sums(some, theta):
        mean = np.exp(x[some] @ theta)
        return {"score": x[some].T @ (y[some] - mean), "information": (x[some].T * mean) @ x[some]}

    def scoring(add_up):
        theta = np.array([np.log(y.mean()), 0.0, 0.0])
        for number in range(1, 12):
            found = add_up(number, theta)
            theta = theta + np.linalg.solve(found["information"], found["score"])
        return theta

    masked = federation()

    def hidden(number, theta):
        told = {"theta": theta}
        return total(
            [mask.hide("score", number, sums(some, theta), asked=told) for mask, some in zip(masked, rows, strict=True)]
        )

    def plain(number, theta):
        parts = [sums(some, theta) for some in rows]
        return {name: sum(part[name] for part in parts) for name in parts[0]}

    np.testing.assert_allclose(scoring(hidden), scoring(plain), rtol=1e-12)


def test_fresh_keys_differ_and_hide():
    keys = [Keys.fresh(name) for name in NAMES]
    publics = {own.name: own.public for own in keys}
    assert len(set(publics.values())) == 3
    assert keys[0].private not in repr(keys[0])
    messages = sent([Mask(own, publics, "run") for own in keys], [1.0, 2.0, 4.0])
    assert total(messages) == {"x": 7.0}
    assert min(abs(from_words(message["x"])) for message in messages) > 1e9  # by chance once in 2^98 runs


# ---- what the coordinator can tell


def test_data_sets_with_one_total_give_messages_of_one_distribution(monkeypatch):
    """The words r_ij are independent and uniform, so a bijection of them keeps their distribution. Here is one that
    takes the messages of one data set to those of another with the same total, bit by bit, all sites' numbers changed.
    """
    one = [np.array([3.0, -1e5]), np.array([-2.0, 7.25]), np.array([1.0, 1e-20]), np.array([0.0, 4.0])]
    moved = [np.array([1e6, 0.5]), np.array([-3.0, 1e9]), np.array([-1e-3, 2.0])]
    exactly = [to_words(part) for part in one]
    two = [added(own, to_words(by)) for own, by in zip(exactly, moved, strict=False)]
    two.append(exactly[3])
    for by in moved:
        two[3] = added(two[3], negated(to_words(by)))
    names = ("a", "b", "c", "d")
    # A number of words for each pair, the masked 1 first, then the numbers.
    words = {pair: RNG.integers(0, 2**64, (3, 4), dtype=np.uint64) for pair in itertools.combinations(names, 2)}
    changed = dict(words)
    for name, by in zip(names[:3], moved, strict=True):  # m_i = x_i + r_id + ..., m_d = x_d - r_id - ...
        changed[name, "d"] = words[name, "d"].copy()
        changed[name, "d"][1:] = added(words[name, "d"][1:], negated(to_words(by)))

    def messages(numbers, streams):
        masked = federation(names)
        keys = {mask._pairs[other]: tuple(sorted((mask._keys.name, other))) for mask in masked for other in mask._pairs}
        monkeypatch.setattr(WORDS, lambda key, context, size: streams[keys[key]])
        monkeypatch.setattr("fedgauss.inference.federated.masks._in_words", lambda name, values: values_of(name))
        replies = []
        for mask, own in zip(masked, numbers, strict=True):

            def values_of(name, own=own):
                return to_words(np.ones(())) if name == "sites" else own

            replies.append(mask.hide("score", 1, {"x": np.zeros(2)}, asked={}))
        return replies

    ours, theirs = messages(exactly, words), messages(two, changed)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine["x"], other["x"])
        np.testing.assert_array_equal(mine["sites"], other["sites"])
    np.testing.assert_array_equal(total(ours)["x"], np.sum(one, axis=0))
    # The map is one to one: moving back by the same amounts gives the words again.
    for name, by in zip(names[:3], moved, strict=True):
        np.testing.assert_array_equal(added(changed[name, "d"][1:], to_words(by)), words[name, "d"][1:])


def test_words_that_are_sent_look_uniform():
    """Bytes of what two of three sites send, all numbers zero or all large: chi-square of 256 values each, and of the
    difference between the two sites. Keys are fixed, so this passes always or never; for random ones the chance of a
    wrong failure is 6e-6 at .999999. It would catch a mask that lacks a word, or repeats one.
    """
    for value in (0.0, -1e20):
        a, b, _ = (message["x"] for message in sent(federation(), [np.full(4000, value)] * 3))
        for words in (a, b, a - b):
            counts = np.bincount(np.frombuffer(words.tobytes(), np.uint8), minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-6
            assert len(np.unique(words)) == words.size


@pytest.mark.parametrize(
    "change",
    [
        {"order": "final"}, {"round": 2}, {"attempt": 1}, {"asked": {"theta": np.array([0.0, 1e-16])}},
        {"sites": ("a", "b")},
    ],
    ids=["order", "round", "attempt", "parameters", "sites"],
)  # fmt: skip
def test_no_stream_is_used_twice(change):
    """The same numbers under the same keys, one part of the context changed: no word is the same, and totals of the
    two do not go together. Other parameters for one site alone would have told its sums.
    """
    usual, other = sent(federation(), [np.zeros(500)] * 3), sent(federation()[:2], [np.zeros(500)] * 2, **change)
    assert not set(usual[0]["x"].ravel().tolist()) & set(other[0]["x"].ravel().tolist())
    with pytest.raises(ValueError, match="masks of 3 sites must cancel; they do not"):
        total([other[0], *usual[1:]])


def test_other_runs_and_secrets_have_other_streams():
    usual = sent(federation(), [0.0] * 3)
    for others in (federation(run="run 2"), federation(secret=b"agreed by telephone")):
        assert total(sent(others[:1], [0.0]) + sent(others[1:], [0.0] * 2)) == {"x": 0.0}
        with pytest.raises(ValueError, match="must cancel"):
            total([*sent(federation(run="run 2")[:1], [0.0]), *usual[1:]])


def test_a_coordinator_with_keys_of_its_own_needs_the_secret():
    """It hands site a a key of its own as b's. Without a secret it can take a's mask off; with one it cannot."""
    for secret, open_ in ((b"", True), (b"agreed by telephone", False)):
        own = Keys("a", bytes([9] * 32).hex())
        false = Keys("b", bytes([8] * 32).hex())
        publics = {"a": own.public, "b": false.public}
        message = Mask(own, publics, "run", secret=secret).hide("score", 1, {"x": 41.5}, asked={})
        guess = Mask(false, publics, "run").hide("score", 1, {"x": 0.0}, asked={})
        assert (from_words(added(message["x"], guess["x"])) == 41.5) == open_


# ---- keys


LOW_ORDER = [
    bytes(32), b"\x01" + bytes(31), bytes.fromhex("ec" + "ff" * 30 + "7f"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ed" + "ff" * 30 + "7f"), bytes.fromhex("ee" + "ff" * 30 + "7f"),
]  # fmt: skip


@pytest.mark.parametrize("public", [point.hex() for point in LOW_ORDER])
def test_points_of_low_order_are_refused(public):
    own = Keys.fresh("a")
    with pytest.raises(Refused, match="the public key of 'b' must be a site's own; this one would hide nothing"):
        Mask(own, {"a": own.public, "b": public}, "run")


@pytest.mark.parametrize("public", ["", "00", "zz" * 32, "AB" * 32, " " + "ab" * 31 + "a", "ab" * 33, None, 5, ["ab"]])
def test_keys_that_are_none_are_refused(public):
    own = Keys.fresh("a")
    with pytest.raises(Refused, match="a key must be 64 hexadecimal digits in lower case; that of 'b' is not"):
        Mask(own, {"a": own.public, "b": public}, "run")


def test_keys_must_be_those_of_the_sites():
    keys = {name: Keys.fresh(name) for name in NAMES}
    publics = {name: own.public for name, own in keys.items()}
    with pytest.raises(Refused, match="that of 'a' is not this site's"):
        Mask(keys["a"], publics | {"a": publics["b"]}, "run")
    with pytest.raises(Refused, match="that of 'a' is not this site's"):
        Mask(keys["a"], {"b": publics["b"], "c": publics["c"]}, "run")
    with pytest.raises(Refused, match="two of them have the same"):
        Mask(keys["a"], publics | {"c": publics["b"]}, "run")
    with pytest.raises(Refused, match="must have a name"):
        Mask(keys["a"], publics | {"": Keys.fresh("d").public}, "run")


@pytest.mark.parametrize("bit", [0, 100, 254, 255])
def test_a_key_that_was_changed_on_its_way_is_noticed(bit):
    """Bit 255 does not matter to X25519 itself; the key that both derive has all of it."""
    keys = {name: Keys.fresh(name) for name in NAMES}
    publics = {name: own.public for name, own in keys.items()}
    changed = bytearray(bytes.fromhex(publics["b"]))
    changed[bit // 8] ^= 1 << bit % 8
    false = publics | {"b": bytes(changed).hex()}
    masked = [Mask(own, false if own.name == "a" else publics, "run") for own in keys.values()]
    assert masked[0].fingerprint != masked[1].fingerprint == masked[2].fingerprint
    with pytest.raises(ValueError, match="with the same public keys"):
        total(sent(masked, [1.0] * 3))


# ---- rounds, attempts, drop-outs


def test_a_site_that_drops_out_ends_a_round_and_the_rest_run_it_again():
    masked = federation(("a", "b", "c", "d"))
    values = [1.0, 2.0, 4.0, 8.0]
    assert total(sent(masked, values))["x"] == 15.0
    broken = sent(masked[:3], values[:3], round=2)  # d is lost before its message
    with pytest.raises(ValueError, match="masks of 3 sites must cancel"):
        total(broken)
    rest = ("a", "b", "c")
    again = sent(masked[:3], values[:3], round=2, sites=rest, attempt=1)
    assert total(again)["x"] == 7.0
    assert not set(np.ravel(broken[0]["x"]).tolist()) & set(np.ravel(again[0]["x"]).tolist())
    assert total(sent(masked[:3], values[:3], round=3))["x"] == 7.0  # without being told again
    assert masked[0].sites == rest


def refused(mask, message, **changes):
    asked = {"order": "score", "round": 3, "arrays": {"x": 1.0}, "asked": {}} | changes
    before = mask.state()
    with pytest.raises(Refused, match=message):
        mask.hide(**asked)
    assert mask.state() == before


def test_no_round_and_attempt_is_answered_twice():
    mask = federation()[0]
    mask.hide("score", 3, {"x": 1.0}, asked={}, attempt=1)
    refused(mask, "the last was round 3, attempt 1, and this is round 3, attempt 1. Use the next attempt", attempt=1)
    refused(mask, "once for each attempt", attempt=1, sites=("a", "b"))
    refused(mask, "once for each attempt", attempt=0)
    refused(mask, "once for each attempt", attempt=1, order="final")
    refused(mask, "once for each attempt", attempt=1, asked={"theta": 1.0})
    refused(mask, "once for each attempt", round=2, attempt=7)
    mask = Mask.restored(decoded(encoded(mask.state())))  # nor after the site was put away
    refused(mask, "once for each attempt", attempt=1)
    mask.hide("score", 3, {"x": 1.0}, asked={}, attempt=2)


def test_a_restored_site_goes_on():
    masked = federation()
    masked = [Mask.restored(decoded(encoded(mask.state()))) for mask in masked]
    assert total(sent(masked, [1.0, 2.0, 4.0]))["x"] == 7.0


def test_sets_of_sites_that_would_tell_of_one_are_refused():
    mask = federation(fewest_sites=2)[0]
    refused(mask, "over at least 2 sites here and at most 65536; this one is over 1", sites=("a",))
    refused(mask, "this site, 'a', must be among those", sites=("b", "c"))
    refused(mask, "must be those that still take part, each once; got 'd'", sites=("a", "d"))
    refused(mask, "each once; got 'a', 'a' and 'b'", sites=("a", "b", "a"))
    mask.hide("score", 1, {"x": 1.0}, asked={}, sites=("a", "b"))
    refused(mask, "must be those that still take part, each once; got 'c'", sites=NAMES)  # who left does not come back
    refused(federation(drop_outs=False)[0], "does not go on without others: .* would tell of 'c'", sites=("a", "b"))
    refused(federation(fewest_sites=3)[0], "over at least 3 sites", sites=("a", "b"))
    with pytest.raises(Refused, match="over at least 4 sites"):
        federation(fewest_sites=4)
    with pytest.raises(ValueError, match=r"fewest_sites must be at least 2; got 1\. One site's total is its own sums"):
        federation(fewest_sites=1)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, 10**10])
def test_rounds_count_from_one(number):
    with pytest.raises(ValueError, match="round must be"):
        federation()[0].hide("score", number, {"x": 1.0}, asked={})


# ---- messages


def test_words_keep_every_bit_in_a_line():
    words = RNG.integers(0, 2**64, (3, 2, 4), dtype=np.uint64)
    found = decoded(encoded({"m": words, "none": words[:0]}))
    assert found["m"].dtype == np.uint64
    np.testing.assert_array_equal(found["m"], words)
    assert found["none"].shape == (0, 2, 4)


@pytest.mark.parametrize(
    "value",
    [
        {"$words": [[1], "AAAA"]}, {"$words": [[1], "AAAAAAAAAAB="]},
        {"$words": [[1], "AAAAAAAAAAA"]},
        {"$words": [[1], "AAAAAAAAAAA=\n"]}, {"$words": [[1], "AAAAAA*AAAA="]},
        {"$words": [[1], 0]}, {"$words": [[1], None]}, {"$words": [[1], ["AAAAAAAAAAA="]]},
        {"$words": [[-1], "AAAAAAAAAAA="]}, {"$words": [[1.0], "AAAAAAAAAAA="]},
        {"$words": [[True], "AAAAAAAAAAA="]}, {"$words": [1, "AAAAAAAAAAA="]},
        {"$words": [[2**32, 2**32], ""]}, {"$words": [[1] * 100, "AAAAAAAAAAA="]},
        {"$words": [[1], "ÄAAAAAAAAAA="]},
    ],
)  # fmt: skip
def test_words_that_are_none_are_refused(value):
    with pytest.raises(ValueError, match="'m' must hold 64-bit words in base64, as many as its shape says"):
        decoded(json.dumps({"m": value}))


def test_masked_replies_are_checked():
    message = federation()[0].hide("score", 1, {"x": np.zeros((2, 3)), "y": 1.0}, asked={})
    shapes = {"x": (2, 3), "y": ()}
    check_masked(message, shapes)
    for wrong in (
        {}, [], message | {"z": message["x"]}, {"x": message["x"], "y": message["y"]},
        message | {"y": message["x"]}, message | {"x": np.zeros((2, 3, 4))}, message | {"x": 5},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"must be (masked numbers|'sites', 'x' and 'y')"):
            check_masked(wrong, shapes)
    with pytest.raises(ValueError, match="of at least two sites"):
        total([])
    with pytest.raises(ValueError, match="must be masked numbers"):
        total([message, message | {"y": message["x"]}])
    with pytest.raises(ValueError, match="must not be called 'sites'"):
        federation()[0].hide("score", 1, {"sites": 1.0}, asked={})


def test_who_lacks_the_package_is_told_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    with pytest.raises(ImportError, match=r"pip install 'fedgauss\[masked\]'"):
        Keys.fresh("a")
    reply = Site({"y": np.arange(20.0)}).answer("keys", {"name": "a"})  # and so is whoever coordinates
    assert "pip install 'fedgauss[masked]'" in reply["error"]


def test_nothing_here_needs_jax():
    code = """
import sys
from fedgauss.inference.federated import disclosure, few_rows, ledger, masks, policy
assert not {"jax", "cryptography", "pandas"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
