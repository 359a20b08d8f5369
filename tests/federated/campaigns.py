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
from adversaries import (
    NUMBERS,
    POSITIVE,
    Read,
    Table,
    match,
    random_models,
    random_table,
    read_by_differences,
    read_by_span,
    read_sites,
)
from memory_disk import MemoryDisk
from scipy.linalg import lstsq
from scipy.optimize import least_squares
from scipy.special import expit
from simulated.dishonest import PLOTS, Mailbox
from simulated.keychain import Keychain

from fedgauss.families.rows import Sums
from fedgauss.families.same_bits import factor, solve
from fedgauss.federated.fixed_point import Words, add, from_words, pack, to_words, unpack
from fedgauss.federated.home import Home
from fedgauss.federated.ledger import Ledger
from fedgauss.federated.mailbox import federate
from fedgauss.federated.path import _DIGITS
from fedgauss.federated.plan import Plan, Question
from fedgauss.federated.policy import Policy
from fedgauss.federated.rows import SiteRows
from fedgauss.federated.site import Parts, Site
from fedgauss.inference.model import Model
from fedgauss.inference.scoring import mended

CORE = ("age", "dose", "bmi")  # what an attacker wants of a row; its models have them all, so that sums go together
ASKER = "mailbox"
_MOST_IN_A_LEVEL = 30  # rows whose values a reader solves for
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
    about: str  # the target and the weights of rows


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
        if question.kind in ("design", "ask") and numbers is not None:
            kept = np.flatnonzero(np.isin(self._ledger.digests(self._whole), self._numbers))
            behind = {"1": np.ones(len(kept))}
        if question.kind == "ask" and numbers is not None and self._rows is not None:
            family, ask = data.family, question.content["ask"]
            behind |= family.behind(self._rows, ask.kind, ask.theta)
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
        self.aims: Aims | None = None  # of a dishonest site
        self.lies: Callable[[np.ndarray], np.ndarray] = lambda value: value
        self.sites: dict[str, Site] = {}
        self.rounds: list[Round] = []
        self.opened: list[tuple[tuple[str, ...], dict[str, Words]]] = []  # every message of a masked run
        self.runs, self.answered, self.past = 0, 0, list[Any]()
        self.ends: Counter[str] = Counter()
        self._notes: dict[str, tuple[Any, ...]] = {}
        self._about = ""
        for name in self.tables:
            self.start(name)

    def start(self, name: str) -> None:
        """A new process at a site, from what is on its disk."""
        disk, policy = self._disks[name], self._policies[name]
        disk.restart()
        ledger = Ledger(Path("table.ledger"), policy.few, policy.sites_apart, policy.budget, disk, random=self._token)
        rows: Any = partial(Spied, partial(self._note, name))
        if name in self.own and self._liar is not None:
            rows = partial(self._liar, self, name)
        parts = Parts(self.keys.verify, self.keys.fresh_run_key, self.keys.run_key, self._token, rows)
        home = Home(self._signing[name], ledger)
        self.sites[name] = Site(self.tables[name], home, policy, lambda text: self._hear_owner(text), parts)

    def ask(self, model: Model, roster: Sequence[str], masked: bool = True) -> str:
        """One honest course of a run; how it ended."""
        self.runs += 1
        self._about = f"{model.target} {model.row_weights}"
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
                {name: one[2] for name, one in notes.items()}, names, outputs, constant, self._about,
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


def total_of(one: Round) -> dict[str, np.ndarray]:
    """The sums of all sites by name."""
    return unpack(from_words(reduce(add, one.sent.values()))[1:], one.question.shapes)


