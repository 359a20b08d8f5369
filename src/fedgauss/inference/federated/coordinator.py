"""Who asks the sites: `fit` with rows that stay where they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.engine.runs import Runs
from fedgauss.inference.conclude import IntArray, Question, check_hessian, conclude
from fedgauss.inference.design import Design, checked_weights
from fedgauss.inference.federated.messages import Message
from fedgauss.inference.federated.site import SUMS
from fedgauss.inference.fit import Fit, finished
from fedgauss.inference.frames import listed
from fedgauss.inference.obstacles import check_collinear, check_constant, check_rows
from fedgauss.inference.passes import Pass, Schedule, inverse
from fedgauss.inference.row_batches import busy_steps, steps_of_a_pass
from fedgauss.inference.standardise import Location, Units, scalable, starting_point, unscaled
from fedgauss.inference.summaries import summaries
from fedgauss.inference.whitened import schedule, warm_rows
from fedgauss.networks import Network, as_network, ring
from fedgauss.problems.families import OneVersusRest
from fedgauss.problems.families import family as family_named

# An order and what goes with it for each site; their replies in the same order.
Ask = Callable[[str, Sequence[Message]], Sequence[Message]]
Tick = Callable[[str, int, int], None]


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
    """`fit` in one pass by the plug-in, between sites that are reached through `ask`; arguments are as `fit` has them.

    With the sites in the order of their names it gives what `fit` gives on the pooled frame, to the precision of
    float32. Separable classes are noticed where one site's rows overlap; where none do by themselves, a note says so.
    """
    level = _checks.probability("level", level, fix="Use 0.95?")
    tau = _checks.whole("sync_every", sync_every)
    n_sites = len(sites)
    graph = ring(n_sites) if network is None else as_network(network, n_sites)
    talk = _Talk(ask, sites)
    model = {"target": target, "family": family, "features": features, "formula": formula, "intercept": intercept}
    described = talk.all("describe", model)
    counts = np.array([int(reply["rows"]) for reply in described])
    total = int(counts.sum())
    design, totals = _agreed(talk, described, counts, sites, target, family)
    columns, about = _located(talk, design, totals, counts)
    notes = _checked(talk, design, columns, total)
    units = Units(columns, about, design.constant is not None)
    if not standardise:
        units = unscaled(columns, design.constant is not None)
    share = checked_weights(weights, n_sites)
    w = counts / counts.sum() if isinstance(share, str) else _checks.client_weights(share, n_sites)
    n_steps = steps_of_a_pass(total, n_sites)
    if tau > n_steps:
        raise ValueError(f"sync_every must be at most the {n_steps} steps of a pass; got {tau}. Use 10?")
    start = starting_point(design.family, totals.marks, total, len(design.names), units.intercept)
    whole = _run(talk, units, graph, tau, schedule(n_steps, len(start)), w, start, seed, tick)
    check_hessian(whole)
    question = Question(
        "plugin", level, design.all_names, units.readout(max(1, len(design.classes))), correct_drift=correct_drift
    )
    found = conclude(whole, question, graph, tau, busy_steps(counts, n_steps, whole.summaries.count))
    how = {
        "Weights": weights if isinstance(weights, str) else "given",
        "Covariates": "standardised for the run" if standardise else "as they are",
        "Seed": str(seed),
    }
    fitted = finished(found, design, columns, 1, how)
    return Fit(**{**vars(fitted), "notes": (*fitted.notes, *notes)})


class _Talk:
    """Asks sites by name, and turns an error of one into an error here."""

    def __init__(self, ask: Ask, sites: Sequence[str]) -> None:
        self._ask, self._sites = ask, sites

    def all(self, order: str, content: Message) -> list[Message]:
        """The same order to every site."""
        return self.each(order, [content] * len(self._sites))

    def each(self, order: str, contents: Sequence[Message]) -> list[Message]:
        """An order to every site, with a content of its own."""
        replies = list(self._ask(order, contents))
        for site, reply in zip(self._sites, replies, strict=True):
            if "error" in reply:
                raise ValueError(f"site {site!r}: {reply['error']}")
        return replies


class _Totals(NamedTuple):
    """Over all sites."""

    sums: FloatArray  # of the covariates, (p,)
    response: float
    marks: FloatArray  # of classes, or of the response, (C,)


def _agreed(
    talk: _Talk, described: Sequence[Message], counts: IntArray, sites: Sequence[str], target: str, family: str
) -> tuple[Design, _Totals]:
    """The design without its rows: levels of all sites together, and a name for each column."""
    first = described[0]["levels"]
    for site, reply in zip(sites, described, strict=True):
        if reply["levels"].keys() != first.keys():
            apart = sorted(reply["levels"].keys() ^ first.keys())
            raise ValueError(f"sites must have the same columns; {site!r} and {sites[0]!r} differ in {apart}.")
    levels = {name: _joined(name, [reply["levels"][name] for reply in described], sites) for name in first}
    replies = talk.all("design", {"levels": levels, "total": int(counts.sum())})
    names, classes = tuple(replies[0]["names"]), tuple(replies[0]["classes"])
    design = Design(
        np.empty((0, len(names))), names, replies[0]["constant"], np.empty(0), target, classes,
        OneVersusRest(len(classes)) if classes else family_named(family), tuple(sites), counts,
    )  # fmt: skip
    check_rows(sites, counts, len(design.all_names))
    sums, marks = (np.sum([reply[name] for reply in replies], axis=0) for name in ("sums", "marks"))
    return design, _Totals(sums, sum(float(reply["response"]) for reply in replies), marks)


def _joined(name: str, levels: Sequence[list[Any] | None], sites: Sequence[str]) -> list[Any] | None:
    """The levels of all sites, sorted; None for a column of numbers."""
    numbers = [site for site, own in zip(sites, levels, strict=True) if own is None]
    if len(numbers) == len(sites):
        return None
    if numbers:
        raise ValueError(
            f"column {name!r} must be of one kind; it holds numbers at {listed(numbers)} and text or categories "
            "elsewhere. Make it the same everywhere."
        )
    every = {(type(level).__name__, level) for own in levels for level in own or ()}
    return [level for _, level in sorted(every)]


def _located(talk: _Talk, design: Design, totals: _Totals, counts: IntArray) -> tuple[Location, Location | None]:
    """Means and scales of the covariates, and of the response where it is scaled."""
    total, centred = int(counts.sum()), design.constant is not None
    means = totals.sums / total if centred else np.zeros(len(design.names))
    response = totals.response / total if centred else 0.0
    replies = talk.all("squares", {"means": means, "response": response})
    scales = np.sqrt(np.sum([reply["squares"] for reply in replies], axis=0) / total)
    spread = math.sqrt(sum(float(reply["response"]) for reply in replies) / total)
    if spread == 0.0:
        raise ValueError(f"the target {design.target!r} is constant ({response:g}): there is nothing to explain.")
    about = Location(np.array([response]), np.array([spread])) if scalable(design.family) else None
    return Location(means, scales), about


def _checked(talk: _Talk, design: Design, columns: Location, total: int) -> tuple[str, ...]:
    """Refuse what cannot be fitted; notes about what could not be ruled out."""
    intercept = design.constant is not None
    check_constant(design.names, columns)
    replies = talk.all("shape", {"means": columns.mean, "scales": columns.scale, "intercept": intercept})
    check_collinear(design.names, [reply["triangle"] for reply in replies], total, intercept)
    unsure = [what for what in replies[0]["overlaps"] if not any(reply["overlaps"][what] for reply in replies)]
    if not unsure:
        return ()
    return (
        f"No site by itself shows that {listed(unsure)} is not linearly separable: if coefficients look large, they "
        "may have no finite estimate.",
    )


def _run(
    talk: _Talk, units: Units, graph: Network, tau: int, plan: Schedule, w: FloatArray, start: FloatArray, seed: int,
    tick: Tick,
) -> Pass:  # fmt: skip
    """Warm-up, burn-in and window; parameters mix after every tau steps."""
    dim, n_sites, n_steps = len(start), len(w), len(plan.eta)
    rows = warm_rows(dim, n_sites)
    common = {
        "means": units.columns.mean, "scales": units.columns.scale, "intercept": units.intercept,
        "about": None if units.response is None else np.concatenate(units.response),
        "eta": plan.eta, "n_steps": n_steps, "burn_in": plan.burn_in, "sync_every": tau, "seed": seed, "start": start,
        "warm": rows,
    }  # fmt: skip
    plans = [{**common, "number": k, "share": n_sites * w[k]} for k in range(n_sites)]
    first = _inverse(w, [reply["hessian"] for reply in talk.each("begin", plans)])
    second, begun_hessian = first, np.empty((dim, dim))
    contents: list[Message] = [{"matrix": first, "guard": "damped"} for _ in range(n_sites)]
    for until in sorted({*range(tau, n_steps + 1, tau), plan.burn_in, n_steps}):
        tick("steps", until, n_steps)
        replies = talk.each("advance", [{"until": until, **content} for content in contents])
        contents = [{} for _ in range(n_sites)]
        if until % tau == 0:
            mixed = graph.matrix.T @ np.stack([reply["theta"] for reply in replies])
            contents = [{"theta": own} for own in mixed]
        if until == plan.burn_in:
            told = talk.all("report", {})
            begun_hessian = np.einsum("k,kij->ij", w, [reply["hessian_sum"] / reply["count"] for reply in told])
            second = inverse(begun_hessian[None])[0]
            contents = [{**content, "matrix": second, "guard": "capped"} for content in contents]
    told = talk.all("report", {})
    sums = {name: np.stack([reply[name] for reply in told])[None] for name in SUMS}
    average = np.mean([reply["average"] for reply in told], axis=0)
    runs = Runs(average[None], average[None], n_steps, n_sites, seed, {})  # the last iterate is nobody's business
    known = summaries({"summed": np.array([told[0]["count"]]), **sums})
    return Pass(runs, known, first[None], second[None], begun_hessian[None], plan, w, start)


def _inverse(w: FloatArray, hessians: Sequence[FloatArray]) -> FloatArray:
    return inverse(np.einsum("k,kij->ij", w, hessians)[None])[0]
