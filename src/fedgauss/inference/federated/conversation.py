"""Orders to all sites of a federated fit, their replies, checked, and totals over them, masked or not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedgauss.inference.federated import masks
from fedgauss.inference.federated.fields import MASKING, REPLIES, SUMMED, Fields, check_fields, shapes_of
from fedgauss.inference.federated.journal import Journal
from fedgauss.inference.federated.lines import Message, encoded, printable

# An order and what goes with it for each site; their replies in the same order. None is for a site that has left.
Ask = Callable[[str, Sequence[Message | None]], Sequence[Message | None]]
Tick = Callable[[str, int, int], None]  # what, done, total
_LONGEST = 1000  # characters of an error


class LostSite(ValueError):
    """A site that does not answer any more."""

    def __init__(self, site: str, words: str) -> None:
        super().__init__(words)
        self.site = site


class Conversation:
    """Orders to all sites and their checked replies. `sizes` has each site's sizes by letter, as `fields` uses them.

    With masks, sums come as totals only: sites exchange public keys first, and every order for sums has a round and
    the names of those that take part.
    """

    def __init__(self, ask: Ask, sites: Sequence[str], masked: bool = False, journal: Journal | None = None) -> None:
        self._ask, self._all, self.masked, self._journal = ask, tuple(sites), masked, journal
        self.sites = list(sites)
        self.sizes: dict[str, dict[str, int]] = {site: {} for site in sites}
        self._round, self._attempt = 0, 0
        self._same_rows = False  # as those of the rounds in the journal: the first is asked for again, to see
        if masked:
            self._exchange_keys()

    def all(self, order: str, content: Message, fields: Fields | None = None) -> list[Message]:
        """The same order to every site that takes part."""
        return self.each(order, [content] * len(self.sites), fields)

    def each(self, order: str, contents: Sequence[Message], fields: Fields | None = None) -> list[Message]:
        """An order to every site, with a content of its own; replies must have `fields`, by default the order's."""
        by_site = dict(zip(self.sites, contents, strict=True))
        told = dict(zip(self._all, self._ask(order, [by_site.get(site) for site in self._all]), strict=True))
        replies = []
        for site in self.sites:
            reply = told[site]
            if reply is None:
                raise LostSite(site, f"site {site!r} gave no reply to {order!r}.")
            if "error" in reply:
                raise ValueError(f"site {site!r}: {printable(str(reply['error']))[:_LONGEST]}")
            try:
                check_fields(REPLIES[order] if fields is None else fields, reply, self.sizes[site])
            except ValueError as error:
                words = printable(str(error))[:_LONGEST]
                raise ValueError(f"site {site!r} sent a wrong reply to {order!r}: {words}") from error
            replies.append(reply)
        return replies

    def total(self, order: str, content: Message) -> Message:
        """What sites reply to an order, added up; what is not a sum must be the same everywhere."""
        journal = self._journal
        kept = None if journal is None else journal.kept(order, content)
        if kept is not None and self._same_rows:
            return kept
        found = self._masked_total(order, content) if self.masked else self._plain_total(order, content)
        if journal is not None:  # an empty one is one
            if kept is not None and encoded(kept) != encoded(found):  # of rows that were changed since
                journal.forget()
            self._same_rows = True
            journal.keep(order, content, found)
        return found

    def about(self, model: str) -> None:
        """From here on totals are of this model: they are kept in the journal, or taken from it."""
        if self._journal is not None:
            self._journal.model, self._same_rows = model, False

    def leave(self, site: str) -> None:
        """Go on without a site."""
        self.sites.remove(site)
        self._attempt += 1

    def _plain_total(self, order: str, content: Message) -> Message:
        replies = self.all(order, content)
        sums = {name: sum(reply[name] for reply in replies) for name in SUMMED[order]}
        return self._common(order, replies) | sums

    def _masked_total(self, order: str, content: Message) -> Message:
        self._round += 1
        masking = {"round": self._round, "attempt": self._attempt, "sites": list(self.sites)}
        fields = {name: field for name, field in REPLIES[order].items() if name not in SUMMED[order]}
        replies = self.all(order, content | {"masking": masking}, {**fields, **MASKING})
        shapes = shapes_of(SUMMED[order], self.sizes[self.sites[0]])
        for site, reply in zip(self.sites, replies, strict=True):
            try:
                masks.check_masked(reply["masked"], shapes)
            except ValueError as error:
                raise ValueError(f"site {site!r} sent a wrong reply to {order!r}: {error}") from error
        sums = masks.total([reply["masked"] for reply in replies])
        return self._common(order, replies) | {name: _number_or_array(value) for name, value in sums.items()}

    def _common(self, order: str, replies: Sequence[Message]) -> Message:
        """What is not a sum."""
        shared = {name: replies[0][name] for name in REPLIES[order] if name not in SUMMED[order]}
        for site, reply in zip(self.sites, replies, strict=True):
            for name, value in shared.items():
                if reply[name] != value:
                    raise ValueError(f"sites must agree on {name!r}; {site!r} does not. Does it run the same fedgauss?")
        return shared

    def _exchange_keys(self) -> None:
        told = self.each("keys", [{"name": site} for site in self.sites])
        publics = {site: str(reply["public"]) for site, reply in zip(self.sites, told, strict=True)}
        # Keys are fresh, so that their hash names the run: peers without a coordinator come to the same.
        run = hashlib.sha256(encoded(publics).encode()).hexdigest()
        self.all("meet", {"run": run, "publics": publics})


def _number_or_array(value: Any) -> Any:
    return value if np.ndim(value) else float(value)
