"""What all parties of a run have signed so far, as one digest that everybody computes from the messages themselves.

A round has two steps. Every site commits to its message: it signs the digest of the message together with that of the
transcript. Once a site has seen all commitments it opens its own. So nobody chooses a message after having seen
another's, or repeats one that it has not seen, and a party that was shown a different history finds a signature wrong
in the next round. Who carries the messages can delay them, and nothing else: a forged, dropped, doubled or old one ends
the run with a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedgauss.federated.keys import Verify, is_hex
from fedgauss.federated.refusal import Refused
from fedgauss.federated.roster import Roster, is_ledger
from fedgauss.federated.wire import Message, digest
from fedgauss.inference.tables import repeats

Messages = Mapping[str, Message]  # by the name of the site
_FIELDS = ("commitment", "head", "length", "signature")
_LONGEST_SIGNATURE = 128  # characters


class Blamed(Refused):
    """A message that its sender cannot have meant, or that was changed on its way."""


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
        self._roster, self._verify = roster, verify
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
        if twice := repeats(commitments.values()):
            who = sorted(name for name, commitment in commitments.items() if commitment == twice[0])
            raise Blamed(
                f"sites {who[0]!r} and {who[1]!r} committed to one message in round {self.round}: one repeats it."
            )
        self._commitments, self._next = commitments, digest({"before": self.digest, "commitments": dict(messages)})

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
        if not isinstance(messages, Mapping):
            raise Blamed(f"round {self.round} must have a {what} of each site, by name; got {type(messages).__name__}.")
        missing = sorted(set(self._roster.names) - set(messages))
        surplus = sorted(set(messages) - set(self._roster.names))
        if missing:
            raise Blamed(
                f"the {what} of site {missing[0]!r} in round {self.round} is missing: every site must take part."
            )
        if surplus:
            raise Blamed(f"{surplus[0][:60]!r} is not in the roster, and sent a {what} in round {self.round}.")


def _check_fields(name: str, message: Any) -> None:
    if not isinstance(message, dict) or message.keys() != set(_FIELDS):
        raise Blamed(f"site {name!r} sent something else than {', '.join(_FIELDS)}.")
    signature = message["signature"]
    short = isinstance(signature, str) and len(signature) <= _LONGEST_SIGNATURE
    if not short or not is_hex(message["commitment"], 32) or not is_ledger(message["head"], message["length"]):
        raise Blamed(f"site {name!r} must send digests, a length and a signature; one of them is none.")
