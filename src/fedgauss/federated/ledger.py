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
  and none or at least `sites_apart` more: sites that join together, or leave together; and at least half of its sites,
  or of a set two others that share no site, both of which no ledger sees, leave one. A site with a new key is another
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
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedgauss._types import AnyArray, FloatArray
from fedgauss.federated.budget import PRIVACY, Budget
from fedgauss.federated.chain import Chain, Entry
from fedgauss.federated.column_file import ColumnFile
from fedgauss.federated.disk import Disk, RealDisk
from fedgauss.federated.history import History, Run
from fedgauss.federated.keys import fingerprint
from fedgauss.federated.ledger_report import left_words, report_lines
from fedgauss.federated.privacy import Cost, Privacy, compose
from fedgauss.federated.refusal import Refused
from fedgauss.federated.row_numbers import row_numbers
from fedgauss.federated.shares import Functions, Share, rows_needed
from fedgauss.federated.span_rule import Known, Told, about_the_same, check_places, check_spans, check_together
from fedgauss.federated.spans import BLIND
from fedgauss.inference.tables import listed

_BUDGET, _DISK = Budget(), RealDisk()
# Of a run, before it ends: honest fits had none (`benchmarks/rounds.py`), without an estimate all they may.
_SILENCES = 3
_RUNS = {
    "tries": "takes part in at most {} runs, refused ones among them; it has in {}",
    "refusals": "refuses at most {} runs for what its rows say, as that tells of them; it has refused {}",
}


