"""What belongs to a table beside its rows: the key by which it is known and the ledger of what was answered from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedgauss._files import key_place, ledger_place
from fedgauss.federated.keys import Key, Signer
from fedgauss.federated.ledger import Ledger
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

        The key is made on first use. A second run on the table is refused while one lives.
        """
        ledger = Ledger(
            ledger_place(table), policy.few, policy.sites_apart, budget=policy.budget, privacy=policy.privacy
        )
        return cls(Key.read(key_place(table)), ledger)

    def digest(self, table: Mapping[str, Iterable[Any]]) -> bytes:
        """Of all rows, whatever their order: two names for one table have the same."""
        names = sorted(table)
        columns = [np.asarray(table[name]) for name in names]
        n_rows = len(columns[0]) if columns else 0
        are_numbers = [column.dtype.kind in "biuf" for column in columns]
        numbers = [column.astype(float) for column, are in zip(columns, are_numbers, strict=True) if are]
        words = [column.tolist() for column, are in zip(columns, are_numbers, strict=True) if not are]
        held, size = np.array(numbers).T.tobytes(), 8 * len(numbers)
        texts = zip(*words, strict=True) if words else [()] * n_rows
        rows = sorted(
            held[k * size : (k + 1) * size] + repr(text).encode(errors="surrogatepass") for k, text in enumerate(texts)
        )
        of_rows = hashlib.sha256(b"".join(len(row).to_bytes(8, "little") + row for row in rows))
        return hashlib.sha256(repr(names).encode(errors="surrogatepass") + of_rows.digest()).digest()

    def close(self) -> None:
        """Let another process use the table."""
        self.ledger.close()


_WRITES = {
    "note_peers", "note_asker", "begin", "admit", "admit_place", "spend", "check_privacy", "spend_privacy",
    "note_reasons", "note_silence", "refuse", "finish",
}  # fmt: skip


class Pausable:
    """A ledger that writes nothing while it is paused, as a site takes up where it was and has written all of it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self.paused = ledger, False

    def __getattr__(self, name: str) -> Any:
        if self.paused and name in _WRITES:
            return lambda *arguments, **options: None
        return getattr(self._ledger, name)
