"""Campaigns of attackers with the source in hand: a world of honest tables, what each attacker does, and what it reads.

A world has honest sites with careful policies, keys pinned and ledgers on disks in memory. An attacker asks until the
budgets of the tables are spent. It sees all messages; who judges it knows the rows too. Readers are those of
`adversaries`: one who knows no row, and one who guesses the best combination of all that was told, for which there
would have to be a row in it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
from adversaries import NUMBERS, POSITIVE, Read, Table, random_models, random_table, read_by_differences, read_by_span
from adversaries import read_sites
from memory_disk import MemoryDisk
from simulated.dishonest import PLOTS, Mailbox
from simulated.keychain import Keychain

from fedgauss.families.rows import Sums
from fedgauss.families.same_bits import factor, solve
from fedgauss.federated.fixed_point import LARGEST, Words, add, from_words, to_words
from fedgauss.federated.home import Home
from fedgauss.federated.layout import pack, size, unpack
from fedgauss.federated.ledger import Ledger
from fedgauss.federated.mailbox import federate
from fedgauss.federated.plan import Plan, Question
from fedgauss.federated.policy import Policy
from fedgauss.federated.refusal import Refused
from fedgauss.federated.rows import SiteRows
from fedgauss.federated.site import Parts, Site
from fedgauss.inference.model import Model
from fedgauss.inference.scoring import mended

CORE = ("age", "dose", "bmi")  # what an attacker wants of a row; its models have them all, so that sums go together
ASKER = "mailbox"
_MOST_VECTORS = 120  # that a reader is given at a time
_SPENT = re.compile(r"answers at most|takes part in at most|refuses at most")
_KNOWN = ("rows", "dropped")  # totals that limits.md says are told
_PLOTS = tuple(one for one in PLOTS if one not in ("two histories", "another key", "key twice", "one site less"))


class Vector(NamedTuple):
    """A column u of which a total told products with others, in the units of the tables."""

    run: int
    label: str
    products: Mapping[str, float]  # u'x by the name of x; u'1 is called "1"
    left: Mapping[str, np.ndarray]  # u at each honest site, over all rows of its table: what no attacker has


@dataclass
class Round:
    """What was seen of a round, and what each honest site hid in it."""

    run: int
    masked: bool
    sites: tuple[str, ...]
    question: Question
    sent: dict[str, Words]
    hidden: dict[str, dict[str, np.ndarray]]
    behind: dict[str, tuple[np.ndarray, dict[str, np.ndarray]]]  # rows and columns by site
    names: tuple[str, ...]
    outputs: int
    constant: bool
    levels: dict[str, Any]


@dataclass
class Found:
    """What an attacker read in a world."""

    rows: list[str] = field(default_factory=list)
    by_span: int = 0  # rows and pairs in reach of who guesses the best combination
    sites: list[str] = field(default_factory=list)
    masks: list[str] = field(default_factory=list)


class Spied(SiteRows):
    """Rows that tell the judge what stands behind every answer."""

    def __init__(self, note: Callable[..., None], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._tell = note

    def reply(self, question: Question, again: bool = False) -> Any:
        """Numbers and words."""
        numbers, words = super().reply(question, again)
        data = getattr(self, "_data", None)
        family, behind, kept = None, {}, np.zeros(0, dtype=int)
        if question.kind == "ask" and numbers is not None and self._rows is not None:
            family, ask = data.family, question.content["ask"]
            behind = family.behind(self._rows, ask.kind, ask.theta)
            kept = np.flatnonzero(np.isin(self._ledger.digests(self._whole), self._numbers))
        self._tell(
            question, numbers, (kept, behind), () if data is None else tuple(data.names),
            1 if family is None else family.n_outputs, data is not None and data.constant is not None,
        )  # fmt: skip
        return numbers, words


class World:
    """Honest tables, and whoever attacks them.

    Parameters
    ----------
    seed : int
    honest : int
        How many honest sites there are.
    dishonest : int
        How many sites of the attacker's own, known to the others by their keys.
    rows : (int, int)
        The least and the most of a table.
    rules : mapping
        Of the honest sites' policies, where they are not those by default.
    """

    def __init__(
        self, seed: int, honest: int = 3, dishonest: int = 0, rows: tuple[int, int] = (100, 160),
        liar: type[Site] | Callable[..., SiteRows] | None = None, **rules: Any,
    ) -> None:  # fmt: skip
        self.seed, self.random, self.rng = seed, Random(seed), np.random.default_rng(seed)
        self.keys = Keychain(self.random, lambda public, statement: None)
        self.honest = tuple("abcdefgh"[:honest])
        self.own = tuple("xyzuvw"[:dishonest])
        self.tables: dict[str, Table] = {
            name: random_table(self.rng, int(self.rng.integers(*rows))) for name in (*self.honest, *self.own)
        }
        self.asker = self.keys.key()
        self._signing = {name: self.keys.key() for name in self.tables}
        pinned = {name: key.public for name, key in self._signing.items()}
        self.policy = Policy(sites=pinned, askers={ASKER: self.asker.public}, **rules)
        loose = Policy(few=2, tries=10**6, refusals=10**6, parameters=10**6, matrices=10**6, sites_apart=1)
        self._policies = {name: self.policy if name in self.honest else loose for name in self.tables}
        self._disks = {name: MemoryDisk(seed) for name in self.tables}
        self._liar = liar
        self.sites: dict[str, Site] = {}
        self.rounds: list[Round] = []
        self.opened: list[tuple[tuple[str, ...], dict[str, Words]]] = []  # every message of a masked run
        self.runs, self.answered, self.past = 0, 0, list[Any]()
        self.ends: Counter[str] = Counter()
        self._notes: dict[str, tuple[Any, ...]] = {}
        for name in self.tables:
            self.start(name)

    def start(self, name: str) -> None:
        """A new process at a site, from what is on its disk."""
        disk, policy = self._disks[name], self._policies[name]
        disk.restart()
        ledger = Ledger(
            Path("table.ledger"), policy.few, policy.sites_apart, policy.budget, disk, random=self._token
        )
        rows: Any = partial(Spied, partial(self._note, name))
        if name in self.own and self._liar is not None:
            rows = partial(self._liar, self, name)
        parts = Parts(self.keys.verify, self.keys.fresh_run_key, self.keys.run_key, self._token, rows)
        home = Home(self._signing[name], ledger)
        self.sites[name] = Site(self.tables[name], home, policy, lambda text: self._hear_owner(text), parts)

    def ask(self, model: Model, roster: Sequence[str], masked: bool = True) -> str:
        """One honest course of a run; how it ended."""
        self.runs += 1
        exchange = Watched(self, roster, masked)
        try:
            federate(
                model, exchange, masked=masked, asker=ASKER, key=self.asker, nonce=self._token(16),
                verify=self.keys.verify,
            )  # fmt: skip
        except ValueError as error:
            return str(error)
        self.answered += 1
        return "answered"

    def plot(self, model: Model, roster: Sequence[str]) -> str:
        """One masked run whose messages are forged, dropped, repeated or out of turn."""
        self.runs += 1
        name = self.random.choice(_PLOTS)
        plan = Plan(model, tuple(sorted(roster)), True, ASKER, self._token(16))
        Mailbox(name, self.random, self.keys, self.asker, None, self.past).carry(plan, Watched(self, roster, True))
        return name

    def note_round(self, run: int, masked: bool, sites: tuple[str, ...], openings: Mapping[str, Any]) -> None:
        """What all sites have opened."""
        sent = {name: one["numbers"] for name, one in openings.items() if isinstance(one.get("numbers"), np.ndarray)}
        if masked and sent:
            self.opened.append((sites, sent))
        notes = {name: self._notes[name] for name in sites if name in self._notes and name in self.honest}
        if sorted(sent) != sorted(sites) or not notes:
            return
        question, _, _, names, outputs, constant = next(iter(notes.values()))
        if any(one[1] is None for one in notes.values()):
            return
        self.rounds.append(
            Round(
                run, masked, sites, question, sent, {name: one[1] for name, one in notes.items()},
                {name: one[2] for name, one in notes.items()}, names, outputs, constant, {},
            )
        )  # fmt: skip

    def _note(self, name: str, *about: Any) -> None:
        self._notes[name] = about

    def _hear_owner(self, text: str) -> None:
        if "Traceback" in text:
            raise AssertionError(f"a site failed without a reason: {text}")

    def _token(self, count: int) -> str:
        return self.random.randbytes(count).hex()


class Watched:
    """An exchange that keeps what it carries."""

    def __init__(self, world: World, roster: Sequence[str], masked: bool) -> None:
        self._world, self._roster, self._masked = world, tuple(sorted(roster)), masked
        self.machines: dict[str, Any] = {}

    @property
    def names(self) -> list[str]:
        """Of all sites."""
        return list(self._roster)

    def ask(self, order: str, contents: Mapping[str, Any]) -> dict[str, Any]:
        """The replies of all sites."""
        world = self._world
        replies = {name: world.sites[name].answer(order, content) for name, content in contents.items()}
        if order == "open":
            openings = {name: reply["opening"] for name, reply in replies.items() if "opening" in reply}
            world.note_round(world.runs, self._masked, self._roster, openings)
        return replies


# What was told


def total_of(one: Round, less: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The sums of all sites by name, less those of some: who knows what these sent takes it off exactly."""
    words = reduce(add, (sent for name, sent in one.sent.items()))
    numbers = unpack(from_words(words)[1:], one.question.shapes)
    if not less:
        return numbers
    return {name: sum(one.hidden[site][name] for site in one.hidden) for name in numbers}


