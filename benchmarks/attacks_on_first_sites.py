"""Attacks on the first sites: what a coordinator who lies read of single rows, each attack run once and recorded.

The code that they attack is gone: it answered orders of a coordinator who chose the parameter, the columns, the rows,
the names and the number of tries. This program runs against its last state, in a checkout of its own, with Flower:

    git worktree add OLD 1f4de58
    PYTHONPATH=OLD/src .venv/flower/bin/python benchmarks/attacks_on_first_sites.py \
        --json benchmarks/recorded/attacks_on_first_sites.json

Attacks see what sites reply, as lines of JSON, and know the names of columns. Tables are drawn from seeds. An error is
the largest difference from the truth, in standard deviations of the column for numbers that were measured.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from fedgauss.inference.federated import masks
from fedgauss.inference.federated.coordinator import agreed_levels
from fedgauss.inference.federated.fields import SUMMED
from fedgauss.inference.federated.lines import decoded, encoded
from fedgauss.inference.federated.policy import Policy
from fedgauss.inference.federated.site import Site
from fedgauss.inference.model_spec import ModelSpec
from scipy.optimize import nnls

Table = dict[str, np.ndarray]
Row = dict[str, Any]  # of the table that is printed
THRESHOLD = 1.345  # of family huber
ORDERS = 100  # for sums, that a site answers in a run by default


class SiteRefused(Exception):
    """A site answered with an error."""


class Coordinator:
    """Who carries the messages of one run, and asks whatever it likes. `sites` are started anew for every run."""

    def __init__(self, sites: Mapping[str, Site], masked: bool = False) -> None:
        self.sites, self.masked, self.round, self.orders = dict(sites), masked, 0, 0
        self.names = list(sites) if len(sites) > 1 else [*sites, "another"]  # a name costs nothing
        if masked:
            publics = {name: site.answer("keys", {"name": name})["public"] for name, site in self.sites.items()}
            self.each("meet", {"run": "run", "publics": publics})

    def each(self, order: str, content: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The replies of all sites to an order."""
        named = {name: dict(content) | ({"name": name} if order == "describe" else {}) for name in self.sites}
        replies = [decoded(encoded(site.answer(order, decoded(encoded(named[n]))))) for n, site in self.sites.items()]
        for reply in replies:
            if "error" in reply:
                raise SiteRefused(reply["error"])
        return replies

    def total(self, order: str, **content: Any) -> dict[str, Any]:
        """Their sum, which is all that masks let through."""
        self.round, self.orders = self.round + 1, self.orders + 1
        if not self.masked:
            replies = self.each(order, content)
            return {name: sum(np.asarray(reply[name]) for reply in replies) for name in SUMMED[order]}
        masking = {"round": self.round, "attempt": 0, "sites": list(self.sites)}
        return masks.total([reply["masked"] for reply in self.each(order, content | {"masking": masking})])

    def describe(self, formula: str, **model: Any) -> int:
        """The first two orders, which end with the levels that all sites share; the number of rows."""
        fields = dict.fromkeys(ModelSpec._fields) | {"intercept": True, "site_effects": False, "missing": "refuse"}
        asked = fields | {"target": formula.split(" ~ ")[0], "formula": formula, "sites": self.names} | model
        replies = self.each("describe", asked)
        rows = sum(reply["rows"] for reply in replies)
        self.total("levels", levels=agreed_levels([reply["levels"] for reply in replies], list(self.sites)), total=rows)
        return rows

    def begin(self, formula: str, scaled: bool = True, **model: Any) -> Coordinator:
        """All that comes before sums: columns in units of their own, or as they are."""
        rows, nothing = self.describe(formula, **model), np.zeros(0)
        sums = self.total("design", means=nothing, sds=nothing)["sums"]
        mean = sums / rows if scaled else np.zeros_like(sums)
        squares = self.total("squares", means=mean, response=0.0)["squares"]
        scale = np.sqrt(squares / rows) if scaled else np.ones_like(sums)
        self.each("units", {"means": mean, "scales": scale})
        self.mean, self.scale, self.dim = mean, scale, len(mean) + 1
        return self

    def sums(self, *theta: float) -> dict[str, Any]:
        """The log-likelihood, score and information at a parameter, of which the rest is 0."""
        return self.total("sums", theta=np.concatenate([theta, np.zeros(self.dim - len(theta))]))


