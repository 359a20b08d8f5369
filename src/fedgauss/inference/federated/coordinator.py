"""The coordinator of a federated fit: `fit` with rows that stay where they are."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from fedgauss import _checks, families
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.engine.simulate import Runs
from fedgauss.inference.client_steps import busy_steps, client_statistics, steps_of_a_pass
from fedgauss.inference.federated.disclosure import stops_of, warm_steps
from fedgauss.inference.federated.fields import REPLIES, Fields, check_fields
from fedgauss.inference.federated.lines import Message, printable
from fedgauss.inference.fit import as_fit
from fedgauss.inference.fit_result import Fit
from fedgauss.inference.infer import IntArray, Request, check_hessian, estimate_from_pass
from fedgauss.inference.model_data import ModelData, ModelSpec, model_data, response_of, right_hand_side
from fedgauss.inference.passes import Pass, inverse, schedule
from fedgauss.inference.preparation import (
    Location,
    Units,
    check_collinear,
    check_constant,
    check_rows,
    starting_point,
)
from fedgauss.inference.tables import Frame, FrameColumn, listed
from fedgauss.networks import Network, as_network, ring
from fedgauss.problems.arrays import checked_weights

# An order and what goes with it for each site; their replies in the same order.
Ask = Callable[[str, Sequence[Message]], Sequence[Message]]
_LONGEST = 1000  # characters of an error
Tick = Callable[[str, int, int], None]
Levels = Mapping[str, Sequence[Any] | None]  # None for a column of numbers


def fit_sites(
    ask: Ask,
    sites: Sequence[str],
    target: str,
    family: str = "linear",
    features: Sequence[str] | None = None,
    formula: str | None = None,
    *,
    intercept: bool = True,
    sync_every: int = 10,
    network: Network | ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
    weights: ArrayLike | Literal["rows", "equal"] = "rows",
    standardise: bool = True,
    correct_drift: bool = False,
    tick: Tick = lambda what, done, total: None,
) -> Fit:
    """`fit` in one pass by the plug-in, between sites that keep their rows.

    With the sites in the order of their names it gives the estimates and standard errors that `fit` gives on the pooled
    frame, to the precision of float32, except where the warm-up must be another (`disclosure`); bias and heterogeneity
    test are nearly the same. Separable classes are noticed where one site's rows overlap; where none do by themselves,
    a note says so. There is only one pass: in a second one the same rows would enter other sums, and whoever knows the
    order in which they are read could solve for single ones.

    Parameters
    ----------
    ask : callable
        ask(order, contents) sends an order to every site, with a content for each, and returns their replies.
    sites : sequence of str
        Names of the sites, in the order in which `ask` reaches them.
    target, family, features, formula, intercept, sync_every, network, level, seed, weights, standardise, correct_drift
        As for `fit`. The family is given by name, and each site finds it in the registry of its own process.
    tick : callable, optional
        tick(what, done, total) is called as the run advances.

    Returns
    -------
    Fit

    Examples
    --------
    >>> with SiteProcesses({"a": "fedgauss site a.csv", "b": "ssh b fedgauss site b.csv"}) as sites:
    ...     fit = fit_sites(sites.ask, sites.names, "died", "logistic")
    """
    level = _checks.level(level)
    tau, seed = _checks.whole("sync_every", sync_every), _checks.seed(seed)
    if isinstance(family, families.Family):
        raise ValueError(
            f"family must be a name here: sites are other processes. Register {type(family).__name__} at every site "
            "(families.register), and give its name."
        )
    families.family(family)
    n_sites = len(sites)
    graph = ring(n_sites) if network is None else as_network(network, n_sites)
    talk = Conversation(ask, sites)
    named = features if features is None or isinstance(features, str) else list(features)
    data, totals = _agreed(talk, ModelSpec(target, family, named, formula, intercept), sites)
    counts, total = data.counts, int(data.counts.sum())
    columns, about = _located(talk, data, totals)
    notes = _checked(talk, data, columns)
    units = Units(columns, about, data.constant is not None)
    if not standardise:
        units = units.unscaled()
    share = checked_weights(weights, n_sites)
    w = counts / counts.sum() if isinstance(share, str) else _checks.client_weights(share, n_sites)
    n_steps = steps_of_a_pass(total, n_sites)
    if tau > n_steps:
        raise ValueError(f"sync_every must be at most the {n_steps} steps of a pass; got {tau}. Use 10?")
    one_pass = _run(talk, units, graph, tau, counts, w, starting_point(data, totals.start_terms), seed, tick)
    check_hessian(one_pass)
    readout = units.readout(data.family.n_outputs)
    request = Request("plugin", level, data.all_names, readout, correct_drift=correct_drift)
    busy = busy_steps(counts, n_steps, one_pass.clients.count)
    estimate = estimate_from_pass(one_pass, request, graph, tau, busy).with_notes(*notes)
    return as_fit(estimate, data, columns.scale, 1, weights, standardise, seed)


class Conversation:
    """Orders to all sites and their checked replies. `sizes` has each site's sizes by letter, as `fields` uses them."""

    def __init__(self, ask: Ask, sites: Sequence[str]) -> None:
        self._ask, self._sites = ask, sites
        self.sizes: list[dict[str, int]] = [{} for _ in sites]

    def all(self, order: str, content: Message, fields: Fields | None = None) -> list[Message]:
        """The same order to every site."""
        return self.each(order, [content] * len(self._sites), fields)

    def each(self, order: str, contents: Sequence[Message], fields: Fields | None = None) -> list[Message]:
        """An order to every site, with a content of its own; replies must have `fields`, by default the order's."""
        replies = list(self._ask(order, contents))
        for site, reply, sizes in zip(self._sites, replies, self.sizes, strict=True):
            if "error" in reply:
                raise ValueError(f"site {site!r}: {printable(str(reply['error']))[:_LONGEST]}")
            try:
                check_fields(REPLIES[order] if fields is None else fields, reply, sizes)
            except ValueError as error:
                raise ValueError(f"site {site!r} sent a wrong reply to {order!r}: {error}") from error
        return replies