def vectors(world: World, rounds: Iterable[Round], sites: Sequence[str]) -> list[Vector]:
    """All columns of which totals over some honest sites told products, in the units of the tables.

    Where scoring starts residuals are outcomes less a mean that all know, so that outcomes are among these columns.
    """
    found: list[Vector] = []
    sums: dict[int, Vector] = {}  # of columns, by run
    responses: dict[int, float] = {}
    for one in rounds:
        there = [name for name in one.behind if name in sites]
        if one.question.kind not in ("design", "ask") or not there or (one.masked and len(there) < len(one.behind)):
            continue
        total = _without_others(one, there)
        if one.question.kind == "design":
            rows = sum(len(one.behind[name][0]) for name in there)
            products = {"1": float(rows), **dict(zip(one.names, total["sums"].tolist(), strict=True))}
            sums[one.run] = Vector(one.run, "1", products, _lefts(world, one, there, {"1": 1.0}))
            responses[one.run] = float(total["response"])
            found.append(sums[one.run])
            continue
        for parts, row in _rows_of(one, total):
            if not all(label in one.behind[name][1] for name in there for label in parts):
                continue
            label = next(iter(parts))
            found.append(Vector(one.run, label, _in_units(one, row), _lefts(world, one, there, parts)))
            if one.run in sums and one.outputs == 1 and "1" in found[-1].products and label == "score 0":
                ones = sums.pop(one.run)
                mean = (responses[one.run] - found[-1].products["1"]) / ones.products["1"]
                products = {name: value + mean * ones.products[name] for name, value in found[-1].products.items()}
                found.append(Vector(one.run, "y", products, _lefts(world, one, there, {**parts, "1": mean})))
    return found + [Vector(one.run, one.label, within, {}) for one in found for within in _within_levels(one.products)]


def _lefts(world: World, one: Round, there: Sequence[str], parts: Mapping[str, float]) -> dict[str, np.ndarray]:
    """A combination of columns behind an answer, over all rows of each table."""
    lefts = {}
    for name in there:
        kept, behind = one.behind[name]
        lefts[name] = np.zeros(len(world.tables[name]["age"]))
        lefts[name][kept] = sum(factor_ * behind[label] for label, factor_ in parts.items())
    return lefts


def _without_others(one: Round, there: Sequence[str]) -> dict[str, np.ndarray]:
    """The total less what others know that they sent, exactly, as integers."""
    if sorted(there) == sorted(one.sites):
        return total_of(one)
    words = [one.sent[name] for name in there]
    if one.masked:  # the others' masks and sums are their own: what is left is this
        words = [to_words(np.concatenate([[1.0], pack(one.hidden[name], one.question.shapes)])) for name in there]
    return unpack(from_words(reduce(add, words))[1:], one.question.shapes)


def _within_levels(products: Mapping[str, float]) -> list[dict[str, float]]:
    """Products of u with columns times a: those of a u with the columns."""
    found = []
    for name, value in products.items():
        within = {x: products.get(f"{x}:{name}", products.get(f"{name}:{x}")) for x in CORE}
        if all(own is not None for own in within.values()):
            found.append({"1": value, **within})
    return found  # type: ignore[return-value]


def _rows_of(one: Round, total: Mapping[str, np.ndarray]) -> Iterable[tuple[dict[str, float], np.ndarray]]:
    """Columns, as combinations of those of `Family.behind`, and their products with the columns of the design."""
    p, columns = len(one.names) + one.constant, one.question.content["columns"]
    if "score" in total:
        for c in range(one.outputs):
            yield {f"score {c}": 1.0}, total["score"][c * p : (c + 1) * p]
    for name, label in (("information", "information"), ("observed", "observed"), ("squares.rows", "squares")):
        for c in range(one.outputs if name in total else 0):
            for b in range(c + 1):
                block = total[name][c * p : (c + 1) * p, b * p : (b + 1) * p]
                for which in {f"{label} {c} x", f"{label} {c} {b} x"} if b == c else {f"{label} {c} {b} x"}:
                    yield {f"{which}0": 1.0}, block[0]
                    for j in range(1, p):  # in the units of the table
                        k = j - one.constant
                        parts = {f"{which}{j}": columns.scale[k]} | (
                            {f"{which}0": columns.mean[k]} if one.constant else {}
                        )
                        yield parts, columns.scale[k] * block[j] + columns.mean[k] * one.constant * block[0]


