"""Pairwise masks: who adds up what all sites send learns the total, and no site's part of it.

Every two sites i < j of a roster share a key that nobody else can work out (X25519, with the keys that their signed
entries carry). A stream cipher gives from it words r_ij, uniform modulo 2^256, anew for each message, and site i sends

    m_i = x_i + sum_{j > i} r_ij - sum_{j < i} r_ji   modulo 2^256,

so that sum_i m_i = sum_i x_i exactly. The messages of all sites but one are independent and uniform, and the last one
is the total less the others: two data sets with the same total give messages of one distribution.

The words depend on the transcript of the run up to this message: all that every party has signed so far. Sites that
were shown different histories have different words, and theirs do not cancel. Every message carries a masked 1, by
which that is noticed.

A total tells what follows from it: of two sites, each learns the other's part.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedgauss.federated.fixed_point import WORDS, Words, add, subtract
from fedgauss.federated.keys import RunKeyLike
from fedgauss.federated.refusal import Refused

ShortWords = npt.NDArray[np.uint64]  # a word to a number, modulo 2^64


class Masks:
    """What one site of a roster adds to its numbers.

    Parameters
    ----------
    run_key : RunKeyLike
        This site's own, drawn for the run.
    publics : mapping of str to str
        The run keys of all sites by name, this one's among them.
    name : str
        Of this site.
    context : bytes
        The roster's digest, and what the owners may have agreed on without anybody else.
    """

    def __init__(self, run_key: RunKeyLike, publics: Mapping[str, str], name: str, context: bytes) -> None:
        self._name, self._pairs = name, dict[str, bytes]()
        for other, public in publics.items():
            if other != name:
                try:
                    self._pairs[other] = run_key.shared(public, context + _pair(name, other))
                except Refused as error:
                    raise Refused(f"site {other!r} sent a run key that is none: {error}") from error

    def words(self, transcript: bytes, size: int) -> Words:
        """The sum over the other sites of the words shared with each: plus where this site's name comes first."""
        sums = [np.zeros((size, WORDS), np.uint64)] * 2
        for other, key in self._pairs.items():
            sums[other < self._name] = add(sums[other < self._name], stream(key, transcript, size))
        return subtract(*sums)

    def tags(self, digest: bytes) -> dict[str, str]:
        """For each other site a tag of something: two sites have the same tag for each other where theirs is the same.

        Nobody else can tell what a tag is of.
        """
        return {other: tag_of(key, digest) for other, key in self._pairs.items()}

    def short_words(self, other: str, transcript: bytes, size: int) -> ShortWords:
        """The words shared with one site, modulo 2^64: whose name comes first adds them, the other takes them off."""
        return short_words(self._pairs[other], transcript, size)

    def key_with(self, other: str) -> bytes:
        """The key of a pair, to show that its words were made of it: they hide nothing from then on."""
        return self._pairs[other]


def tag_of(key: bytes, digest: bytes) -> str:
    """A tag of something by a pair's key, to which both are bound by it."""
    return hmac.digest(key, b"fedgauss tag" + digest, "sha256").hex()


def short_words(key: bytes, transcript: bytes, size: int) -> ShortWords:
    """`size` numbers modulo 2^64 from a pair's key, for a message of that transcript alone."""
    one_time = hmac.digest(key, b"fedgauss short words" + transcript, "sha256")
    return _numbers(one_time, size)


def _pair(name: str, other: str) -> bytes:
    """The two names in an order that both know: a key shared under one pair of names is none under another."""
    return json.dumps(["fedgauss pair", *sorted((name, other))]).encode()


def stream(key: bytes, transcript: bytes, size: int) -> Words:
    """`size` numbers modulo 2^256. The key is used for this message alone, and so the nonce may be 0."""
    one_time = hmac.digest(key, b"fedgauss words" + transcript, "sha256")
    return _numbers(one_time, WORDS * size).reshape(size, WORDS)


def _numbers(one_time: bytes, count: int) -> ShortWords:
    stream = Cipher(ChaCha20(one_time, bytes(16)), mode=None).encryptor().update(bytes(8 * count))
    return np.frombuffer(stream, "<u8").astype(np.uint64)
