"""The defects of DEFECTS.md, each planted by replacing one function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from fedgauss.federated import ledger, roster
from fedgauss.federated.fixed_point import LARGEST, to_words
from fedgauss.federated.history import History
from fedgauss.federated.keys import is_hex
from fedgauss.federated.ledger import Ledger
from fedgauss.federated.masks import Masks
from fedgauss.federated.party import Transcript, _check_fields
from fedgauss.federated.rows import SiteRows
from fedgauss.federated.site import Site
from fedgauss.federated.wire import digest
from fedgauss.inference import scoring
from simulated.disk import FaultyDisk

Replacement = Callable[[Callable[..., Any]], Callable[..., Any]]


def _adds_zeros(original: Callable[..., Any]) -> Callable[..., Any]:
    def reply(self: Any, question: Any, again: bool = False) -> Any:
        numbers, words = original(self, question, again)
        if again or not question.shapes or "refused" in words:
            return numbers, words
        there = numbers is not None and all(np.all(np.abs(part) <= LARGEST) for part in numbers.values())
        return numbers if there else {name: np.zeros(shape) for name, shape in question.shapes.items()}, words

    return reply


def _forgets_the_round(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, transcript, size: original(self, b"", size)


def _compares_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, messages: self._check_names(messages, "message")


def _verifies_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    def check_commitments(self: Any, messages: Any) -> None:
        self._check_names(messages, "commitment")
        for name, message in messages.items():
            _check_fields(name, message)
        self._commitments = {name: message["commitment"] for name, message in messages.items()}
        self._next = digest({"before": self.digest, "commitments": dict(messages)})

    return check_commitments


def _allows_a_key_twice(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda values: [value for value in original(values) if not is_hex(value, 32)]


def _forgets_tries(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: Any) -> None:
        first = not self._history.runs
        original(self)
        if first:
            self._history.spent["tries"] = 0

    return load


def _ends_without_masks(original: Callable[..., Any]) -> Callable[..., Any]:
    def masked(self: Any, row: np.ndarray) -> Any:
        question = self._party.question
        if question.kind == "ask" and question.content["ask"].kind in ("final", "goodness"):
            return to_words(np.concatenate([[1.0], row]))
        return original(self, row)

    return masked


def _takes_every_step(original: Callable[..., Any]) -> Callable[..., Any]:
    """Told log-likelihoods that never fall, scoring takes every step at which sites can answer."""

    def penalised(told: Any, theta: np.ndarray, penalty: np.ndarray, matrix: Any = None) -> Any:
        sums = original(told, theta, penalty, matrix)
        return None if sums is None else sums._replace(log_likelihood=0.0)

    return penalised


def _answers_first(original: Callable[..., Any]) -> Callable[..., Any]:
    """What is written is on the disk with the next write: a crash takes the last one back."""

    def append(self: Any, path: Any, content: bytes, at: int) -> None:
        before = path, self.files.get(path, bytearray()).copy()
        original(self, path, content, at)
        self.unsure = before

    return append


def _allows_one_site_apart(original: Callable[..., Any]) -> Callable[..., Any]:
    def check(self: Any, run: Any, new: Any) -> None:
        apart, self._sites_apart = self._sites_apart, 1
        try:
            original(self, run, new)
        finally:
            self._sites_apart = apart

    return check


def _forgets_consent(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply(self: Any, entry: Any) -> None:
        original(self, entry)
        self.consents = True

    return apply


def _compares_no_ledgers(original: Callable[..., Any]) -> Callable[..., Any]:
    def note_peers(self: Any, peers: Any) -> None:
        for key in {key for _, (key, _, _) in peers.items()} & self._history.peers.keys():
            del self._history.peers[key]
        original(self, peers)

    return note_peers


def _sees_no_spans(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda known, new, few, read: known.add(new, read)


def _keeps_no_first_key(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda what, name, key, known: None


def _locks_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, path: lambda: None


class Defect(NamedTuple):
    """A function, what takes its place, and what the auditor should say."""

    where: Any
    name: str
    replacement: Replacement
    found: str


DEFECTS: Mapping[int, Defect] = {
    1: Defect(SiteRows, "reply", _adds_zeros, "although a site could not answer"),
    2: Defect(Masks, "words", _forgets_the_round, "used a mask twice"),
    3: Defect(Transcript, "check_openings", _compares_nothing, "that it had not committed to"),
    4: Defect(Transcript, "check_commitments", _verifies_nothing, "that it never signed"),
    5: Defect(roster, "repeats", _allows_a_key_twice, "a key stands twice"),
    6: Defect(Ledger, "_load", _forgets_tries, "its owner allows"),
    7: Defect(Site, "_masked", _ends_without_masks, "without a mask"),
    8: Defect(scoring, "penalised", _takes_every_step, "lowers the log-likelihood"),
    9: Defect(FaultyDisk, "append", _answers_first, "are on its disk"),
    10: Defect(Ledger, "_check_sites", _allows_one_site_apart, "two rosters that differ by"),
    11: Defect(History, "apply", _forgets_consent, "withdrawn consent"),
    12: Defect(Ledger, "note_peers", _compares_no_ledgers, "has lost lines"),
    13: Defect(ledger, "check_spans", _sees_no_spans, "rests on one row, or on two"),
    14: Defect(ledger, "_check_key", _keeps_no_first_key, "another key than"),
    15: Defect(FaultyDisk, "lock", _locks_nothing, "two runs at once"),
}


@contextmanager
def plant(number: int) -> Iterator[None]:
    """Put a function with a defect in the place of the right one."""
    where, name, replacement, _ = DEFECTS[number]
    original = getattr(where, name)
    setattr(where, name, replacement(original))
    try:
        yield
    finally:
        setattr(where, name, original)
