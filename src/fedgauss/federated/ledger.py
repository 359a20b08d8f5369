"""What a table has answered, and the rules that need to know it.

A ledger is a file of the table's owner, with a second one for the columns that were answered. Nothing is answered
before it is on disk. Both hold what the table's rows say and a key: they are kept as the table is.

Rules
-----
- What is told, with all that was told before, must not have a combination of columns that vanishes but on fewer than
  `few` rows (`spans`). Columns of an earlier run are zero in rows that it did not use, and a row is the same as long as
  it says the same.
- Tries, refusals, parameters and matrices are counted over the whole life of the table (`Budget`).
- Totals over two sets of sites tell those over the sites between them, and of three sets that overlap, such as AB, AC
  and BC, those of each. So of two runs about the same, unless neither was masked, one must have all sites of the other,
  and none or at least `sites_apart` more: sites that join together, or leave together. A site with a new key is another
  one. Runs are about the same where the span of the columns of one at this table, and that of all others whose sites do
  not go with its own, share more than ones. What remains: of sites that join or leave together, those that collude
  learn the sums of the rest between them; and a site that leaves for good can be left out only with `sites_apart` - 1
  others, or once the owners of all that stay have agreed to a policy with fewer `sites_apart`.
- What private runs tell of any one row is bounded by a budget over the whole life of the table (`privacy`). Their
  columns are not told, and repeats are paid for like any other run.
- Another site's ledger never gets shorter, and never has another head at the same length; and other sites have seen
  none of this one that it does not go on from.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedgauss._types import AnyArray, FloatArray
from fedgauss.federated.chain import Chain, Entry
from fedgauss.federated.column_file import ColumnFile
from fedgauss.federated.disk import Disk, RealDisk
from fedgauss.federated.keys import fingerprint
from fedgauss.federated.privacy import Cost, Privacy, compose, remaining
from fedgauss.federated.refusal import Refused
from fedgauss.federated.row_numbers import row_numbers
from fedgauss.federated.span_rule import Known, Told, about_the_same, check_spans
from fedgauss.federated.spans import BLIND
from fedgauss.inference.tables import listed


@dataclass(frozen=True)
class Budget:
    """How much a table answers before its owner is asked again.

    A fit takes one try, 5 to 12 parameters (20 to 28 where the start is poor: a Poisson regression with exposures) and
    2 to 4 matrices.

    Attributes
    ----------
    tries : int
        Runs that are begun, refused ones too; a repeat of an answered run is free. 60 are three for each of the 20
        models that the other budgets have room for.
    refusals : int
        Runs that ended for a reason that depends on rows, each of which tells that there are such rows. 20 leave an
        honest asker one for each fit; of 60 runs in all, at most a third can be guesses that hit.
    parameters : int
        At which sums are told. A dishonest site can move them, so each tells of something else. 200 are 25 fits of 8,
        or 16 of 12.
    matrices : int
        Of information, which tell of every product of two columns. 50 are 12 fits of 4, or 25 of 2.
    """

    tries: int = 60
    refusals: int = 20
    parameters: int = 200
    matrices: int = 50

    def __post_init__(self) -> None:
        for one in fields(self):
            if getattr(self, one.name) < 1:
                raise ValueError(f"{one.name} of a budget must be at least 1; got {getattr(self, one.name)}.")


PRIVACY = Privacy(10.0, 1e-5)  # over the life of a table: 70 private fits of epsilon 1 at delta 1e-6
_BUDGET, _DISK = Budget(), RealDisk()
_RUNS = {
    "tries": "takes part in at most {} runs, refused ones among them; it has in {}",
    "refusals": "refuses at most {} runs for what its rows say, as that tells of them; it has refused {}",
}


class Admission(NamedTuple):
    """What sums are about to be told of."""

    columns: Mapping[str, FloatArray]  # (n,) each; that of ones is called "1"
    rows: AnyArray  # (n,) from `Ledger.digests`


@dataclass
class _Run:
    """A run as the lines of the ledger have it."""

    name: str
    time: str
    model: str  # digest of what it is about
    sites: dict[str, str]  # names by key
    masked: bool
    counts: bool
    result: str = "begun"
    reasons: list[str] = field(default_factory=list)
    tells_rows: bool = False  # whether one of them depends on rows
    parameters: int = 0
    matrices: int = 0
    questions: set[str] = field(default_factory=set)  # digests of those that sums were told of
    told: dict[Told, None] = field(default_factory=dict)  # in the order of telling
    privacy: str = ""  # in words, what it was asked to cost
    cost: Cost = ()  # of its noise


class Ledger:
    """The ledger of a table.

    Parameters
    ----------
    path : path
        Made, for its owner only, where it is not there; columns are in a file of this name with ".columns" after it.
    few : int, optional
        Anything that sums are told of must rest on so many rows.
    sites_apart : int, optional
        So many sites must join or leave together between two runs about the same.
    budget : Budget, optional
    disk, clock, random : optional
        Parts that tests replace.
    privacy : Privacy, optional
        What all private runs together may tell of a row; None where there must be none.

    Attributes
    ----------
    head : str
        Digest of all lines, which other sites note.
    length : int
        The number of lines.

    Examples
    --------
    >>> ledger = Ledger(place_of("south.csv", None))
    >>> numbers = ledger.digests(table)
    >>> ledger.begin("run 1", plan.about, [("north", north), ("south", south)], asker, model)
    >>> ledger.admit(Admission({"1": ones, "age": age}, numbers))
    >>> ledger.finish(answered=True)
    """

    def __init__(
        self, path: str | os.PathLike[str], few: int = 3, sites_apart: int = 3, budget: Budget = _BUDGET,
        disk: Disk = _DISK, clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        random: Callable[[int], str] = secrets.token_hex, privacy: Privacy | None = PRIVACY,
    ) -> None:  # fmt: skip
        if few < 2:
            raise ValueError(f"few must be at least 2, or single rows would be told; got {few}.")
        self.path, self._few, self._sites_apart, self._budget = Path(path), few, sites_apart, budget
        self._privacy, self._disk, self._clock = privacy, disk, clock
        self._chain = Chain(self.path, disk)
        self._columns = ColumnFile(self.path.with_name(self.path.name + ".columns"), disk)
        self._key, self._names = b"", list[str]()
        self._spent: Counter[str] = Counter()
        self._runs: list[_Run] = []
        self._peers: dict[str, tuple[str, str, int]] = {}  # name, head and length by key
        self._askers: dict[str, str] = {}  # keys by name
        self._consents = True
        self._live: _Run | None = None
        self._repeats: list[_Run] = []  # the answered runs of which the live one has told nothing new so far
        self._known = Known()  # what was told, as far as this process has looked at it
        self._let_go: Callable[[], None] | None = None
        self._load()
        if not self._key:
            with self._held():
                if not self._key:
                    self._write("ledger", version=1, key=random(32))

    @property
    def head(self) -> str:
        """Digest of all lines."""
        return self._chain.heads[-1]

    @property
    def length(self) -> int:
        """The number of lines."""
        return len(self._chain.heads)

    def digests(self, table: Mapping[str, Sequence[Any]]) -> AnyArray:
        """A number for each row of the whole table, before any row is dropped, (n,) uint64.

        Rows are known by the columns that the table had at first. If one of these has gone, all rows are new.
        """
        if not self._names or not set(self._names) <= set(table):
            with self._held():
                self._write("rows", names=sorted(table))
        return row_numbers(table, self._names, self._key)

    def begin(
        self, run: str, about: str, roster: Sequence[tuple[str, str]], asker: str, model: Mapping[str, Any],
        masked: bool = True,
    ) -> None:  # fmt: skip
        """Write a run down before it is answered, and hold the ledger until it ends.

        It counts as a try, unless it has the model and sites of an answered one, and tells nothing else.
        """
        if self._live is not None:
            raise Refused("a table takes part in one run at a time; one is going on. Wait for its end.")
        self._hold()
        try:
            if not self._consents:
                raise Refused("the owner of this table has withdrawn consent; it answers nothing. Ask the owner.")
            if any(earlier.name == run for earlier in self._runs):
                raise Refused("every run must have a number of its own; this one was begun before. Ask again.")
            sites = {key: name for name, key in roster}
            digest = hashlib.sha256(json.dumps([about, model], sort_keys=True).encode()).hexdigest()
            same = [
                earlier for earlier in self._runs
                if earlier.result == "answered" and earlier.model == digest and earlier.sites.keys() == sites.keys()
                and earlier.masked == masked and not earlier.cost  # noise is drawn afresh
            ]  # fmt: skip
            if not same:
                self._check_runs()
            self._write(
                "begin", run=run, time=self._clock().isoformat(timespec="seconds"), asker=asker, model=dict(model),
                digest=digest, sites=sites, masked=masked, counts=not same,
            )  # fmt: skip
            self._live, self._repeats = self._runs[-1], same
        except BaseException:
            self._release()
            raise

    def resume(self, run: str) -> None:
        """Hold the ledger for a run that was begun by a site that has been put away since."""
        self._hold()
        if not self._runs or (self._runs[-1].name, self._runs[-1].result) != (run, "begun"):
            self._release()
            raise Refused("a site can go on with the last run that it began, and no other; that run is over.")
        self._live = self._runs[-1]

    def close(self) -> None:
        """Let go of the ledger; a run that has begun is not ended by that."""
        self._live, self._repeats = None, []
        self._release()

    def admit(self, admission: Admission) -> None:
        """Refuse columns that, with all that was told, would tell of few rows; write them down otherwise.

        To be called before any sum of them is told, and before `spend`. What is admitted counts as told.
        """
        run = self._running()
        rows, columns = _in_order(admission)
        of_rows = self._columns.hold(rows)
        told = [Told(name, of_rows, self._columns.hold(column)) for name, column in columns.items()]
        try:
            self._repeats = [old for old in self._repeats if self._has_told(old, told)]
            if self._repeats:
                return
            if not run.counts:  # it tells something else than the run whose model it has
                self._check_runs()
            before = {one: None for earlier in self._runs for one in earlier.told}
            known = None
            if not {one[1:] for one in told} <= {one[1:] for one in before}:
                self._known = self._known.add(list(before), self._columns.read)
                known = check_spans(self._known, told, self._few, self._columns.read)
            self._check_sites(run, told)
            places = self._columns.write([of_rows, *(one.values for one in told)])
            self._write("tell", rows=of_rows, columns=[[one.name, one.values] for one in told], places=places)
            self._known = known or self._known
        finally:
            self._columns.forget([of_rows, *(one.values for one in told)])

    def spend(self, parameters: int, matrices: int, question: str) -> None:
        """Count what a reply is about to tell; to be called before it leaves.

        A repeat that has told nothing new is free where an answered run has told this very question, by its digest: who
        lies in a repeat moves the parameter, and that counts.
        """
        self._running()
        free = any(question in old.questions for old in self._repeats)
        for name, more in (("parameters", parameters), ("matrices", matrices)):
            most = getattr(self._budget, name)
            if not free and self._spent[name] + more > most:
                raise Refused(
                    f"this table answers at most {most} {name} over all runs; it has answered {self._spent[name]}. Ask "
                    f"its owner for a policy with more {name}.",
                    counts=False,
                )
        self._write("spend", parameters=parameters, matrices=matrices, question=question, free=free)

    def check_privacy(self, cost: Cost) -> None:
        """Refuse a private run for which the budget of the table has no room."""
        budget, spent = self._privacy, self._costs
        if budget is None:
            raise Refused("this site's policy has epsilon = 0: it takes no part in private runs.", counts=False)
        after = compose(spent, cost, budget.delta).epsilon
        if after > budget.epsilon:
            raise Refused(
                f"private runs may tell epsilon {budget.epsilon:g} of this table in all, at delta {budget.delta:g};"
                f" with this one it would be {after:.3g}. {_left(budget, spent)}, or ask its owner for a policy with "
                "more epsilon.",
                counts=False,
            )

    def spend_privacy(self, privacy: Privacy, cost: Cost) -> None:
        """Count what a private run costs, all of it before its first answer leaves."""
        if self._running().cost:
            return
        self.check_privacy(cost)
        self._write("privacy", privacy=f"epsilon {privacy.epsilon:g}, delta {privacy.delta:g}", cost=cost)

    @property
    def _costs(self) -> list[Cost]:
        return [run.cost for run in self._runs if run.cost]

    def note_reasons(self, reasons: Iterable[str], counts: bool = True) -> None:
        """Write down why the run will be refused, and whether that depends on rows and so counts, before it is told."""
        self._running()
        self._write("reasons", reasons=list(reasons), counts=counts)

    def refuse(self, reasons: Iterable[str], counts: bool = True) -> None:
        """End the run without an answer, and write down why."""
        self.note_reasons(reasons, counts)
        self._end("refuse")

    def finish(self, answered: bool) -> None:
        """End the run, with or without an answer."""
        self._end("finish", answered=answered)

    def note_peers(self, peers: Mapping[str, tuple[str, str, int]]) -> None:
        """Compare other sites' ledgers with what they were, and write down what they are.

        Parameters
        ----------
        peers : mapping of str to (str, str, int)
            Name to key, head and length.
        """
        known = {name: key for key, (name, _, _) in self._peers.items()}
        for name, (key, head, length) in peers.items():
            _check_key("site", name, key, known.get(name))
            _, old_head, old_length = self._peers.get(key, (name, head, length))
            if length < old_length or (length == old_length and head != old_head):
                raise Refused(
                    f"a ledger must not lose lines; that of site {name!r} had {old_length} and has {length}"
                    f"{' others' if length == old_length else ''}. Its owner must put it back."
                )
        new = {name: [*own] for name, own in peers.items() if self._peers.get(own[0]) != (name, *own[1:])}
        if new:
            with self._held():
                self._write("peers", peers=new)

    def note_asker(self, name: str, key: str) -> None:
        """Trust the first key under this name, and no other after it."""
        _check_key("asker", name, key, self._askers.get(name))
        if name not in self._askers:
            with self._held():
                self._write("asker", name=name, key=key)

    def forget(self, name: str) -> None:
        """Trust the next key that comes with this name: its owner has confirmed that it changed."""
        with self._held():
            self._write("forget", name=name)

    def consent(self, given: bool) -> None:
        """Withdraw consent to all runs, or give it again."""
        with self._held():
            self._write("consent", given=given)

    def seen(self, key: str) -> tuple[str, int] | None:
        """The head and length that another site's ledger had, to be told to it."""
        return self._peers[key][1:] if key in self._peers else None

    def check_own(self, told: Mapping[str, tuple[str, int]]) -> None:
        """Notice by what other sites saw of this ledger, name to head and length, that it was lost and begun anew."""
        for name, (head, length) in told.items():
            if length > self.length or length < 1 or self._chain.heads[length - 1] != head:
                raise Refused(
                    f"a ledger must not lose lines; site {name!r} saw {length} of this one, which has {self.length} "
                    f"and not the same. Put back {self.path} from before."
                )

    def report(self) -> str:
        """What was answered, and what is left of the budgets."""
        lines = [
            f"{'time':<25}  {'run':<12}  {'result':<14}  {'sites':>5}  {'parameters':>10}  {'matrices':>8}  columns"
        ]
        for run in self._runs:
            names = ", ".join(dict.fromkeys(one.name for one in run.told)) or run.privacy
            result = run.result if run.counts else f"{run.result} again"
            lines.append(
                f"{run.time:<25}  {run.name[:12]:<12}  {result:<14}  {len(run.sites):>5}  {run.parameters:>10}  "
                f"{run.matrices:>8}  {names}".rstrip()
            )
            lines += [f"{'':<27}{reason}" for reason in run.reasons]
        for name, most in asdict(self._budget).items():
            lines.append(f"{name}: {self._spent[name]} of {most}, {max(0, most - self._spent[name])} left")
        if (budget := self._privacy) is not None:
            told = f"{compose(self._costs, (), budget.delta).epsilon:.3g}" if self._costs else "0"
            left = _left(budget, self._costs) if self._costs else "all left"
            lines.append(f"epsilon: {told} of {budget.epsilon:g} at delta {budget.delta:g}. {left}")
        for name, key in self._askers.items():
            lines.append(f"asks     {name:<20} {fingerprint(key)}")
        for key, (name, _, length) in self._peers.items():
            lines.append(f"site     {name:<20} {fingerprint(key)}  its ledger had {length} lines")
        if not self._consents:
            lines.append("Consent is withdrawn: this table answers nothing.")
        lines.append(f"{self.length} lines, head {self.head}")
        return "\n".join(lines)

    def _check_runs(self) -> None:
        for name, words in _RUNS.items():
            most, spent = getattr(self._budget, name), self._spent[name]
            if spent >= most:
                raise Refused(
                    f"this table {words.format(most, spent)}. Ask its owner for a policy with more {name}.",
                    counts=False,
                )

    def _has_told(self, run: _Run, new: Sequence[Told]) -> bool:
        """Whether a run told these columns of these rows, up to rounding."""
        return all(any(self._is_as_before(one, old) for old in run.told) for one in new)

    def _is_as_before(self, new: Told, old: Told) -> bool:
        if new[:2] != old[:2]:
            return False
        values = self._columns.read(new.values)
        apart = np.abs(values - self._columns.read(old.values)).max(initial=0.0)
        return bool(apart <= BLIND * np.abs(values).max(initial=0.0))

    def _check_sites(self, run: _Run, new: Sequence[Told]) -> None:
        """Raise `Refused` where this run's totals and those of others tell the sums of fewer sites together."""
        ours, apart, theirs = run.sites.keys(), self._sites_apart, dict[Told, None]()
        last = None
        for earlier in self._runs:
            there = earlier.sites.keys()
            goes_with = ours == there or ((ours <= there or there <= ours) and len(ours ^ there) >= apart)
            if earlier.told and (run.masked or earlier.masked) and not goes_with:
                theirs.update(earlier.told)
                last = earlier
        if last is not None and about_the_same(
            list(dict.fromkeys((*run.told, *new))), list(theirs), self._columns.read
        ):
            come, gone = (
                listed(sorted(sites[key] for key in sites.keys() - others.keys()))
                for sites, others in ((run.sites, last.sites), (last.sites, run.sites))
            )
            raise Refused(
                f"of two runs about the same one must have all sites of the other and none or at least {apart} more, "
                f"or totals tell the sums of those between; since that of {last.time} {come} came, and {gone} left. "
                f"Ask for the sites of then, wait until {apart} join or leave together, or ask for other columns."
            )

    def _running(self) -> _Run:
        if self._live is None:
            raise ValueError("a run must have begun before it is answered; call begin first.")
        return self._live

    def _end(self, is_: str, **more: Any) -> None:
        self._running()
        try:
            self._write(is_, **more)
        finally:
            self._live, self._repeats = None, []
            self._release()

    def _hold(self) -> None:
        try:
            self._let_go = self._disk.lock(self.path)
        except BlockingIOError as error:
            raise Refused(
                f"a table takes part in one run at a time; another process holds {self.path}. Wait for its end."
            ) from error
        except OSError as error:
            raise Refused(
                f"a ledger must be a file that can be written; {self.path} is not ({error.strerror})."
            ) from error
        try:
            self._load()
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        if self._let_go is not None:
            self._let_go()
            self._let_go = None

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the ledger, unless a run does."""
        if self._let_go is not None:
            yield
            return
        self._hold()
        try:
            yield
        finally:
            self._release()

    def _load(self) -> None:
        for entry in self._chain.load():
            self._apply(entry)

    def _write(self, is_: str, **more: Any) -> None:
        self._chain.append({"is": is_, **more})
        self._apply(self._chain.entries[-1])

    def _apply(self, entry: Entry) -> None:
        """Take a line into account, be it a new one or one that was read."""
        run = self._runs[-1] if self._runs else None
        kind = entry["is"]
        if kind == "ledger":
            self._key = bytes.fromhex(entry["key"])
        elif kind == "rows":
            self._names = entry["names"]
        elif kind == "peers":
            for name, (key, head, length) in entry["peers"].items():
                self._peers[key] = (name, head, length)
        elif kind == "asker":
            self._askers[entry["name"]] = entry["key"]
        elif kind == "forget":
            self._askers.pop(entry["name"], None)
            self._peers = {key: peer for key, peer in self._peers.items() if peer[0] != entry["name"]}
        elif kind == "consent":
            self._consents = entry["given"]
        elif kind == "begin":
            self._runs.append(
                _Run(entry["run"], entry["time"], entry["digest"], entry["sites"], entry["masked"], entry["counts"])
            )
            self._spent["tries"] += entry["counts"]
        else:
            assert run is not None
            self._apply_to(run, kind, entry)

    def _apply_to(self, run: _Run, kind: str, entry: Entry) -> None:
        if kind == "tell":
            self._columns.note(entry["places"])
            run.told.update({Told(name, entry["rows"], own): None for name, own in entry["columns"]})
            self._spent["tries"] += not run.counts
            run.counts = True
        elif kind == "spend":
            for name in ("parameters", "matrices"):
                setattr(run, name, getattr(run, name) + entry[name])
                self._spent[name] += 0 if entry["free"] else entry[name]
            run.questions.add(entry["question"])
        elif kind == "privacy":
            run.privacy, run.cost = entry["privacy"], tuple(entry["cost"])
        elif kind == "reasons":
            self._spent["refusals"] += entry["counts"] and not run.tells_rows
            run.reasons, run.tells_rows = entry["reasons"], run.tells_rows or entry["counts"]
        elif kind == "refuse":
            run.result = "refused"
        else:
            run.result = "answered" if entry["answered"] else "ended"


def place_of(table_path: str | os.PathLike[str] | None, name: str | None) -> Path:
    """Where the ledger of a table is: beside it, or in a folder for the state of programs.

    Parameters
    ----------
    table_path : path or None
        A table's file. Its ledger is beside it where files can be made there.
    name : str or None
        What the ledger is called in the other folder, $XDG_STATE_HOME/fedgauss or ~/.local/state/fedgauss; for a table
        that is no file, or is in a folder that cannot be written.

    Returns
    -------
    path
    """
    if table_path is not None:
        table = Path(table_path).resolve()
        beside = table.with_name(table.name + ".ledger")
        if beside.exists() or os.access(table.parent, os.W_OK):
            return beside
        name = name or f"{table.name}-{hashlib.sha256(str(table).encode()).hexdigest()[:16]}"
    if not name or name.startswith(".") or set(name) & set("/\\\0"):
        raise ValueError(
            f"the ledger of a table that is no file must have a name, of which a file name can be made; got {name!r}."
        )
    folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "fedgauss"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{name}.ledger"


def _left(budget: Privacy, spent: Sequence[Cost]) -> str:
    """The epsilon of one more run, in words."""
    left = remaining(budget, spent)
    if left is None:
        return "Nothing is left for another run"
    return f"Another run may have epsilon {math.floor(100.0 * left.epsilon) / 100.0:g} at that delta"


def _check_key(what: str, name: str, key: str, known: str | None) -> None:
    """The first key that came with a name is the one that is trusted."""
    if known is not None and known != key:
        raise Refused(
            f"{name!r} must have the key {fingerprint(known)}, as at the first contact; this {what} has "
            f"{fingerprint(key)}. If its owner confirms that the key has changed: fedgauss site forget FILE {name}"
        )


def _in_order(admission: Admission) -> tuple[AnyArray, dict[str, FloatArray]]:
    """The rows of an admission by their numbers, so that a table may be sorted, and its columns in this order."""
    rows = np.asarray(admission.rows, dtype=np.uint64)
    order = np.argsort(rows)
    rows = rows[order]
    columns = {name: np.asarray(column, dtype=float) for name, column in admission.columns.items()}
    if np.any(rows[1:] == rows[:-1]):
        raise ValueError("the numbers of rows must differ; some are twice. Take them from Ledger.digests.")
    for name, column in columns.items():
        if column.shape != rows.shape or not np.all(np.isfinite(column)):
            raise ValueError(f"the column {name!r} must have a finite number for each of {len(rows)} rows; it has not.")
    return rows, {name: column[order] for name, column in columns.items()}