def _in_units(one: Round, row: np.ndarray) -> dict[str, float]:
    columns = one.question.content["columns"]
    if not one.constant:
        return dict(zip(one.names, (row * columns.scale).tolist(), strict=True))
    rest = columns.scale * row[1:] + columns.mean * row[0]
    return {"1": float(row[0]), **dict(zip(one.names, rest.tolist(), strict=True))}


# Judging


def rows_read(
    world: World, told: Sequence[Vector], sites: Sequence[str], most: int = _MOST_VECTORS
) -> tuple[list[Read], int]:
    """Rows of some sites that are read without knowing any, and how many are in reach of the best combination."""
    told = [one for one in told if all(name in one.products for name in CORE)]
    if len(told) < 2:
        return [], 0
    rows = np.concatenate([np.column_stack([world.tables[name][column] for column in CORE]) for name in sites])
    zeros = {name: np.zeros(len(world.tables[name]["age"])) for name in sites}
    totals = np.array([[one.products.get("1", np.nan), *(one.products[name] for name in CORE)] for one in told])
    whole = [bool(one.left) for one in told]
    left = np.column_stack(
        [np.concatenate([one.left.get(name, zeros[name]) for name in sites]) for one in told if one.left]
    )
    by_span = len(read_by_span(left, rows, totals[whole, 1:]))
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
    counted = {
        (name, float(own["rows"]))
        for one in world.rounds if one.question.kind == "count" for name, own in one.hidden.items()
    }  # fmt: skip
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
            known = names[k] not in world.honest or (names[k], own[k, 0]) in counted
            if np.linalg.norm(basis[:, k]) > 1 - 1e-9 and not known:
                read.append(f"site {names[k]}: {key[0]} {key[-1]}")
    return read