class _Totals(NamedTuple):
    """Over all sites."""

    sums: FloatArray  # of the covariates, (p,)
    response: float
    start_terms: FloatArray  # of the family, (C,)


def _agreed(talk: Conversation, spec: ModelSpec, sites: Sequence[str]) -> tuple[ModelData, _Totals]:
    """The model without its rows: columns and levels of all sites together, and a name for each parameter."""
    described = talk.all("describe", spec._asdict())
    counts = np.array([int(reply["rows"]) for reply in described])
    total = int(counts.sum())
    levels = agreed_levels([reply["levels"] for reply in described], sites)
    columns = {
        name: FrameColumn(name, np.empty(0), None if of_all is None else tuple(of_all))
        for name, of_all in levels.items()
    }
    response = response_of(columns[spec.target], spec.family)
    right = right_hand_side(Frame(columns), spec)  # columns that nobody named come in the order of `columns`
    data = model_data(spec, right, columns, response, sites, counts, total)
    check_rows(sites, counts, len(data.all_names))
    talk.sizes = [data.sizes(rows) for rows in counts.tolist()]
    replies = talk.all("design", {"levels": levels, "total": total})
    for site, reply in zip(sites, replies, strict=True):
        if tuple(reply["names"]) != data.all_names:
            raise ValueError(f"sites must name parameters alike; {site!r} does not. Does it run the same fedgauss?")
    sums, terms = (np.sum([reply[name] for reply in replies], axis=0) for name in ("sums", "marks"))
    totals = _Totals(sums, sum(float(reply["response"]) for reply in replies), terms)
    return replace(data, names=tuple(map(_shown, data.names)), classes=tuple(map(_shown, data.classes))), totals


def agreed_levels(told: Sequence[Levels], sites: Sequence[str]) -> dict[str, list[Any] | None]:
    """The levels of all sites together, columns in the order of the first site."""
    first = told[0]
    for site, levels in zip(sites, told, strict=True):
        if levels.keys() != first.keys():
            apart = sorted(levels.keys() ^ first.keys())
            raise ValueError(f"sites must have the same columns; {site!r} and {sites[0]!r} differ in {listed(apart)}.")
    return {name: _joined(name, [levels[name] for levels in told], sites) for name in first}


def _joined(name: str, told: Sequence[Sequence[Any] | None], sites: Sequence[str]) -> list[Any] | None:
    """The levels of all sites: in the one order that keeps that of every site, if there is one; else sorted."""
    where: dict[str, list[str]] = {}
    for site, levels in zip(sites, told, strict=True):
        where.setdefault(_kind(levels), []).append(site)
    if len(where) > 1:
        kinds = ", ".join(f"{kind} at {listed(at)}" for kind, at in where.items())
        raise ValueError(f"column {name!r} must be of one kind; it holds {kinds}. Make it the same everywhere.")
    lists = [levels for levels in told if levels is not None]
    if not lists:
        return None
    joined = _only_order(lists) or sorted({level for levels in lists for level in levels})
    if _kind(joined) != "categories of numbers":
        return joined
    integers = all(level == int(level) for level in joined)
    return [int(level) if integers else float(level) for level in joined]


def _kind(levels: Sequence[Any] | None) -> str:
    if levels is None:
        return "numbers"
    kinds = {str: "text", bool: "true and false", int: "categories of numbers", float: "categories of numbers"}
    return kinds[type(levels[0])]


