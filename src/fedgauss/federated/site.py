"""A site: a party of a run that keeps its rows. Its entry, its commitments and its messages are all that leaves it.

Orders come in turn: join, meet, then open and hear once a round. A site computes the questions of a run itself, from
the model and the messages of all sites: none of them comes from who carries the messages.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.federated import rules
from fedgauss.federated.discrete_gaussian import discrete_gaussian
from fedgauss.federated.fixed_point import Words, add, pack, to_words
from fedgauss.federated.home import Home, Pausable
from fedgauss.federated.keys import RunKey, RunKeyLike, Verify, fingerprint, verify
from fedgauss.federated.masks import Masks
from fedgauss.federated.party import Party
from fedgauss.federated.plan import Plan
from fedgauss.federated.policy import Policy
from fedgauss.federated.private_rows import Noise
from fedgauss.federated.program import run_program
from fedgauss.federated.refusal import Refused
from fedgauss.federated.roster import Entry, Roster
from fedgauss.federated.rows import SiteRows
from fedgauss.federated.wire import Message, digest
from fedgauss.inference.tables import Frame

_FIELDS: dict[str, dict[str, type]] = {
    "join": {"plan": dict, "name": str, "key": str, "signature": str},
    "meet": {"roster": list, "past": list},
    "open": {"commitments": dict},
    "hear": {"openings": dict},
}  # fmt: skip
_LONGEST = 1000  # characters of an error
_SALT = 16  # bytes, so that a short message cannot be guessed from its digest


class Parts(NamedTuple):
    """What a simulation puts other parts in place of."""

    verify: Verify = verify
    fresh_run_key: Callable[[], RunKeyLike] = RunKey.fresh
    run_key: Callable[[str], RunKeyLike] = RunKey
    random: Callable[[int], str] = secrets.token_hex
    rows: type[SiteRows] = SiteRows
    noise: Noise = discrete_gaussian


class Site:
    """A party that keeps its rows.

    Parameters
    ----------
    frame : DataFrame or dict
        The rows of this site.
    home : Home, path or str
        The table's key and ledger: a `Home`, the file of the table, or a name where there is none.
    policy : Policy, optional
        The rules of the site's owner; careful ones by default.
    say : callable, optional
        say(text) is for the site's owner: who takes part, and what went wrong here. By default standard error.

    Examples
    --------
    >>> site = Site(read_table("north.csv"), "north.csv", Policy(least_rows=50))
    >>> serve_lines(site.answer, lines_of(sys.stdin.buffer), sys.stdout)
    """

    def __init__(
        self, frame: Any, home: Home | str | Path, policy: Policy | None = None,
        say: Callable[[str], None] | None = None, parts: Parts | None = None,
    ) -> None:  # fmt: skip
        self.policy = Policy() if policy is None else policy
        self.home = home if isinstance(home, Home) else Home.of(home, self.policy)
        self._say, self._parts = say or _to_owner, parts or Parts()
        table = Frame(frame)
        self._table = Frame({name: table.column(name) for name in self.policy.open_columns(table.names)})
        self._whole = {name: table.column(name) for name in table.names}
        self._ledger: Any = Pausable(self.home.ledger)
        self._heard: list[tuple[str, Message]] = []  # orders, from which the site can be restored
        self._message: Message = {}  # that this site has committed to
        self._commitments: Message = {}  # of all sites in the last round that was opened
        self._due, self._begun = "join", False  # whether the ledger has a run that goes on

    def answer(self, order: str, content: Message) -> Message:
        """The reply to an order, or {"error": why}.

        What the site's own code raises is for its owner: its words may quote a row.
        """
        try:
            if order == "join":  # whoever asks may have been stopped: a new run takes the place of the last one
                self._give_up()
            if order != self._due:
                raise Refused(f"orders must come in turn, once each; {self._due!r} is due, got {order[:60]!r}.")
            _check_fields(order, content)
            reply: Message = getattr(self, f"_{order}")(**content)
            self._heard.append((order, content))
            return reply
        except Refused as error:
            self._give_up()
            return {"error": str(error)[:_LONGEST]}
        except Exception:  # whatever it is, its words may quote a row, and are for the owner alone
            self._give_up()
            self._say(traceback.format_exc())
            return {"error": f"the order {order[:60]!r} failed at this site. Its owner was told why."}

    def close(self) -> None:
        """End the run that goes on, if there is one, and let another begin."""
        self._give_up()

    def put_away(self) -> None:
        """Let go of the table between two orders; `state` and `restore` take the run up again."""
        self.home.close()

    def state(self) -> Message:
        """What another `Site` with the same rows needs to go on from here. Keep it as safe as the rows."""
        if self._due == "join":
            return {"heard": []}
        message = self._message if self._due in ("open", "hear") else None
        heard = [list(pair) for pair in self._heard]
        return {"heard": heard, "run_key": self._run_key.private, "message": message, "begun": self._begun}

    def restore(self, state: Message) -> None:
        """Take up where a site with these rows was. Nothing is worked out that has left already."""
        if not state["heard"]:
            return
        parts = self._parts
        self._parts = parts._replace(fresh_run_key=lambda: parts.run_key(state["run_key"]))
        self._ledger.paused, self._message = True, state["message"]
        try:
            for order, content in state["heard"]:
                if "error" in (reply := self.answer(order, content)):
                    raise Refused(reply["error"])
        finally:
            self._parts, self._ledger.paused = parts, False
        self._begun = state["begun"]
        if self._begun:
            self._ledger.resume(self._plan.run)

    def _give_up(self) -> None:
        """A run with an error in it is over for this site, even where that cannot be written down."""
        begun, self._begun, self._due = self._begun, False, "join"
        if begun:
            with suppress(ValueError):  # the disk is full, or the end was half written
                self._finish(answered=False)

    def _finish(self, answered: bool) -> None:
        """End the run, with how far the ledgers of the others were at last: one that is put back later is noticed."""
        last = {
            name: (self._roster.entry(name).key, told["head"], told["length"])
            for name, told in self._commitments.items()
            if name != self._name
        }
        try:
            self._ledger.note_peers(last)
        finally:  # a full disk must not leave the ledger held
            self._ledger.finish(answered)

    # The orders.

    def _join(self, plan: Message, name: str, key: str, signature: str) -> Message:
        """A signed entry for the roster."""
        self._heard, self._commitments = [], {}
        self._plan, self._name = Plan.from_wire(plan), name
        if name not in self._plan.sites:
            raise Refused(f"a site must be among the sites of the run; {name[:60]!r} is not.")
        if not self._parts.verify(key, self._plan.statement, signature):
            raise Refused("who asks must have signed the plan of the run; this signature is of something else.")
        self._check_asker(self._plan.asker, key)
        rules.check_plan(self.policy, self._plan)
        self._run_key = self._parts.fresh_run_key()
        ledger = self._ledger
        entry = Entry.signed(
            self._plan.run, name, self.home.key, self._run_key.public, ledger.head, ledger.length,
            ledger.seen(self._plan.sites),
        )  # fmt: skip
        self._due = "meet"
        return {"entry": entry._asdict()}

    def _meet(self, roster: list[Any], past: list[Any]) -> Message:
        """The first commitment, once it is clear who takes part."""
        plan, ledger = self._plan, self._ledger
        self._roster = Roster.from_wire(plan.run, roster, self._parts.verify)
        if self._roster.run_keys.get(self._name) != self._run_key.public:
            raise Refused(f"the roster must have the entry that this site, {self._name!r}, has signed; it has not.")
        self._check_sites()
        own = self.home.key.public
        ledger.check_own({one.name: tuple(one.seen[own]) for one in self._roster.entries if own in one.seen})
        ledger.note_peers(
            {one.name: (one.key, one.head, one.length) for one in self._roster.entries if one.name != self._name}
        )
        keys = list(self._roster.keys.items())
        ledger.begin(plan.run, plan.about, keys, plan.asker, plan.model.wire(), plan.masked)
        self._begun = True
        context = self._roster.digest.encode() + self._secret()
        pairs = Masks(self._run_key, self._roster.run_keys, self._name, context)
        self._masks = pairs if plan.masked else None
        tags = {} if plan.privacy else pairs.tags(self.home.digest(self._whole))  # by which peers could test a guess
        self._rows = self._parts.rows(
            self._table, self._whole, self.policy, plan, self._name, tags, ledger, self._parts.noise
        )
        self._party = Party(plan, self._roster, self._parts.verify, run_program(plan))
        for earlier in past:
            self._party.go_over(earlier, lambda question: self._rows.reply(question, again=True))
        if not ledger.paused:
            self._say(f"A run of {len(keys)} sites, asked for by {plan.asker!r}:\n{self._roster}")
        return self._commit()

    def _open(self, commitments: Message) -> Message:
        """This site's message, once all have committed to theirs."""
        self._party.hear_commitments(commitments)
        self._commitments, self._due = commitments, "hear"
        return {"opening": self._message}

    def _hear(self, openings: Message) -> Message:
        """The next commitment, once the messages of all have been added up; at the end nothing."""
        try:
            self._party.hear_openings(openings)
        except ValueError as error:  # about what all have sent, and nothing of this site's own
            raise Refused(str(error)) from error
        if self._party.question is not None:
            return self._commit()
        self._begun, self._due = False, "join"
        self._finish(answered=True)
        return {"ended": True}

    def _commit(self) -> Message:
        """Answer the question of this round, and commit to the answer."""
        question = self._party.question
        if question is None:
            raise Refused("the past of this run is the whole of it; nothing is left to ask.")
        self._due = "open"
        numbers, words = self._rows.reply(question, again=self._ledger.paused)
        if self._ledger.paused:
            return {}
        if "refused" in words:
            self._ledger.refuse(words["refused"], self._rows.refusal_counts)
            self._begun = False
        self._message = {"words": words, "salt": self._parts.random(_SALT)}
        if question.shapes and "refused" not in words:
            masked = None if numbers is None else self._masked(pack(numbers, question.shapes))
            if masked is None:
                self._ledger.note_silence()
            else:
                self._message["numbers"] = masked
        head, length, commitment = self._ledger.head, self._ledger.length, digest(self._message)
        signature = self.home.key.sign(self._party.transcript.statement(commitment, head, length))
        return {"commitment": commitment, "head": head, "length": length, "signature": signature}

    def _masked(self, row: FloatArray) -> Words | None:
        """A 1 and the numbers, as integers and under masks; None where they are too large for that."""
        try:
            words = to_words(np.concatenate([[1.0], row]))
        except OverflowError:
            return None
        if self._masks is None:
            return words
        return add(words, self._masks.words(self._party.transcript.context, len(words)))

    def _check_asker(self, name: str, key: str) -> None:
        allowed = self.policy.askers
        if allowed is None:
            self._ledger.note_asker(name, key)
        elif allowed.get(name) != key:
            raise Refused(
                f"this site's policy names who may ask; {name[:60]!r} with the key {fingerprint(key)} is not among "
                "them. Ask the site's owner."
            )

    def _check_sites(self) -> None:
        pinned = self.policy.sites
        if pinned is None:
            return
        for name, key in self._roster.keys.items():
            if name != self._name and pinned.get(name) != key:
                raise Refused(
                    f"this site's policy names the sites of its runs by their keys; {name!r} with the key "
                    f"{fingerprint(key)} is not among them. Compare keys by telephone, and ask the site's owner."
                )

    def _secret(self) -> bytes:
        """What the owners of the sites have agreed on without anybody else."""
        if self.policy.secret is None:
            return b""
        try:
            return hashlib.sha256(Path(self.policy.secret).read_bytes().strip()).digest()
        except OSError as error:
            raise Refused("this site's secret could not be read; its owner must put the file in its place.") from error


def _check_fields(order: str, content: Mapping[str, Any]) -> None:
    kinds = _FIELDS[order]
    if not isinstance(content, dict) or content.keys() != kinds.keys():
        raise Refused(f"the order {order!r} must have {' and '.join(kinds)}, and nothing else.")
    for name, kind in kinds.items():
        if type(content[name]) is not kind:
            raise Refused(
                f"{name!r} of the order {order!r} must be {kind.__name__}; it is {type(content[name]).__name__}."
            )


def _to_owner(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
