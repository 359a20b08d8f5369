"""Masks cancel exactly, hide everything but the total, and are never used twice."""

import hmac
import itertools
import struct

import numpy as np
import pytest
from protocol_parts import run_key_of
from scipy import stats

from fedgauss.federated.fixed_point import add, from_words, subtract, to_words
from fedgauss.federated.keys import RunKey
from fedgauss.federated.masks import Masks
from fedgauss.federated.refusal import Refused

NAMES = ("a", "b", "c")
RNG = np.random.default_rng(5)


def federation(names=NAMES, context=b"roster"):
    """Masks of sites whose keys are fixed: what they send is the same in every run of the tests."""
    keys = {name: run_key_of(name) for name in names}
    publics = {name: key.public for name, key in keys.items()}
    return {name: Masks(key, publics, name, context) for name, key in keys.items()}


def total(messages):
    messages = list(messages)
    found = messages[0]
    for one in messages[1:]:
        found = add(found, one)
    return found


# ---- ChaCha20 of RFC 8439, 2.3, in plain Python


def quarter_round(x, a, b, c, d):
    for left, right, other, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x[left] = (x[left] + x[right]) % 2**32
        mixed = x[other] ^ x[left]
        x[other] = (mixed << turn | mixed >> 32 - turn) % 2**32


def negate(words):
    return subtract(np.zeros_like(words), words)


