"""Sums over groups of clients that train a model, and of each client two numbers that its group vouches for.

Every two clients j < k of a group share a key. It gives words r_jk, uniform modulo 2^64 and new in every round. With
its weight n_k, what it changed u_k and x_k = round(2^24 n_k u_k) client k sends

    m_k = x_k + sum_{j > k} r_kj - sum_{j < k} r_jk   modulo 2^64,

so that the sum over the group is that of x_k, exactly. Of each of its pairs it also sends p_kj = <r_kj, c> for two
directions c of whole numbers, made of the model that all were sent. They give

    <x_k, c> = <m_k, c> - sum_{j > k} p_kj + sum_{j < k} p_jk,

which a client cannot choose: its peer sends the same p_kj, or one of the two lies. Then both show the key of their
pair, to which a tag has bound them since they agreed on it, and whose p is not that of the key is the liar.

Whoever reads all messages learns the sum of x_k, <x_k, c> of each client, and nothing else: were x_k and x_j others
with the same sum and the same <x, c>, words r_kj that are as likely would give the same messages. A client shows a key
only to who has the other one's signature under a p that is wrong, so that keys of two honest clients are never shown.

A number has one 64-bit word, since a model is long and mostly comes in float32. A weight is at most 2^20, a change at
most 2^12, and 64 clients at most are in a group, so that sums stay below 2^62. A number is rounded to 2^-25 / n_k, 3e-8
for one example: half of what float32 does at 1.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss._types import FloatArray
from fedgauss.federated import fixed_point
from fedgauss.federated.fixed_point import WORDS, from_words, to_words
from fedgauss.federated.keys import RunKey, Signer, Verify, is_hex
from fedgauss.federated.masks import Masks, ShortWords, short_words, tag_of
from fedgauss.federated.refusal import Refused
from fedgauss.federated.roster import Entry, Roster
from fedgauss.federated.wire import encode

FEWEST = 3  # clients of a group: of two, each would know the other's part
MOST_MEMBERS = 64
LEAST_EXAMPLES, MOST_EXAMPLES, LARGEST_CHANGE = 2.0**-20, 2.0**20, 2.0**12
_FRACTION = 24  # bits after the point
_FINE = 12  # bits of a direction's largest entry
_NO_LEDGER = "0" * 64  # where an entry has the head of one: clients that train keep none

Directions = npt.NDArray[np.int64]  # (2, d)


class Upload(NamedTuple):
    """What a client sends of a round."""

    words: ShortWords  # m_k  (d,)
    shared: dict[str, ShortWords]  # by peer, p for each direction
    examples: float  # n_k
    metrics: ShortWords  # masked n_k times each metric  (M, 4)
    signature: str

    def claim(self) -> dict[str, Any]:
        """What a client signs: all of it, its words by their digest."""
        words = hashlib.sha256(self.words.astype("<u8", copy=False).tobytes()).hexdigest()
        return {"words": words, "shared": self.shared, "examples": self.examples, "metrics": self.metrics}


class Summed(NamedTuple):
    """What follows from the uploads of a whole group."""

    change: FloatArray  # sum of n_k u_k  (d,)
    examples: float
    metrics: FloatArray  # sum of n_k times each metric
    scalars: dict[str, FloatArray]  # <u_k, c> / |c| for each direction, by client


def directions_of(trained: Sequence[FloatArray]) -> Directions:
    """The model itself, and the last of its arrays with two axes or more: whole numbers, the same on every machine.

    Entries are multiplied by the power of two by which the largest has 12 bits; nothing in that is rounded differently
    elsewhere, as a norm might be.
    """
    matrices = [i for i, array in enumerate(trained) if array.ndim > 1] or [len(trained) - 1]
    rows = []
    for kept in (range(len(trained)), matrices[-1:]):
        row = np.concatenate([np.ravel(a) if i in kept else np.zeros(a.size) for i, a in enumerate(trained)])
        largest = math.frexp(float(np.abs(row).max(initial=0.0)))[1]
        rows.append(np.rint(np.ldexp(row.astype(np.float64), _FINE - largest)))
    return np.stack(rows).astype(np.int64)


def random_directions(seed: str, size: int) -> Directions:
    """Eight directions of signs that follow from a seed: (8, d)."""
    drawn = hashlib.shake_256(f"fedgauss look {seed}".encode()).digest(size)
    return 2 * np.unpackbits(np.frombuffer(drawn, np.uint8)).reshape(8, size).astype(np.int64) - 1


def transcript_of(roster: str, group: Collection[str], number: int, told: Mapping[str, Any]) -> bytes:
    """What the words of a round depend on: the group, the round, and all that its clients must have been told."""
    return hashlib.sha256(encode({"roster": roster, "group": sorted(group), "round": number, **told}).encode()).digest()


@dataclass
class Member:
    """A client's side. What it holds between two messages is plain text, and stays with the client.

    Parameters
    ----------
    size : int
        The fewest clients of a group that it joins.
    most_groups : int
        How many different groups it joins in all: sums over other groups, one after the other, give each client's own
        mean away.
    pinned : collection of str, optional
        The public keys of all who may be in its groups. Without them the first roster is trusted, and nobody who is not
        in it is accepted later.
    """

    size: int
    most_groups: int
    pinned: Collection[str] | None = None
    session: str = ""
    entry: dict[str, Any] = field(default_factory=dict)  # as it told it
    run_key: str = ""
    known: list[str] = field(default_factory=list)  # keys of the first roster
    joined: list[list[str]] = field(default_factory=list)  # keys of each group to whose sums it added
    joining: list[str] = field(default_factory=list)  # keys of the present one
    group: dict[str, str] = field(default_factory=dict)  # run keys of the present one, by name
    keys: dict[str, str] = field(default_factory=dict)  # of its clients, by name
    digest: str = ""  # of the present roster
    number: int = 0  # of the last round that it answered
    transcript: str = ""  # of that round
    shared: dict[str, list[int]] = field(default_factory=dict)  # p of that round, by peer
    looked: bool = False  # whether random directions were answered for it

    def introduce(self, session: str, name: str, key: Signer) -> dict[str, Any]:
        """What it says of itself, with a fresh key for this session."""
        if not is_hex(session, 16):
            raise Refused("a session must be 32 hexadecimal digits; this one is not.")
        fresh = RunKey.fresh()
        self.session, self.run_key, self.group, self.digest = session, fresh.private, {}, ""
        self.number, self.looked = 0, True  # words of another session are others
        self.entry = Entry.signed(session, name, key, fresh.public, _NO_LEDGER, 0)._asdict()
        return self.entry

    def agree(self, told: Any, names: Sequence[str], verify: Verify) -> dict[str, str]:
        """Join a group of a roster: a tag for each peer, which binds both to the key that they share."""
        if not self.entry or self.group:
            raise Refused("a session has one group, and begins with this client's own entry; ask for that first.")
        roster = Roster.from_wire(self.session, told, verify)
        mine = str(self.entry["name"])
        if self.entry not in roster.to_wire():
            raise Refused("a roster must have this client's own entry as it told it; this one has not.")
        if mine not in names or len(set(names)) != len(names) or not set(names) <= set(roster.names):
            raise Refused("a group must be different clients of the roster, this one among them; it is not.")
        if not self.size <= len(names) <= MOST_MEMBERS:
            raise Refused(f"a group must have {self.size} to {MOST_MEMBERS} clients; this one has {len(names)}.")
        allowed = set(self.pinned) if self.pinned is not None else set(self.known or roster.keys.values())
        if strangers := sorted(name for name in names if name != mine and roster.keys[name] not in allowed):
            raise Refused(
                f"the keys of {', '.join(strangers)} are not known here: pin them, or leave these clients out."
            )
        keys = sorted(roster.keys[name] for name in names)
        if keys not in self.joined and len(self.joined) >= self.most_groups:
            raise Refused(
                f"this client joins {self.most_groups} different groups at most, since sums over more give its own "
                "part away. Raise `groups` of its mod, if its owner agrees."
            )
        self.joining = keys
        self.known = self.known or sorted(roster.keys.values())
        self.group, self.digest = {name: roster.run_keys[name] for name in names}, roster.digest
        self.keys = {name: roster.keys[name] for name in names}
        return self._masks().tags(self.digest.encode())

    def ready(self, number: int) -> None:
        """Refuse a round that was answered before, and one without a group, before any work is done for it."""
        if not self.group:
            raise Refused("this client has agreed on no group in this session; the server must ask for keys first.")
        if not number > self.number:
            raise Refused(f"a round is answered once: {number} is not after {self.number}.")

    def upload(
        self, number: int, told: Mapping[str, Any], change: FloatArray, examples: float, metrics: FloatArray,
        directions: Directions, key: Signer,
    ) -> Upload:  # fmt: skip
        """The masked message of a round. `told` is what all of the group must have been told; change is (d,)."""
        self.ready(number)
        values = _whole(change, examples, directions)
        transcript = transcript_of(self.digest, self.group, number, told)
        self.number, self.transcript, self.looked = number, transcript.hex(), False
        self.joined = [*(group for group in self.joined if group != self.joining), self.joining]
        masks, mine = self._masks(), str(self.entry["name"])
        shared = {}
        for other in self._peers():
            words = masks.short_words(other, transcript, len(values))
            shared[other] = _projected(words, directions)
            values = values + words if mine < other else values - words
        hidden = fixed_point.add(to_words(examples * metrics), masks.words(transcript, len(metrics)))
        blank = Upload(values, shared, examples, hidden, "")
        self.shared = {other: words.tolist() for other, words in shared.items()}
        return blank._replace(signature=key.sign(statement(blank.claim(), self.transcript)))

    def look(self, number: int, seed: str, size: int) -> dict[str, ShortWords]:
        """p for eight random directions, once, of the round that was answered last."""
        if number != self.number or self.looked or not is_hex(seed, 16):
            raise Refused("random directions may be asked for once, of the last round alone.")
        self.looked = True
        masks, transcript, drawn = self._masks(), bytes.fromhex(self.transcript), random_directions(seed, size)
        return {other: _projected(masks.short_words(other, transcript, size), drawn) for other in self._peers()}

    def show(self, other: str, claim: Mapping[str, Any], signature: str, verify: Verify) -> str:
        """The key shared with a peer that has signed, for the last round, something else of what both share."""
        if other not in self._peers() or not verify(self.keys[other], statement(claim, self.transcript), signature):
            raise Refused("a key is shown against what a client of this group has signed in the last round alone.")
        shared = claim.get("shared")
        told = shared.get(str(self.entry["name"])) if isinstance(shared, Mapping) else None
        if isinstance(told, np.ndarray) and told.tolist() == self.shared[other]:
            raise Refused("a key is shown to settle a dispute; the other client says the same as this one.")
        return self._masks().key_with(other).hex()

    def state(self) -> str:
        """All that it must remember."""
        held = asdict(self)
        return json.dumps({name: held[name] for name in held if name not in ("size", "most_groups", "pinned")})

    def restore(self, state: str) -> None:
        """Go on from there."""
        for name, value in json.loads(state).items():
            setattr(self, name, value)

    def _masks(self) -> Masks:
        context = f"fedgauss group {self.digest}".encode()
        return Masks(RunKey(self.run_key), self.group, str(self.entry["name"]), context)

    def _peers(self) -> list[str]:
        return sorted(self.group.keys() - {self.entry.get("name")})


def _whole(change: FloatArray, examples: float, directions: Directions) -> ShortWords:
    """x_k modulo 2^64."""
    if not LEAST_EXAMPLES <= examples <= MOST_EXAMPLES:
        raise Refused(f"a client must have 1e-6 to {MOST_EXAMPLES:,.0f} examples; got {examples:g}.")
    largest = float(np.abs(change).max(initial=0.0))
    if not largest <= LARGEST_CHANGE:  # nan is not
        raise Refused(f"arrays must change by at most {LARGEST_CHANGE:,.0f} in a round; one changed by {largest:.3g}.")
    values = np.rint(np.ldexp(examples * change, _FRACTION))
    if np.abs(directions @ values).max(initial=0.0) >= 2.0**62:
        raise Refused("examples times what they changed must be smaller: the numbers of this client would wrap round.")
    return values.astype(np.int64).view(np.uint64)


def _projected(words: ShortWords, directions: Directions) -> ShortWords:
    return (words * directions.view(np.uint64)).sum(axis=1, dtype=np.uint64)


def statement(claim: Mapping[str, Any], transcript: str) -> bytes:
    """What is signed for a round."""
    return encode({"what": "fedgauss group upload 1", "transcript": transcript, "claim": dict(claim)}).encode()


# ---- at the server


def untagged(tags: Mapping[str, Mapping[str, str]], group: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of a group whose tags are not the same: they do not share a key."""
    return [(a, b) for a, b in _pairs(group) if tags[a].get(b) is None or tags[a].get(b) != tags[b].get(a)]