def strict(ledger: str | None = None, secret: str | None = None) -> Policy:
    """A policy that asks of masks all that it can."""
    return Policy(masks="required", fewest_sites=3, drop_outs="refused", ledger=ledger, secret=secret)


def patients(n: int, seed: int) -> Table:
    """Rows of a hospital, all numbers."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 4))
    signal = z[:, :3] @ [0.5, -0.3, 0.2]
    return {
        "error": signal + z[:, 3], "age": 50 + 10 * z[:, 0], "dose": 3 + z[:, 1], "bmi": 26 + 4 * z[:, 2],
        "died": (rng.random(n) < 1 / (1 + np.exp(-signal))).astype(float),
        "sex": (rng.random(n) < 0.5).astype(float), "cost": np.exp(7 + signal / 2 + z[:, 3] / 4),
    }  # fmt: skip


def nearest(found: np.ndarray, table: Table, names: list[str]) -> float:
    """How far a row that was read is from the nearest row there is, in standard deviations."""
    rows = np.column_stack([table[name] for name in names])
    return float(np.abs((rows - found) / rows.std(axis=0)).max(axis=1).min())


# Attacks, as findings number them. Each returns rows of the table that is printed.


def jumps(run: Coordinator, lower: float, upper: float) -> Iterator[tuple[np.ndarray, float]]:
    """Rows whose residual crosses the threshold between two intercepts, found by halving.

    A row's weight falls from 1 to .05 there, so that two informations close to each other differ by .95 x x' of it.
    """
    seen = {t: run.sums(t)["information"] for t in (lower, upper)}
    intervals = [(lower, upper)]
    while intervals and run.orders < ORDERS:
        a, b = intervals.pop()
        difference = seen[b] - seen[a]
        if np.abs(difference).max() < 0.4 + 10 * (b - a):  # the weights beyond the threshold change slowly
            continue
        if b - a < 5e-9:
            x = difference[0] / difference[0, 0]
            yield x[1:] * run.scale + run.mean, a + THRESHOLD * np.sign(difference[0, 0])
            continue
        middle = (a + b) / 2
        seen[middle] = run.sums(middle)["information"]
        intervals += [(middle, b), (a, middle)]


def c1(masked: bool) -> Row:
    """Whole rows, by the jump of Huber's weights."""
    tables = [patients(300, seed) for seed in ((1, 2, 3) if masked else (1,))]
    policy = strict() if masked else Policy()
    run = Coordinator({f"site {k}": Site(table, policy) for k, table in enumerate(tables)}, masked)
    run.begin("error ~ age + dose + bmi", family="huber")
    names = ["age", "dose", "bmi", "error"]
    everybody = {name: np.concatenate([table[name] for table in tables]) for name in names}
    read = [np.append(x, y) for x, y in jumps(run, 0.0, 0.1)]
    error = max(nearest(row, everybody, names) for row in read)
    whose = "of three masked sites of 300" if masked else "of 300"
    return row("C1", shown(policy), run.orders, f"{len(read)} whole rows {whose}, outcome too", error)


def c2(folder: Path) -> Row:
    """A site's own score: its table stands in the roster three times."""
    (folder / "secret").write_text("agreed on by the owners")
    policy = strict(ledger=str(folder / "ledger"), secret=str(folder / "secret"))
    table = patients(300, 4)
    run = Coordinator({name: Site(table, policy) for name in ("north", "south", "west")}, masked=True)
    score = run.begin("died ~ age + dose", scaled=False, family="binomial").sums(0.0)["score"] / 3
    true = np.column_stack([np.ones(300), table["age"], table["dose"]]).T @ (table["died"] - 0.5)
    error = np.abs(score / true - 1).max()
    return row("C2", shown(policy), run.orders, "the site's own score, from a masked total of it three times", error)


