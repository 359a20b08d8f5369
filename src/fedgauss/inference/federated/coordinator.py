"""The coordinator of a federated fit: `fit` with rows that stay where they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fedgauss import _checks, families
from fedgauss._types import FloatArray
from fedgauss.inference.errors import Errors
from fedgauss.inference.federated.conversation import Ask, Conversation, Tick
from fedgauss.inference.federated.journal import Journal
from fedgauss.inference.federated.lines import printable
from fedgauss.inference.federated.scoring_coordinator import fit_remotely
from fedgauss.inference.fit_result import Fit
from fedgauss.inference.formula.design import summaries
from fedgauss.inference.frame_design import frame_design
from fedgauss.inference.model import Model
from fedgauss.inference.model_data import ModelData, beside_columns, design_of, model_data
from fedgauss.inference.model_terms import right_hand_side
from fedgauss.inference.preparation import Location, check_constant, starting_point
from fedgauss.inference.response import response_of, usual_family
from fedgauss.inference.tables import Frame, FrameColumn, listed

if TYPE_CHECKING:
    pass

Levels = Mapping[str, Sequence[Any] | None]  # None for a column of numbers


def fit_sites(
    ask: Ask,
    sites: Sequence[str],
    target: str,
    family: str | None = None,
    features: Sequence[str] | None = None,
    formula: str | None = None,
    *,
    intercept: bool = True,
    errors: Errors = "HC0",
    link: str | None = None,
    trials: str | None = None,
    event: str | None = None,
    offset: str | None = None,
    exposure: str | None = None,
    row_weights: str | None = None,
    cluster: str | None = None,
    site_effects: bool = False,
    missing: Literal["refuse", "drop"] = "refuse",
    strata: str | None = None,
    pool_rare: int = 0,
    merged: Mapping[str, Mapping[str, str]] | None = None,
    ridge: float = 0.0,
    level: float = 0.95,
    masked: bool = False,
    lost: Literal["stop", "leave"] = "stop",
    journal: Journal | None = None,
    tick: Tick = lambda what, done, total: None,
) -> Fit:
    """`fit` between sites that keep their rows.

    It is `fit` on the pooled frame to rounding.

    Parameters
    ----------
    ask : callable
        ask(order, contents) sends an order to every site, with a content for each, and returns their replies.
    sites : sequence of str
        Names of the sites, in the order in which `ask` reaches them.
    target, family, features, formula, intercept, errors, link, trials, event, offset, exposure, row_weights
        As for `fit`. The family is given by name, and each site finds it in the registry of its own process.
    cluster, site_effects, missing, ridge, level
        As for `fit`.
    masked : bool
        Whether sites add masks that cancel in the total, so that nobody sees the sums of one site (`masks`).
    lost : {"stop", "leave"}
        What to do when a site does not answer any more: stop, or go on without its rows, and say so.
    journal : Journal, optional
        Where rounds are kept, so that an exact fit that was stopped goes on.
    tick : callable, optional
        tick(what, done, total) is called as the run advances.

    Returns
    -------
    Fit

    Examples
    --------
    >>> with SiteProcesses({"a": "fedgauss site a.csv", "b": "ssh b fedgauss site b.csv"}) as sites:
    ...     fit = fit_sites(sites.ask, sites.names, "died", "binomial")
    """
    level = _checks.level(level)
    _checks.one_of("lost", lost, ["stop", "leave"])
    if isinstance(family, families.Family):
        raise ValueError(
            f"family must be a name here: sites are other processes. Register {type(family).__name__} at every site "
            "(families.register), and give its name."
        )
    spec = Model(
        target, family=usual_family(family, trials, event), features=features, formula=formula, intercept=intercept,
        offset=offset, exposure=exposure, row_weights=row_weights, cluster=cluster, trials=trials, event=event,
        site_effects=site_effects, missing=missing, link=link,
    )  # fmt: skip
    if spec.family is not None:
        families.chosen(spec.family, link)
    talk = Conversation(ask, sites, masked, journal)
    data, totals = _agreed(talk, spec)
    columns, _ = _located(talk, data, totals)
    check_constant(data.names, columns)
    start = starting_point(data, totals.start_terms)
    found = fit_remotely(talk, spec, data, columns, start, errors, level, ridge, lost, tick).with_notes(*_masks(masked))
    return replace(found, design=frame_design(data, spec), family=data.family)


def _masks(masked: bool) -> tuple[str, ...]:
    return ("Sums were masked: the coordinator saw totals over sites, and no site's own.",) if masked else ()


class _Totals(NamedTuple):
    """Over all sites."""

    sums: FloatArray  # of the covariates, (p,)
    response: float
    start_terms: FloatArray  # of the family, (C,)


def _agreed(talk: Conversation, spec: Model) -> tuple[ModelData, _Totals]:
    """The model without its rows: columns and levels of all sites together, and a name for each parameter."""
    sites = talk.sites
    asked = {**spec.wire(), "sites": list(sites)}
    described = talk.each("describe", [asked | {"name": site} for site in sites])
    counts, dropped = (np.array([int(reply[name]) for reply in described]) for name in ("rows", "dropped"))
    total = int(counts.sum())
    levels = agreed_levels([reply["levels"] for reply in described], sites)
    columns = {
        name: FrameColumn(name, np.empty(0), None if of_all is None else tuple(of_all))
        for name, of_all in levels.items()
    }
    for name in spec.roles.values():
        columns.setdefault(name, FrameColumn(name, np.empty(0)))
    spec = replace(spec, family=spec.family or "gaussian")  # sites have refused targets that are no numbers
    response = response_of(columns[spec.target], spec.family, *beside_columns(spec, columns), link=spec.link)
    right = right_hand_side(Frame(columns), spec)  # columns that nobody named come in the order of `columns`
    design, _ = design_of(spec, right, columns, total, sites, None, counts)
    needs = design.needs()
    talk.sizes = {site: {"m": len(needs)} for site in sites}
    sums = talk.total("levels", {"levels": levels, "total": total})["needed"]
    means = sums / total
    squares = talk.total("spread", {"means": means})["needed"] if needs else sums
    means_of = summaries(needs, total, means, squares)
    for name, found in means_of.items():
        if found.sd == 0.0:
            raise ValueError(f"columns must vary; {name!r} is constant ({found.mean:g}). Leave it out.")
    data = model_data(spec, right, columns, response, sites, counts, total, agreed=means_of, dropped=dropped)
    talk.sizes = {site: data.sizes(rows) | {"m": len(needs)} for site, rows in zip(sites, counts.tolist(), strict=True)}
    told = talk.total("design", {"means": means, "sds": np.array([found.sd for found in means_of.values()])})
    if tuple(told["names"]) != data.all_names:
        raise ValueError("sites must name parameters as the coordinator does; they do not. Same fedgauss everywhere?")
    totals = _Totals(told["sums"], float(told["response"]), told["marks"])
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
    told = talk.total("squares", {"means": means, "response": response})
    scales, spread = np.sqrt(told["squares"] / total), math.sqrt(float(told["response"]) / total)
    if spread == 0.0:
        raise ValueError(f"the target {data.target!r} is constant ({response:g}): there is nothing to explain.")
    about = Location(np.array([response]), np.array([spread])) if data.family.additive else None
    return Location(means, scales), about
