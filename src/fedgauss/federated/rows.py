"""A site's answers from its rows: what each question of a run asks of them, and the reasons not to answer it.

Every column whose sums are told goes by the ledger first, from the counts of rows on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from fedgauss import families
from fedgauss._types import FloatArray
from fedgauss.families.rows import Rows
from fedgauss.federated import private_rows, rules
from fedgauss.federated.discrete_gaussian import discrete_gaussian
from fedgauss.federated.ledger import Admission, Ledger
from fedgauss.federated.levels import indicators, named_alone, read_levels, recode
from fedgauss.federated.path import Path
from fedgauss.federated.plan import Plan, Question
from fedgauss.federated.policy import Policy
from fedgauss.federated.privacy import Cost
from fedgauss.federated.private_families import private_name
from fedgauss.federated.private_fit import cost_of
from fedgauss.federated.private_rows import Noise
from fedgauss.federated.program import Counted, is_poolable
from fedgauss.federated.refusal import Refused
from fedgauss.federated.shares import ONE, Functions, rows_needed, shares_of
from fedgauss.federated.spans import Span, span_of
from fedgauss.federated.told_columns import ONES, Columns, columns_of, functions_of, outcomes_of, products_of
from fedgauss.federated.wire import Message, digest
from fedgauss.inference.asks import Ask, answer, client_rows
from fedgauss.inference.formula.terms import Agreed, Formula
from fedgauss.inference.model_data import (
    ModelData,
    Response,
    beside_columns,
    design_of,
    family_of,
    model_data,
    read_columns,
    response_of,
    right_hand_side,
    usual_family,
)
from fedgauss.inference.preparation import Location, Units
from fedgauss.inference.tables import Frame

Numbers = Mapping[str, FloatArray] | None


class SiteRows:
    """The rows of a site in a run.

    Parameters
    ----------
    table : Frame
        All rows of the site, with the columns that its policy opens.
    whole : mapping of str to sequence
        The same rows with all columns, by which the ledger knows them.
    policy : Policy
    plan : Plan
    name : str
        What the site is called in the plan.
    tags : mapping of str to str
        Of the whole table, one for each other site: where two sites have one table, theirs are the same.
    ledger : Ledger
        Raises `Refused` where what was answered before speaks against a question.
    noise : callable, optional
        noise(variance, size) are whole numbers with the discrete Gaussian law.
    """

    def __init__(
        self, table: Frame, whole: Mapping[str, Any], policy: Policy, plan: Plan, name: str, tags: Mapping[str, str],
        ledger: Ledger, noise: Noise = discrete_gaussian,
    ) -> None:  # fmt: skip
        self._table, self._whole, self._policy, self._plan = table, whole, policy, plan
        self._here, self._tags, self._ledger = plan.sites.index(name), dict(tags), ledger
        self._reasons: dict[str, bool] = {}  # not to take part, so far, and whether they depend on rows
        self._agreed_on: Counted | None = None
        self._rows: Rows | None = None
        self._pass: Any = None  # SgdRows, once a pass has begun
        self._noise = noise
        self._cost: Cost = ()
        if plan.privacy is not None:
            self._cost = cost_of(plan.privacy, str(private_name(plan.model.family)))

    def reply(self, question: Question, again: bool = False) -> tuple[Numbers, Message]:
        """Numbers, which are added to other sites', and words; numbers are None where they would not be finite.

        Whatever speaks against taking part is gathered, and said in one message before any sum of a column is. Asked
        `again`, a site adds nothing up that it has sent before.
        """
        answers: dict[str, Any] = {
            "describe": self._describe, "count": self._count, "means": self._means, "spread": self._spread,
            "cells": self._cells, "design": self._add_columns, "squares": self._squares, "ask": self._ask,
            "bound": self._bound, "private": self._private,
        }  # fmt: skip
        try:
            if question.kind == "ask" and again:
                self._follow(**question.content)
                return None, {}
            if question.kind == "private" and again:
                return None, {}
            if question.kind == "sgd":
                return self._sgd(again, **question.content), {}
            return answers[question.kind](**question.content)
        except Refused as error:
            self._reasons[str(error)] = error.counts
            return None, {"refused": list(self._reasons)}

    @property
    def refusal_counts(self) -> bool:
        """Whether a reason not to take part depends on rows."""
        return any(self._reasons.values())

    def _describe(self) -> tuple[Numbers, Message]:
        """The kind and levels of the target and of each covariate."""
        model, policy, reasons = self._plan.model, self._policy, self._reasons
        with rules.noted(reasons, counts=False):
            terms = right_hand_side(self._table, model)
            rules.check_constants(terms)
        if not reasons:
            with rules.noted(reasons):
                columns, kept = read_columns(self._table, model, terms)
        if reasons:
            return None, {"refused": list(reasons)}
        self._numbers, self._n_rows = self._ledger.digests(self._whole)[kept], len(columns[model.target].values)
        self._dropped = int(np.sum(~kept))
        weightless = 0 if model.row_weights is None else int(np.sum(self._table.zeros(model.row_weights)))
        with rules.noted(reasons):
            rules.check_rows(policy, self._n_rows, weightless)
        columns = {name: c.as_levels() if name in terms.as_levels else c for name, c in columns.items()}
        family = None
        with rules.noted(reasons):
            usual = usual_family(model.family, model.trials, model.event)
            self._family = family = families.chosen(family_of(columns[model.target], usual), model.link)
            rules.check_family(policy, family)
            if family.by_class:
                columns[model.target] = columns[model.target].as_levels()
        if family is None:  # which the questions to come are about
            return None, {"refused": list(reasons)}
        outcome, private = model.event or model.target, self._plan.privacy is not None
        with rules.noted(reasons):
            if private:
                self._ledger.check_privacy(self._cost)
            else:
                rules.check_outcome(policy.few, columns[outcome])
        described = dict.fromkeys([model.target, *(name for name in columns if name in terms.columns), outcome])
        levels = []
        for name in described:
            with rules.noted(reasons):
                levels.append([name, read_levels(columns[name], policy.few)])
                if not (private or is_poolable(model, name, columns[name].levels)):
                    rules.check_levels(policy.few, columns[name])
        self._columns = columns
        if reasons:
            self._ledger.note_reasons(reasons, self.refusal_counts)
        ranges = {"ranges": {name: list(ends) for name, ends in (policy.ranges or {}).items()}} if private else {}
        return None, {"levels": levels, "reasons": list(reasons), "tags": self._tags, **ranges}

    def _count(self, levels: Mapping[str, Any]) -> tuple[Numbers, Message]:
        """How many rows there are, and how many have each of these levels; of a level of few rows nothing is added."""
        few = self._policy.few
        told = {ONES: np.ones(self._n_rows)}  # counts of nearly the same rows would differ by a row's levels
        counts = {}
        for name, of_all in levels.items():
            there = indicators(self._columns[name], of_all)
            counts[name] = np.array([own.sum() * (own.sum() >= few) for own in there.values()])
            common = {level: own for level, own in there.items() if own.sum() >= few}
            if (
                0 < self._n_rows - sum(own.sum() for own in common.values()) < few
            ):  # they tell a count of these, no sums
                common.pop(min(common, key=lambda level: common[level].sum()), None)
            told |= common  # so that runs of other sites are about the same
        if self._plan.privacy is None:
            self._admit(told)
        return {"rows": np.array(float(self._n_rows)), "dropped": np.array(float(self._dropped)), **counts}, {}

    def _means(self, counted: Counted) -> tuple[Numbers, Message]:
        """Sums of what the formula needs means of."""
        self._agree(counted)
        needed = self._design.needed(self._design_rows)
        self._admit(needed)
        self._refuse_with_reasons()
        return {"needed": np.array([own.sum() for own in needed.values()])}, {}

    def _spread(self, counted: Counted, means: FloatArray) -> tuple[Numbers, Message]:
        """Their sums of squares about means that all sites share."""
        needed = list(self._design.needed(self._design_rows).values())
        rules.check_means(needed, means)
        return {"needed": np.array([((own - mean) ** 2).sum() for own, mean in zip(needed, means, strict=True)])}, {}

    def _cells(self, counted: Counted, agreed: Agreed) -> tuple[Numbers, Message]:
        """In how many rows two columns of zeros and ones are both not zero: totals that are small will be refused."""
        return self._prepare(counted, agreed).of_levels()._asdict(), {}

    def _add_columns(
        self, counted: Counted, agreed: Agreed, cells: Mapping[str, FloatArray] | None
    ) -> tuple[Numbers, Message]:
        """Sums of the columns, once nothing speaks against them any more."""
        if cells is None:
            self._prepare(counted, agreed)
        else:
            found = rules.Cells(cells["both"], cells["valued"]).of_levels()
            rules.check_cells(self._policy.few, self._product_names, found, counted.n_rows, self._policy.cells)
        data = self._data
        response = data.mean_response
        return {
            "sums": data.covariates.sum(axis=0), "response": response.sum(),
            "marks": data.family.start_terms(response).sum(axis=0),
        }, {}  # fmt: skip

    def _prepare(self, counted: Counted, agreed: Agreed) -> rules.Cells:
        """The columns of the model, and all that speaks against them."""
        self._agree(counted)
        policy, masked, reasons = self._policy, self._plan.masked, self._reasons
        with rules.noted(reasons):
            rules.check_spreads(self._terms, self._design.needed(self._design_rows), agreed)
            data = model_data(
                self._plan.model, self._terms, self._columns, self._response(), ("here",), (self._n_rows,),
                counted.n_rows, agreed=agreed, made=(self._design, self._design_rows),
            )  # fmt: skip
            with rules.noted(reasons):
                enough = counted.n_rows if masked else self._n_rows
                rules.check_parameters(policy, len(data.all_names), enough, masked)
            with rules.noted(reasons):
                rules.check_stretches(policy.few, self._design.fewest_between_knots(self._design_rows, agreed))
            with rules.noted(reasons):
                rules.check_clusters(policy.few, data.cluster)
            products = products_of(data)
            self._product_names, cells = list(products), rules.Cells.of(np.column_stack(list(products.values())))
            with rules.noted(reasons):
                rules.check_cells(policy.few, self._product_names, cells, self._n_rows)
            with rules.noted(reasons):
                self._told = columns = columns_of(data)
                functions = self._count_shares(data, agreed)
                told = {**self._ledger.functions, **functions}
                if (needed := rows_needed(told)) > policy.few:
                    rules.check_functions(needed, self._span)
                self._ledger.admit(Admission(columns, self._numbers, functions, self._shares))
        self._refuse_with_reasons()
        self._data = data
        return cells

    def _count_shares(self, data: ModelData, agreed: Agreed) -> Functions:
        """Take down which rows share a level; the functions of numbers that the columns and the response are."""
        used = {name: self._columns[name].values for name in self._terms.columns}
        two_valued = [name for name, own in used.items() if np.all((own == own.min()) | (own == own.max()))]
        made, outcomes = self._design.functions(agreed, two_valued), outcomes_of(data)
        of_numbers = {name for name, own in outcomes.items() if not np.all((own == 0.0) | (own == 1.0))}
        columns = {
            name: (made[j][0], own) for j, (name, own) in enumerate(zip(data.names, data.covariates.T, strict=True))
        }
        response = {name: (name if name in of_numbers else ONE, own) for name, own in outcomes.items()}
        table = np.array(list(used.values())).reshape(-1, self._n_rows).T  # outcomes have few values, and may be known
        self._shares = shares_of(columns, response, table, self._numbers, data.family.n_outputs)
        return functions_of(self._plan.model, self._design.formula, made, of_numbers)

    def _squares(self, means: FloatArray, response: float) -> tuple[Numbers, Message]:
        """Sums of squares about means that all sites share."""
        rules.check_means(list(self._data.covariates.T), means)
        return {
            "squares": ((self._data.covariates - means) ** 2).sum(axis=0),
            "response": ((self._data.mean_response - response) ** 2).sum(),
        }, {}  # fmt: skip

    def _ask(self, ask: Ask, columns: Location) -> tuple[Numbers, Message]:
        """Sums at a parameter."""
        family, rows, few = self._data.family, self._settle(columns), self._policy.few
        question = digest({"ask": ask._asdict(), "columns": columns._asdict()})
        if not self._ledger.has_answered(question):
            squared = any(part.startswith("squares") for part in ask.parts)
            behind = self._behind(rows, ask.kind, ask.theta)
            rules.check_parameter(few, behind if squared else _some(behind, squares=False), self._span)
        step = self._follow(ask, columns)
        matrices = int(ask.kind == "sums" or bool(ask.parts))
        told = {of: (one, one.numbers(ask, step, family)) for of, one in self._shares.items()}
        self._ledger.spend(1, matrices, question, told=told)
        numbers = None if step is None else answer(family, rows, ask)
        if numbers is None or step is None:
            return None, {}
        if step:
            return self._path.rounded(numbers, step), {}
        if ask.compared and not rules.are_enough(few, _some(self._behind(rows, ask.kind, ask.theta), squares=True)):
            numbers |= _zeros(numbers, "apart.")
        if ask.kind == "own" and not rules.are_enough(few, self._behind(rows, "final", numbers["theta"])):
            numbers |= _zeros(numbers, "found", "theta", "cov")
        return numbers, {}

    @cached_property
    def _span(self) -> Span:
        """Of all columns of which products are added up; a repeat asks for none of it."""
        return span_of(np.column_stack(list(self._told.values())))

    def _behind(self, rows: Rows, kind: str, theta: FloatArray) -> Columns:
        """What rows count for in an answer."""
        with np.errstate(all="ignore"):  # of a parameter too far off
            return self._data.family.behind(rows, kind, theta)

    def _follow(self, ask: Ask, columns: Location) -> float | None:
        """The step of the path to a parameter, once the ledger knows what rows count for where sums become exact."""
        rows = self._settle(columns)
        was_exact = self._path.exact
        step = self._path.step(ask)
        ends = ask.kind == "final" and not self._ended  # another end is near the first
        self._ended |= ends
        if ends or self._path.exact > was_exact:
            parts = tuple(part.partition(".")[0] for part in ask.parts)
            exact = parts if was_exact else (*parts, "score")  # scores since the first short step are all but one
            own = {
                name: column
                for name, column in self._behind(rows, ask.kind, ask.theta).items()
                if name.startswith(exact)
            }
            self._ledger.admit_place(Admission(own, self._numbers))
        return step

    def _bound(self, counted: Counted) -> tuple[Numbers, Message]:
        """All that speaks against a private fit, before it costs anything; rows with a level nobody names are none."""
        named = np.ones(self._n_rows, dtype=bool)
        for name, levels in counted.levels.items():
            self._columns[name], known = named_alone(self._columns[name], levels)
            named &= known
        self._agree(counted)
        with rules.noted(self._reasons):
            response, _, _ = self._response()
            covariates = self._design.columns(self._design_rows, {})
        self._refuse_with_reasons()
        covariates[~named] = np.nan
        self._private_rows = private_rows.PrivateRows(covariates, response)
        return None, {}

    def _private(self, question: Question) -> tuple[Numbers, Message]:
        """Totals with this site's share of the noise, once the ledger has what the whole run costs."""
        assert self._plan.privacy is not None
        self._ledger.spend_privacy(self._plan.privacy, self._cost)
        return private_rows.answer(question, self._private_rows, self._noise), {}

    def _sgd(self, again: bool, what: str, content: Mapping[str, Any]) -> Numbers:
        """A part of a pass of SGD, which is paid for anew in every run: in another one the same rows meet elsewhere."""
        if self._pass is None:
            from fedgauss.federated import sgd_rows  # which needs JAX

            self._pass = sgd_rows.SgdRows(content["course"], self._data, self._plan, self._here, self._policy)
            self._admit(self._pass.columns)
            question = digest({"pass of": self._plan.run})
            self._ledger.spend(sgd_rows.PARAMETERS, sgd_rows.MATRICES, question, passes=1)
        numbers: Numbers = self._pass.reply(what, again, **content)
        return numbers

    def _settle(self, columns: Location) -> Rows:
        """The rows in the units that all sites share."""
        if self._rows is None:
            rules.check_units(self._data.covariates, columns)
            x = Units(columns, None, self._data.constant is not None).rows(self._data.covariates)
            self._rows = client_rows(self._data, x, slice(None))
            self._ended = False
            self._path = Path(self._data.family, self._rows, self._data.constant is not None, columns.scale)
        return self._rows

    def _admit(self, columns: Columns) -> None:
        """Let the ledger write down what is about to be told, or refuse it."""
        self._ledger.admit(Admission(columns, self._numbers))

    def _response(self) -> Response:
        """The target as its family reads it."""
        model, family, columns = self._plan.model, self._family, self._columns
        try:
            return response_of(columns[model.target], family, *beside_columns(model, columns))
        except ValueError as error:  # whose words may have the value of a row
            needs = family.needs if model.trials is None else "whole numbers from 0 to the trials of their row"
            raise Refused(
                f"the target {model.target!r} must suit the family {family.name!r}, which needs {needs}; it does not "
                "at this site."
            ) from error

    def _agree(self, counted: Counted) -> None:
        """Take over the levels of all sites."""
        if self._agreed_on is not None:
            return
        for name, of_all in counted.levels.items():
            column = self._columns[name] = recode(self._columns[name], of_all, counted.renamed.get(name, {}))
            if self._plan.privacy is None:
                with rules.noted(self._reasons):
                    rules.check_levels(self._policy.few, column)
        self._terms: Formula = right_hand_side(Frame(self._columns), self._plan.model)
        try:
            self._design, self._design_rows = design_of(
                self._plan.model, self._terms, self._columns, counted.n_rows, self._plan.sites, self._here,
                np.array([self._n_rows]),
            )  # fmt: skip
        except ValueError as error:  # it names columns and levels
            raise Refused(str(error)) from error
        self._agreed_on = counted

    def _refuse_with_reasons(self) -> None:
        """Before anything is added up: the last reason ends the run, and all go with it."""
        if self._reasons:
            raise Refused(*self._reasons.popitem())


def _some(behind: Columns, squares: bool) -> Columns:
    """Squared scores, or all else."""
    return {name: own for name, own in behind.items() if name.startswith("squares") == squares}


def _zeros(numbers: Columns, *what: str) -> Columns:
    """What a site with few rows says."""
    return {name: np.zeros_like(own) for name, own in numbers.items() if name.startswith(what)}
