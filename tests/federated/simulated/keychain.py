"""Keys and masks that are keyed hashes, a hundred times as fast as curves, behind the protocols of `federated.keys`.

Whoever holds the chain could sign for everybody. In a simulation that is nobody: parties have their own keys alone, and
`verify`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random

import numpy as np

from fedgauss.federated.fixed_point import WORDS, Words
from fedgauss.federated.keys import is_hex
from fedgauss.federated.refusal import Refused

_LOW_ORDER = "00" * 32  # stands for the points of X25519 with which nothing is hidden


class Keychain:
    """All keys of a simulated world.

    Parameters
    ----------
    random : Random
    watch : callable
        watch(public, statement) is called for everything that is signed.
    """

    def __init__(self, random: Random, watch: Callable[[str, bytes], None]) -> None:
        self._random, self._watch = random, watch
        self._privates: dict[str, bytes] = {}

    def key(self) -> SigningKey:
        """A new key that signs."""
        private = self._random.randbytes(32)
        public = _hash(b"key", private)
        self._privates[public] = private
        return SigningKey(public, private, self._watch)

    def verify(self, key: str, statement: bytes, signature: str) -> bool:
        """Whether the owner of a public key has signed the statement."""
        private = self._privates.get(key)
        return private is not None and signature == _signature(private, statement)

    def fresh_run_key(self) -> RunKey:
        """A new key for one run."""
        return self.run_key(self._random.randbytes(32).hex())

    def run_key(self, private: str) -> RunKey:
        """The key that has this private part."""
        key = RunKey(private, self._privates)
        self._privates[key.public] = bytes.fromhex(private)
        return key


class SigningKey:
    """As Ed25519: only its owner signs, and everybody who has its public part can check."""

    def __init__(self, public: str, private: bytes, watch: Callable[[str, bytes], None]) -> None:
        self.public, self._private, self._watch = public, private, watch

    def sign(self, statement: bytes) -> str:
        """A signature of the statement."""
        self._watch(self.public, statement)
        return _signature(self._private, statement)


class RunKey:
    """As X25519: two owners work out the same, and nobody else."""

    def __init__(self, private: str, privates: dict[str, bytes]) -> None:
        self.private, self.public, self._privates = private, _hash(b"run", bytes.fromhex(private)), privates

    def shared(self, other_public: str, context: bytes) -> bytes:
        """32 bytes that only these two can work out."""
        if other_public == _LOW_ORDER or not is_hex(other_public, 32):
            raise Refused("the run key of every site must hide something; one of these would hide nothing.")
        own = bytes.fromhex(self.private)
        other = self._privates.get(other_public, bytes.fromhex(other_public))  # any 32 bytes are a point
        return hashlib.blake2b(b"".join(sorted((own, other))) + context, digest_size=32).digest()


def stream(key: bytes, transcript: bytes, size: int) -> Words:
    """As `masks.stream`: numbers that only who has the key can work out."""
    held = hashlib.shake_128(key + transcript).digest(8 * WORDS * size)
    return np.frombuffer(held, "<u8").astype(np.uint64).reshape(size, WORDS)


def _hash(kind: bytes, private: bytes) -> str:
    return hashlib.blake2b(private, person=kind, digest_size=32).hexdigest()


def _signature(private: bytes, statement: bytes) -> str:
    return hashlib.blake2b(statement, key=private, digest_size=64).hexdigest()
