"""A site's answers from its rows: what each question of a run asks of them, and the reasons not to answer it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedgauss import families
from fedgauss._types import AnyArray, FloatArray
from fedgauss.families.rows import Rows
from fedgauss.federated import rules
from fedgauss.federated.levels import counts_of, read_levels, recode
from fedgauss.federated.plan import Plan, Question
from fedgauss.federated.policy import Policy
from fedgauss.federated.program import Counted
from fedgauss.federated.refusal import Refused
from fedgauss.federated.wire import Message
from fedgauss.inference.asks import Ask, answer
from fedgauss.inference.exact import client_rows
from fedgauss.inference.formula.terms import Formula
from fedgauss.inference.formula.values import Agreed
from fedgauss.inference.model_data import ModelData, beside_columns, design_of, model_data, read_columns
from fedgauss.inference.model_terms import right_hand_side
from fedgauss.inference.preparation import Location, Units
from fedgauss.inference.response import family_of, response_of, usual_family
from fedgauss.inference.tables import Frame, FrameColumn

Columns = dict[str, FloatArray]  # (n,) each
Numbers = Mapping[str, FloatArray] | None


class Admission(NamedTuple):
    """What sums are about to be told of: the ledger admits it, or not."""

    columns: Columns
    rows: AnyArray  # the numbers of the rows
    settled: tuple[str, ...]  # columns of zeros and ones of which enough rows of all sites have either


class SiteRows:
    """The rows of a site in a run.

    Parameters
    ----------
    table : Frame
        All rows of the site, with the columns that its policy opens.
    policy : Policy
    plan : Plan
    name : str
        What the site is called in the plan.
    digests : ndarray
        A number for each row of the table.
    admit : callable
        admit(admission) raises `Refused` where the table's ledger speaks against it.
    """

    def __init__(
        self, table: Frame, policy: Policy, plan: Plan, name: str, digests: AnyArray, admit: Callable[[Admission], None]
    ) -> None:
        self._table, self._policy, self._plan, self._name = table, policy, plan, name
        self._digests, self._admit = digests, admit
        self._whose = "of all sites" if plan.masked else "at this site"
        self._agreed_on: Counted | None = None
        self._rows: Rows | None = None

    def reply(self, question: Question) -> tuple[Numbers, Message]:
        """Numbers, which are added to other sites', and words; numbers are None where they would not be finite."""
        reasons: list[str] = []
        answers = {
            "describe": self._describe, "count": self._count, "means": self._means, "spread": self._spread,
            "columns": self._nonzero, "design": self._sums, "squares": self._squares, "ask": self._ask,
        }  # fmt: skip
        numbers, words = answers[question.kind](reasons, **question.content)  # type: ignore[operator]
        return (None, {"refused": reasons}) if reasons else (numbers, words)

    def vectors(self, ask: Ask) -> Columns:
        """What each row counts for in the answer to an ask, for the ledger."""
        return {} if self._rows is None else self._data.family.behind(self._rows, ask.theta)

    def _describe(self, reasons: list[str]) -> tuple[Numbers, Message]:
        """The number of rows, and the kind and levels of the target and of each covariate."""
        model, policy = self._plan.model, self._policy
        with rules.noted(reasons):
            rules.check_plan(policy, self._plan)
        columns: dict[str, FrameColumn] = {}
        with rules.noted(reasons):
            terms = right_hand_side(self._table, model)
            columns, kept = read_columns(self._table, model, terms)
        if not columns:
            return None, {}
        self._digests, n_rows = self._digests[kept], len(columns[model.target].values)
        weightless = 0 if model.row_weights is None else int(np.sum(self._table.zeros(model.row_weights)))
        with rules.noted(reasons):
            rules.check_rows(policy, n_rows, weightless)
        columns = {name: c.as_levels() if name in terms.as_levels else c for name, c in columns.items()}
        with rules.noted(reasons):
            usual = usual_family(model.family, model.trials, model.event)
            self._family = families.family(family_of(columns[model.target], usual))
            rules.check_family(policy, self._family)
            if self._family.by_class:
                columns[model.target] = columns[model.target].as_levels()
        told = [model.target, *(name for name in columns if name in terms.columns), *filter(None, [model.event])]
        pairs = []
        for name in dict.fromkeys(told):
            with rules.noted(reasons):
                pairs.append([name, read_levels(columns[name])])
        self._table_columns, self._n_rows = columns, n_rows
        return None, {"rows": n_rows, "dropped": int(np.sum(~kept)), "levels": pairs}

    def _count(self, reasons: list[str], levels: Mapping[str, Any]) -> tuple[Numbers, Message]:
        """How often each level occurs here."""
        counts = {name: counts_of(self._table_columns[name], of_all) for name, of_all in levels.items()}
        if not self._plan.masked:
            self._check_counts(reasons, levels, {name: row.tolist() for name, row in counts.items()}, self._n_rows)
        return counts, {}

    def _means(self, reasons: list[str], counted: Counted) -> tuple[Numbers, Message]:
        """Sums of what the formula needs means of."""
        self._agree(reasons, counted)
        if reasons:
            return None, {}
        needed = self._design.needed(self._design_rows)
        with rules.noted(reasons):
            self._admit(Admission({"1": np.ones(self._n_rows), **needed}, self._digests, ()))
        return {"needed": self._design.sums(self._design_rows)}, {}

    def _spread(self, reasons: list[str], counted: Counted, means: FloatArray) -> tuple[Numbers, Message]:
        """Their sums of squares about means that all sites share."""
        return {"needed": self._design.squares(self._design_rows, means)}, {}

    def _nonzero(self, reasons: list[str], counted: Counted, agreed: Agreed) -> tuple[Numbers, Message]:
        """How many rows have something else than zero in each column of the design."""
        self._agree(reasons, counted)
        if reasons:
            return None, {}
        model, family = self._plan.model, self._family
        with rules.noted(reasons):
            try:
                beside = beside_columns(model, self._table_columns)
                response = response_of(self._table_columns[model.target], family.name, *beside, link=model.link)
            except ValueError as error:  # whose words may have the value of a row
                needs = family.needs if model.trials is None else "whole numbers from 0 to the trials of their row"
                raise Refused(
                    f"the target {model.target!r} must suit the family {family.name!r}, which needs {needs}; it does not "
                    "at this site."
                ) from error
            self._data = model_data(
                model, self._terms, self._table_columns, response, ("here",), (self._n_rows,), counted.n_rows,
                sites=self._plan.sites, here=self._plan.sites.index(self._name), agreed=agreed,
            )  # fmt: skip
        if reasons:
            return None, {}
        data, policy = self._data, self._policy
        rows = counted.n_rows if self._plan.masked else self._n_rows
        with rules.noted(reasons):
            rules.check_parameters(policy, len(data.all_names), rows, self._whose)
        with rules.noted(reasons):
            self._design.check_stretches(self._design_rows, agreed, policy.few)
        with rules.noted(reasons):
            rules.check_clusters(policy, data.cluster)
        if not self._plan.masked:
            with rules.noted(reasons):
                rules.check_own_counts(policy, data.names, data.covariates)
        return {"nonzero": np.count_nonzero(data.covariates, axis=0).astype(float)}, {}

    def _sums(self, reasons: list[str], nonzero: FloatArray) -> tuple[Numbers, Message]:
        """Sums of the columns, once the ledger has admitted them."""
        data, counted = self._data, self._agreed_on
        assert counted is not None
        settled = _settled(data, nonzero, counted.n_rows, self._policy.few) if self._plan.masked else ()
        with rules.noted(reasons):
            self._admit(Admission(told_columns(data), self._digests, settled))
        response = data.mean_response
        return {
            "sums": data.covariates.sum(axis=0), "response": response.sum(),
            "marks": data.family.start_terms(response).sum(axis=0),
        }, {}  # fmt: skip

    def _squares(self, reasons: list[str], means: FloatArray, response: float) -> tuple[Numbers, Message]:
        """Sums of squares about means that all sites share."""
        return {
            "squares": ((self._data.covariates - means) ** 2).sum(axis=0),
            "response": ((self._data.mean_response - response) ** 2).sum(),
        }, {}  # fmt: skip

    def _check_counts(
        self, reasons: list[str], levels: Mapping[str, Any], counts: Mapping[str, list[float]], n_rows: float
    ) -> None:
        """Levels and outcomes must have enough rows of those whose sums are seen."""
        model, policy = self._plan.model, self._policy
        with rules.noted(reasons):
            rules.check_levels(policy, {name: of for name, of in levels.items() if of}, counts, self._whose)
        outcome = model.event or model.target
        if levels.get(outcome) is None and outcome in counts and _is_binary(self._table_columns[outcome].values):
            with rules.noted(reasons):
                rules.check_outcome(policy, outcome, counts[outcome][0], n_rows, self._whose)

    def _agree(self, reasons: list[str], counted: Counted) -> None:
        """Take over the levels of all sites, unless the counts of all sites speak against it."""
        if self._agreed_on is not None:
            return
        model = self._plan.model
        if self._plan.masked:
            self._check_counts(reasons, counted.levels, counted.totals, counted.n_rows)
        columns = dict(self._table_columns)
        for name, of_all in counted.levels.items():
            with rules.noted(reasons):
                columns[name] = recode(columns[name], of_all, counted.renamed.get(name, {}))
        if reasons:
            return
        here = self._plan.sites.index(self._name)
        with rules.noted(reasons):
            self._terms: Formula = right_hand_side(Frame(columns), model)
            self._design, self._design_rows = design_of(
                model, self._terms, columns, counted.n_rows, self._plan.sites, here, np.array([self._n_rows])
            )
            self._table_columns, self._agreed_on = columns, counted

    def _ask(self, reasons: list[str], ask: Ask, columns: Location) -> tuple[Numbers, Message]:
        """Sums at a parameter."""
        if self._rows is None:
            x = Units(columns, None, self._data.constant is not None).rows(self._data.covariates)
            self._rows = client_rows(self._data, x, slice(None))
        return answer(self._data.family, self._rows, ask), {}