def c3() -> Row:
    """One site's own score: sites that find a parameter unlikely add zeros to a masked total, and it shows how many."""
    tables = [patients(300, seed) for seed in (5, 6, 7)]
    for table, shift in zip(tables, (-30, 0, 30), strict=True):
        table["age"] = table["age"] + shift  # children, all, and the old
    run = Coordinator({f"site {k}": Site(table, strict()) for k, table in enumerate(tables)}, masked=True)
    run.begin("died ~ age + dose", family="binomial")
    alone, error = 0, 0.0
    for centre in np.linspace(-2.0, 2.0, 66):
        slope = 60.0
        told = run.sums(-slope * centre, slope)
        if round(-told["log_likelihood"] / 2.0**95) != 2:
            continue
        alone += 1
        apart = []
        for table in tables:
            own = (np.column_stack([table["age"], table["dose"]]) - run.mean) / run.scale
            x = np.column_stack([np.ones(300), own])
            likely = 1 / (1 + np.exp(-np.clip(slope * (x[:, 1] - centre), -700, 700)))
            apart.append(np.abs(x.T @ (table["died"] - likely) - told["score"]).max())
        error = max(error, min(apart))
    return row("C3", shown(strict()), run.orders, f"{alone} of 66 masked totals are one site's score", error)


def c4() -> Row:
    """All columns of patients with an age of their own: informations at 97 parameters, taken apart by age.

    With slope s about age c the information is sum_a w_a M_a, w_a = m (1 - m) at m = 1 / (1 + exp(-s (a - c))), and
    M_a the sum of x x' over the patients of age a. Counts are not negative, and few ages are empty.
    """
    rng, table, names = np.random.default_rng(33), patients(962, 33), ["age", "dose", "sex"]
    table["age"] = np.clip(np.round(60 + 13 * rng.normal(size=962)), 22, 96)
    run = Coordinator({"site": Site(table)}).begin("died ~ age + dose + sex", False, family="binomial")
    ages, weights, answers = np.arange(18, 106), [], []
    for step, first, orders in ((1, 60, 52), (-1, 59, ORDERS)):
        centre, slope = first, 2.0
        while run.orders < orders and slope > 0.35:
            information = run.sums(-slope * centre, slope)["information"]
            if not information.any():  # "unlikely": too few rows at this age. Look less closely.
                slope *= 0.8
                continue
            likely = 1 / (1 + np.exp(-slope * (ages - centre)))
            weights.append(likely * (1 - likely) / information[0, 0])
            answers.append(information[0] / information[0, 0])
            centre += step
    a, b = np.array(weights), np.array(answers)
    there = np.rint(nnls(a, b[:, 0], maxiter=10_000)[0]) > 0
    sums = dict(zip(ages[there], np.linalg.lstsq(a[:, there], b, rcond=1e-16)[0], strict=True))
    alone = [age for age, count in zip(*np.unique(table["age"], return_counts=True), strict=True) if count == 1]
    guessed = [age for age, found in sums.items() if round(found[0]) == 1]
    error = max(nearest(sums[age][1:], table, names) for age in guessed)
    read = f"all columns of {len(set(guessed) & set(alone))} of {len(alone)} patients with an age of their own"
    return row("C4", "default", run.orders, read, error)


def h1(folder: Path, column: str) -> Row:
    """A row with its outcome: a column, and twice another that differs from it in that row, in two runs."""
    table = patients(300, 8)
    table["flag"] = (table["bmi"] > 27).astype(float)
    table[f"{column}2"] = table[column].copy()
    table[f"{column}2"][17] = 1 - table["flag"][17] if column == "flag" else table["dose"][17] + 0.25
    policy, told, orders = Policy(ledger=str(folder / column)), [], 0
    for asked, factor in ((column, 1), (f"I({column}2 * 2)", 2)):
        run = Coordinator({"site": Site(table, policy)}).begin(f"cost ~ {asked} + age + sex", False, family="gaussian")
        sums = run.sums(0.0)  # products of this column with 1, age, sex and cost
        told.append(np.append(sums["information"][1, [0, 2, 3]], sums["score"][1]) / factor)
        orders += run.orders
    difference = told[0] - told[1]
    error = nearest(difference[1:] / difference[0], table, ["age", "sex", "cost"])
    return row(f"H1, {column}", shown(policy), orders, "a row with its outcome, from the difference of two runs", error)


