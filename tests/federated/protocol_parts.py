"""A run of sites that have nothing but keys and numbers: what the tests of the protocol share."""

import hashlib

import numpy as np
from hypothesis import settings

from fedgauss.federated.fixed_point import add, pack, to_words
from fedgauss.federated.keys import Key, RunKey, verify
from fedgauss.federated.masks import Masks
from fedgauss.federated.party import Party, Transcript
from fedgauss.federated.plan import Plan, Question
from fedgauss.federated.roster import Entry, Roster
from fedgauss.federated.wire import decode, digest, encode
from fedgauss.inference.model import Model

NAMES = ("a", "b", "c")
FIXED = settings(derandomize=True, deadline=None, database=None)  # the same examples in every run
HEAD = "0" * 64
MODEL = Model("y ~ x")
SHAPES = {"count": (), "score": (2,), "matrix": (2, 2)}


def key_of(name):
    """The same in every run of the tests."""
    return Key(hashlib.sha256(f"key {name}".encode()).digest())


def run_key_of(name, run=""):
    return RunKey(hashlib.sha256(f"run key {name} {run}".encode()).hexdigest())


def plan_of(names=NAMES, masked=True, nonce="1", model=MODEL, asker="coordinator"):
    return Plan(model, tuple(names), masked, asker, nonce)


def entries_of(plan):
    return [
        Entry.signed(plan.run, name, key_of(name), run_key_of(name, plan.nonce).public, HEAD, 1) for name in plan.sites
    ]


def roster_of(plan, check=verify):
    return Roster(plan.run, entries_of(plan), check)


def through_the_wire(message):
    return decode(encode(message))


def commitments_to(openings, transcript, keys=key_of, head=HEAD, length=1):
    """Signed commitments, one of each site."""
    found = {}
    for name, message in openings.items():
        commitment = digest(message)
        signature = keys(name).sign(transcript.statement(commitment, head, length))
        found[name] = {"commitment": commitment, "head": head, "length": length, "signature": signature}
    return found


def words_alone(said, salt="0"):
    """Openings without numbers, by name."""
    return {name: {"words": words, "salt": f"{salt}{name}"} for name, words in said.items()}


def asks_twice():
    """A toy program: it asks for sums at 0, then at a point that the first sums decide, then for a last word."""
    first = yield Question("sums", {"at": 0.0}, SHAPES)
    at = float(first.total["score"][0])
    second = yield Question("sums", {"at": at}, SHAPES)
    last = yield Question("last", {}, {})
    return first.total, second.total, last.words, (first.each, second.each)


class Toy:
    """Sites and a mailbox, all parties of one run."""

    def __init__(self, plan=None, program=asks_twice):
        self.plan = plan_of() if plan is None else plan
        self.roster = roster_of(self.plan)
        self.parties = {
            name: Party(self.plan, self.roster, verify, program()) for name in (*self.plan.sites, "the mailbox")
        }
        publics = self.roster.run_keys
        self.masks = {
            name: Masks(run_key_of(name, self.plan.nonce), publics, name, self.roster.digest.encode())
            for name in self.plan.sites
        }
        self.rounds = []

    @property
    def transcript(self) -> Transcript:
        return self.parties["the mailbox"].transcript

    def numbers(self, name, at):
        """What a site adds up at a point."""
        own = float(self.plan.sites.index(name) + 1)
        return {"count": own, "score": np.array([own + at, -own]), "matrix": np.array([[own, at], [at, 1.0]])}

    def message(self, name):
        question = self.parties[name].question
        message = {"words": {"from": name}, "salt": f"{self.transcript.round} {name}"}
        if question.shapes:
            row = np.concatenate([[1.0], pack(self.numbers(name, question.content["at"]), question.shapes)])
            message["numbers"] = to_words(row)
            if self.plan.masked:
                words = self.masks[name].words(self.parties[name].transcript.context, len(row))
                message["numbers"] = add(message["numbers"], words)
        return through_the_wire(message)

    def openings(self, **changes):
        return {name: changes.get(name, self.message(name)) for name in self.plan.sites}

    def play(self, openings=None):
        """One round."""
        openings = self.openings() if openings is None else openings
        commitments = commitments_to(openings, self.transcript)
        for party in self.parties.values():
            party.hear_commitments(commitments)
        for party in self.parties.values():
            party.hear_openings(openings)
        self.rounds.append({"commitments": commitments, "openings": openings})

    def earlier(self, n_rounds=None):
        """This run as a journal has it."""
        rounds = self.rounds[:n_rounds]
        return through_the_wire({"plan": self.plan.to_wire(), "roster": self.roster.to_wire(), "rounds": rounds})