def _only_order(lists: Sequence[Sequence[Any]]) -> list[Any]:
    """The only order of all levels that keeps the order of each list; empty if there is none, or more than one."""
    pairs = {pair for levels in lists for pair in pairwise(levels)}
    order: TopologicalSorter[Any] = TopologicalSorter({level: () for levels in lists for level in levels})
    for before, after in pairs:
        order.add(after, before)
    try:
        in_order = list(order.static_order())
    except CycleError:
        return []
    return in_order if pairs.issuperset(pairwise(in_order)) else []


def _shown(label: Any) -> Any:
    """A class as it may be printed."""
    return printable(label) if isinstance(label, str) else label


def _located(talk: Conversation, data: ModelData, totals: _Totals) -> tuple[Location, Location | None]:
    """Means and scales of the covariates, and of the response where it is scaled."""
    total, centred = int(data.counts.sum()), data.constant is not None
    means = totals.sums / total if centred else np.zeros(len(data.names))
    response = totals.response / total if centred else 0.0
    replies = talk.all("squares", {"means": means, "response": response})
    scales = np.sqrt(np.sum([reply["squares"] for reply in replies], axis=0) / total)
    spread = math.sqrt(sum(float(reply["response"]) for reply in replies) / total)
    if spread == 0.0:
        raise ValueError(f"the target {data.target!r} is constant ({response:g}): there is nothing to explain.")
    about = Location(np.array([response]), np.array([spread])) if data.family.additive else None
    return Location(means, scales), about


def _checked(talk: Conversation, data: ModelData, columns: Location) -> tuple[str, ...]:
    """Refuse what cannot be fitted; notes about what could not be ruled out."""
    check_constant(data.names, columns)
    replies = talk.all("shape", {"means": columns.mean, "scales": columns.scale})
    triangles = [reply["triangle"] for reply in replies]
    check_collinear(data.names, triangles, int(data.counts.sum()), data.constant is not None)
    unsure = [what for i, what in enumerate(data.sides) if not any(reply["overlaps"][i] for reply in replies)]
    if not unsure:
        return ()
    return (
        f"No site by itself shows that {listed(unsure)} is not linearly separable: if coefficients look large, they "
        "may have no finite estimate.",
    )


def _run(
    talk: Conversation, units: Units, graph: Network, tau: int, counts: IntArray, w: FloatArray, start: FloatArray,
    seed: int, tick: Tick,
) -> Pass:  # fmt: skip
    """Warm-up, burn-in and window; parameters mix after every tau steps."""
    n_sites, n_steps = len(w), steps_of_a_pass(int(counts.sum()), len(w))
    plan = schedule(n_steps, len(start))
    common = {
        "means": units.columns.mean, "scales": units.columns.scale,
        "about": None if units.response is None else np.concatenate(units.response),
        "n_steps": n_steps, "sync_every": tau, "seed": seed, "start": start,
        "warm": warm_steps(plan, counts.tolist(), len(start)),
    }  # fmt: skip
    plans = [{**common, "number": k, "share": float(n_sites * w[k])} for k in range(n_sites)]
    hessian = np.einsum("k,kij->ij", w, [reply["hessian"] for reply in talk.each("begin", plans)])
    first = second = inverse(hessian[None])[0]
    contents: list[Message] = [{"matrix": first} for _ in range(n_sites)]
    mixed, moved, since = np.tile(start, (n_sites, 1)), np.zeros((n_sites, len(start))), 0
    for until in stops_of(plan, tau):
        tick("steps", until, n_steps)
        mixes = until % tau == 0
        orders = [{"until": until, **content} for content in contents]
        replies = talk.each("advance", orders, REPLIES["advance"] if mixes else {})
        contents = [{} for _ in range(n_sites)]
        if mixes:
            theta = np.stack([reply["theta"] for reply in replies])
            moved += (theta - mixed) * max(0, until - max(since, plan.burn_in)) / (until - since)
            mixed, since = graph.matrix.T @ theta, until
            contents = [{"theta": theta_k} for theta_k in mixed]
        if until == plan.burn_in:
            told = talk.all("report", {}, REPLIES["first report"])
            hessian = np.einsum("k,kij->ij", w, [reply["hessian_sum"] / until for reply in told])
            second = inverse(hessian[None])[0]
            contents = [{**content, "matrix": second} for content in contents]
    told = talk.all("report", {})
    sums = {name: np.stack([reply[name] for reply in told])[None] for name in REPLIES["report"]}
    average = sums["average"].mean(axis=1)
    runs = Runs(average, average, n_steps, n_sites, seed, {})  # sites do not share their last iterate
    # No site reports where its steps began: together with their average it would give away its parameters after the
    # burn-in, which may be one row after a mixing. They are taken to have moved evenly from one mixing to the next.
    places = sums["average"] * plan.window - moved
    clients = client_statistics({**sums, "summed": np.array([plan.window]), "place_sum": places})
    return Pass(runs, clients, first[None], second[None], hessian[None], plan, w, start)