def vectors(world: World, rounds: Iterable[Round], sites: Sequence[str]) -> list[Vector]:
    """All columns of which totals over some honest sites told products, in the units of the tables.

    A total is used as its reader has it: where others took part, less what they sent.
    """
    found = []
    for one in rounds:
        if one.question.kind != "ask":
            continue
        there = [name for name in one.behind if name in sites]
        if not there or (one.masked and set(one.behind) - set(sites)):
            continue
        others = [name for name in one.sites if name not in there]
        total = _sum_of(one, others)
        lefts = {name: one.behind[name] for name in there}
        for label, row in _rows_of(one, total):
            if not all(label in behind for _, behind in lefts.values()):
                continue
            left = {}
            for name, (kept, behind) in lefts.items():
                left[name] = np.zeros(len(world.tables[name]["age"]))
                left[name][kept] = behind[label]
            found.append(Vector(one.run, label, _in_units(one, row), left))
    return found


def _sum_of(one: Round, others: Sequence[str]) -> dict[str, np.ndarray]:
    """The total less what others sent, exactly, as integers; without masks the sum of those that are left."""
    if one.masked:
        words = reduce(add, one.sent.values())
        if others:  # masks are gone from the total; what is left is that of the rest
            rest = [to_words(np.concatenate([[1.0], pack(own, one.question.shapes)])) for own in one.hidden.values()]
            words = reduce(add, rest)
    else:
        words = reduce(add, (one.sent[name] for name in one.sites if name not in others))
    return unpack(from_words(words)[1:], one.question.shapes)