def differing(folder: Path, ledger: bool) -> Row:
    """The row that one of two runs leaves out, since a value of it is missing."""
    table = patients(300, 9)
    table["bmi"][42] = np.nan
    policy, told, orders = Policy(ledger=str(folder / "ledger") if ledger else None), [], 0
    name = "differencing" if ledger else "H2"
    for formula in ("cost ~ age + dose", "cost ~ age + dose + bmi"):
        run = Coordinator({"site": Site(table, policy)})
        try:
            run.begin(formula, False, family="gaussian", missing="drop")
        except SiteRefused as refusal:
            return refused(name, policy, orders, refusal)
        sums = run.sums(0.0)
        told.append(np.append(sums["information"][0, :3], sums["score"][0]))
        orders += run.orders
    error = nearest((told[0] - told[1])[1:], table, ["age", "dose", "cost"])
    return row(name, shown(policy), orders, "the row, from the difference of two runs", error)


def h3() -> Row:
    """More sums than a policy allows: a site that is started again counts from zero."""
    policy, sums, table = Policy(most_rounds=15), 0, patients(300, 10)
    for _ in range(10):
        run = Coordinator({"site": Site(table, policy)}).begin("cost ~ age + dose", family="gaussian")
        while run.orders < policy.most_rounds:
            run.sums(sums / 100)
            sums += 1
    return row("H3", "most_rounds=15", sums, f"{sums} sums in place of 12, in ten starts", None)


def h4(folder: Path) -> Row:
    """The fifth smallest income: fewer than five rows below the second knot of ns() are refused, and that is a bit."""
    rng = np.random.default_rng(12)
    table = patients(300, 12) | {"income": np.round(np.exp(10 + 0.5 * rng.normal(size=300)), 2)}
    policy, lower, upper, tries = Policy(ledger=str(folder / "ledger")), 0, 4_000_000, 0
    run = None
    while upper - lower > 1:  # cents; five rows have at most `upper`, and not `lower`
        if run is None or tries % 3 == 0:  # a design is tried three times a start
            run = Coordinator({"site": Site(table, policy)})
            run.describe("died ~ ns(income, df=2)", family="binomial")
            run.total("spread", means=np.zeros(1))
        middle, tries, few = (lower + upper) // 2, tries + 1, False
        try:
            run.total("design", means=np.array([(middle + 0.5) / 100]), sds=np.array([1e7]))
            run = None  # a design that is answered is the last
        except SiteRefused as refusal:
            few = "between two knots" in str(refusal)
        lower, upper = (middle, upper) if few else (lower, middle)
    fifth = float(np.sort(table["income"])[4])
    read = f"the fifth smallest income to the cent, {upper / 100:.2f}, in {tries} designs"
    return row("H4", shown(policy), tries, read, abs(upper / 100 - fifth))


def f1(folder: Path) -> Row:
    """A row that an error quotes: through Flower it reaches the server, and the site's own log does not have it."""
    try:
        from flwr.app import Context, Error, Message, RecordDict
        from flwr.supercore.task_identity import TaskIdentity

        from fedgauss.integrations.flower.sites import fit_nodes, site_app
    except ImportError:
        return row("F1", "default", 0, "not run: Flower is not installed", None)
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    secret, reads = "patient 4711, aged 34, died", []

    def frame_of(context: Context) -> Table:
        reads.append(context.node_id)
        if context.node_id == 3 and len(reads) > 24:  # somebody edits the table of the third node meanwhile
            raise ValueError(f"line 17 is not as the others: {secret}")
        return patients(300, int(context.node_id))

    app = site_app(frame_of, log_of=lambda context: folder / f"{context.node_id}.jsonl")
    contexts = {k: Context(run_id=1, node_id=k, node_config={}, state=RecordDict(), run_config={}) for k in (1, 2, 3)}

    class Grid:
        """Nodes in this process; an exception becomes a reply as where Flower runs a ClientApp."""

        def get_node_ids(self) -> list[int]:
            return list(contexts)

        def send_and_receive(self, messages: list[Message], timeout: float) -> list[Message]:
            replies = []
            for number, message in enumerate(messages):
                message.metadata.__dict__["_message_id"] = str(number)
                try:
                    replies.append(app(message, contexts[message.metadata.dst_node_id]))
                except Exception as error:
                    reason = f"{type(error)}:<'{error}'>"
                    replies.append(Message(Error(code=2, reason=reason), reply_to=message))
            return replies

    fit = fit_nodes(Grid(), "cost", "gaussian", n_sites=3, lost="leave", features=["age", "dose"])  # type: ignore[arg-type]
    at_the_server = any(secret in note for note in fit.notes)
    in_the_log = secret in (folder / "3.jsonl").read_text()
    read = "the row in fit.notes at the server" + ("" if in_the_log else "; the site's log lacks it")
    return row("F1", "default", len(reads), read if at_the_server else "nothing", None, held=not at_the_server)


