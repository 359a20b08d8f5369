"""Who knows all tables, sees all messages, and says what must never happen.

It works out for itself what sites and mailboxes should have: sums and fits by plain NumPy (`cohort`), who signed what,
which numbers were masked, what a ledger must still have after a crash. It believes no check that a party made.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedgauss.federated.fixed_point import Shapes, pack, subtract, to_words
from fedgauss.federated.plan import Plan, Question
from fedgauss.federated.roster import Entry
from fedgauss.federated.wire import Message, digest
from fedgauss.inference.fit_result import Fit
from simulated.cohort import NUMBERS, SECRET, Cohort, Twin, levels_of, same

CLOSE = 1e-8  # of a standard error and the estimate, by which a fit may miss the pooled one
_COMMITMENT = b"fedgauss commitment 1 "
_WORDS = {"levels", "reasons", "tags", "refused"}
_TO_NAME = 3  # rows that a level has which a site names
_PLAIN = (0, 2**64 - 1)  # the upper word of every number below 2^64 in size
_RANK = 1e-9  # of the largest singular value, below which a direction is rounding
_ALONE = 0.9995  # of the squares of a combination; a site refuses .999
_EVERY = 8  # rounds whose masks are looked at number by number
_EXPLAINED = re.compile(r"site '|this site|[Tt]his table|sites|masks|run|column|level|estimate|must|roster|ledger")


class Failure(BaseException):
    """Something that must never happen. No party may catch it."""


@dataclass
class _Watched:
    """What is known of an honest machine."""

    plan: Plan | None = None
    model: str = ""  # a digest
    about: str = ""  # a digest of the model with its sites
    continued: bool = False
    roster: list[Entry] = field(default_factory=list)
    commitments: Message = field(default_factory=dict)
    question: Question | None = None
    plain: Any = None  # numbers before masks
    signed_head: tuple[int, str] = (0, "")
    tries: int = 0
    parameters: int = 0
    matrices: int = 0
    answered: set[str] = field(default_factory=set)  # digests of models with their sites
    begun: set[str] = field(default_factory=set)  # names of runs
    names: dict[str, str] = field(default_factory=dict)  # the first key of each site
    askers: dict[str, str] = field(default_factory=dict)  # and of who asks
    peers: dict[str, tuple[int, str]] = field(default_factory=dict)  # by key the length and head of another's ledger
    told: list[np.ndarray] = field(default_factory=list)  # columns of which sums have left
    rosters: dict[str, list[tuple[frozenset[str], bool]]] = field(default_factory=lambda: defaultdict(list))


class Auditor:
    """Raises `Failure` where a party of a simulated world does what none may.

    Attributes
    ----------
    machines : dict of str to Machine
        All of the world, by public key.
    rounds : int
    """

    def __init__(self) -> None:
        self.machines: dict[str, Any] = {}
        self.rounds = 0
        self._watched: dict[str, _Watched] = defaultdict(_Watched)
        self._said: dict[str, tuple[str, str]] = {}  # by key the last transcript and round that it signed for
        self._signed: set[tuple[Any, ...]] = set()
        self._commitment: dict[tuple[str, str, str], str] = {}
        self._masks: set[bytes] = set()
        self._pooled: dict[tuple[str, ...], tuple[Cohort, Twin]] = {}
        self._digests: dict[tuple[Any, ...], tuple[Message, str]] = {}
        self.correlation = np.zeros(
            2
        )  # n, and the sum over it of masked numbers, from -1/2 to 1/2, times signs of what they hide

    # What machines do.

    def note_signature(self, public: str, statement: bytes) -> None:
        """A key has signed something: an honest one signs one commitment a round."""
        if not statement.startswith(_COMMITMENT):
            return
        transcript, turn, commitment, head, length = statement[len(_COMMITMENT) :].decode().split(" ")
        self._said[public] = transcript, turn
        self._signed.add((public, transcript, turn, commitment, head, int(length)))
        first = self._commitment.setdefault((public, transcript, turn), commitment)
        if self.machines[public].honest and first != commitment:
            raise Failure(f"site {self.machines[public].name} signed two commitments for round {turn}")

    def note_start(self, machine: Any, head: str, length: int) -> None:
        """A process starts from its disk: what it signed before must be there."""
        if not machine.honest:
            return
        signed_length, signed_head = self._watched[machine.key.public].signed_head
        if length < signed_length or (length == signed_length and head != signed_head):
            raise Failure(
                f"site {machine.name} answered with a ledger of {signed_length} lines; {length} are on its disk"
            )

    def note_rollback(self, machine: Any) -> Any:
        """A disk was put back to an earlier state, which the site itself cannot know; what was known of it so far.

        What it answered before it may still know.
        """
        known = self._watched.pop(machine.key.public, None)
        if known is not None:
            self._watched[machine.key.public] = _Watched(answered=set(known.answered))
        return known

    def note_return(self, machine: Any, known: Any) -> None:
        """The disk is again as it was."""
        self._watched[machine.key.public] = known or _Watched()

    def note_second_run(self, machine: Any) -> None:
        """Another process has begun a run on a table, while one goes on."""
        if machine.honest:
            raise Failure(f"site {machine.name} takes part in two runs at once")

    def note_traceback(self, machine: Any, text: str) -> None:
        """A site's code raised something else than a refusal."""
        if machine.honest:
            raise Failure(f"site {machine.name} failed without a reason: {' '.join(text.split()[-30:])}")

    def note_answer(self, machine: Any, question: Question, numbers: Any, words: Message, again: bool) -> None:
        """What a site is about to say, before masks."""
        if not machine.honest:
            return
        one = self._watched[machine.key.public]
        one.question, one.plain = question, numbers
        if numbers is not None and not again and question.kind == "ask" and not self._is_repeat(one):
            one.parameters += 1
            one.matrices += int(question.content["ask"].kind == "sums" or bool(question.content["ask"].parts))
            budget = machine.policy.budget
            if one.parameters > budget.parameters or one.matrices > budget.matrices:
                raise Failure(f"site {machine.name} told more than its budget of {budget}")

    def note_reply(self, machine: Any, order: str, content: Message, reply: Message, text: str) -> None:
        """A reply leaves a site."""
        if not machine.honest:
            return
        if SECRET in text:
            raise Failure(
                f"site {machine.name} told of a level of few rows: {text[max(0, text.index(SECRET) - 60) :][:90]}"
            )
        one = self._watched[machine.key.public]
        if "error" in reply:
            self._check_reason(machine, str(reply["error"]))
            return
        if order == "join":
            one.plan = plan = Plan.from_wire(content["plan"])
            if one.askers.setdefault(plan.asker, content["key"]) != content["key"]:
                raise Failure(f"site {machine.name} answered {plan.asker!r} by another key than the first")
        elif order == "meet":
            self._check_roster(machine, one, content)
        elif order == "open":
            self._check_commitments(machine, one, content["commitments"])
            self._check_opening(machine, one, reply["opening"])
        elif order == "hear":
            self._check_openings(machine, one, content["openings"])
            if reply.get("ended"):
                one.answered.add(one.about)
                heard = one.commitments
                one.peers |= {e.key: (heard[e.name]["length"], heard[e.name]["head"]) for e in one.roster}
        if "commitment" in reply:
            one.signed_head = max(one.signed_head, (reply["length"], reply["head"]))

    def note_run(self) -> None:
        """A run begins: what was kept to be fast is let go."""
        self._digests.clear()

    def digest(self, message: Message) -> str:
        """That of a message, worked out once where several parties hear the very same parts of one."""
        place = tuple((name, part if isinstance(part, str) else id(part)) for name, part in message.items())
        if place not in self._digests:
            self._digests[place] = message, digest(message)
        return self._digests[place][1]

    # What an honest mailbox finds.

    def check_fit(self, names: Sequence[Any], plan: Plan, fit: Fit) -> None:
        """The fit of honest sites is that of all their rows."""
        _, twin = self.pooled(plan.model, names)
        if not twin.certain:
            return
        errors = np.sqrt(np.diag(twin.cov))
        if np.shape(fit.params) != twin.params.shape:
            raise Failure(f"a fit has {len(fit.params)} parameters; all rows together have {len(twin.params)}")
        apart = (np.abs(fit.params - twin.params) / (np.abs(twin.params) + errors)).max()
        apart = max(apart, (np.abs(fit.cov - twin.cov) / np.outer(errors, errors)).max())
        if not apart <= CLOSE:
            raise Failure(f"the fit of {plan.model.formula} is {apart:.1e} from that of all rows together")

    def pooled(self, model: Any, machines: Sequence[Any]) -> tuple[Cohort, Twin]:
        """All rows of some machines under a model, and their fit."""
        place = (digest(model.wire()), *(one.key.public for one in machines))
        if place not in self._pooled:
            cohort = Cohort(model, [one.table for one in machines])
            self._pooled[place] = cohort, cohort.fit()
        return self._pooled[place]

    # Checks.

    def _check_reason(self, machine: Any, reason: str) -> None:
        if "failed at this site" in reason or not _EXPLAINED.search(reason):
            raise Failure(f"site {machine.name} gave no reason: {reason}")

    def _check_roster(self, machine: Any, one: _Watched, content: Message) -> None:
        """Who takes part: everybody once, with a key of its own, signed for this run and pinned where that is so."""
        plan = one.plan
        assert plan is not None
        one.roster, one.continued = [Entry(**fields) for fields in content["roster"]], bool(content["past"])
        one.model = digest(plan.model.wire())
        one.about = digest({"model": one.model, "masked": plan.masked, "keys": sorted(e.key for e in one.roster)})
        for part in ("name", "key", "run_key"):
            values = [getattr(entry, part) for entry in one.roster]
            if len(set(values)) < len(values):
                raise Failure(f"site {machine.name} met a roster in which a {part} stands twice")
        if sorted(entry.name for entry in one.roster) != list(plan.sites):
            raise Failure(f"site {machine.name} met a roster that is not of its plan")
        for entry in one.roster:
            if not machine.around.keys.verify(entry.key, entry.statement(plan.run), entry.signature):
                raise Failure(f"site {machine.name} met a roster with an entry that nobody signed")
            pinned = machine.policy.sites
            if pinned is not None and entry.key != machine.key.public and pinned.get(entry.name) != entry.key:
                raise Failure(f"site {machine.name} met {entry.name!r}, whose key its owner did not name")
        for entry in one.roster:
            if entry.key != machine.key.public:
                self._check_peer(machine, one, entry)
        if not machine.consents:
            raise Failure(f"site {machine.name} began a run after its owner had withdrawn consent")
        if plan.run in one.begun:
            raise Failure(f"site {machine.name} began one run twice")
        one.begun.add(plan.run)
        if not self._is_repeat(one):
            one.tries += 1
            if one.tries > machine.policy.tries:
                raise Failure(
                    f"site {machine.name} took part in {one.tries} runs; its owner allows {machine.policy.tries}"
                )

    def _check_peer(self, machine: Any, one: _Watched, entry: Entry) -> None:
        """Another site has the key of before, and a ledger that goes on from that of before."""
        if one.names.setdefault(entry.name, entry.key) != entry.key:
            raise Failure(f"site {machine.name} met {entry.name!r} with another key than at first")
        length, head = one.peers.get(entry.key, (0, ""))
        if entry.length < length or (entry.length == length and entry.head != head):
            raise Failure(f"site {machine.name} met {entry.name!r}, whose ledger has lost lines")
        one.peers[entry.key] = entry.length, entry.head

    def _check_commitments(self, machine: Any, one: _Watched, commitments: Mapping[str, Message]) -> None:
        """Before a site opens: every site has signed its commitment about the same history."""
        said = self._said[machine.key.public]
        for entry in one.roster:
            heard = commitments[entry.name]
            place = (entry.key, *said, heard["commitment"], heard["head"], heard["length"])
            if place not in self._signed:
                raise Failure(f"site {machine.name} opened to a commitment of {entry.name!r} that it never signed")
        one.commitments = dict(commitments)

    def _check_openings(self, machine: Any, one: _Watched, openings: Mapping[str, Message]) -> None:
        """Before a site goes on: every message is the one that was committed to."""
        for entry in one.roster:
            message = openings[entry.name]
            if self.digest(message) != one.commitments[entry.name]["commitment"]:
                raise Failure(
                    f"site {machine.name} went on from a message of {entry.name!r} that it had not committed to"
                )

    def _check_opening(self, machine: Any, one: _Watched, message: Message) -> None:
        """What a message tells."""
        plan, question = one.plan, one.question
        assert plan is not None
        assert question is not None
        words = message["words"]
        if not words.keys() <= _WORDS:
            raise Failure(f"site {machine.name} told {sorted(words.keys() - _WORDS)}")
        for name, levels in words.get("levels", []):
            counts = levels_of(machine.table, name) if levels is not None else {}
            if any(counts[level] < _TO_NAME for level in (levels or {"named": []})["named"]):
                raise Failure(
                    f"site {machine.name} named a level of {name} that fewer than {_TO_NAME} of its rows have"
                )
        if question.kind in ("means", "design") and message.get("numbers") is not None:
            self._check_permission(machine, one)
        if plan.masked and message.get("numbers") is not None:
            self._check_masks(machine, one, question.shapes, message["numbers"])

    def _check_permission(self, machine: Any, one: _Watched) -> None:
        """Sums of columns leave a site: its owner's rules allow them."""
        plan, policy = one.plan, machine.policy
        assert plan is not None
        assert one.question is not None
        if len(plan.sites) < policy.fewest_sites or policy.masks == ("off" if plan.masked else "required"):
            raise Failure(f"site {machine.name} took part in a run that its owner's rules do not allow")
        cohort_terms = [term.strip() for term in str(plan.model.formula).split("~")[1].split("+")]
        if set(policy.never) & set(cohort_terms):
            raise Failure(f"site {machine.name} used a column that its owner has closed")
        there = [self.machines[entry.key] for entry in one.roster if entry.key in self.machines]
        for i, left in enumerate(there):
            if any(same(left.table, right.table) for right in there[:i]):
                raise Failure(f"site {machine.name} added up its rows with one table that was there twice")
        kept, _ = self.pooled(plan.model, sorted(there, key=lambda one: one.name))
        for name in set(cohort_terms) - set(NUMBERS):
            counts = levels_of(machine.table, name)
            rare = [n for level, n in counts.items() if level not in kept.levels[name]]
            told = [sum(rare)] if plan.model.pool_rare else list(counts.values())
            if any(0 < n < policy.few for n in told):
                raise Failure(f"site {machine.name} added up a level of {name} with fewer than {policy.few} rows")
        keys = frozenset(entry.key for entry in one.roster)
        if (keys, plan.masked) in one.rosters[one.model]:
            return
        for other, masked in one.rosters[one.model]:
            if 0 < len(keys ^ other) < policy.sites_apart and (masked or plan.masked):
                raise Failure(f"site {machine.name} told sums of two rosters that differ by {len(keys ^ other)} sites")
        if one.question.kind == "design":
            one.rosters[one.model].append((keys, plan.masked))
            self._check_rows(machine, one, kept, sorted(there, key=lambda one: one.name).index(machine))

    def _check_rows(self, machine: Any, one: _Watched, cohort: Cohort, i: int) -> None:
        """No combination of all columns that a table told is next to nothing but on one row, or on two."""
        piece = cohort.pieces[i]
        one.told.append(np.column_stack([np.ones(len(cohort.y[piece])), cohort.x[piece], cohort.y[piece]]))
        columns = np.hstack(one.told)
        basis, sizes, _ = np.linalg.svd(columns / np.maximum(np.abs(columns).max(axis=0), 1e-300), full_matrices=False)
        basis = basis[:, sizes > _RANK * sizes[0]]
        shared = basis @ basis.T
        alone = np.diag(shared)
        middle, apart = (alone[:, None] + alone) / 2, (alone[:, None] - alone) / 2
        if np.max(middle + np.hypot(apart, shared - np.diag(alone))) > _ALONE:
            raise Failure(f"site {machine.name} told columns of which a combination rests on one row, or on two")

    def _check_masks(self, machine: Any, one: _Watched, shapes: Shapes, numbers: np.ndarray) -> None:
        """Masked numbers look like nothing, and no mask is used twice. The first number hides a 1."""
        upper = numbers[:, -1].tolist()
        if any(word in _PLAIN for word in upper):
            raise Failure(f"site {machine.name} sent a number without a mask")
        hidden = [numbers[0].tobytes()]
        if one.plain is not None and self.rounds % _EVERY == 0:
            row = np.concatenate([[1.0], pack(one.plain, shapes)])
            masks = subtract(numbers, to_words(row))
            hidden = [mask.tobytes() for mask in masks]
            hidden[0] = numbers[0].tobytes()
            signs, uniform = np.sign(row), numbers[:, -1] / 2.0**64 - 0.5
            self.correlation += [np.count_nonzero(signs), float(uniform @ signs)]
        if len(set(hidden)) < len(hidden) or self._masks.intersection(hidden):
            raise Failure(f"site {machine.name} used a mask twice")
        self._masks.update(hidden)

    def _is_repeat(self, one: _Watched) -> bool:
        return one.continued or one.about in one.answered