def _rows_of(one: Round, total: Mapping[str, np.ndarray]) -> Iterable[tuple[str, np.ndarray]]:
    """Labels, as `Family.behind` has them, and products with the columns of the design, constant first."""
    p = len(one.names) + one.constant
    for name, label in (("score", "score"), ("information", "information"), ("observed", "observed"),
                        ("squares.rows", "squares")):  # fmt: skip
        if name not in total:
            continue
        if name == "score":
            for c in range(one.outputs):
                yield f"score {c}", total[name][c * p : (c + 1) * p]
            continue
        for c in range(one.outputs):
            for b in range(c + 1):
                block = total[name][c * p : (c + 1) * p, b * p : (b + 1) * p]
                for j in range(p):
                    if b == c:
                        yield f"{label} {c} x{j}", block[j]
                    yield f"{label} {c} {b} x{j}", block[j]


def _in_units(one: Round, row: np.ndarray) -> dict[str, float]:
    columns = one.question.content["columns"]
    if not one.constant:
        return dict(zip(one.names, (row * columns.scale).tolist(), strict=True))
    rest = columns.scale * row[1:] + columns.mean * row[0]
    return {"1": float(row[0]), **dict(zip(one.names, rest.tolist(), strict=True))}


# Judging


def rows_read(world: World, told: Sequence[Vector], sites: Sequence[str], most: int = _MOST_VECTORS) -> tuple[list[Read], int]:
    """Rows of some sites that are read without knowing any, and how many are in reach of the best combination."""
    told = [one for one in told if all(name in one.products for name in CORE)]
    if len(told) < 2:
        return [], 0
    rows = np.concatenate([np.column_stack([world.tables[name][column] for column in CORE]) for name in sites])
    zeros = {name: np.zeros(len(world.tables[name]["age"])) for name in sites}
    left = np.column_stack([np.concatenate([one.left.get(name, zeros[name]) for name in sites]) for one in told])
    totals = np.array([[one.products.get("1", np.nan), *(one.products[name] for name in CORE)] for one in told])
    by_span = len(read_by_span(left, rows, totals[:, 1:]))
    read: dict[tuple[int, ...], Read] = {}
    with_ones = totals[np.isfinite(totals[:, 0])]
    for some in _pieces(with_ones, most):
        read |= {one.who: one for one in read_by_differences(some, rows)}
    return list(read.values()), by_span


