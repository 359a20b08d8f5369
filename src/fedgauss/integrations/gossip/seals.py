"""Seals on what peers send each other, which only who has their secret can make."""

import hmac
import secrets
import warnings
from pathlib import Path

import numpy as np

from fedgauss._checks import FedgaussWarning
from fedgauss._types import FloatArray
from fedgauss.integrations.gossip.edges import Forged, Swap
from fedgauss.integrations.live.credentials import check_private

_SHORTEST = 16  # characters of a secret, as of a token
_NUMBERS = 4  # float64 in a seal, and in what each end of a line draws: 32 bytes


class Seals:
    """A swap that seals what it sends, and takes nothing without its seal.

    A seal is an HMAC of the message, who sends it to whom under which tag, how many came before it, and what both ends
    drew for this run. So no message can be used twice, elsewhere or in another run.
    """

    def __init__(self, swap: Swap, rank: int, secret: bytes) -> None:
        self._swap, self._rank, self._secret = swap, rank, secret
        self._drawn: dict[tuple[int, int], tuple[bytes, bytes]] = {}  # here and there, by neighbour and tag
        self._count: dict[tuple[int, int], int] = {}

    def __call__(self, neighbour: int, message: FloatArray, tag: int) -> FloatArray:
        """What a neighbour sends in exchange, without its seal; Forged where it has none."""
        line, message = (neighbour, tag), np.asarray(message, dtype=float)
        if line not in self._drawn:
            own = np.frombuffer(secrets.token_bytes(8 * _NUMBERS))
            self._drawn[line] = own.tobytes(), self._swap(neighbour, own, tag).tobytes()
        here, there = self._drawn[line]
        self._count[line] = count = self._count.get(line, 0) + 1
        seal = self._seal(f"{self._rank} {neighbour} {tag} {count} ", here + there, message)
        received = self._swap(neighbour, np.concatenate([message, np.frombuffer(seal)]), tag)
        content, theirs = received[:-_NUMBERS], received[-_NUMBERS:].tobytes()
        if not hmac.compare_digest(
            theirs, self._seal(f"{neighbour} {self._rank} {tag} {count} ", there + here, content)
        ):
            raise Forged("what it sends must have a seal of the peers' secret, and has none. Give all the same secret.")
        return content

    def _seal(self, place: str, drawn: bytes, content: FloatArray) -> bytes:
        return hmac.digest(self._secret, place.encode() + drawn + content.tobytes(), "sha256")


def secret_in(path: str | Path) -> bytes:
    """The secret in a file that nobody else can read."""
    file = Path(path)
    check_private("secret", file, _warn)
    secret = file.read_bytes().strip()
    if len(secret) < _SHORTEST:
        raise ValueError(
            f"secret must be a file of {_SHORTEST} characters or more; {file} has {len(secret)}. "
            f"Use openssl rand -hex 32 > {file}?"
        )
    return secret


def _warn(words: str) -> None:
    warnings.warn(words, FedgaussWarning, stacklevel=4)
