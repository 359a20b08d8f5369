"""A party of a run: it checks all messages, adds them up and takes the step that they decide, as all others do.

Sites are parties, and so is who carries the messages: it can print the steps that it sees, and choose none.

What all parties have signed so far has one digest, which everybody computes from the messages themselves. A round has
two steps. Every site commits to its message: it signs the digest of the message together with that of the transcript.
Once a site has seen all commitments it opens its own. So nobody chooses a message after having seen another's, or
repeats one that it has not seen, and a party that was shown a different history finds a signature wrong in the next
round. Who carries the messages can delay them, and nothing else: a forged, dropped, doubled or old one ends the run
with a name.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np

from fedgauss.federated.fixed_point import WORDS, Words, add, from_words, size, unpack
from fedgauss.federated.keys import Verify, is_hex
from fedgauss.federated.plan import Heard, Plan, Question
from fedgauss.federated.refusal import Blamed, Refused
from fedgauss.federated.roster import Roster, is_ledger
from fedgauss.federated.wire import Message, digest, printable
from fedgauss.inference.tables import repeats

Messages = Mapping[str, Message]  # by the name of the site
Program = Generator[Question, Heard, Any]
_FIELDS = dict.fromkeys(("commitment", "head", "length", "signature")).keys()
_LONGEST_SIGNATURE = 128  # characters
_LONGEST = 1000  # characters of a reason
_MOST_REASONS = 50
_PARTS = {"words", "salt", "numbers"}


class RunRefused(Refused):
    """Sites that take no part, with all of their reasons."""

    def __init__(self, reasons: Mapping[str, Sequence[str]]) -> None:
        self.reasons = {site: list(words) for site, words in reasons.items()}
        super().__init__(" ".join(f"site {site!r}: {' '.join(words)}" for site, words in self.reasons.items()))


class Transcript:
    """The history of a run.

    Parameters
    ----------
    roster : Roster
        Who takes part.
    verify : callable
        verify(key, statement, signature), such as `keys.verify`.
    past : str
        The digest of the transcript of an earlier run that this one continues; empty for none.
    """

    def __init__(self, roster: Roster, verify: Verify, past: str = "") -> None:
        self._roster, self._verify, self._names = roster, verify, frozenset(roster.names)
        self.round = 1
        self.digest = digest({"what": "fedgauss run 1", "roster": roster.digest, "past": past})
        self._commitments: dict[str, str] | None = None
        self._next: str  # digest, once there are commitments

    @property
    def context(self) -> bytes:
        """What the words of the masks of this round depend on; the same for all, before and after commitments."""
        return f"{self.digest} {self.round}".encode()

    def statement(self, commitment: str, head: str, length: int) -> bytes:
        """What a site signs: its commitment, this history, and how far its ledger is."""
        return f"fedgauss commitment 1 {self.digest} {self.round} {commitment} {head} {length}".encode()

    def check_commitments(self, messages: Messages) -> None:
        """All sites have signed a commitment about this history, each one of its own."""
        if self._commitments is not None:
            raise Blamed(f"round {self.round} has its commitments already; they came twice.")
        self._check_names(messages, "commitment")
        for name, message in messages.items():
            _check_fields(name, message)
            statement = self.statement(message["commitment"], message["head"], message["length"])
            if not self._verify(self._roster.entry(name).key, statement, message["signature"]):
                raise Blamed(
                    f"the commitment of site {name!r} in round {self.round} is not signed by its key over what this "
                    "party has seen: it was forged, is old, or the two were shown different messages."
                )
        commitments = {name: message["commitment"] for name, message in messages.items()}
        if len(set(commitments.values())) < len(commitments):
            twice = repeats(commitments.values())
            who = sorted(name for name, commitment in commitments.items() if commitment == twice[0])
            raise Blamed(
                f"sites {who[0]!r} and {who[1]!r} committed to one message in round {self.round}: one repeats it."
            )
        self._commitments, self._next = commitments, digest({"before": self.digest, "commitments": messages})

    def check_openings(self, messages: Messages) -> None:
        """Each site's message is the one that it committed to."""
        if self._commitments is None:
            raise Blamed(f"round {self.round} has no commitments yet; openings come after them.")
        self._check_names(messages, "message")
        for name, message in messages.items():
            if not isinstance(message, dict) or digest(message) != self._commitments[name]:
                raise Blamed(
                    f"the message of site {name!r} in round {self.round} is not the one that it committed to: it was "
                    "changed, or the site changed its mind."
                )

    def advance(self) -> None:
        """To the next round, once commitments and openings were checked: the first are digests of the second."""
        if self._commitments is None:
            raise Blamed(f"round {self.round} has no commitments yet; it cannot end.")
        self.digest, self.round, self._commitments = self._next, self.round + 1, None

    def _check_names(self, messages: Any, what: str) -> None:
        if not isinstance(messages, dict):
            raise Blamed(f"round {self.round} must have a {what} of each site, by name; got {type(messages).__name__}.")
        missing, surplus = sorted(self._names - messages.keys()), sorted(messages.keys() - self._names)
        if missing:
            raise Blamed(
                f"the {what} of site {missing[0]!r} in round {self.round} is missing: every site must take part."
            )
        if surplus:
            raise Blamed(f"{surplus[0][:60]!r} is not in the roster, and sent a {what} in round {self.round}.")