def _pieces(totals: np.ndarray, most: int) -> Iterable[np.ndarray]:
    """Totals in the order of telling, so many at a time, each piece with half of the one before."""
    kept = totals[np.sort(np.unique(totals, axis=0, return_index=True)[1])]
    for start in range(0, max(1, len(kept) - most // 2), most // 2):
        some = kept[start : start + most]
        if len(some) > 1:
            yield some


def sums_read(world: World) -> list[str]:
    """Sums of one honest site that follow from the totals of masked runs over several rosters."""
    told: dict[tuple[str, ...], dict[tuple[str, ...], tuple[float, dict[str, float]]]] = defaultdict(dict)
    for one in world.rounds:
        if one.masked:
            total, hidden = _flat(total_of(one)), {name: _flat(own) for name, own in one.hidden.items()}
            for key in _keys(one, total):
                own = {name: values[key[-1]] for name, values in hidden.items()}
                told[key][one.sites] = total[key[-1]], own
    read = []
    names = world.honest + world.own
    for key, by_roster in told.items():
        if len(by_roster) < 2 or key[-1] in _KNOWN:
            continue
        rosters = np.array([[float(name in sites) for name in names] for sites in by_roster])
        totals = np.array([[value] for value, _ in by_roster.values()])
        own = np.zeros((len(names), 1))
        for _, values in by_roster.values():
            for name, value in values.items():
                own[names.index(name)] = value
        basis = np.linalg.svd(rosters, full_matrices=False)[2][: np.linalg.matrix_rank(rosters)]
        for (k,), *_ in read_sites(rosters, totals, own):
            if np.linalg.norm(basis[:, k]) > 1 - 1e-9 and names[k] in world.honest:
                read.append(f"site {names[k]}: {' '.join(key[1:])}")
    return read


def _flat(numbers: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {
        name if not np.ndim(value) else f"{name}[{','.join(map(str, place))}]": float(np.asarray(value)[place])
        for name, value in numbers.items()
        for place in np.ndindex(np.shape(value))
    }


def _keys(one: Round, total: Mapping[str, float]) -> Iterable[tuple[str, ...]]:
    """What makes numbers of two rosters comparable: the question with all that it is about."""
    about = {"describe": "", "count": repr(one.question.content)}.get(one.question.kind, repr(one.names) + repr(one.question.content))
    return [(one.question.kind, about, name) for name in total]


def masks_read(opened: Sequence[tuple[tuple[str, ...], Mapping[str, Words]]]) -> list[str]:
    """Masked numbers that hide little: two of a site, or several of one round, whose masks cancel.

    The upper words of masked numbers are uniform over 2^64; of a difference whose masks cancel it is 0 or all ones.
    With a million numbers two are so near by chance with a probability of 1e12 / 2 * 3 / 2^64 = 8e-8.
    """
    read = []
    upper: dict[str, list[np.ndarray]] = defaultdict(list)
    for sites, sent in opened:
        for name, words in sent.items():
            upper[name].append(words[:, -1])
        for count in range(1, len(sites)):
            for some in combinations(sorted(sent), count):
                sums = reduce(np.add, (sent[name][:, -1] for name in some)) + np.uint64(count)
                if np.any(sums <= np.uint64(2 * count)):
                    read.append(f"of {sites} the masks of {some} cancel")
    for name, parts in upper.items():
        numbers = np.sort(np.concatenate(parts))
        if len(numbers) > 1 and np.any(np.diff(numbers) <= np.uint64(1)):
            read.append(f"two numbers of site {name} have one mask")
    return read


def judge(world: World) -> Found:
    """What the attacker of a world has read."""
    found = Found()
    honest = list(world.honest)
    masked = vectors(world, [one for one in world.rounds if one.masked], honest)
    groups = [("all", honest, masked)]
    for name in honest:
        plain = vectors(world, [one for one in world.rounds if not one.masked], [name])
        groups.append((name, [name], plain))
    for who, sites, told in groups:
        read, by_span = rows_read(world, told, sites)
        found.by_span += by_span
        found.rows += [f"row {one.who} of {who}, error {one.error:.1e}, chance {one.chance:.1e}" for one in read]
    found.sites, found.masks = sums_read(world), masks_read(world.opened)
    return found


# A mailbox


Draft = dict[str, Any]  # a model as an attacker changes it
_TWINS = {"dose": "dose2", "sex": "sex2", "bmi": "lab"}
_TARGETS = {"died": "binomial", "cost": "gaussian", "visits": "poisson", "stay": "gamma", "error": "huber"}


def draft(rng: np.random.Generator, table: Table) -> Draft:
    """A first model: what the attacker wants, and something of the whole grammar beside it."""
    target = str(rng.choice(list(_TARGETS), p=[0.4, 0.3, 0.15, 0.05, 0.1]))
    return {"target": target, "family": _TARGETS[target], "terms": [*CORE, *_some_terms(rng, table)]}


def _some_terms(rng: np.random.Generator, table: Table) -> list[str]:
    drawn = next(random_models(rng, table))["formula"].split(" ~ ")[1]
    return [term for term in drawn.replace(" - 1", "").split(" + ") if "offset" not in term and term != "- 1"][:1]


def variant(rng: np.random.Generator, table: Table, before: Draft) -> Draft:
    """A model that differs a little from one that was answered: what singles out a row, if something does."""
    new = {**before, "terms": list(before["terms"])}
    terms, kind = new["terms"], rng.integers(12)
    place = int(rng.integers(len(terms)))
    name = terms[place]
    if kind == 0:
        new["terms"] = [_TWINS.get(term, term) for term in terms]
        new["missing"] = "drop"
    elif kind == 1:
        terms.append(str(rng.choice(["dose2", "sex2", "lab", "I(dose2 * 2)", "scale(dose2)", "I(lab * 10)"])))
        new["missing"] = "drop"
    elif kind == 2 and name in NUMBERS:
        terms.append(str(rng.choice([f"{name}**2", f"I({name} * 2.5)", f"scale({name})"])))
    elif kind == 3:
        terms.append(f"log({rng.choice(POSITIVE)})")
    elif kind == 4 and place >= len(CORE):
        terms.pop(place)
    elif kind == 5:
        terms.append(str(rng.choice(["ward", "code", "C(code)", "C(ward)"])))
        new["pool_rare"] = int(rng.integers(0, 12))
    elif kind == 6:
        new["merged"] = {"ward": {"west": str(rng.choice(["south", "north"]))}}
        terms.append("ward")
    elif kind == 7:
        terms.append(f"{rng.choice(CORE)}:{rng.choice(['sex', 'smoker', 'sex2', 'ward', 'died'])}")
    elif kind == 8:
        new["row_weights"] = str(rng.choice(["weight", "years", "smoker", "marker", "sex2"]))
    elif kind == 9:
        new["cluster"], new["errors"] = str(rng.choice(["ward", "age", "code"])), "cluster"
    elif kind == 10:
        low, high = sorted(rng.choice(np.arange(30, 90, 5), 2, replace=False).tolist())
        terms.append(f"ns(age, knots=[{low}, {high}], bounds=[18, 100])")
    else:
        new["target"] = str(rng.choice(list(_TARGETS)))
        new["family"] = _TARGETS[new["target"]]
    new["terms"] = [term for term in dict.fromkeys(new["terms"]) if new["target"] not in re.findall(r"\w+", term)]
    return new


def model_of(one: Draft) -> Model:
    """The model of a draft."""
    options = {name: value for name, value in one.items() if name not in ("target", "terms")}
    return Model(f"{one['target']} ~ {' + '.join(one['terms'])}", **{"missing": "drop", **options})


def attack_as_mailbox(world: World, most: int = 10**9, masked: bool = True) -> None:
    """Ask for models, rosters and variants of what was answered, restart sites and forge messages, until all is spent."""
    rng, names, first = world.rng, list(world.honest), world.tables[world.honest[0]]
    answered: list[Draft] = []
    spent = 0
    while world.runs < most and spent < 3:
        for name in names:
            if rng.random() < 0.05:
                world.start(name)
        drafted = variant(rng, first, answered[rng.integers(len(answered))]) if answered else draft(rng, first)
        if rng.random() < 0.2:
            drafted = draft(rng, first)
        if answered and rng.random() < 0.05:
            drafted = answered[rng.integers(len(answered))]
        roster = names
        if len(names) > 2 and rng.random() < 0.15:
            roster = sorted(rng.choice(names, int(rng.integers(2, len(names))), replace=False).tolist())
        try:
            model = model_of(drafted)
        except ValueError:
            continue
        if masked and rng.random() < 0.1:
            world.ends[f"plot: {world.plot(model, roster)}"] += 1
            continue
        end = world.ask(model, roster, masked)
        if end == "answered":
            answered.append(drafted)
            spent = 0
        spent += bool(_SPENT.search(end))
        world.ends[_short(end)] += 1


def _short(end: str) -> str:
    return re.sub(r"site '\w+': |'[^']*'|[\d.e+-]+", "", end)[:60].strip()


# One dishonest site, and all sites but two

_HUGE = 1e18  # of the matrix that a liar sends: what others add moves a step by some 1e-15
_BENIGN = 1e-2  # a first step, along which matrices are asked for until there are no more


class Steers(SiteRows):
    """A site that knows the program of a run and answers so that the next parameter is one of its choice.

    It sends a huge matrix B, and after that scores: the next step is B'^-1 s with B' as `scoring.mended` makes it of B,
    the last step and s. For a step x after a step d there is such an s in most cases: with the products of B, B x where
    d'B d <= d'B x (B stays as it is); else x'B d / (x'B d + x'B x) B x (Broyden, rank one), or what solves the update of
    Broyden, Fletcher, Goldfarb and Shanno. Log-likelihoods are such that a step is taken, and bends no curvature.
    """

    def __init__(self, world: World, name: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._world = world
        self._past: list[np.ndarray] = []
        self._here: Sums | None = None
        self._points: list[np.ndarray] | None = None
        self.missed = 0.0

    def reply(self, question: Question, again: bool = False) -> Any:
        """Numbers and words."""
        if question.kind == "cells":  # as if no cell had few rows
            numbers, words = super().reply(question, again)
            return numbers and {name: value + 100.0 * (value >= 0) for name, value in numbers.items()}, words
        if question.kind != "ask" or question.content["ask"].kind not in ("sums", "score"):
            return super().reply(question, again)
        ask = question.content["ask"]
        if self._points is None:
            self._points = [ask.theta, *self._world.path(ask.theta)]
        return self._lie(ask.theta, ask.kind, question.shapes), {}

    def _lie(self, theta: np.ndarray, kind: str, shapes: Mapping[str, Any]) -> dict[str, np.ndarray]:
        dim, step = len(theta), theta - self._past[-1] if self._past else None
        turn = len(self._past)
        points = self._points or []
        self._past.append(theta)
        wanted = points[turn + 1] - theta if turn + 1 < len(points) else np.full(dim, _BENIGN)
        fresh = _HUGE * np.eye(dim)
        if self._here is None or step is None or kind == "sums":
            likelihood = 0.0 if self._here is None else self._here.log_likelihood + 2.0 * _HUGE * float(np.sum(step**2))
            self._here = Sums(likelihood, fresh @ wanted, fresh)
        else:
            self._here = bent(self._here, step, wanted)
        found = {"log_likelihood": np.asarray(self._here.log_likelihood), "score": self._here.score}
        return found | ({"information": fresh} if kind == "sums" else {})


def bent(here: Sums, step: np.ndarray, wanted: np.ndarray) -> Sums:
    """The sums after a step that make the next one as wanted, or as near as may be."""
    matrix = here.information
    curved = matrix @ step
    best, miss = here, np.inf
    square, along, length = step @ curved, wanted @ curved, wanted @ matrix @ wanted
    beta = along / square
    alpha = (1.0 + beta) * beta - length / square
    tries = [matrix @ wanted]
    if along + length != 0.0:
        tries.append(along / (along + length) * (matrix @ wanted))
    if alpha != -1.0:
        tries.append(curved - (curved * (1.0 + beta) - matrix @ wanted) / (1.0 + alpha))
    for score in tries:
        rise = max(float((here.score + score) @ step) / 2.0, 0.0)
        there = Sums(here.log_likelihood + rise, score, matrix)
        try:
            made = there._replace(information=mended(here, there, step))
            next_step = solve(factor(made.information), score)
        except ValueError:
            continue
        apart = float(np.abs(next_step - wanted).max())
        if apart < miss:
            best, miss = made, apart
    return best