def told_columns(data: ModelData) -> Columns:
    """All columns whose sums of products a site tells: covariates, response, and what stands beside them.

    Where rows have weights, sums are of rows times the roots of their weights.
    """
    response = {data.target: data.response}
    if data.classes:  # X'1[y = c] is told of each class
        response = {
            f"{data.target} == {label!r}": (data.response == c).astype(float) for c, label in enumerate(data.classes)
        }
    beside = {"the offset": data.offset, "the row weights": data.row_weights, f"the {data.family.beside}": data.beside}
    ones = {"1": np.ones(len(data.response))}
    columns = ones | dict(zip(data.names, data.covariates.T, strict=True)) | response
    columns |= {name: own for name, own in beside.items() if own is not None}
    if data.row_weights is not None:
        root = np.sqrt(data.row_weights)
        columns |= {f"weighted {name}": own * root for name, own in columns.items()}
    return columns


def _settled(data: ModelData, nonzero: FloatArray, n_rows: int, few: int) -> tuple[str, ...]:
    """Columns of zeros and ones of which enough rows of all sites have either."""
    binary = np.all((data.covariates == 0.0) | (data.covariates == 1.0), axis=0)
    enough = np.minimum(nonzero, n_rows - nonzero) >= few
    return tuple(data.names[j] for j in np.flatnonzero(binary & enough).tolist())


def _is_binary(values: FloatArray) -> bool:
    return bool(np.all((values == 0.0) | (values == 1.0)))