class Party:
    """The state of a run, from its program and the messages so far.

    Attributes
    ----------
    question : Question or None
        What sites answer in this round; None once the run has ended.
    result : object
        What the program returned, once it has ended.
    """

    def __init__(self, plan: Plan, roster: Roster, verify: Verify, program: Program) -> None:
        check_roster(plan, roster)
        self._plan, self._roster, self._verify, self._program = plan, roster, verify, program
        self.result: Any = None
        self.question: Question | None = next(program)
        self.transcript = Transcript(roster, verify)
        self._past = ""

    def hear_commitments(self, messages: Messages) -> None:
        """Check them; after that a site may open its message."""
        self.transcript.check_commitments(messages)

    def hear_openings(self, messages: Messages) -> None:
        """Check them, add them up, and take the step that they decide."""
        self.transcript.check_openings(messages)
        heard = self._add_up(messages)
        self.transcript.advance()
        try:
            self.question = self._program.send(heard)
        except StopIteration as end:
            self.question, self.result = None, end.value

    def go_over(self, earlier: Message, follow: Callable[[Question], object] = lambda question: None) -> None:
        """Take the rounds of an earlier run about the same that did not end.

        Parameters
        ----------
        earlier : dict
            Its plan, its roster and its rounds, as who carried the messages has kept them. All signatures are checked
            again.
        follow : callable, optional
            Is given each question before its answers.
        """
        if not isinstance(earlier, dict) or earlier.keys() != {"plan", "roster", "rounds"}:
            raise Refused("an earlier run must have its plan, its roster and its rounds; this past has not.")
        plan = Plan.from_wire(earlier["plan"])
        roster = Roster.from_wire(plan.run, earlier["roster"], self._verify)
        check_roster(plan, roster)
        if plan.about != self._plan.about or roster.who != self._roster.who:
            raise Refused(
                "a run can continue one with the same model, sites, masks and fedgauss; this past is another's."
            )
        self.transcript = Transcript(roster, self._verify, self._past)
        if not isinstance(earlier["rounds"], list):
            raise Refused("the rounds of an earlier run must be a list; these are not.")
        for one in earlier["rounds"]:
            if self.question is None:
                raise Refused("a run that ended cannot be continued; ask again without its past.")
            if not isinstance(one, dict) or one.keys() != {"commitments", "openings"}:
                raise Refused("a round of an earlier run must have commitments and openings; this one has not.")
            follow(self.question)
            self.hear_commitments(one["commitments"])
            self.hear_openings(one["openings"])
        self._past = self.transcript.digest
        self.transcript = Transcript(self._roster, self._verify, self._past)

    def _add_up(self, messages: Messages) -> Heard:
        """The exact sum of all sites' numbers, rounded to floats once."""
        question = self.question
        if question is None:
            raise Blamed("this run has ended; there is no further round.")
        sites = self._plan.sites
        words = {site: _words(site, messages[site]) for site in sites}
        if any("refused" in own for own in words.values()):
            reasons = {site: _reasons(own) for site, own in words.items()}
            raise RunRefused({site: own for site, own in reasons.items() if own})
        if not question.shapes:
            return Heard(None, words, [])
        count = 1 + size(question.shapes)
        numbers = [_numbers(site, messages[site], count) for site in sites]
        there = [one for one in numbers if one is not None]
        if len(there) < len(sites):
            return Heard(None, words, [])
        row = from_words(add(*there))
        if row[0] != len(sites):
            raise Blamed(
                f"the masks of {len(sites)} sites must cancel; in round {self.transcript.round} they do not. One of "
                "them made its masks from something else."
            )
        each = [] if self._plan.masked else [unpack(from_words(one)[1:], question.shapes) for one in there]
        return Heard(unpack(row[1:], question.shapes), words, each)


def _check_fields(name: str, message: Any) -> None:
    if not isinstance(message, dict) or message.keys() != _FIELDS:
        raise Blamed(f"site {name!r} sent something else than {', '.join(_FIELDS)}.")
    signature = message["signature"]
    short = isinstance(signature, str) and len(signature) <= _LONGEST_SIGNATURE
    if not short or not is_hex(message["commitment"], 32) or not is_ledger(message["head"], message["length"]):
        raise Blamed(f"site {name!r} must send digests, a length and a signature; one of them is none.")


def check_roster(plan: Plan, roster: Roster) -> None:
    """A roster must be of the sites of its plan, and signed for it."""
    if sorted(roster.names) != list(plan.sites) or roster.run != plan.run:
        raise Refused("the roster must be of the sites of this run, and signed for it; this one is not.")


def _words(site: str, message: Message) -> Message:
    words, salt = message.get("words"), message.get("salt")
    if not message.keys() <= _PARTS or not isinstance(words, dict) or not isinstance(salt, str):
        raise Blamed(f"site {site!r} must send words, salt and numbers alone; it sent something else.")
    return words


def _reasons(words: Message) -> list[str]:
    """What a site has against the run, with at least one reason where it refuses it."""
    told = words.get("refused", words.get("reasons"))
    reasons = [one for one in told[:_MOST_REASONS] if isinstance(one, str)] if isinstance(told, list) else []
    shown = [printable(reason[:_LONGEST])[:_LONGEST] for reason in reasons]
    return shown or (["it refuses, and gave no reason."] if "refused" in words else [])


def _numbers(site: str, message: Message, count: int) -> Words | None:
    numbers = message.get("numbers")
    if numbers is None:
        return None
    if not isinstance(numbers, np.ndarray) or numbers.dtype != np.uint64 or numbers.shape != (count, WORDS):
        raise Blamed(f"site {site!r} must send {count} numbers of {WORDS} words; it sent something else.")
    return numbers
