"""The program of a run: what is asked of sites from the first question to the fit. All parties run the same one.

Sites describe their columns, count how often levels occur, add up what the formula needs means of, and then the columns
themselves. From there on it is the exact fit, as in one process. Under privacy nothing is added up but rows and noisy
totals (`private_fit`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from fedgauss._types import FloatArray, IntArray
from fedgauss.federated.fixed_point import Shapes
from fedgauss.federated.levels import KINDS
from fedgauss.federated.plan import Heard, Plan, Question, total_of
from fedgauss.federated.privacy import Range, check_range
from fedgauss.federated.private_families import private_name
from fedgauss.federated.private_fit import Ranges, private_program, range_of
from fedgauss.federated.refusal import Blamed
from fedgauss.federated.wire import Message, printable
from fedgauss.inference.asks import shapes
from fedgauss.inference.fit_exact import fit_program
from fedgauss.inference.fit_result import Fit, frame_design
from fedgauss.inference.formula.design import summaries
from fedgauss.inference.model import Model
from fedgauss.inference.model_data import (
    OTHER,
    ModelData,
    beside_columns,
    design_of,
    model_data,
    rare_levels,
    response_of,
    right_hand_side,
    usual_family,
)
from fedgauss.inference.preparation import Location, Units, check_constant, starting_point
from fedgauss.inference.tables import Frame, FrameColumn, listed

_MOST_ROWS = 10**9
_MOST_LEVELS = 10_000
_MASKED = "Sums were masked: the coordinator saw totals over sites, and no site's own."
Levels = dict[str, list[Any] | None]


@dataclass(frozen=True)
class Counted:
    """How many rows there are, which levels their columns have, and what became of rare ones.

    Attributes
    ----------
    levels : dict
        The levels that are left, of each column in words; None for a column of numbers.
    renamed : dict
        What rare levels became.
    n_rows : int
        Of all sites.
    """

    levels: Levels
    renamed: dict[str, dict[str, str]]
    n_rows: int


def run_program(plan: Plan, level: float = 0.95) -> Generator[Question, Heard, Fit]:
    """The questions of a run, and at its end the fit."""
    model = plan.model.of_family(usual_family(plan.model.family, plan.model.trials, plan.model.event))
    described = (yield Question("describe", {}, {})).words
    for site, words in described.items():
        _check_description(site, words, plan.privacy is not None)
    _check_tables({site: words["tags"] for site, words in described.items()})
    counted, counts, dropped = yield from _count(plan, model, {site: described[site]["levels"] for site in plan.sites})
    model = (
        model if model.family else replace(model, family="gaussian")
    )  # sites have refused targets that are no numbers
    if plan.privacy is not None:
        policies = [words["ranges"] for words in described.values()]
        return (yield from _private(plan, model, counted, counts, policies, level))
    data, totals = yield from _design(plan, model, counted, counts, dropped)
    columns, response = yield from _locate(data, totals, counted.n_rows)
    check_constant(data.names, columns)
    start = starting_point(data, totals["marks"])
    if plan.sgd is None:
        found = yield from _scoring(plan, data, columns, start, level)
    else:
        from fedgauss.federated.sgd_program import sgd_program  # which needs JAX

        units = Units(columns, response if data.family.additive else None, data.constant is not None)
        found = yield from sgd_program(plan, data, units, start, counted.n_rows, level)
    if plan.masked:
        facts = {name: fact for name, fact in found.facts.items() if name != "Rows per client"}
        found = replace(found, facts=facts).with_notes(_MASKED)
    return found


def _count(
    plan: Plan, model: Model, described: Mapping[str, Any]
) -> Generator[Question, Heard, tuple[Counted, IntArray, IntArray]]:
    """Rows, and how often levels occur over all sites that may be too rare; those are pooled."""
    named = agree(described)
    poolable = {name: levels for name, levels in named.items() if levels and is_poolable(model, name, levels)}
    wanted: Shapes = {"rows": (), "dropped": (), **{name: (len(levels) + 1,) for name, levels in poolable.items()}}
    heard = yield Question("count", {"levels": poolable}, wanted)
    totals = {name: _whole(row) for name, row in total_of(heard).items()}
    levels_left, renamed = dict(named), {}
    for name, levels in poolable.items():
        *by_level, others = totals[name].tolist()
        rows = dict(zip(levels, by_level, strict=True))
        renamed[name] = rare_levels(rows, model.pool_rare)
        others += sum(rows.pop(level) for level in renamed[name]) + rows.pop(OTHER, 0)
        levels_left[name] = [*rows, OTHER] if others else list(rows)
    counted = Counted(levels_left, renamed, int(totals["rows"]))
    if plan.masked:  # how many each site has is not known; that they add up is
        first = np.arange(len(plan.sites)) == 0
        counts = counted.n_rows // len(plan.sites) + (counted.n_rows % len(plan.sites)) * first
        return counted, counts, totals["dropped"] * first
    counts, dropped = (np.array([_whole(one[name]) for one in heard.each]) for name in ("rows", "dropped"))
    return counted, counts, dropped


def is_poolable(model: Model, name: str, levels: Sequence[Any] | None) -> bool:
    """Whether rare levels of a column are pooled."""
    return bool(model.pool_rare and name != model.target and levels and isinstance(levels[0], str))


def agree(told: Mapping[str, Sequence[Any]]) -> dict[str, list[Any] | None]:
    """The levels that all sites together name, columns in the order of the first site."""
    by_site = {site: dict(pairs) for site, pairs in told.items()}
    first_site, first = next(iter(by_site.items()))
    for site, columns in by_site.items():
        if columns.keys() != first.keys():
            apart = sorted(columns.keys() ^ first.keys())
            raise ValueError(
                f"sites must have the same columns; {site!r} and {first_site!r} differ in {listed(apart)}."
            )
    return {name: _joined(name, {site: columns[name] for site, columns in by_site.items()}) for name in first}


def _joined(name: str, told: Mapping[str, Any]) -> list[Any] | None:
    """The levels of all sites: in the one order that keeps that of every site, if there is one; else sorted."""
    where: dict[str, list[str]] = {}
    for site, levels in told.items():
        where.setdefault("numbers" if levels is None else levels["kind"], []).append(site)
    if len(where) > 1:
        kinds = ", ".join(f"{kind} at {listed(at)}" for kind, at in where.items())
        raise ValueError(f"column {name!r} must be of one kind; it holds {kinds}. Make it the same everywhere.")
    lists = [levels["named"] for levels in told.values() if levels is not None]
    if not lists:
        return None
    joined = _only_order(lists) or sorted({level for levels in lists for level in levels})
    if "categories of numbers" not in where:
        return joined
    integers = all(level == int(level) for level in joined)
    return [int(level) if integers else float(level) for level in joined]


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


def _design(
    plan: Plan, model: Model, counted: Counted, counts: IntArray, dropped: IntArray
) -> Generator[Question, Heard, tuple[ModelData, dict[str, FloatArray]]]:
    """The model without its rows: columns and levels of all sites together, and a name for each parameter."""
    columns = empty_columns(model, counted.levels)
    response = response_of(columns[model.target], model.family, *beside_columns(model, columns), link=model.link)
    right = right_hand_side(Frame(columns), model)  # columns that nobody named come in the order of `columns`
    made = design_of(model, right, columns, counted.n_rows, plan.sites, None, counts)
    needs = made[0].needs()
    sums = squares = np.zeros(len(needs))
    if needs:
        sums = total_of((yield Question("means", {"counted": counted}, {"needed": (len(needs),)})))["needed"]
        about = {"counted": counted, "means": sums / counted.n_rows}
        squares = total_of((yield Question("spread", about, {"needed": (len(needs),)})))["needed"]
    agreed = summaries(needs, counted.n_rows, sums / counted.n_rows, np.maximum(squares, 0.0))
    for name, found in agreed.items():
        if found.sd == 0.0:
            raise ValueError(f"columns must vary; {name!r} is constant ({found.mean:g}). Leave it out.")
    data = model_data(
        model, right, columns, response, plan.sites, counts, counted.n_rows, agreed=agreed, dropped=dropped, made=made
    )
    shown, classes = (tuple(map(_shown, labels)) for labels in (data.names, data.classes))
    marks = data.family.start_terms(np.zeros(1)).shape[1]
    wanted: Shapes = {"sums": (len(data.names),), "response": (), "marks": (marks,)}
    about_design: dict[str, Any] = {"counted": counted, "agreed": agreed}
    cells = None
    if plan.masked:
        m = len(data.names) + (len(data.classes) or 1)
        cells = total_of((yield Question("cells", about_design, {"both": (m, m), "valued": (m,)})))
    totals = total_of((yield Question("design", about_design | {"cells": cells}, wanted)))
    return replace(data, names=shown, classes=classes, renamed=counted.renamed), totals


def _private(
    plan: Plan, model: Model, counted: Counted, counts: IntArray, policies: Sequence[Ranges], level: float
) -> Generator[Question, Heard, Fit]:
    """The private fit: a column's range is that of the plan, or else the widest of the policies."""
    assert plan.privacy is not None
    columns = empty_columns(model, counted.levels)
    response = response_of(columns[model.target], model.family)
    right = right_hand_side(Frame(columns), model)
    data = model_data(model, right, columns, response, plan.sites, counts, counted.n_rows, agreed={})
    assert data.design is not None
    if data.constant is None or right.offsets or data.design.needs():
        raise ValueError(
            "a private fit has an intercept, no offset, and no scale(), center() or ns() that needs means of all rows. "
            "Use columns as they are, or ns() with knots and bounds."
        )
    given = _widest(policies) | dict(plan.privacy.ranges)
    ranges = data.design.ranges(lambda name: range_of(name, given))
    if model.target in given:
        ranges[model.target] = given[model.target]
    family = private_name(model.family)
    assert family is not None
    steps = private_program(
        data.names, data.target, family, ranges, plan.privacy, len(plan.sites), counted.n_rows, level, data.constant
    )
    yield Question("bound", {"counted": counted}, {})
    question = next(steps)
    while True:
        heard = yield Question("private", {"question": question}, question.shapes)
        try:
            question = steps.send(heard)
        except StopIteration as end:
            found: Fit = end.value.fit
            break
    return replace(found, design=frame_design(data), names=tuple(map(_shown, found.names))).with_notes(_MASKED)


