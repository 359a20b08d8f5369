"""Who carries the messages of a run: it asks for a model, hands every message to every site, and prints the result.

It computes the same steps as the sites, from the same messages, and chooses none of them. It can delay a run; whatever
else it does ends it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol

from fedgauss import _checks
from fedgauss._files import key_place
from fedgauss.federated.journal import Journal
from fedgauss.federated.keys import Key, Signer, Verify, verify
from fedgauss.federated.party import Party, RunRefused
from fedgauss.federated.plan import Plan
from fedgauss.federated.privacy import Privacy
from fedgauss.federated.program import run_program
from fedgauss.federated.roster import Roster
from fedgauss.federated.wire import Message, printable
from fedgauss.inference.fit_result import Fit
from fedgauss.inference.model import Model
from fedgauss.inference.sgd import SGD

_LONGEST = 1000  # characters of an error
_USUAL_ROUNDS = 16
Tick = Callable[[str, int, int], None]  # what, done, total


class LostSite(ValueError):
    """A site that does not answer any more."""

    def __init__(self, site: str, words: str) -> None:
        super().__init__(words)
        self.site = site


class Exchange(Protocol):
    """How orders reach sites, and their replies come back."""

    @property
    def names(self) -> Iterable[str]:
        """Of all sites."""

    def ask(self, order: str, contents: Mapping[str, Message]) -> Mapping[str, Message]:
        """Send an order to every site with a content for each, and wait for all replies."""


def federate(
    model: Model, exchange: Exchange, *, masked: bool = False, privacy: Privacy | None = None,
    solver: Literal["scoring"] | SGD = "scoring", level: float = 0.95, asker: str = "coordinator",
    key: Signer | None = None, journal: Journal | None = None, nonce: str | None = None,
    tick: Tick = lambda what, done, total: None, verify: Verify = verify,
) -> Fit:  # fmt: skip
    """Fit a model to rows that stay at their sites: by scoring, the fit of all rows together to rounding.

    Parameters
    ----------
    model : Model
        The regression; a family is found by its name in the registry of each site's own process.
    exchange : Exchange
        The way to the sites, such as `SiteProcesses`.
    masked : bool
        Whether sites add masks that cancel in the total, so that nobody sees the sums of one site.
    privacy : Privacy, optional
        What the fit may tell of any one row. Sites share out noise inside the masks, and intervals know it; a
        repeat costs as much again.
    solver : "scoring" or SGD
        A pass of local SGD, as that of `fit`, between peers or Flower's nodes whose policies have `passes`: it tells of
        few rows at a time, and without masks rows can be worked out.
    level : float
        Of the intervals.
    asker, key : str and Signer, optional
        The name and key of who asks, which sites may have pinned; by default a key in the user's state folder.
    journal : Journal, optional
        Where rounds are written down, so that a run that was stopped continues.
    nonce : str, optional
        What makes this run different from all others; random by default.
    tick : callable, optional
        tick(what, done, total) is called as the run advances.
    verify : callable, optional
        What a simulation checks signatures with.

    Returns
    -------
    Fit

    Raises
    ------
    RunRefused
        With all reasons of all sites.
    ValueError
        If a site's message is missing, forged or not what it committed to, with its name.

    Examples
    --------
    >>> with SiteProcesses({"a": "fedgauss site a.csv", "b": "ssh b"}) as sites:
    ...     fit = federate(Model("died ~ age", family="binomial"), sites, masked=True)
    """
    _checks.level(level)
    key = Key.read(key_place(asker)) if key is None else key
    nonce = secrets.token_hex(16) if nonce is None else nonce
    if not isinstance(solver, SGD) and solver != "scoring":
        raise ValueError(f"solver must be 'scoring' or settings of a pass, fg.SGD(); got {solver!r}.")
    sgd = solver if isinstance(solver, SGD) else None
    plan = Plan(model, tuple(sorted(exchange.names)), masked, asker, nonce, privacy, sgd)
    asked = {"plan": plan.to_wire(), "key": key.public, "signature": key.sign(plan.statement)}
    entries = _replies(exchange, "join", {site: {**asked, "name": site} for site in plan.sites})
    roster = Roster.from_wire(plan.run, [reply.get("entry") for reply in entries.values()], verify)
    party = Party(plan, roster, verify, run_program(plan, level))
    past = [] if journal is None else journal.begin(plan, roster)
    for earlier in past:
        party.go_over(earlier)
    if party.question is None:  # only what was found had been lost
        return party.result
    about = {"roster": roster.to_wire(), "past": past}
    commitments = _replies(exchange, "meet", _to_all(plan, about))
    done = sum(len(earlier["rounds"]) for earlier in past)
    while True:
        tick("rounds", done, max(_USUAL_ROUNDS, done + 1))
        party.hear_commitments(commitments)
        openings = _replies(exchange, "open", _to_all(plan, {"commitments": commitments}))
        messages = {site: reply.get("opening", {}) for site, reply in openings.items()}
        party.hear_openings(messages)
        if journal is not None:
            journal.keep({"commitments": commitments, "openings": messages})
        commitments = _replies(exchange, "hear", _to_all(plan, {"openings": messages}))
        done += 1
        if party.question is None:
            tick("rounds", done, done)
            return party.result


def _to_all(plan: Plan, content: Message) -> dict[str, Message]:
    return dict.fromkeys(plan.sites, content)


def _replies(exchange: Exchange, order: str, contents: Mapping[str, Message]) -> dict[str, Message]:
    """What all sites reply; with the reasons of all that refuse."""
    replies = dict(exchange.ask(order, contents))
    for site in contents:
        if not isinstance(replies.get(site), dict):
            raise LostSite(
                site, f"site {site!r} gave no reply to {order!r}. The run ended: totals must be of all sites."
            )
    errors = {site: [_words(reply["error"])] for site, reply in replies.items() if "error" in reply}
    if errors:
        raise RunRefused(errors)
    return {site: replies[site] for site in contents}


def _words(error: object) -> str:
    return printable(str(error))[:_LONGEST]
