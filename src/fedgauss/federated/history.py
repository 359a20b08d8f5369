"""What the lines of a ledger come to: runs, what was spent, and whose keys and ledgers are known."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from fedgauss.federated.chain import Entry
from fedgauss.federated.privacy import Cost
from fedgauss.federated.span_rule import Told


@dataclass
class Run:
    """A run as the lines of the ledger have it."""

    name: str
    time: str
    model: str  # digest of what it is about
    sites: dict[str, str]  # names by key
    masked: bool
    counts: bool
    repeats: list[str]  # names of answered runs that told all that this one has told
    result: str = "begun"
    reasons: list[str] = field(default_factory=list)
    tells_rows: bool = False  # whether one of them depends on rows
    parameters: int = 0
    matrices: int = 0
    passes: int = 0  # of SGD
    silences: int = 0  # rounds without numbers
    free: bool = False  # whether the last question had been answered, with numbers or by silence
    questions: set[str] = field(default_factory=set)  # digests of those that sums were told of, here or before it
    told: dict[Told, None] = field(default_factory=dict)  # in the order of telling
    places: dict[Told, None] = field(default_factory=dict)  # what rows count for where sums are exact
    reach: dict[tuple[Told, ...], str] = field(default_factory=dict)
    """By all places so far, a digest of the numbers of the rows that it could single out there."""
    privacy: str = ""  # in words, what it was asked to cost
    cost: Cost = ()  # of its noise


@dataclass
class History:
    """The state of a ledger, a fold over its lines."""

    key: bytes = b""  # of the numbers of rows
    names: list[str] = field(default_factory=list)  # of the columns by which rows are known
    spent: Counter[str] = field(default_factory=Counter)  # by the name of its budget
    told: dict[str, tuple[int, int]] = field(default_factory=lambda: defaultdict(lambda: (0, 0)))
    """How many numbers of shares of the rows, and at most how many."""
    functions: dict[str, frozenset[str]] = field(default_factory=dict)  # of numbers that sums were told of
    runs: list[Run] = field(default_factory=list)
    by_name: dict[str, Run] = field(default_factory=dict)  # the same
    peers: dict[str, tuple[str, str, int]] = field(default_factory=dict)  # name, head and length by key
    sites: dict[str, str] = field(default_factory=dict)  # the first key of each name
    askers: dict[str, str] = field(default_factory=dict)  # keys by name
    consents: bool = True

    @property
    def costs(self) -> list[Cost]:
        """Of all private runs."""
        return [run.cost for run in self.runs if run.cost]

    def repeated(self, run: Run) -> list[Run]:
        """The answered runs that told all that this one has told."""
        return [self.by_name[name] for name in run.repeats]

    def apply(self, entry: Entry) -> None:
        """Take a line into account, be it a new one or one that was read."""
        kind = entry["is"]
        if kind == "spend":  # most of them
            self._spend(self.runs[-1], entry)
        elif kind == "ledger":
            self.key = bytes.fromhex(entry["key"])
        elif kind == "rows":
            self.names = entry["names"]
        elif kind == "peers":
            for name, (key, head, length) in entry["peers"].items():
                self.peers[key] = (name, head, length)
                self.sites[name] = key
        elif kind == "asker":
            self.askers[entry["name"]] = entry["key"]
        elif kind == "forget":
            self.askers.pop(entry["name"], None)
            self.peers.pop(self.sites.pop(entry["name"], ""), None)
        elif kind == "consent":
            self.consents = entry["given"]
        elif kind == "begin":
            names = ("run", "time", "digest", "sites", "masked", "counts", "repeats")
            self.runs.append(Run(*(entry[name] for name in names)))
            self.by_name[entry["run"]] = self.runs[-1]
            self.spent["tries"] += entry["counts"]
        else:
            self._apply_to(self.runs[-1], kind, entry)

    def _apply_to(self, run: Run, kind: str, entry: Entry) -> None:
        if kind == "tell":
            run.told.update({Told(name, entry["rows"], own): None for name, own in entry["columns"]})
            self.functions.update({name: frozenset(of) for name, of in entry["functions"].items()})
            self.spent["tries"] += not run.counts
            run.counts = True
        elif kind == "place":
            run.places.update({Told(name, entry["rows"], own): None for name, own in entry["columns"]})
            run.reach[tuple(run.places)] = entry["reach"]
            self.spent["tries"] += entry["counts"]
            run.counts |= entry["counts"]
        elif kind == "repeats":
            run.repeats = entry["repeats"]
        elif kind == "privacy":
            run.privacy, run.cost = entry["privacy"], tuple(entry["cost"])
        elif kind == "reasons":
            self.spent["refusals"] += entry["counts"] and not run.tells_rows
            run.reasons, run.tells_rows = entry["reasons"], run.tells_rows or entry["counts"]
        elif kind == "silence":
            run.silences += 1
            self.spent["refusals"] += 1
        elif kind == "refuse":
            run.result = "refused"
        else:
            run.result = "answered" if entry["answered"] else "ended"
            for old in self.runs:
                if entry["answered"] and old.result != "answered" and _same(old, run):
                    run.questions |= old.questions  # it may have gone on from there

    def _spend(self, run: Run, entry: Entry) -> None:
        run.free = free = entry["free"]
        for name in ("parameters", "matrices", "passes"):
            setattr(run, name, getattr(run, name) + entry[name])
            self.spent[name] += 0 if free else entry[name]
        for digest, (more, most) in {} if free else entry["told"].items():
            self.told[digest] = self.told[digest][0] + more, max(self.told[digest][1], most)
        run.questions.add(entry["question"])
        for old in run.repeats:  # a repeat of a repeat is told no more than that was
            self.by_name[old].questions.add(entry["question"])


def _same(one: Run, other: Run) -> bool:
    """Whether two runs have told the same columns of the same rows, under one model and to the same sites."""
    told = one.told.keys() == other.told.keys()
    return told and (one.model, one.sites.keys(), one.masked) == (other.model, other.sites.keys(), other.masked)
