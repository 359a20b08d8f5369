"""A site's answers from its rows: what each question of a run asks of them, and the reasons not to answer it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedgauss import families
from fedgauss._types import FloatArray
from fedgauss.families.rows import Rows
from fedgauss.federated import rules
from fedgauss.federated.ledger import Admission, Ledger
from fedgauss.federated.levels import counts_of, is_poolable, read_levels, recode
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
from fedgauss.inference.response import Response, family_of, response_of, usual_family
from fedgauss.inference.tables import Frame

Columns = dict[str, FloatArray]  # (n,) each
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
    """

    def __init__(
        self, table: Frame, whole: Mapping[str, Any], policy: Policy, plan: Plan, name: str, tags: Mapping[str, str],
        ledger: Ledger,
    ) -> None:  # fmt: skip
        self._table, self._whole, self._policy, self._plan, self._name = table, whole, policy, plan, name
        self._tags, self._ledger = dict(tags), ledger
        self._whose = "of all sites" if plan.masked else "at this site"
        self._reasons: list[str] = []  # not to take part, so far
        self._agreed_on: Counted | None = None
        self._rows: Rows | None = None

    def reply(self, question: Question, again: bool = False) -> tuple[Numbers, Message]:
        """Numbers, which are added to other sites', and words; numbers are None where they would not be finite.

        Whatever speaks against taking part is gathered until something is asked that must not be told then, and
        refused in one message. Asked `again`, a site adds nothing up that it has sent before.
        """
        if question.kind == "ask":
            return self._ask(again=again, **question.content)
        answers: dict[str, Any] = {
            "describe": self._describe, "count": self._count, "means": self._means, "spread": self._spread,
            "columns": self._columns, "design": self._sums, "squares": self._squares,
        }  # fmt: skip
        try:
            return answers[question.kind](**question.content)
        except Refused as error:
            self._reasons.append(str(error))
            return None, {"refused": self._reasons}

    def _describe(self) -> tuple[Numbers, Message]:
        """The number of rows, and the kind and levels of the target and of each covariate."""
        model, reasons = self._plan.model, self._reasons
        numbers = self._ledger.digests(self._whole)
        with rules.noted(reasons):
            terms = right_hand_side(self._table, model)
            columns, kept = read_columns(self._table, model, terms)
        if reasons:
            return None, {"refused": reasons}
        self._numbers, self._n_rows = numbers[kept], len(columns[model.target].values)
        weightless = 0 if model.row_weights is None else int(np.sum(self._table.zeros(model.row_weights)))
        with rules.noted(reasons):
            rules.check_rows(self._policy, self._n_rows, weightless)
        columns = {name: c.as_levels() if name in terms.as_levels else c for name, c in columns.items()}
        with rules.noted(reasons):
            usual = usual_family(model.family, model.trials, model.event)
            self._family = families.family(family_of(columns[model.target], usual))
            rules.check_family(self._policy, self._family)
            if self._family.by_class:
                columns[model.target] = columns[model.target].as_levels()
        described = [model.target, *(name for name in columns if name in terms.columns), *filter(None, [model.event])]
        levels = []
        for name in dict.fromkeys(described):
            with rules.noted(reasons):
                levels.append([name, read_levels(columns[name])])
        self._columns_here = columns
        here = {name: columns[name].levels for name in dict.fromkeys(described)}
        counts = {name: counts_of(columns[name], of_all).tolist() for name, of_all in here.items()}
        if model.pool_rare:  # rare levels of these will be pooled: they are looked at after that
            here = {name: of_all for name, of_all in here.items() if not is_poolable(model, name, of_all)}
        self._check_counts(here, counts, self._n_rows, self._few_here, "at this site")
        return None, {
            "rows": self._n_rows, "dropped": int(np.sum(~kept)), "levels": levels, "reasons": reasons, "tags": self._tags,
        }  # fmt: skip

    def _count(self, levels: Mapping[str, Any]) -> tuple[Numbers, Message]:
        """How often each level occurs here."""
        counts = {name: counts_of(self._columns_here[name], of_all) for name, of_all in levels.items()}
        if self._plan.masked:
            return counts, {}
        self._refuse_with_reasons()  # these counts will be seen
        return {name: np.where(row < self._policy.few, 0.0, row) for name, row in counts.items()}, {}

    def _means(self, counted: Counted) -> tuple[Numbers, Message]:
        """Sums of what the formula needs means of."""
        self._agree(counted)
        needed = self._design.needed(self._design_rows)
        with rules.noted(self._reasons):
            self._ledger.admit(Admission({"1": np.ones(self._n_rows), **needed}, self._numbers))
        self._refuse_with_reasons()
        return {"needed": self._design.sums(self._design_rows)}, {}

    def _spread(self, counted: Counted, means: FloatArray) -> tuple[Numbers, Message]:
        """Their sums of squares about means that all sites share."""
        return {"needed": self._design.squares(self._design_rows, means)}, {}

    def _columns(self, counted: Counted, agreed: Agreed) -> tuple[Numbers, Message]:
        """How many rows have something else than zero in each column of the design."""
        self._agree(counted)
        model, policy, reasons = self._plan.model, self._policy, self._reasons
        with rules.noted(reasons):
            self._data = model_data(
                model, self._terms, self._columns_here, self._response(), ("here",), (self._n_rows,), counted.n_rows,
                sites=self._plan.sites, here=self._plan.sites.index(self._name), agreed=agreed,
            )  # fmt: skip
            rows = counted.n_rows if self._plan.masked else self._n_rows
            with rules.noted(reasons):
                rules.check_parameters(policy, len(self._data.all_names), rows, self._whose)
            with rules.noted(reasons):
                self._design.check_stretches(self._design_rows, agreed, policy.few)
            with rules.noted(reasons):
                rules.check_clusters(policy, self._data.cluster)
            return {"nonzero": np.count_nonzero(self._data.covariates, axis=0).astype(float)}, {}
        return None, {"refused": reasons}

    def _sums(self, nonzero: FloatArray) -> tuple[Numbers, Message]:
        """Sums of the columns, once the ledger has admitted them."""
        data, counted = self._data, self._agreed_on
        assert counted is not None
        self._settled = _settled(data, nonzero, counted.n_rows, self._policy.few) if self._plan.masked else ()
        with rules.noted(self._reasons):
            self._ledger.admit(Admission(columns_of(data), self._numbers, self._settled))
        self._refuse_with_reasons()
        response = data.mean_response
        return {
            "sums": data.covariates.sum(axis=0), "response": response.sum(),
            "marks": data.family.start_terms(response).sum(axis=0),
        }, {}  # fmt: skip

    def _squares(self, means: FloatArray, response: float) -> tuple[Numbers, Message]:
        """Sums of squares about means that all sites share."""
        return {
            "squares": ((self._data.covariates - means) ** 2).sum(axis=0),
            "response": ((self._data.mean_response - response) ** 2).sum(),
        }, {}  # fmt: skip

    def _ask(self, ask: Ask, columns: Location, again: bool) -> tuple[Numbers, Message]:
        """Sums at a parameter."""
        if self._rows is None:
            x = Units(columns, None, self._data.constant is not None).rows(self._data.covariates)
            self._rows = client_rows(self._data, x, slice(None))
        if again:
            return None, {}
        family = self._data.family
        try:
            self._ledger.spend(parameters=1, matrices=int(ask.kind == "sums" or bool(ask.parts)))
            self._ledger.admit(Admission({}, self._numbers, self._settled))
        except Refused as error:
            return None, {"refused": [str(error)]}
        return answer(family, self._rows, ask), {}

    @property
    def _few_here(self) -> int:
        """Rows of this site that a level must have, if any."""
        return self._policy.few_here if self._plan.masked else self._policy.few

    def _response(self) -> Response:
        """The target as its family reads it."""
        model, family, columns = self._plan.model, self._family, self._columns_here
        try:
            return response_of(columns[model.target], family.name, *beside_columns(model, columns), link=model.link)
        except ValueError as error:  # whose words may have the value of a row
            needs = family.needs if model.trials is None else "whole numbers from 0 to the trials of their row"
            raise Refused(
                f"the target {model.target!r} must suit the family {family.name!r}, which needs {needs}; it does not at "
                "this site."
            ) from error

    def _check_counts(
        self, levels: Mapping[str, Any], counts: Mapping[str, list[float]], n_rows: float, few: int, whose: str
    ) -> None:
        """Levels and outcomes must have enough rows of those whose sums are seen."""
        with rules.noted(self._reasons):
            rules.check_levels(few, {name: of for name, of in levels.items() if of}, counts, whose)
        outcome = self._plan.model.event or self._plan.model.target
        if levels.get(outcome) is None and outcome in counts and _is_binary(self._columns_here[outcome].values):
            with rules.noted(self._reasons):
                rules.check_outcome(few, outcome, counts[outcome][0], n_rows, whose)

    def _agree(self, counted: Counted) -> None:
        """Take over the levels of all sites, unless the counts of all sites speak against it."""
        if self._agreed_on is not None:
            return
        model, here = self._plan.model, self._plan.sites.index(self._name)
        if self._plan.masked:
            self._check_counts(counted.levels, counted.totals, counted.n_rows, self._policy.few, "of all sites")
        for name, of_all in counted.levels.items():
            renamed = counted.renamed.get(name, {})
            column = self._columns_here[name] = recode(self._columns_here[name], of_all, renamed)
            if of_all is not None:
                own = {name: counts_of(column, of_all).tolist()}
                with rules.noted(self._reasons):
                    rules.check_levels(self._few_here, {name: of_all}, own, "at this site")
        self._terms: Formula = right_hand_side(Frame(self._columns_here), model)
        try:
            self._design, self._design_rows = design_of(
                model, self._terms, self._columns_here, counted.n_rows, self._plan.sites, here, np.array([self._n_rows])
            )
        except ValueError as error:  # it names columns and levels
            raise Refused(str(error)) from error
        self._agreed_on = counted

    def _refuse_with_reasons(self) -> None:
        """Before anything is added up: the last reason ends the run, and all go with it."""
        if self._reasons:
            raise Refused(self._reasons.pop())


def columns_of(data: ModelData) -> Columns:
    """All columns of which a site adds up products: covariates, response, and what stands beside them.

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