def disputes(shared: Mapping[str, Mapping[str, ShortWords]], group: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of which one lies about the words that they share."""
    return [(a, b) for a, b in _pairs(group) if not np.array_equal(shared[a][b], shared[b][a])]


def liars(
    pair: tuple[str, str], keys: Mapping[str, str], tags: Mapping[str, Mapping[str, str]], digest: str,
    transcript: bytes, size: int, directions: Directions, shared: Mapping[str, Mapping[str, ShortWords]],
) -> list[str]:  # fmt: skip
    """Who of two lied: who shows no key of the tag that both gave, and whose numbers are not those of the key."""
    found = []
    for one, other in (pair, pair[::-1]):
        key = keys.get(one, "")
        right = is_hex(key, 32) and tag_of(bytes.fromhex(key), digest.encode()) == tags[one][other]
        if not right or not np.array_equal(
            _projected(short_words(bytes.fromhex(key), transcript, size), directions), shared[one][other]
        ):
            found.append(one)
    return found


def scalars(
    uploads: Mapping[str, Upload], shared: Mapping[str, Mapping[str, ShortWords]], directions: Directions
) -> dict[str, FloatArray]:
    """<u_k, c> / |c| of each client of a group; 0 for a direction that is 0."""
    length = np.sqrt((directions.astype(np.float64) ** 2).sum(axis=1))
    found = {}
    for one, upload in uploads.items():
        total = _projected(upload.words, directions)
        for other, words in shared[one].items():
            total = total - words if one < other else total + words
        whole = np.ldexp(total.view(np.int64).astype(np.float64), -_FRACTION)
        found[one] = np.divide(whole, upload.examples * length, out=np.zeros_like(whole), where=length > 0)
    return found


def summed(uploads: Mapping[str, Upload], directions: Directions) -> Summed:
    """The sum over a whole group; of fewer it would be noise."""
    each = list(uploads.values())
    words = np.sum([upload.words for upload in each], axis=0, dtype=np.uint64)
    metrics = each[0].metrics
    for upload in each[1:]:
        metrics = fixed_point.add(metrics, upload.metrics)
    return Summed(
        np.ldexp(words.view(np.int64).astype(np.float64), -_FRACTION),
        sum(upload.examples for upload in each),
        from_words(metrics) if metrics.size else np.empty(0),
        scalars(uploads, {one: upload.shared for one, upload in uploads.items()}, directions),
    )


def fault(upload: Upload, name: str, group: Sequence[str], size: int, n_metrics: int) -> str:
    """What is wrong with the form of an upload; empty where nothing is."""
    shapes = {"words": (upload.words, (size,)), "metrics": (upload.metrics, (n_metrics, WORDS))}
    for what, (array, shape) in shapes.items():
        if not isinstance(array, np.ndarray) or array.dtype != np.uint64 or array.shape != shape:
            return f"its {what} must be unsigned 64-bit numbers of shape {shape}"
    peers = set(group) - {name}
    if not isinstance(upload.shared, dict) or upload.shared.keys() != peers:
        return "it must send what it shares with each of its group"
    if any(not isinstance(p, np.ndarray) or p.dtype != np.uint64 or p.shape != (2,) for p in upload.shared.values()):
        return "of each pair it must send two unsigned 64-bit numbers"
    if type(upload.examples) not in (int, float) or not LEAST_EXAMPLES <= upload.examples <= MOST_EXAMPLES:
        return f"its examples must be 1e-6 to {MOST_EXAMPLES:,.0f}"
    return ""


def determined(membership: npt.ArrayLike) -> FloatArray:
    """How far the sums of groups so far determine each client's own mean change, as a cosine: (K,).

    Parameters
    ----------
    membership : (G, K) array
        A row for every group that there has been, 1 for its clients.

    Notes
    -----
    Were clients' means independent and alike, and averaged over so many rounds that no noise is left, the best guess of
    client k's by its sums X theta would be (X^+ X theta)_k, whose cosine with it is [X^+ X]_kk^1/2: g^-1/2 for fixed
    groups of g, and 1 once groups changed so often that every client can be solved for.
    """
    x = np.atleast_2d(np.asarray(membership, dtype=np.float64))
    return np.sqrt(np.clip(np.diag(np.linalg.pinv(x) @ x), 0.0, 1.0))


def _pairs(group: Sequence[str]) -> list[tuple[str, str]]:
    ordered = sorted(group)
    return [(a, b) for i, a in enumerate(ordered) for b in ordered[i + 1 :]]
