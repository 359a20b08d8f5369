"""Keys: the one by which a table is known, which signs, and one for each run, from which masks are made.

The primitives are those of `cryptography`: Ed25519, X25519 and HKDF-SHA256.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedgauss._files import write_whole
from fedgauss.federated.refusal import Refused

_BYTES = 32  # of a key of either kind
_GROUPS, _DIGITS = 6, 5  # of a fingerprint: 120 bits, which nobody finds a second key for

_ARE_HEX = re.compile("[0-9a-f]*").fullmatch
_SIGN = 1 << 255  # of a point, beside its y
# y of the points of order 1, 2, 4 and 8 on edwards25519 and what else is read as them: 0, +-1, +-y8 and p, p + 1.
_PRIME = 2**255 - 19
_Y8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_LOW_ORDER = {0, 1, _PRIME - 1, _PRIME, _PRIME + 1, _Y8, _PRIME - _Y8}

Verify = Callable[[str, bytes, str], bool]  # of a public key, a statement and a signature


class Signer(Protocol):
    """What signs for a site, or for who asks."""

    @property
    def public(self) -> str:
        """The public key in hexadecimal digits."""

    def sign(self, statement: bytes) -> str:
        """A signature of the statement, in hexadecimal digits."""


class RunKeyLike(Protocol):
    """A key for one run."""

    @property
    def public(self) -> str:
        """What the other sites are sent."""

    @property
    def private(self) -> str:
        """What a site keeps that is put away between two orders."""

    def shared(self, other_public: str, context: bytes) -> bytes:
        """32 bytes that only these two can work out."""


class Key:
    """An Ed25519 key.

    Attributes
    ----------
    public : str
        64 hexadecimal digits.

    Examples
    --------
    >>> key = Key.read(Path("north.csv.key"))
    >>> print(fingerprint(key.public))
    """

    def __init__(self, private: bytes) -> None:
        self._pair = Ed25519PrivateKey.from_private_bytes(private)
        self.public: str = self._pair.public_key().public_bytes_raw().hex()

    @classmethod
    def fresh(cls) -> Self:
        """A new key, from the system's source of randomness."""
        return cls(os.urandom(_BYTES))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The key in a file, which is made on first use and can be read by its owner alone."""
        if not path.exists():
            write_whole(path, os.urandom(_BYTES).hex().encode() + b"\n")
        text = path.read_text(encoding="ascii", errors="replace").strip()
        if not is_hex(text, _BYTES):
            raise ValueError(
                f"a key must be {2 * _BYTES} hexadecimal digits; {path} has something else. Put the file back from a "
                "copy, or delete it: the next run makes a new key, which other sites must then be told of."
            )
        return cls(bytes.fromhex(text))

    def sign(self, statement: bytes) -> str:
        """A signature of the statement, in hexadecimal digits."""
        return self._pair.sign(statement).hex()

    def __repr__(self) -> str:
        return f"<key {fingerprint(self.public)}>"


def verify(key: str, statement: bytes, signature: str) -> bool:
    """Whether the owner of a public key has signed the statement; a key by which anybody could sign has no owner."""
    if not is_hex(key, _BYTES) or not is_hex(signature, 2 * _BYTES):
        return False
    point = bytes.fromhex(key)
    if int.from_bytes(point, "little") % _SIGN in _LOW_ORDER:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(point).verify(bytes.fromhex(signature), statement)
    except InvalidSignature:
        return False
    return True


class RunKey:
    """An X25519 key for one run."""

    def __init__(self, private: str) -> None:
        self.private = private
        self._pair = X25519PrivateKey.from_private_bytes(bytes.fromhex(private))
        self.public: str = self._pair.public_key().public_bytes_raw().hex()

    @classmethod
    def fresh(cls) -> Self:
        """A new key, from the system's source of randomness."""
        return cls(os.urandom(_BYTES).hex())

    def shared(self, other_public: str, context: bytes) -> bytes:
        """32 bytes that only these two can work out: HKDF-SHA256 of what X25519 gives, for this context alone."""
        try:
            exchanged = self._pair.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other_public)))
        except ValueError as error:  # a point of low order: the exchange would give the same to everybody
            raise Refused(
                "a run key must be a point whose secret its owner alone has; this one would hide nothing."
            ) from error
        return HKDF(SHA256(), _BYTES, salt=None, info=context).derive(exchanged)


def fingerprint(public: str) -> str:
    """A public key as owners compare it by telephone."""
    digest = hashlib.sha256(f"fedgauss key {public}".encode()).hexdigest()
    return "-".join(digest[i : i + _DIGITS] for i in range(0, _GROUPS * _DIGITS, _DIGITS))


def is_hex(text: Any, n_bytes: int) -> bool:
    """Whether this is text of so many bytes in lower-case hexadecimal digits."""
    return isinstance(text, str) and len(text) == 2 * n_bytes and _ARE_HEX(text) is not None