def _widest(policies: Sequence[Ranges]) -> dict[str, Range]:
    found: dict[str, Range] = {}
    for ranges in policies:
        for name, (low, high) in ranges.items():
            other = found.get(name, (low, high))
            found[name] = min(low, other[0]), max(high, other[1])
    return found


def _locate(
    data: ModelData, totals: Mapping[str, FloatArray], n_rows: int
) -> Generator[Question, Heard, tuple[Location, Location]]:
    """Means and scales of the covariates, and of the response."""
    p, centred = len(data.names), data.constant is not None
    means = totals["sums"] / n_rows if centred else np.zeros(p)
    response = totals["response"] / n_rows if centred else np.zeros(())
    about = {"means": means, "response": float(response)}
    squares = total_of((yield Question("squares", about, {"squares": (p,), "response": ()})))
    if not squares["response"] > 0.0:
        raise ValueError(f"the target {data.target!r} is constant ({float(response):g}): there is nothing to explain.")
    scales = Location(means, np.sqrt(np.maximum(squares["squares"], 0.0) / n_rows))
    return scales, Location(response.reshape(1), np.sqrt(squares["response"].reshape(1) / n_rows))


def _scoring(
    plan: Plan, data: ModelData, columns: Location, start: FloatArray, level: float
) -> Generator[Question, Heard, Fit]:
    """The exact fit, each of whose asks is a question."""
    program = fit_program(data, columns, start, plan.model.errors, level, plan.model.ridge, own=not plan.masked)
    ask = next(program)
    while True:
        heard = yield Question("ask", {"ask": ask, "columns": columns}, shapes(ask, data.family))
        try:
            ask = program.send(heard.each if ask.kind == "own" else heard.total)
        except StopIteration as end:
            return end.value