def _flat(numbers: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {
        name if not np.ndim(value) else f"{name}[{','.join(map(str, place))}]": float(np.asarray(value)[place])
        for name, value in numbers.items()
        for place in np.ndindex(np.shape(value))
    }


def _keys(one: Round, total: Mapping[str, float]) -> Iterable[tuple[str, ...]]:
    """What makes numbers of two rosters comparable: the question with all that it is about."""
    about = f"{one.about} {one.names}"  # with columns that are other ones in another roster, if they are centred there
    if one.question.kind not in ("design", "cells"):
        about += repr(one.question.content)
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
    together = {tuple(one.behind) for one in world.rounds if one.masked and one.behind}
    alone = {(name,) for one in world.rounds if not one.masked for name in one.behind}
    for sites in sorted(together | alone, key=len):
        inside = [one for one in world.rounds if (set(one.behind) <= set(sites) if one.masked else sites in alone)]
        read, by_span = rows_read(world, vectors(world, inside, sites), sites)
        found.by_span += by_span
        found.rows += [
            f"row {one.who} of {'+'.join(sites)}, error {one.error:.1e}, chance {one.chance:.1e}" for one in read
        ]
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
        level = str(rng.choice(["sex", "smoker", "sex2", "died"]))
        terms += [level, *(f"{one}:{level}" for one in CORE)]
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


def attack_as_mailbox(world: World, most: int = 10**9, masked: bool = True, own: Sequence[str] = ()) -> None:
    """Ask for models, rosters and variants of what was answered, restart sites and forge messages, until all is spent.

    Sites of its `own` are in the rosters, some or all of them.
    """
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
        again = bool(answered) and rng.random() < 0.12
        if again:
            drafted = answered[rng.integers(len(answered))]
        roster = names
        if len(names) + len(own) > 2 and rng.random() < (0.7 if again else 0.1):
            roster = sorted(rng.choice(names, int(rng.integers(1 if own else 2, len(names))), replace=False).tolist())
        try:
            model = model_of(drafted)
        except ValueError:
            continue
        if masked and not own and rng.random() < 0.1:
            world.ends[f"plot: {world.plot(model, roster)}"] += 1
            continue
        inside = sorted(own)[: int(rng.integers(len(own)) + 1)] if own and rng.random() < 0.3 else own
        end = world.ask(model, [*roster, *inside], masked)
        if end == "answered":
            answered.append(drafted)
            spent = 0
        spent += bool(_SPENT.search(end))
        world.ends[_short(end)] += 1


def _short(end: str) -> str:
    return re.sub(r"site '\w+': |'[^']*'|[\d.e+-]+", "", end)[:60].strip()


# One dishonest site, and all sites but two

_HUGE = 1e18  # of the matrix that a liar sends: what others add moves a step by some 1e-15
_SAME = 1e-9  # of a step: a parameter that is where it was to be
Aims = Callable[[int, np.ndarray], Sequence[np.ndarray]]  # of a turn and the parameter: where the next may be


class Steers(SiteRows):
    """A site that knows the program of a run and answers so that the next parameter is one of its choice.

    It sends a huge matrix B, and after that scores: the next step is B'^-1 s with B' as `scoring.mended` makes it of B,
    the last step and s. For a step x after a step d there is such an s in most cases (`bent`). Log-likelihoods are such
    that a step is taken, and bends no curvature. Of cells it says that none has few rows.
    """

    def __init__(self, world: World, name: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._world = world
        self._turn = 0
        self._base: tuple[np.ndarray, Sums] | None = None  # the last parameter that all could answer
        self._tried: tuple[np.ndarray, Sums] | None = None

    def reply(self, question: Question, again: bool = False) -> Any:
        """Numbers and words."""
        aims, lies = self._world.aims, self._world.lies
        kind = question.content["ask"].kind if question.kind == "ask" else question.kind
        if aims is not None and kind in ("sums", "score"):
            return self._lead(question.content["ask"].theta, kind, aims), {}
        numbers, words = super().reply(question, again)
        if numbers is not None and kind == "cells":
            numbers = {name: value + 100.0 for name, value in numbers.items()}
        if numbers is not None and kind not in ("count", "cells"):
            numbers = {name: lies(value) for name, value in numbers.items()}
        return numbers, words

    def _lead(self, theta: np.ndarray, kind: str, aims: Aims) -> dict[str, np.ndarray]:
        fresh = _HUGE * np.eye(len(theta))
        if self._base is not None and self._tried is not None and self._is_halved(theta):
            self._tried = None
        else:
            self._base, self._tried = self._tried or self._base, None
        if self._base is None or kind == "sums":
            likelihood = 0.0 if self._base is None else self._base[1].log_likelihood + _HUGE * 1e9
            target = aims(self._turn, theta)[0]
            here = Sums(likelihood, fresh @ (target - theta), fresh)
        else:
            before, step = self._base[1], theta - self._base[0]
            made = [bent(before, step, target - theta) for target in aims(self._turn, theta)]
            here = min(made, key=lambda one: one[1])[0]
        self._turn += 1
        self._tried = theta, here
        found = {"log_likelihood": np.asarray(here.log_likelihood), "score": here.score}
        return found | ({"information": fresh} if kind == "sums" else {})

    def _is_halved(self, theta: np.ndarray) -> bool:
        assert self._base is not None
        assert self._tried is not None
        (base, _), (tried, _) = self._base, self._tried
        return bool(np.abs(theta - (base + tried) / 2.0).max() <= _SAME * np.abs(tried - base).max())


def bent(here: Sums, step: np.ndarray, wanted: np.ndarray) -> tuple[Sums, float]:
    """The sums after a step d that make the next one x, or as near as may be, and how far it misses.

    With the products of B, they have the score B x where d'B d <= d'B x, since B stays as it is; else that times
    x'B d / (x'B d + x'B x) (Broyden, rank one), or what solves the update of Broyden, Fletcher, Goldfarb and Shanno.
    """
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
    return best, miss


def steep(rng: np.random.Generator, dim: int, low: float, high: float, slope: float = 7.0) -> Aims:
    """Along a direction of the covariates the predictor rises steeply at a threshold that moves from round to round.

    It is as steep as sites answer at (`path`), and starts there: a short step would bind the path to its place.
    """
    way = np.zeros(dim)
    way[1:] = rng.normal(size=dim - 1) if rng.random() < 0.5 else np.eye(dim - 1)[0]
    way *= slope / np.linalg.norm(way)

    def aims(turn: int, theta: np.ndarray) -> list[np.ndarray]:
        if turn == 0:  # the model without covariates ends where its step is none
            return [np.array([theta[0], *way[1:]])]
        at = way.copy()
        at[0] = -slope * (low + (high - low) * (turn - 1) / 57.0)
        return [at]

    return aims


def anywhere(rng: np.random.Generator, dim: int, spread: float = 6.0) -> Aims:
    """Parameters in all directions of the covariates, of which the last one, that of a level, stays where it is."""

    def aims(turn: int, theta: np.ndarray) -> list[np.ndarray]:
        found = []
        for _ in range(6):
            slopes = rng.normal(size=dim - 2)
            slopes *= spread * rng.uniform(0.2, 1.0) / np.linalg.norm(slopes)
            first = theta[0] if turn == 0 else rng.uniform(-1.5, 1.5) * np.linalg.norm(slopes)
            found.append(np.array([first, *slopes, 0.0]))
        return found

    return aims


def at_ends(aims: Aims) -> Aims:
    """Where the plan wants to be first, and there to stay: steps so short that the run ends with all digits."""
    here: list[np.ndarray] = []

    def stay(turn: int, theta: np.ndarray) -> list[np.ndarray]:
        if turn == 0:
            here.append(aims(0, theta)[0])
            return [here[0]]
        return [here[0] + (1e-6 if turn == 1 else 0.0)]

    return stay


def along_offsets(low: float, high: float) -> Aims:
    """Intercepts of a model without slopes, whose rows have offsets."""
    return lambda turn, theta: [np.array([low + (high - low) * turn / 55.0, *np.zeros(len(theta) - 1)])]


def near(world: World, target: str, steer: str, others: int, most: float) -> Aims:
    """Parameters of all kinds of one covariate at which the attacker's own rows fit no worse than so many times.

    Sums of 1 / (1 + exp(-a - b z)) over rows, at enough a and b, tell the sum of any smooth function of z.
    """
    own, rng = world.tables[world.own[0]], world.rng
    z = (own[steer] - own[steer].mean()) / own[steer].std()
    y = own[target]
    start: list[np.ndarray] = []

    def deviance(a: float, b: float) -> float:
        eta = a + b * z
        return float(np.sum(np.logaddexp(0.0, eta) - y * eta))

    def aims(turn: int, theta: np.ndarray) -> list[np.ndarray]:
        start.append(theta)
        if turn == 0:
            return [np.array([theta[0], 1.0, *np.zeros(others)])]
        found: list[np.ndarray] = []
        limit = most * deviance(start[0][0], 0.0)
        while len(found) < 8:
            turned, far = rng.uniform(0, 2 * np.pi), np.exp(rng.uniform(-2.0, 2.5))
            a, b = start[0][0] + far * np.cos(turned), far * np.sin(turned)
            if deviance(a, b) <= limit:
                found.append(np.array([a, b, *np.zeros(others)]))
        return found

    return aims


def read_in_tails(world: World, sites: Sequence[str], steer: str, offset: float = 0.0) -> list[Read]:
    """Rows beyond all others in one column, from logistic scores at parameters of that column alone.

    Whoever knows a and b knows what a row of each z counts for, but for its outcome, which is the same in all rounds. A
    combination that is next to nothing up to a cut and 1 beyond it makes sums over the rows beyond, as far as the
    digits of sites go. With an offset, of so many times the column, rows count by it where slopes are zero.
    """
    told, at, noise = [], [], []
    for one, sd in _scores(world, sites):
        theta = one.question.content["ask"].theta
        if one.names[0] == steer and np.abs(theta[2:]).max(initial=0.0) <= 1e-6:
            p, columns = len(one.names) + 1, one.question.content["columns"]
            told.append(-_without_others(one, sites)["score"][:p])
            tilt = offset * columns.scale[0]  # of a predictor with an offset, which is zero at the mean or near it
            at.append((theta[0] + offset * columns.mean[0], theta[1] + tilt))
            noise.append(sd)
    if len(told) < 10:
        return []
    names, parameters = one.names, np.array(at)
    rows = np.concatenate([np.column_stack([world.tables[name][column] for column in names]) for name in sites])
    rows = (rows - columns.mean) / columns.scale
    centred = np.eye(len(told)) - 1.0 / len(told)  # without the outcomes
    guesses = []
    for side in (1.0, -1.0):
        for cut in np.arange(1.4, 8.0, 0.3):
            for gap in (0.4, 1.0, 2.0):
                z = side * np.concatenate([np.linspace(-4.5, cut, 150), cut + gap + np.linspace(0.0, 1.0, 8)])
                weights = expit(parameters[:, 0] + np.multiply.outer(z, parameters[:, 1])) @ centred
                wanted = np.concatenate([np.zeros(150), np.full(8, 5.0), np.zeros(len(told))])
                for strictly in (1.0, 1e3):
                    weighed = np.vstack([strictly * weights[:150], 5.0 * weights[150:], np.diag(noise)])
                    found = lstsq(weighed, wanted, cond=1e-15, check_finite=False, lapack_driver="gelsy")[0]
                    combined = centred @ found @ np.array(told)
                    if abs(combined[0]) > 1e-3:
                        guesses.append(combined[1:] / combined[0])
    return match(np.array(guesses).reshape(-1, len(names)), rows)


def _scores(world: World, sites: Sequence[str]) -> Iterable[tuple[Round, float]]:
    """Rounds with scores over some sites, and the standard deviation of what the sites' digits leave of one."""
    before: dict[int, tuple[np.ndarray, float]] = {}
    for one in world.rounds:
        ask = one.question.content.get("ask")
        if ask is None or ask.kind not in ("score", "sums") or set(one.behind) != set(sites):
            continue
        last, longer = before.get(one.run, (ask.theta, 1.0))
        moved = float(np.abs(ask.theta - last).max())
        before[one.run] = ask.theta, moved or longer
        told = _DIGITS * min(1.0, max(moved, longer)) if np.any(ask.theta[1:]) else 0.0
        yield one, max(told * np.sqrt(len(sites) / 12.0), 1e-9)


def read_levels(world: World, sites: Sequence[str], level: str, tries: int = 20) -> list[Read]:
    """Rows of a level, by solving for all of their values from what logistic fits told of the level.

    Sums over the rows of the level follow from those with its column: of residuals at each parameter, and of weights
    and squared residuals, with the other columns, where a path ended. They are functions of the rows' values, which
    are found by least squares where there are fewer of these than sums. Which rows had which outcomes is given: rows
    can be exchanged, so that there are few patterns to try.
    """
    sums: list[tuple[str, np.ndarray, np.ndarray, np.ndarray, float]] = []
    noises = {id(one): sd for one, sd in _scores(world, sites)}
    for one in world.rounds:
        ask = one.question.content.get("ask")
        if ask is None or one.names[-1] != level or set(one.behind) != set(sites):
            continue
        columns, total = one.question.content["columns"], _without_others(one, sites)
        share, scale, start = columns.mean[-1], columns.scale[-1], not np.any(ask.theta[1:])
        outcomes = np.concatenate([world.tables[name][one.about.split()[0]] for name in sites])
        theta = np.array([ask.theta[0] + ask.theta[-1] * (1.0 - share) / scale, *ask.theta[1:-1]])
        if id(one) in noises:
            number = scale * total["score"][-1] + share * total["score"][0]
            sums.append(("score", outcomes, theta, np.array([number]), scale * noises[id(one)] + 1e-7))
        for name in ("information", "observed", "squares.rows"):
            if name in total and (start or ask.kind == "final"):
                sums.append((name, outcomes, theta, (scale * total[name][-1] + share * total[name][0])[:-1], 1e-7))
    rows = np.concatenate([np.column_stack([world.tables[name][c] for c in one.names]) for name in sites])
    inside = rows[:, -1] == 1.0
    rows = ((rows - columns.mean) / columns.scale)[inside, :-1]
    if not sums or len(rows) > _MOST_IN_A_LEVEL:
        return []

    def apart(values: np.ndarray) -> np.ndarray:
        x = np.column_stack([np.ones(len(rows)), values.reshape(rows.shape)])
        found = []
        for name, outcomes, theta, number, sd in sums:
            mean, died = expit(x @ theta), outcomes[inside]
            if name == "score":
                found.append(np.atleast_1d(np.sum(died - mean) - number) / sd)
            else:
                found.append((((died - mean) ** 2 if "squares" in name else mean * (1.0 - mean)) @ x - number) / sd)
        return np.concatenate(found)

    solved = []
    for _ in range(tries):
        fitted = least_squares(
            apart,
            0.8 * world.rng.normal(size=rows.size),
            x_scale="jac",
            max_nfev=400,
            xtol=1e-15,
            ftol=1e-15,
            gtol=1e-15,
        )
        solved.append((fitted.cost, fitted.x.reshape(rows.shape)))
        if 2.0 * fitted.cost < 1.5 * len(fitted.fun) and len(fitted.fun) > 2 * rows.size:
            break
    best = min(solved, key=lambda one: one[0])[1]
    return match(best, rows)


def attack_as_site(world: World, kind: str, rosters: Sequence[Sequence[str]], most: int = 60) -> list[Read]:
    """Ask, with dishonest sites that follow a plan of a kind, until the budget is spent; what is read by solving."""
    rng, spent = world.rng, 0
    steer = str(rng.choice(["marker", "income", "age"]))
    numbers = [steer, *(name for name in CORE if name != steer)]
    ends, offset = [(0.5, 9.0), (0.0, 3.4), (0.0, -3.4), (-1.0, 1.0)], float(rng.choice([5.0, 10.0, 20.0, 35.0]))
    if kind == "level":
        plant_level(world, int(rng.integers(3, 21)))
        numbers = [*CORE, "rare"]
    elif kind == "offset":
        steer = "shift"  # which has mean 0: a start far off is refused
        numbers = [steer, *CORE]
    while spent < 2 and world.runs < most:
        drafted: Draft = {"target": "died", "family": "binomial", "terms": numbers}
        if kind == "steep" and rng.random() < 0.3:
            drafted["link"] = str(rng.choice(["probit", "cloglog"]))
        elif kind == "steep" and rng.random() < 0.15:
            drafted |= {"target": "error", "family": "huber"}
        world.aims, world.lies = None, lambda value: value
        low, high = ends[world.runs % 4] + rng.uniform(0.0, 0.1, 2)  # a repeat would be free, and tell nothing new
        if kind == "steep":
            world.aims = steep(rng, len(numbers) + 1, low, high)
        elif kind == "near":
            world.aims = near(world, "died", steer, len(numbers) - 1, float(rng.choice([1.3, 1.8, 4.0, 10.0])))
        elif kind == "level":
            world.aims = anywhere(rng, len(numbers) + 1)
        elif kind == "offset":
            drafted["terms"] = [*numbers, f"offset(I({steer} * {offset:g}))"]
            world.aims = along_offsets(
                *(-offset * side * world.tables[world.own[0]][steer].std() for side in (low, high))
            )
        else:
            drafted = draft(rng, world.tables[world.own[0]])
            world.lies = lambda value: value * rng.choice([1.0, 1.0, 1.0, 0.0, -1.0, 10.0, 1e9], np.shape(value))
        end = world.ask(model_of(drafted), rosters[int(rng.integers(len(rosters)))])
        world.ends[_short(end)] += 1
        spent += bool(_SPENT.search(end))
    world.aims, world.lies = None, lambda value: value
    if kind == "level":
        return read_levels(world, world.honest, "rare")
    return read_in_tails(world, world.honest, steer, offset if kind == "offset" else 0.0) if kind != "chaos" else []


def plant_level(world: World, rows: int) -> None:
    """A level that so many rows of one honest site have, and none of the other honest sites."""
    for name, table in world.tables.items():
        table["rare"] = np.zeros(len(table["age"]))
        if name == world.honest[0] or name in world.own:
            table["rare"][world.rng.choice(len(table["age"]), rows, replace=False)] = 1.0
        world.start(name)


# Campaigns: a world from a seed, as a line of a record


def as_mailbox(seed: int) -> dict[str, Any]:
    """A mailbox with three to five sites; masked in four of five worlds."""
    random = Random(seed)
    world = World(seed, honest=random.choice([3, 3, 4, 5]))
    masked = random.random() < 0.8
    if random.random() < 0.2:
        plant_level(world, random.choice([3, 4, 6]))
        world.ask(
            model_of({"target": "died", "family": "binomial", "terms": [*CORE, "rare"], "errors": "HC0"}), world.honest
        )
        level = read_levels(world, world.honest, "rare") if world.answered else []
        return _line(world, "level", level)
    attack_as_mailbox(world, masked=masked)
    return _line(world, "masked" if masked else "plain", [])


def as_site(seed: int) -> dict[str, Any]:
    """One dishonest site among three or four; it asks for nothing itself, but leads and lies."""
    random = Random(seed)
    world = World(seed, honest=random.choice([2, 2, 3]), dishonest=1, liar=Steers)
    kind = random.choice(["steep", "near", "offset", "level", "chaos"])
    return _line(world, kind, attack_as_site(world, kind, [world.honest + world.own]))


def as_coalition(seed: int) -> dict[str, Any]:
    """All sites but two, of which there are one to four, and the mailbox is theirs."""
    random = Random(seed)
    world = World(seed, honest=2, dishonest=random.choice([1, 2, 3, 4]), liar=Steers)
    kind = random.choice(["models", "steep", "near", "offset", "level", "chaos"])
    tails: list[Read] = []
    if kind == "models":
        attack_as_mailbox(world, own=world.own)
    else:
        tails = attack_as_site(world, kind, [world.honest + world.own])
    return _line(world, kind, tails)


def _line(world: World, kind: str, tails: Sequence[Read]) -> dict[str, Any]:
    found = judge(world)
    return {
        "kind": kind, "tables": len(world.honest), "runs": world.runs, "answered": world.answered,
        "parameters": sum(one.question.kind == "ask" for one in world.rounds), "rows": found.rows,
        "tails": [f"row {one.who}, error {one.error:.1e}, chance {one.chance:.1e}" for one in tails],
        "by_span": found.by_span, "sites": found.sites[:20], "masks": found.masks[:20],
        "ends": dict(world.ends.most_common(6)),
    }  # fmt: skip


CAMPAIGNS: dict[str, Callable[[int], dict[str, Any]]] = {
    "mailbox": as_mailbox, "site": as_site, "coalition": as_coalition,
}  # fmt: skip