def one_row_pair() -> Row:
    """Two columns of 0 and 1 that differ in one row."""
    table = patients(300, 13)
    table["sex2"] = table["sex"].copy()
    table["sex2"][5] = 1 - table["sex"][5]
    return attempt("one-row pair", table, "cost ~ age + sex + sex2")


def dominating_value() -> Row:
    """A column of which one value makes up nearly all."""
    table = patients(300, 14)
    table["cost"][5] = 2e4
    return attempt("large value", table, "died ~ age + cost")


def attempt(attack: str, table: Table, formula: str) -> Row:
    """A design that the rules of the first sites knew."""
    run = Coordinator({"site": Site(table)})
    try:
        run.begin(formula, family="gaussian")
    except SiteRefused as refusal:
        return refused(attack, Policy(), run.orders, refusal)
    return row(attack, "default", run.orders, "the row", None)


ATTACKS: dict[str, Callable[[Path], list[Row]]] = {
    "C1": lambda folder: [c1(masked=False), c1(masked=True)],
    "C2": lambda folder: [c2(folder)],
    "C3": lambda folder: [c3()],
    "C4": lambda folder: [c4()],
    "H1": lambda folder: [h1(folder, "dose"), h1(folder, "flag")],
    "H2": lambda folder: [differing(folder, ledger=False)],
    "H3": lambda folder: [h3()],
    "H4": lambda folder: [h4(folder)],
    "F1": lambda folder: [f1(folder)],
    "earlier": lambda folder: [one_row_pair(), dominating_value(), differing(folder, ledger=True)],
}


def refused(attack: str, policy: Policy, orders: int, refusal: SiteRefused) -> Row:
    """A row of an attack that read nothing."""
    return row(attack, shown(policy), orders, f"refused: {str(refusal).split(';')[0]}", None, held=True)


def row(attack: str, policy: str, orders: int, read: str, error: float | None, held: bool = False) -> Row:
    """One row of the table."""
    return {"attack": attack, "policy": policy, "orders": orders, "read": read, "error": error, "held": held}


def shown(policy: Policy) -> str:
    """What of a policy is not as by default."""
    words = [] if policy == Policy(ledger=policy.ledger) else ["masks required, three sites, none lost"]
    words += [name for name in ("ledger", "secret") if getattr(policy, name)]
    return ", ".join(words) or "default"


def main() -> None:
    """Run all attacks, print what they read, and record it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="a file for the record")
    parser.add_argument("--only", nargs="*", default=list(ATTACKS), help="some of the attacks")
    given = parser.parse_args()
    rows = []
    for name in given.only:
        with tempfile.TemporaryDirectory() as folder:
            for found in ATTACKS[name](Path(folder)):
                rows.append(found)
                error = "" if found["error"] is None else f"{found['error']:.1e}"
                print(f"{found['attack']:<14} {found['policy']:<54} {found['orders']:>4} {error:>8}  {found['read']}")
    if given.json:
        record = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {package: version(package) for package in ("numpy", "scipy", "flwr")},
            "commit": "1f4de58",
            "attacks": rows,
        }
        given.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