def empty_columns(model: Model, levels: Mapping[str, Sequence[Any] | None]) -> dict[str, FrameColumn]:
    """Columns without rows."""
    columns = {
        name: FrameColumn(name, np.empty(0), None if of_all is None else tuple(of_all))
        for name, of_all in levels.items()
    }
    for name in model.roles.values():
        columns.setdefault(name, FrameColumn(name, np.empty(0)))
    return columns


def _check_description(site: str, words: Message, private: bool) -> None:
    try:
        if private:
            words["ranges"] = {name: check_range(name, ends) for name, ends in dict(words.get("ranges", ())).items()}
        check_levels(words.get("levels"))
        if not isinstance(words.get("tags"), dict):
            raise ValueError("'tags' of its table must be there, one for each other site.")
    except (TypeError, ValueError) as error:
        raise Blamed(f"site {site!r} sent a description that is none: {error}") from error


def check_levels(told: Any) -> None:
    """Refuse what no site can have said of its columns."""
    if not isinstance(told, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in told):
        raise ValueError("columns must be told as pairs of a name and its levels.")
    for name, levels in told:
        if not isinstance(name, str) or not (levels is None or _is_told(levels)):
            raise ValueError(
                f"the levels of a column must be of one kind, each there once; those of {str(name)[:60]!r} are not."
            )


def _is_told(levels: Any) -> bool:
    if not isinstance(levels, dict) or levels.keys() != {"kind", "named"} or levels["kind"] not in KINDS.values():
        return False
    named = levels["named"]
    if not isinstance(named, list) or len(named) > _MOST_LEVELS:
        return False
    return all(KINDS.get(type(level)) == levels["kind"] for level in named) and len(set(named)) == len(named)


def _check_tables(tags: Mapping[str, Mapping[str, str]]) -> None:
    """Two sites whose tags for each other are the same have one table, which would count twice."""
    for site, other in combinations(tags, 2):
        if tags[site].get(other) is not None and tags[site].get(other) == tags[other].get(site):
            raise Blamed(f"sites {site!r} and {other!r} have the same table, which would count twice. Name it once.")


def _whole(row: FloatArray) -> IntArray:
    """Counts, which no honest sites add up to anything else."""
    if np.any(row != np.floor(row)) or np.any(row < 0) or np.any(row > _MOST_ROWS):
        raise Blamed("rows are counted in whole numbers; the total of all sites is none. A site sent something else.")
    return np.asarray(row).astype(np.int64)


def _shown(label: Any) -> Any:
    """A name as it may be printed."""
    return printable(label) if isinstance(label, str) else label
