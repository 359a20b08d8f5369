"""What belongs to a table beside its rows: the key by which it is known and the ledger of what was answered from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedgauss.federated.keys import Key, Signer
from fedgauss.federated.ledger import Ledger, place_of
from fedgauss.federated.policy import Policy


class Home:
    """The key and the ledger of a table.

    Attributes
    ----------
    key : Signer
    ledger : Ledger

    Examples
    --------
    >>> home = Home.of("north.csv", Policy())
    """

    def __init__(self, key: Signer, ledger: Ledger) -> None:
        self.key, self.ledger = key, ledger

    @classmethod
    def of(cls, table: str | Path, policy: Policy) -> Home:
        """Beside the file of a table, or by a name in the folder of the user's state where there is no such file.

        The key is made on first use. The ledger is locked: a second run on the table is refused while one lives.
        """
        ledger = Ledger(
            _place(table), few=policy.few, sites_apart=policy.sites_apart, budget=policy.budget, privacy=policy.privacy
        )
        try:
            key = Key.read(key_place(table))
        except BaseException:
            ledger.close()
            raise
        return cls(key, ledger)

    def digest(self, table: Mapping[str, Iterable[Any]]) -> bytes:
        """Of all rows, whatever their order: two names for one table have the same."""
        rows = hashlib.sha256()
        names = sorted(table)
        columns = [np.asarray(table[name]).tolist() for name in names]
        for text in sorted(repr(row) for row in zip(*columns, strict=True)):
            rows.update(text.encode(errors="surrogatepass"))
        return hashlib.sha256(repr(names).encode(errors="surrogatepass") + rows.digest()).digest()

    def close(self) -> None:
        """Let another process use the table."""
        self.ledger.close()


def key_place(table: str | Path) -> Path:
    """The file of a table's key."""
    place = _place(table)
    return place.with_name(place.name.removesuffix(".ledger") + ".key")


def _place(table: str | Path) -> Path:
    path = Path(table)
    return place_of(path, None) if path.is_file() else place_of(None, str(table))


_WRITES = frozenset({
    "note_peers", "note_asker", "begin", "admit", "spend", "check_privacy",
    "spend_privacy", "note_reasons", "refuse", "finish",
})  # fmt: skip


class Pausable:
    """A ledger that writes nothing while it is paused, as a site takes up where it was and has written all of it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self.paused = ledger, False

    def __getattr__(self, name: str) -> Any:
        if self.paused and name in _WRITES:
            return lambda *arguments, **options: None
        return getattr(self._ledger, name)