def key_stream(key, size):
    """The first bytes for a nonce of zeros, from block 0."""
    stream = b""
    for block in range(-(-size // 64)):
        start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), block, 0, 0, 0]
        x = list(start)
        for _ in range(10):
            for i in range(4):
                quarter_round(x, i, 4 + i, 8 + i, 12 + i)
            for i in range(4):
                quarter_round(x, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
        stream += struct.pack("<16I", *((a + b) % 2**32 for a, b in zip(start, x, strict=True)))
    return stream[:size]


def test_the_cipher_of_these_tests_is_that_of_the_standard():
    """RFC 8439, appendix A.1, vectors 1 and 2."""
    assert key_stream(bytes(32), 80).hex() == (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        "9f07e7be5551387a98ba977c732d080d"
    )


class Known:
    """A run key whose shared secrets are written down."""

    public = private = ""

    def __init__(self, name, secrets):
        self.name, self.secrets = name, secrets

    def shared(self, other_public, context):
        self.secrets.setdefault(frozenset((self.name, other_public)), set()).add(context)
        return b"".join(sorted(name.encode() * 16 for name in (self.name, other_public)))[:32]


def test_words_are_those_of_the_equation():
    """m_i - x_i = sum_{j > i} r_ij - sum_{j < i} r_ji, with r from HMAC-SHA256 and ChaCha20 as they are published."""
    secrets, names = {}, ("a", "b", "c", "d")
    masks = {name: Masks(Known(name, secrets), {other: other for other in names}, name, b"roster") for name in names}
    integers = {}
    for i, j in itertools.combinations(names, 2):
        one_time = hmac.digest(Known(i, {}).shared(j, b""), b"fedgauss words" + b"transcript", "sha256")
        stream = key_stream(one_time, 3 * 32)
        integers[i, j] = [int.from_bytes(stream[32 * k : 32 * k + 32], "little") for k in range(3)]
    for name in names:
        for k, words in enumerate(masks[name].words(b"transcript", 3)):
            plus = sum(integers[name, other][k] for other in names if other > name)
            minus = sum(integers[other, name][k] for other in names if other < name)
            assert int.from_bytes(words.astype("<u8").tobytes(), "little") == (plus - minus) % 2**256
    assert all(len(contexts) == 1 for contexts in secrets.values())  # both of a pair have the same
    assert len(set.union(*secrets.values())) == len(secrets) == 6  # and no two pairs


# ---- totals


@pytest.mark.parametrize("n_sites", [2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 15])
def test_masks_cancel(n_sites, n):
    names = [f"site {i}" for i in range(n_sites)]
    values = RNG.normal(size=(n_sites, n))
    masked = federation(names)
    sent = [add(to_words(own), masked[name].words(b"1", n)) for name, own in zip(names, values, strict=True)]
    np.testing.assert_array_equal(total(sent), total(map(to_words, values)))


def test_a_missing_a_changed_or_an_older_message_does_not_cancel():
    masked = federation()
    sent = {name: masked[name].words(b"2", 3) for name in NAMES}
    assert not total(sent.values()).any()
    older = masked["b"].words(b"1", 3)
    for wrong in ([sent["a"], sent["b"]], [sent["a"], sent["b"], sent["b"]], [sent["a"], older, sent["c"]]):
        assert total(wrong).any(axis=1).all()


def test_fresh_keys_hide():
    """By chance a masked number is below 1e9 once in 2^98 runs."""
    keys = {name: RunKey.fresh() for name in NAMES}
    publics = {name: key.public for name, key in keys.items()}
    words = [Masks(key, publics, name, b"").words(b"", 4) for name, key in keys.items()]
    assert not total(words).any()
    assert min(np.abs(from_words(one)).min() for one in words) > 1e9


# ---- what somebody else can tell


def test_data_sets_with_one_total_give_messages_of_one_distribution():
    """The words r_ij are independent and uniform, so a bijection of them keeps their distribution. Here is one that
    takes the messages of one data set to those of another with the same total, bit by bit, all sites' numbers changed.
    """
    names = ("a", "b", "c", "d")
    one = {name: to_words(RNG.normal(size=3)) for name in names}
    moved = {name: to_words(RNG.normal(size=3) * 1e6) for name in names[:3]}
    two = {name: add(one[name], moved[name]) for name in names[:3]}
    two["d"] = add(one["d"], negate(total(moved.values())))
    words = {pair: RNG.integers(0, 2**64, (3, 4), dtype=np.uint64) for pair in itertools.combinations(names, 2)}
    changed = words | {(name, "d"): add(words[name, "d"], negate(moved[name])) for name in names[:3]}

    def sent(numbers, streams):
        plus = {name: total([numbers[name], *(r for (i, _), r in streams.items() if i == name)]) for name in names}
        return {name: total([plus[name], *(negate(r) for (_, j), r in streams.items() if j == name)]) for name in names}

    ours, theirs = sent(one, words), sent(two, changed)
    for name in names:
        np.testing.assert_array_equal(ours[name], theirs[name])
    np.testing.assert_array_equal(from_words(total(ours.values())), from_words(total(one.values())))


def test_words_look_uniform_and_independent():
    """Bytes of what two of three sites send, all numbers zero or all large: chi-square of 256 values each, of the
    difference between two sites, and of two rounds. Keys are fixed, so this passes always or never; for random ones the
    chance of a wrong failure is below 1.2e-5. It would catch a mask that lacks a word, or repeats one.
    """
    masked = federation()
    for value in (0.0, -1e20):
        numbers = to_words(np.full(1000, value))
        a, b = (add(numbers, masked[name].words(b"1", 1000)) for name in ("a", "b"))
        later = add(numbers, masked["a"].words(b"2", 1000))
        for words in (a, b, a - b, a - later, a[1:] - a[:-1], a[:, 1:] - a[:, :-1]):
            counts = np.bincount(np.frombuffer(words.tobytes(), np.uint8), minlength=256)
            assert stats.chisquare(counts).pvalue > 1e-6
            assert len(np.unique(words)) == words.size


def test_no_words_are_used_twice():
    """Another message of the run, another run, another secret of the owners, other sites: no word is the same."""
    rows = [
        federation()["a"].words(b"1", 100), federation()["a"].words(b"2", 100), federation()["b"].words(b"1", 100),
        federation(context=b"roster 2")["a"].words(b"1", 100),
        federation(context=b"rostersecret")["a"].words(b"1", 100),
        federation(("a", "b"))["a"].words(b"1", 100), federation(("a", "c"))["a"].words(b"1", 100),
    ]  # fmt: skip
    assert len(np.unique(np.concatenate(rows))) == 400 * len(rows)
    again = federation()["a"].words(b"1", 100)
    np.testing.assert_array_equal(again, rows[0])  # a site that was put away goes on with the same


def test_a_secret_of_the_owners_keeps_a_false_site_out():
    """Who hands site a a key of its own as b's takes a's mask off, but not where the owners have a secret."""
    a, false = run_key_of("a"), RunKey.fresh()
    publics = {"a": a.public, "b": false.public}
    for secret, is_open in ((b"", True), (b"agreed by telephone", False)):
        message = add(to_words(np.array([41.5])), Masks(a, publics, "a", b"roster" + secret).words(b"1", 1))
        guess = add(message, Masks(false, publics, "b", b"roster").words(b"1", 1))
        assert (from_words(guess)[0] == 41.5) == is_open


def test_a_key_under_two_texts_gives_words_of_its_own_for_each_name():
    """X25519 does not read the top bit: c has b's key, and a shares other words with each."""
    a, b = run_key_of("a"), run_key_of("b")
    twin = (int(b.public[-2:], 16) ^ 128).to_bytes(1, "big").hex()
    publics = {"a": a.public, "b": b.public, "c": b.public[:-2] + twin}
    both = Masks(a, publics, "a", b"").words(b"1", 8)
    alone = Masks(a, {"a": a.public, "b": b.public}, "a", b"").words(b"1", 8)
    assert not (set(add(both, negate(alone)).ravel().tolist()) & set(alone.ravel().tolist()))


# ---- keys and tags


def test_a_site_whose_key_hides_nothing_is_named():
    own = run_key_of("a")
    with pytest.raises(Refused, match=r"site 'b' sent a run key that is none: .* would hide nothing"):
        Masks(own, {"a": own.public, "b": "00" * 32}, "a", b"")


def test_tags_are_the_same_for_the_same_table_and_tell_nothing_else():
    masked = federation()
    table, other = b"t" * 32, b"u" * 32
    tags = {"a": masked["a"].tags(table), "b": masked["b"].tags(table), "c": masked["c"].tags(other)}
    assert tags["a"].keys() == {"b", "c"}
    assert tags["a"]["b"] == tags["b"]["a"]
    assert tags["a"]["c"] != tags["c"]["a"]
    assert len({tag for own in tags.values() for tag in own.values()}) == 5  # nor does a table have a tag of its own
    assert federation(context=b"2")["a"].tags(table)["b"] != tags["a"]["b"]
    assert all(len(tag) == 64 for own in tags.values() for tag in own.values())


def test_a_tag_is_that_of_the_equation():
    tags = Masks(Known("a", {}), {"a": "a", "b": "b"}, "a", b"").tags(b"digest")
    assert tags == {"b": hmac.digest(b"a" * 16 + b"b" * 16, b"fedgauss tagdigest", "sha256").hex()}
