"""Who asks the sites: `fit` with rows that stay where they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.engine.runs import Runs
from fedgauss.inference.conclude import IntArray, Question, check_hessian, conclude
from fedgauss.inference.design import Design, checked_weights
from fedgauss.inference.federated.agreement import agreed_levels, parameters, shown
from fedgauss.inference.federated.fields import REPLIES
from fedgauss.inference.federated.messages import Message
from fedgauss.inference.federated.stops import stops_of, warm_steps
from fedgauss.inference.federated.talk import Ask, Talk
from fedgauss.inference.fit import Fit, finished
from fedgauss.inference.frames import listed
from fedgauss.inference.obstacles import check_collinear, check_constant, check_rows, sides_of
from fedgauss.inference.passes import Pass, inverse
from fedgauss.inference.row_batches import busy_steps, steps_of_a_pass
from fedgauss.inference.standardise import Location, Units, scalable, starting_point, unscaled
from fedgauss.inference.summaries import summaries
from fedgauss.inference.whitened import schedule
from fedgauss.networks import Network, as_network, ring
from fedgauss.problems.families import family as family_named

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

    With the sites in the order of their names it gives the estimates and standard errors that `fit` gives on the pooled
    frame, to the precision of float32, but where the warm-up must be another (`stops`); bias and the test of clients
    are nearly the same. Separable classes are noticed where one site's rows overlap; where none do by themselves,
    a note says so. There is one pass: in a second one the same rows would be in other sums, and whoever knows the order
    in which they are read could solve for single ones.
    """
    level = _checks.probability("level", level, fix="Use 0.95?")
    tau, seed = _checks.whole("sync_every", sync_every), _checks.whole("seed", seed, at_least=0)
    if family != "one_versus_rest":
        family_named(family)
    n_sites = len(sites)
    graph = ring(n_sites) if network is None else as_network(network, n_sites)
    talk = Talk(ask, sites)
    named = features if features is None or isinstance(features, str) else list(features)
    model = {"target": target, "family": family, "features": named, "formula": formula, "intercept": intercept}
    design, totals = _agreed(talk, model, sites)
    counts, total = design.counts, int(design.counts.sum())
    columns, about = _located(talk, design, totals)
    notes = _checked(talk, design, columns)
    units = Units(columns, about, design.constant is not None)
    if not standardise:
        units = unscaled(columns, design.constant is not None)
    share = checked_weights(weights, n_sites)
    w = counts / counts.sum() if isinstance(share, str) else _checks.client_weights(share, n_sites)
    n_steps = steps_of_a_pass(total, n_sites)
    if tau > n_steps:
        raise ValueError(f"sync_every must be at most the {n_steps} steps of a pass; got {tau}. Use 10?")
    start = starting_point(design.family, totals.marks, total, len(design.names), units.intercept)
    whole = _run(talk, units, graph, tau, counts, w, start, seed, tick)
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


class _Totals(NamedTuple):
    """Over all sites."""

    sums: FloatArray  # of the covariates, (p,)
    response: float
    marks: FloatArray  # of classes, or of the response, (C,)


def _agreed(talk: Talk, model: Message, sites: Sequence[str]) -> tuple[Design, _Totals]:
    """The design without its rows: columns and levels of all sites together, and a name for each parameter."""
    described = talk.all("describe", model)
    counts = np.array([int(reply["rows"]) for reply in described])
    levels = agreed_levels([reply["levels"] for reply in described], sites)
    names, constant, family, classes = parameters(model, levels, int(counts.sum()))
    design = Design(
        np.empty((0, len(names))), names, constant, np.empty(0), model["target"], classes, family, tuple(sites), counts
    )
    check_rows(sites, counts, len(design.all_names))
    pairs = sides_of(family, design.target, classes, design.response)
    for sizes, rows in zip(talk.sizes, counts.tolist(), strict=True):
        sizes |= {"p": len(names), "C": max(1, len(classes)), "d": len(design.all_names), "s": len(pairs)}
        sizes["t"] = min(rows, len(names))
    replies = talk.all("design", {"levels": levels, "total": int(counts.sum())})
    for site, reply in zip(sites, replies, strict=True):
        if tuple(reply["names"]) != design.all_names:
            raise ValueError(f"sites must name parameters alike; {site!r} does not. Does it run the same fedgauss?")
    sums, marks = (np.sum([reply[name] for reply in replies], axis=0) for name in ("sums", "marks"))
    totals = _Totals(sums, sum(float(reply["response"]) for reply in replies), marks)
    return replace(design, names=tuple(map(shown, names)), classes=tuple(map(shown, classes))), totals


def _located(talk: Talk, design: Design, totals: _Totals) -> tuple[Location, Location | None]:
    """Means and scales of the covariates, and of the response where it is scaled."""
    total, centred = int(design.counts.sum()), design.constant is not None
    means = totals.sums / total if centred else np.zeros(len(design.names))
    response = totals.response / total if centred else 0.0
    replies = talk.all("squares", {"means": means, "response": response})
    scales = np.sqrt(np.sum([reply["squares"] for reply in replies], axis=0) / total)
    spread = math.sqrt(sum(float(reply["response"]) for reply in replies) / total)
    if spread == 0.0:
        raise ValueError(f"the target {design.target!r} is constant ({response:g}): there is nothing to explain.")
    about = Location(np.array([response]), np.array([spread])) if scalable(design.family) else None
    return Location(means, scales), about


def _checked(talk: Talk, design: Design, columns: Location) -> tuple[str, ...]:
    """Refuse what cannot be fitted; notes about what could not be ruled out."""
    check_constant(design.names, columns)
    replies = talk.all("shape", {"means": columns.mean, "scales": columns.scale})
    triangles = [reply["triangle"] for reply in replies]
    check_collinear(design.names, triangles, int(design.counts.sum()), design.constant is not None)
    pairs = sides_of(design.family, design.target, design.classes, design.response)
    unsure = [what for i, what in enumerate(pairs) if not any(reply["overlaps"][i] for reply in replies)]
    if not unsure:
        return ()
    return (
        f"No site by itself shows that {listed(unsure)} is not linearly separable: if coefficients look large, they "
        "may have no finite estimate.",
    )


def _run(
    talk: Talk, units: Units, graph: Network, tau: int, counts: IntArray, w: FloatArray, start: FloatArray, seed: int,
    tick: Tick,
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
            contents = [{"theta": own} for own in mixed]
        if until == plan.burn_in:
            told = talk.all("report", {}, REPLIES["first report"])
            hessian = np.einsum("k,kij->ij", w, [reply["hessian_sum"] / until for reply in told])
            second = inverse(hessian[None])[0]
            contents = [{**content, "matrix": second} for content in contents]
    told = talk.all("report", {})
    sums = {name: np.stack([reply[name] for reply in told])[None] for name in REPLIES["report"]}
    average = sums["average"].mean(axis=1)
    runs = Runs(average, average, n_steps, n_sites, seed, {})  # the last iterate is nobody's business
    # No site tells where its steps began: beside where they ended, the average, it would give away its parameters after
    # the burn-in, which may be a row after a mixing. They are taken to have gone evenly from one mixing to the next.
    places = sums["average"] * plan.window - moved
    known = summaries({**sums, "summed": np.array([plan.window]), "place_sum": places})
    return Pass(runs, known, first[None], second[None], hessian[None], plan, w, start)
