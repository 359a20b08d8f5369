"""A site's keys for one run, and the random words that a pair of sites shares: X25519, HKDF-SHA256 and ChaCha20.

The primitives are those of `cryptography`, the extra `masked`.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from fedgauss.inference.federated.disclosure import Refused
from fedgauss.inference.federated.fixed_point import WORDS, Words

_KEY = 32  # bytes


class Keys:
    """A site's key pair for one run.

    Attributes
    ----------
    name : str
        Of the site, as all sites know it.
    public : str
        The public key as 64 hexadecimal digits, for the other sites.

    Examples
    --------
    >>> Keys.fresh("north").public
    """

    def __init__(self, name: str, private: str) -> None:
        self.name = site_name(name)
        self._private = bytes.fromhex(checked_key("private", private))
        door = _cryptography()
        self._pair = door.X25519PrivateKey.from_private_bytes(self._private)
        self.public: str = self._pair.public_key().public_bytes_raw().hex()

    @classmethod
    def fresh(cls, name: str) -> Self:
        """New keys, from the system's source of randomness."""
        return cls(name, _cryptography().X25519PrivateKey.generate().private_bytes_raw().hex())

    @property
    def private(self) -> str:
        """For a site that must be put away between two orders. Whoever has it can take this site's masks off."""
        return self._private.hex()

    def pair_key(self, other: str, public: str, run: str, secret: bytes) -> bytes:
        """The key that this site and another share in a run.

        HKDF-SHA256 of the secret of their X25519 exchange, salted with what the owners have agreed on; both names and
        both public keys go in, all of their bits, so that who was handed another key gets another result.
        """
        door = _cryptography()
        try:
            exchanged = self._pair.exchange(door.X25519PublicKey.from_public_bytes(bytes.fromhex(public)))
        except ValueError as error:  # a point of low order: the exchange would give the same to everybody
            raise Refused(f"the public key of {other!r} must be a site's own; this one would hide nothing.") from error
        info = in_bytes(["fedgauss pair", run, sorted([(self.name, self.public), (other, public)])])
        return door.HKDF(door.SHA256(), _KEY, salt=secret or None, info=info).derive(exchanged)

    def __repr__(self) -> str:
        return f"<keys of {self.name!r}: public {self.public[:16]}...>"


def key_stream(key: bytes, context: bytes, size: int) -> Words:
    """`size` numbers modulo 2^256 that a key and a context give: ChaCha20 under a key for this context alone.

    The nonce can then be 0: it has 96 bits, too few for all that must make a message different from others.
    """
    door = _cryptography()
    one_time = door.HKDFExpand(door.SHA256(), _KEY, info=context).derive(key)
    stream = door.Cipher(door.ChaCha20(one_time, bytes(16)), mode=None).encryptor().update(bytes(8 * WORDS * size))
    return np.frombuffer(stream, "<u8").astype(np.uint64).reshape(size, WORDS)


def in_bytes(parts: Sequence[Any]) -> bytes:
    """Bytes that differ where any part does: JSON keeps the borders between parts."""
    return json.dumps(parts, separators=(",", ":")).encode()


def site_name(name: Any) -> str:
    """`name` if a site can have it."""
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise Refused("a site must have a name of 1 to 200 characters.")
    return name


def checked_key(whose: str, digits: Any) -> str:
    """`digits` if they are a key as `Keys.public` writes it."""
    try:
        key = bytes.fromhex(digits)
    except (TypeError, ValueError):
        key = b""
    if len(key) != _KEY or key.hex() != digits:
        raise Refused(f"a key must be {2 * _KEY} hexadecimal digits in lower case; that of {whose!r} is not.")
    return digits


class _Door(NamedTuple):
    """What of `cryptography` is used."""

    X25519PrivateKey: Any
    X25519PublicKey: Any
    HKDF: Any
    HKDFExpand: Any
    SHA256: Any
    Cipher: Any
    ChaCha20: Any


def _cryptography() -> _Door:
    """The only door to the package; who lacks it is told what to install."""
    try:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
    except ImportError as error:
        raise ImportError("masks need cryptography, which is not installed: pip install 'fedgauss[masked]'.") from error
    return _Door(X25519PrivateKey, X25519PublicKey, HKDF, HKDFExpand, SHA256, Cipher, ChaCha20)