class Admission(NamedTuple):
    """What sums are about to be told of."""

    columns: Mapping[str, FloatArray]  # (n,) each; that of ones is called "1"
    rows: AnyArray  # (n,) from `Ledger.digests`
    functions: Functions = MappingProxyType({})  # of numbers that the columns are
    shares: Mapping[str, Share] = MappingProxyType({})  # of the rows, by digest


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
        self._history = History()
        self._live: Run | None = None
        self._known = Known()  # what was told, as far as this process has looked at it
        self._placed = Known()  # the same, with what rows count for where sums are exact
        self._own = Known()  # of the run alone
        self._let_go: Callable[[], None] | None = None
        self._load()
        if not self._history.key:
            with self._held():
                if not self._history.key:
                    self._write("ledger", version=1, key=random(32))

    @property
    def head(self) -> str:
        """Digest of all lines."""
        return self._chain.heads[-1]

    @property
    def length(self) -> int:
        """The number of lines."""
        return len(self._chain.heads)

    @property
    def functions(self) -> Functions:
        """Of numbers, that sums were told of in all runs."""
        return self._history.functions

    def digests(self, table: Mapping[str, Sequence[Any]]) -> AnyArray:
        """A number for each row of the whole table, before any row is dropped, (n,) uint64.

        Rows are known by the columns that the table had at first. If one of these has gone, all rows are new.
        """
        if not self._history.names or not set(self._history.names) <= set(table):
            with self._held():
                self._write("rows", names=sorted(table))
        return row_numbers(table, self._history.names, self._history.key)

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
            if not self._history.consents:
                raise Refused("the owner of this table has withdrawn consent; it answers nothing. Ask the owner.")
            if any(earlier.name == run for earlier in self._history.runs):
                raise Refused("every run must have a number of its own; this one was begun before. Ask again.")
            sites = {key: name for name, key in roster}
            digest = hashlib.sha256(json.dumps([about, model], sort_keys=True).encode()).hexdigest()
            same = [
                earlier.name for earlier in self._history.runs
                if earlier.result == "answered" and earlier.model == digest and earlier.sites.keys() == sites.keys()
                and earlier.masked == masked and earlier.counts and not earlier.cost  # noise is drawn afresh
            ]  # fmt: skip
            self._check_runs(*([] if not same else ["refusals"]))  # who lies in a repeat may have it refused
            self._write(
                "begin", run=run, time=self._clock().isoformat(timespec="seconds"), asker=asker, model=dict(model),
                digest=digest, sites=sites, masked=masked, counts=not same, repeats=same,
            )  # fmt: skip
            self._live, self._own = self._history.runs[-1], Known()
        except BaseException:
            self._release()
            raise

    def resume(self, run: str) -> None:
        """Hold the ledger for a run that was begun by a site that has been put away since."""
        self._hold()
        if not self._history.runs or (self._history.runs[-1].name, self._history.runs[-1].result) != (run, "begun"):
            self._release()
            raise Refused("a site can go on with the last run that it began, and no other; that run is over.")
        self._live, self._own = self._history.runs[-1], Known()

    def close(self) -> None:
        """Let go of the ledger; a run that has begun is not ended by that."""
        self._live = None
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
            repeats = [old.name for old in self._history.repeated(run) if self._has_told(old.told, told)]
            if len(repeats) < len(run.repeats):
                self._write("repeats", repeats=repeats)
            if repeats:
                return
            if not run.counts:  # it tells something else than the run whose model it has
                self._check_runs()
            self._check_shares(admission)
            before = [one for earlier in self._history.runs for one in earlier.told]
            known = None
            if not {one[1:] for one in told} <= {one[1:] for one in before}:
                self._known = self._known.add(before, self._columns.read)
                known = check_spans(self._known, told, self._few, self._columns.read)
                reach = [self._columns.read(rows) for earlier in self._history.runs for rows in earlier.reach.values()]
                if reach:  # as these columns and places of before would be told together
                    check_together(self._with_places().add(told, self._columns.read), reach, self._few)
            self._check_sites(run, told)
            places = self._columns.write([of_rows, *(one.values for one in told)])
            self._write(
                "tell", rows=of_rows, columns=[[one.name, one.values] for one in told], places=places,
                functions={name: sorted(of) for name, of in admission.functions.items()},
            )  # fmt: skip
            self._known = known or self._known
        finally:
            self._columns.forget([of_rows, *(one.values for one in told)])

    def _check_shares(self, admission: Admission) -> None:
        """Raise `Refused` where sums of this run and those before tell too many numbers of rows that share a level.

        Functions that were told of other levels count, too: these may have rows in common.
        """
        functions = {**self._history.functions, **admission.functions}
        for share in admission.shares.values():
            if share.rows < (needed := rows_needed(functions, share.functions)):
                raise Refused(
                    f"all fits together tell at most three quarters as many sums of rows that share a level as these "
                    f"have values; for so many functions of so few columns there must be {needed} rows of one of "
                    f"{share.name!r}, and here are fewer. Pool its levels, or use fewer powers, splines and products."
                )

    def admit_place(self, admission: Admission) -> None:
        """The same for what rows count for at a parameter where this run tells sums with all digits.

        To be called before they are told, and after `admit`.
        """
        run, read = self._running(), self._columns.read
        rows, columns = _in_order(admission)
        held = [self._columns.hold(rows)]
        told = [Told(name, held[0], self._columns.hold(column)) for name, column in columns.items()]
        held += [one.values for one in told]
        led = not run.counts and not any(self._has_told(old.places, told) for old in self._history.repeated(run))
        try:
            if led:  # elsewhere than the run whose model it has
                self._check_runs()
            earlier = [old for old in self._history.runs if old is not run]
            places, placed = [*run.places, *told], None
            elsewhere, before = list[AnyArray](), list[AnyArray]()
            if run.counts or led:  # a repeat tells nothing that was not told
                placed = self._with_places().add(told, read)
                for old in earlier:
                    reach = [read(rows) for rows in old.reach.values()]
                    before += reach
                    if not (self._has_told(old.places, told) or self._has_told(places, list(old.places))):
                        elsewhere += reach
            so_far = tuple(dict.fromkeys(places))
            to_the_letter = [] if run.counts or led or run.told else self._history.repeated(run)
            reached = next((old.reach[so_far] for old in to_the_letter if so_far in old.reach), None)
            if reached is None:
                own = placed
                if own is None or any(old.told for old in earlier):
                    same = [one for old in self._history.repeated(run) for one in old.told]  # a repeat has told it, too
                    own = self._own = self._own.add([*same, *run.told, *places], read)
                reached = self._columns.hold(check_places(placed or own, own, elsewhere, before, self._few))
            held.append(reached)
            written = self._columns.write(held)
            self._write(
                "place", rows=held[0], columns=[[one.name, one.values] for one in told], reach=held[-1],
                places=written, counts=led,
            )  # fmt: skip
            self._placed = placed or self._placed
        finally:
            self._columns.forget(held)

    def _with_places(self) -> Known:
        """The span of all columns that were told, and of what rows counted for where sums were exact."""
        known = max(self._known, self._placed, key=lambda known: len(known.columns))
        return known.add([one for run in self._history.runs for one in (*run.told, *run.places)], self._columns.read)

    def spend(
        self, parameters: int, matrices: int, question: str, passes: int = 0,
        told: Mapping[str, tuple[Share, int]] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Count what a reply is about to tell, in all and of shares of the rows, before it leaves.

        What `has_answered` knows is free: who lies in a repeat moves the parameter, and that counts.
        """
        free = self.has_answered(question)
        for name, more in (("parameters", parameters), ("matrices", matrices), ("passes", passes)):
            most = getattr(self._budget, name)
            if more and not free and self._history.spent[name] + more > most:
                raise Refused(
                    f"this table answers at most {most} {name} over all runs; it has answered "
                    f"{self._history.spent[name]}. Ask its owner for a policy with more {name}.",
                    counts=False,
                )
        for digest, (share, more) in told.items():
            before, most = self._history.told[digest]
            if more and not free and before + more > max(most, share.most):
                raise Refused(
                    "all fits together tell at most three quarters as many numbers of rows that share a level as these "
                    f"have values, here {max(most, share.most)}; of {share.name!r} they would tell more. Pool its "
                    "levels, or leave it out."
                )
        numbers = {digest: [more, share.most] for digest, (share, more) in told.items() if more}
        self._write(
            "spend", parameters=parameters, matrices=matrices, passes=passes, question=question, free=free, told=numbers
        )

    def has_answered(self, question: str) -> bool:
        """Whether a question, by its digest, tells nothing new: in a repeat that has told nothing else either.

        An answered run that it repeats, or one that it may have gone on from, has told this very question.
        """
        return any(question in old.questions for old in self._history.repeated(self._running()))

    def check_privacy(self, cost: Cost) -> None:
        """Refuse a private run for which the budget of the table has no room."""
        budget, spent = self._privacy, self._history.costs
        if budget is None:
            raise Refused("this site's policy has epsilon = 0: it takes no part in private runs.", counts=False)
        after = compose(spent, cost, budget.delta).epsilon
        if after > budget.epsilon:
            raise Refused(
                f"private runs may tell epsilon {budget.epsilon:g} of this table in all, at delta {budget.delta:g};"
                f" with this one it would be {after:.3g}. {left_words(budget, spent)}, or ask its owner for a policy "
                "with more epsilon.",
                counts=False,
            )

    def spend_privacy(self, privacy: Privacy, cost: Cost) -> None:
        """Count what a private run costs, all of it before its first answer leaves."""
        if self._running().cost:
            return
        self.check_privacy(cost)
        self._write("privacy", privacy=f"epsilon {privacy.epsilon:g}, delta {privacy.delta:g}", cost=cost)

    def note_reasons(self, reasons: Iterable[str], counts: bool = True) -> None:
        """Write down why the run will be refused, and whether that depends on rows and so counts, before it is told."""
        self._running()
        self._write("reasons", reasons=list(reasons), counts=counts)

    def note_silence(self) -> None:
        """Count a round in which the site has no numbers: it tells of the rows, as a refusal does.

        In a repeat a question that was put before has the same answer, and tells nothing new.
        """
        run = self._running()
        if run.free:
            return
        self._write("silence")
        self._check_runs("refusals")
        if run.silences > _SILENCES:
            raise Refused(
                "steps of this run lead again and again to where numbers of this site are too large, as where there is "
                "no finite estimate. Does a column tell outcomes apart? Leave it out.",
                counts=False,  # each time has been counted
            )

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
        for name, (key, head, length) in peers.items():
            _check_key("site", name, key, self._history.sites.get(name))
            _, old_head, old_length = self._history.peers.get(key, (name, head, length))
            if length < old_length or (length == old_length and head != old_head):
                raise Refused(
                    f"a ledger must not lose lines; that of site {name!r} had {old_length} and has {length}"
                    f"{' others' if length == old_length else ''}. Its owner must put it back."
                )
        new = {name: [*own] for name, own in peers.items() if self._history.peers.get(own[0]) != (name, *own[1:])}
        if new:
            with self._held():
                self._write("peers", peers=new)

    def note_asker(self, name: str, key: str) -> None:
        """Trust the first key under this name, and no other after it."""
        _check_key("asker", name, key, self._history.askers.get(name))
        if name not in self._history.askers:
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

    def seen(self, names: Iterable[str]) -> dict[str, tuple[str, int]]:
        """The head and length that the ledgers of these sites had, by the keys of their tables, to be told to them."""
        keys = {self._history.sites.get(name) for name in names} & self._history.peers.keys()
        return {key: self._history.peers[key][1:] for key in sorted(filter(None, keys))}

    def check_own(self, told: Mapping[str, tuple[str, int]]) -> None:
        """Notice by what other sites saw of this ledger, name to head and length, that it was lost and begun anew."""
        for name, (head, length) in told.items():
            if length > self.length or length < 1 or self._chain.heads[length - 1] != head:
                raise Refused(
                    f"a ledger must not lose lines; site {name!r} saw {length} of this one, which has {self.length} "
                    f"and not the same. Put back {self.path.name} from before, or have its owner tell the others to "
                    "forget this site.",
                    counts=False,
                )

    def report(self) -> str:
        """What was answered, and what is left of the budgets."""
        lines = [*report_lines(self._history, self._budget, self._privacy), f"{self.length} lines, head {self.head}"]
        return "\n".join(lines)

    def _check_runs(self, *names: str) -> None:
        for name in names or _RUNS:
            words, most, spent = _RUNS[name], getattr(self._budget, name), self._history.spent[name]
            if spent >= most:
                raise Refused(
                    f"this table {words.format(most, spent)}. Ask its owner for a policy with more {name}.",
                    counts=False,
                )

    def _has_told(self, told: Iterable[Told], new: Sequence[Told]) -> bool:
        """Whether these columns of these rows are among those that were told, up to rounding."""
        before: dict[tuple[str, str], list[str]] = {}
        for one in told:
            before.setdefault(one[:2], []).append(one.values)
        return all(any(self._is_near(one.values, old) for old in before.get(one[:2], ())) for one in new)

    def _is_near(self, digest: str, other: str) -> bool:
        if digest == other:
            return True
        values = self._columns.read(digest)
        apart = np.abs(values - self._columns.read(other)).max(initial=0.0)
        return bool(apart <= BLIND * np.abs(values).max(initial=0.0))

    def _check_sites(self, run: Run, new: Sequence[Told]) -> None:
        """Raise `Refused` where this run's totals and those of others tell the sums of fewer sites together."""
        ours, apart, theirs = run.sites.keys(), self._sites_apart, dict[Told, None]()
        last = None
        for earlier in self._history.runs:
            there = earlier.sites.keys()
            fewer, more = sorted((len(ours), len(there)))
            nested = (ours <= there or there <= ours) and len(ours ^ there) >= apart
            goes_with = ours == there or (nested and 2 * fewer >= more)  # or two that share no site leave one
            if earlier.told and (run.masked or earlier.masked) and not goes_with:
                theirs.update(earlier.told)
                last = earlier
        if last is not None and about_the_same([*run.told, *new], list(theirs), self._columns.read):
            come, gone = (
                listed(sorted(sites[key] for key in sites.keys() - others.keys()))
                for sites, others in ((run.sites, last.sites), (last.sites, run.sites))
            )
            raise Refused(
                f"of two runs about the same one must have all sites of the other and none or at least {apart} more, "
                f"or totals tell the sums of those between; since that of {last.time} {come} came, and {gone} left. "
                f"Ask for the sites of then, wait until {apart} join or leave together, or ask for other columns."
            )

    def _running(self) -> Run:
        if self._live is None:
            raise ValueError("a run must have begun before it is answered; call begin first.")
        return self._live

    def _end(self, is_: str, **more: Any) -> None:
        self._running()
        try:
            self._write(is_, **more)
        finally:
            self._live = None
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

    def _apply(self, entry: Entry) -> None:
        if "places" in entry:
            self._columns.note(entry["places"])
        self._history.apply(entry)

    def _write(self, is_: str, **more: Any) -> None:
        self._apply(self._chain.append({"is": is_, **more}))


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
