"""Who takes part in a run: for each site an entry with its keys, which it has signed for this run and no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import fedgauss
from fedgauss.federated.keys import Signer, Verify, fingerprint, is_hex
from fedgauss.federated.refusal import Refused
from fedgauss.federated.wire import Message, digest, encode
from fedgauss.inference.tables import repeats

_KINDS = {
    "name": str, "key": str, "run_key": str, "head": str, "length": int, "seen": dict, "version": str, "signature": str,
}  # fmt: skip
MOST_SITES = 1_000  # of a run; 2^96 from each of them stays far below 2^127
_LONGEST_NAME = 200
_LONGEST_LEDGER = 2**53


class Entry(NamedTuple):
    """What a site says of itself before a run."""

    name: str
    key: str  # of its table
    run_key: str
    head: str  # of its ledger
    length: int
    seen: dict[str, list[Any]]  # by the keys of other tables, the head and length that their ledgers had last
    version: str  # of fedgauss: another one may take other steps
    signature: str

    @classmethod
    def signed(
        cls, run: str, name: str, key: Signer, run_key: str, head: str, length: int,
        seen: Mapping[str, tuple[str, int]] = MappingProxyType({}),
    ) -> Entry:  # fmt: skip
        """The entry of a site for a run."""
        told = {other: [*of_ledger] for other, of_ledger in seen.items()}
        blank = cls(name, key.public, run_key, head, length, told, fedgauss.__version__, "")
        return blank._replace(signature=key.sign(blank.statement(run)))

    def statement(self, run: str) -> bytes:
        """What a site signs."""
        return encode({"what": "fedgauss entry 1", "run": run, **self._asdict(), "signature": ""}).encode()


class Roster:
    """The entries of all sites of a run, sorted by name.

    Attributes
    ----------
    run : str
        The name of the run, which all have signed.
    names : tuple of str
    digest : str
        The same for all who have the same roster.
    """

    def __init__(self, run: str, entries: Sequence[Entry], verify: Verify) -> None:
        self.run, self.entries = run, tuple(sorted(entries, key=lambda entry: entry.name))
        self.names = tuple(entry.name for entry in self.entries)
        for what in ("name", "key", "run_key"):
            _check_alone(what, self.entries)
        for entry in self.entries:
            if not verify(entry.key, entry.statement(run), entry.signature):
                raise Refused(f"the entry of site {entry.name!r} must be signed by its key for this run; it is not.")
        if len({entry.version for entry in self.entries}) > 1:
            shown = ", ".join(f"{entry.name!r} has {entry.version}" for entry in self.entries)
            raise Refused(f"all sites must have the same fedgauss, or they would take different steps; {shown}.")
        self._by_name = {entry.name: entry for entry in self.entries}
        self.digest = digest({"run": run, "entries": [list(entry) for entry in self.entries]})

    @classmethod
    def from_wire(cls, run: str, told: Any, verify: Verify) -> Roster:
        """From plain fields that somebody else sent."""
        if not isinstance(told, list) or len(told) > MOST_SITES:
            raise Refused(f"a roster must be a list of at most {MOST_SITES:,} entries; this one is not.")
        return cls(run, [_entry(fields) for fields in told], verify)

    def to_wire(self) -> list[Message]:
        """As plain fields."""
        return [entry._asdict() for entry in self.entries]

    def entry(self, name: str) -> Entry:
        """That of a site."""
        return self._by_name[name]

    @property
    def keys(self) -> dict[str, str]:
        """Of the tables, by name of the site."""
        return {entry.name: entry.key for entry in self.entries}

    @property
    def run_keys(self) -> dict[str, str]:
        """Those for this run, by name of the site."""
        return {entry.name: entry.run_key for entry in self.entries}

    @property
    def who(self) -> list[tuple[str, str, str]]:
        """Names, keys and versions, which a run and one that goes on from it have in common."""
        return [(entry.name, entry.key, entry.version) for entry in self.entries]

    def __str__(self) -> str:
        """Names and fingerprints, for owners to compare."""
        return "\n".join(f"  {entry.name:<20} {fingerprint(entry.key)}" for entry in self.entries)


def is_name(text: Any) -> bool:
    """Whether this is short text of one line, which nothing can hide in when it is printed."""
    short = isinstance(text, str) and 0 < len(text) <= _LONGEST_NAME
    return short and text.isprintable() and text == text.strip()


def is_ledger(head: Any, length: Any) -> bool:
    """Whether these can be the head and the length of a ledger."""
    return is_hex(head, 32) and type(length) is int and 0 <= length <= _LONGEST_LEDGER


def _entry(fields: Any) -> Entry:
    if not isinstance(fields, Mapping) or fields.keys() != _KINDS.keys():
        raise Refused(f"an entry must have {', '.join(_KINDS)}; this one has other fields.")
    for name, kind in _KINDS.items():
        if type(fields[name]) is not kind:
            raise Refused(f"{name!r} of an entry must be {kind.__name__}; it is {type(fields[name]).__name__}.")
    if not is_name(fields["name"]) or not is_name(fields["version"]):
        raise Refused(
            f"names and versions must be 1 to {_LONGEST_NAME} characters that can be printed; one of an entry is not."
        )
    if not is_hex(fields["key"], 32) or not is_hex(fields["run_key"], 32):
        raise Refused(f"the keys of site {fields['name']!r} must have 64 hexadecimal digits; one has not.")
    if not is_ledger(fields["head"], fields["length"]):
        raise Refused(f"the ledger of site {fields['name']!r} must have a digest and a length; this one has not.")
    for key, told in fields["seen"].items():
        if not is_hex(key, 32) or not isinstance(told, list) or len(told) != 2 or not is_ledger(*told):
            raise Refused(f"what site {fields['name']!r} saw of other ledgers must be digests and lengths; it is not.")
    return Entry(**fields)


def _check_alone(what: str, entries: Sequence[Entry]) -> None:
    """No two sites may share a name or a key: one table would count twice, and its sums could be worked out."""
    values = [getattr(entry, what) for entry in entries]
    if twice := repeats(values):
        who = [entry.name for entry in entries if getattr(entry, what) == twice[0]]
        raise Refused(
            f"every site must have a {what.replace('_', ' ')} of its own, or one table would count twice; "
            f"{' and '.join(map(repr, who))} have the same. Name each table once."
        )
