"""Keys: published vectors, files that only their owner reads, and points and signatures that nobody should accept."""

import hashlib
import hmac
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_parts import FIXED

from fedgauss.federated.keys import Key, RunKey, fingerprint, is_hex, verify
from fedgauss.federated.refusal import Refused

# RFC 8032, 7.1, tests 1 to 3: private, public, message, signature.
ED25519 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]


@pytest.mark.parametrize(("private", "public", "message", "signature"), ED25519)
def test_signatures_are_those_of_the_standard(private, public, message, signature):
    key = Key(bytes.fromhex(private))
    statement = bytes.fromhex(message)
    assert key.public == public
    assert key.sign(statement) == signature
    assert verify(public, statement, signature)
    assert not verify(public, statement + b".", signature)
    assert not verify(ED25519[0][1] if public != ED25519[0][1] else ED25519[1][1], statement, signature)


def test_the_shared_secret_is_that_of_the_standards():
    """X25519 of RFC 7748, 6.1 (Bob's side), and HKDF of RFC 5869 from its two steps."""
    bob = RunKey("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    assert bob.public == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    alice = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    secret = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    pseudo_random = hmac.digest(bytes(32), secret, "sha256")
    assert bob.shared(alice, b"context") == hmac.digest(pseudo_random, b"context\x01", "sha256")
    assert bob.shared(alice, b"context") != bob.shared(alice, b"another")


def test_two_have_the_same_secret_and_a_third_another():
    a, b, c = (RunKey.fresh() for _ in range(3))
    assert a.shared(b.public, b"") == b.shared(a.public, b"") != a.shared(c.public, b"")
    assert RunKey(a.private).public == a.public
    assert len({a.public, b.public, c.public}) == 3
    assert len(a.shared(b.public, b"")) == 32


def numbers_of(y, top):
    return (y + (top << 255)).to_bytes(32, "little").hex()


P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P


def low_order():
    """All texts that stand for a point of order 1, 2, 4 or 8 on edwards25519, from the equation of the curve."""
    # A point of order 8 doubles to one with y = 0, so x^2 = -y^2, and -x^2 + y^2 = 1 + d x^2 y^2 is d y^4 + 2 y^2 = 1.
    root = square_root((1 + D) % P)
    eights = [square_root(square) for sign in (1, -1) if is_square(square := (sign * root - 1) * pow(D, -1, P) % P)]
    assert eights
    ys = {0, 1, P - 1, P, P + 1, *(y for eight in eights for y in (eight, P - eight))}
    return [numbers_of(y, top) for y in sorted(ys) for top in (0, 1)]


def is_square(value):
    return pow(value, (P - 1) // 2, P) in (0, 1)


def square_root(value):
    root = pow(value, (P + 3) // 8, P)
    root = root if root * root % P == value % P else root * pow(2, (P - 1) // 4, P) % P
    assert root * root % P == value % P
    return root


def test_keys_by_which_anybody_could_sign_are_none(monkeypatch):
    """With a point of low order R = identity, S = 0 is a signature of one statement in eight, or of every one."""
    points, forged = low_order(), "01" + "00" * 63
    assert len(points) == 14
    statements = [b"%d" % i for i in range(64)]
    assert not any(verify(point, statement, forged) for point in points for statement in statements)
    monkeypatch.setattr("fedgauss.federated.keys._LOW_ORDER", set())
    accepted = [any(verify(point, statement, forged) for statement in statements) for point in points]
    assert sum(accepted) >= 8  # of those that OpenSSL reads: without the check they would do


@pytest.mark.parametrize("u", [0, 1, P - 1, P, P + 1])
@pytest.mark.parametrize("top", [0, 1])
def test_run_keys_of_low_order_are_refused(u, top):
    with pytest.raises(Refused, match="a run key must be a point whose secret its owner alone has"):
        RunKey.fresh().shared(numbers_of(u, top), b"")


@pytest.mark.parametrize(
    "u",
    [
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    ],
)
def test_run_keys_of_order_eight_are_refused(u):
    with pytest.raises(Refused, match="would hide nothing"):
        RunKey.fresh().shared(u, b"")


def test_a_changed_signature_key_or_statement_is_none():
    key = Key.fresh()
    signature = key.sign(b"so it is")
    assert verify(key.public, b"so it is", signature)
    rng = np.random.default_rng(3)
    for bit in rng.choice(512, 40, replace=False):
        changed = bytearray(bytes.fromhex(signature))
        changed[bit // 8] ^= 1 << bit % 8
        assert not verify(key.public, b"so it is", changed.hex())
    for bit in rng.choice(256, 40, replace=False):
        changed = bytearray(bytes.fromhex(key.public))
        changed[bit // 8] ^= 1 << bit % 8
        assert not verify(changed.hex(), b"so it is", signature)
    assert not verify(key.public, b"so it was", signature)
    assert not verify(Key.fresh().public, b"so it is", signature)


STRANGE = [
    "",
    "00",
    "zz" * 32,
    "AB" * 32,
    " " + "ab" * 31 + "a",
    "ab" * 33,
    "ab" * 31,
    None,
    5,
    ["ab"],
    b"ab" * 32,
    "é" * 64,
]


@pytest.mark.parametrize("strange", STRANGE)
def test_what_is_no_key_or_signature_signs_nothing(strange):
    key = Key.fresh()
    assert not verify(strange, b"", key.sign(b""))
    assert not verify(key.public, b"", strange)
    assert not is_hex(strange, 32)


def test_a_signature_has_one_text():
    """Adding the order of the group to S gives no second signature of the same statement."""
    key, order = Key.fresh(), 2**252 + 27742317777372353535851937790883648493
    signature = bytes.fromhex(key.sign(b""))
    s = int.from_bytes(signature[32:], "little") + order
    assert not verify(key.public, b"", (signature[:32] + s.to_bytes(32, "little")).hex())
    assert not verify(key.public, b"", key.sign(b"").upper())


@FIXED
@given(st.text("0123456789abcdefABCDEF gé\n", max_size=6), st.integers(0, 3))
def test_digits_are_what_bytes_print(text, n_bytes):
    def printed():
        try:
            return bytes.fromhex(text).hex() == text and len(text) == 2 * n_bytes
        except ValueError:
            return False

    assert is_hex(text, n_bytes) == printed()


def test_a_key_is_made_once_and_read_by_its_owner_alone(tmp_path):
    path = tmp_path / "north.key"
    key = Key.read(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Key.read(path).public == key.public
    assert verify(key.public, b"", Key.read(path).sign(b""))
    assert Key.read(tmp_path / "south.key").public != key.public
    path.write_text(f"  {path.read_text()}\n\n")
    assert Key.read(path).public == key.public


@pytest.mark.parametrize("text", [b"", b"ab" * 31, b"AB" * 32, b"ab" * 33, b"\xff" * 64])
def test_a_file_without_a_key_is_left_as_it_is(tmp_path, text):
    path = tmp_path / "north.key"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"a key must be 64 hexadecimal digits; .*north.key has something else"):
        Key.read(path)
    assert path.read_bytes() == text


def test_a_key_shows_its_fingerprint_and_nothing_else():
    private = bytes(range(32))
    key = Key(private)
    assert repr(key) == f"<key {fingerprint(key.public)}>"
    assert private.hex()[:8] not in repr(key)


def test_fingerprints_are_of_120_bits():
    key = "ab" * 32
    digits = hashlib.sha256(f"fedgauss key {key}".encode()).hexdigest()[:30]
    assert fingerprint(key) == "-".join(
        [digits[:5], digits[5:10], digits[10:15], digits[15:20], digits[20:25], digits[25:]]
    )
    assert fingerprint("ac" + "ab" * 31) != fingerprint(key)
