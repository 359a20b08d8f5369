"""A site: one place with rows of its own. It answers what it is asked, and nothing else can be known of its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedgauss import _checks
from fedgauss.inference.design import Design, asked_terms, covariates_of, intercept_name, response_of
from fedgauss.inference.federated.agreement import terms_in_order
from fedgauss.inference.federated.fields import ASKED, REPLIES, check_fields
from fedgauss.inference.federated.messages import Message
from fedgauss.inference.federated.own_columns import check_many, plain_levels, recoded
from fedgauss.inference.federated.own_steps import OwnSteps
from fedgauss.inference.federated.refusals import Refused, in_words
from fedgauss.inference.frames import Frame
from fedgauss.inference.obstacles import check_huber, separable, sides_of, triangle
from fedgauss.inference.standardise import Location, Units, marks

_PREPARATIONS = ("describe", "design", "squares", "shape", "begin")


class Site:
    """Orders come in this order, once each: describe, design, squares, shape, begin; then advance and report.

    What leaves a site: its number of rows and names of columns and levels; sums and sums of squares of columns; the
    triangle of a QR, which is as much as their covariance matrix; a Hessian; its parameters at each synchronisation;
    after the burn-in a sum of Hessians, and at the end sums of gradients, their squares and Hessians.

    What it refuses, by an error in place of a reply: to take part with fewer than `least_rows` rows, or with a missing
    value; columns other than `columns`, where these are given; a level or a value that sets fewer than 5 of its rows
    apart from all others; Hessians over fewer than `least_rows` rows, or fewer than two for each parameter; parameters
    that fewer than 5 rows stand between; what is not in `fields`; orders out of turn; and a second run. Step sizes and
    burn-in are its own business. Whoever asks could still work out something of single rows by starting sites over and
    over: the log tells.
    """

    def __init__(self, frame: Any, least_rows: int = 10, columns: Sequence[str] | None = None) -> None:
        self._table = Frame(frame)
        if columns is not None:
            self._table = Frame({self._table.check_name(name, "columns"): frame[name] for name in columns})
        self._least = _checks.whole("least_rows", least_rows)
        self._heard: dict[str, Message] = {}
        self._sizes: dict[str, int] = {}
        self._run: OwnSteps | None = None

    def answer(self, order: str, content: Message) -> Message:
        """The reply to an order, or {"error": why}."""
        try:
            self._check_turn(order)
            run = self._run
            asked = run.asked() if run and order == "advance" else ASKED[order]
            with in_words(f"the order {order!r} is not as it should be: "):
                check_fields(asked, content, self._sizes)
            told = run.told(order, content) if run else REPLIES[order]
            reply = self._follow(order, content)
            with in_words(f"the reply to {order!r} cannot be told: "):
                check_fields(told, reply, self._sizes)
            if order in _PREPARATIONS:
                self._heard[order] = content
            return reply
        except Refused as error:
            return {"error": str(error)}
        except Exception as error:  # whose words may quote a row, as a traceback would
            return {"error": f"the order {order!r} failed at this site ({type(error).__name__})."}

    @property
    def begun(self) -> bool:
        """Whether it takes part in a run, and so in no other."""
        return self._run is not None

    def state(self) -> Message:
        """What another `Site` with the same rows needs to go on from here; it tells more than the replies do."""
        return {"heard": self._heard, "run": None if self._run is None else self._run.state()}

    @classmethod
    def restored(cls, frame: Any, state: Message, least_rows: int = 10) -> Site:
        """The site that `state` was taken of."""
        site, heard = cls(frame, least_rows), state["heard"]
        for order, prepare in (("describe", site._describe), ("design", site._design)):
            if order in heard:
                prepare(heard[order])
                site._heard[order] = heard[order]
        if "begin" in heard:
            site._run = OwnSteps(site._here, heard["begin"], site._least, site._sizes)
            site._run.go_on(state["run"])
        site._heard = heard
        return site

    def _check_turn(self, order: str) -> None:
        if order not in ASKED:
            raise Refused(f"an order must be one of {', '.join(ASKED)}; got {order!r}.")
        if self.begun and order in _PREPARATIONS:
            raise Refused(f"a site takes part in one run; {order!r} would begin another. Start it anew.")
        due = "" if self.begun else _PREPARATIONS[len(self._heard)]
        if due and order != due:
            raise Refused(f"orders must come in turn, once each; {due} is due, got {order!r}. Start the site anew.")

    def _follow(self, order: str, content: Message) -> Message:
        if self._run is not None:
            return self._run.report() if order == "report" else self._run.advance(content)
        prepare: dict[str, Callable[[Message], Message]] = {
            "describe": self._describe,
            "design": self._design,
            "squares": self._squares,
            "shape": self._shape,
            "begin": self._begin,
        }
        return prepare[order](content)

    def _describe(self, asked: Message) -> Message:
        """How many rows there are, and which levels each column has, in the order of the columns."""
        target = asked["target"]
        with in_words():
            terms = asked_terms(self._table, target, None, asked["features"], asked["formula"], asked["intercept"])
            columns = self._table.read(list(dict.fromkeys([target, *(term.column for term in terms.terms)])))
        rows = len(columns[target].values)
        if rows < self._least:
            raise Refused(f"this site takes part with at least {self._least} rows; it has {rows}.")
        as_levels = {term.column for term in terms.terms if term.levels}
        if asked["family"] == "one_versus_rest":
            as_levels.add(target)
        columns = {name: c.as_levels() if name in as_levels else c for name, c in columns.items()}
        for column in columns.values():
            check_many(column)
        levels = {name: plain_levels(column) for name, column in columns.items()}
        self._columns, self._rows = columns, rows
        return {"rows": rows, "levels": levels}

    def _design(self, agreed: Message) -> Message:
        """Sums of the columns, once levels are those of all sites."""
        model, levels = self._heard["describe"], agreed["levels"]
        target = model["target"]
        if levels.keys() != self._columns.keys():
            raise Refused("levels must be those of the columns that were described, and of no others.")
        columns = {name: recoded(self._columns[name], own) for name, own in levels.items()}
        with in_words():
            terms = terms_in_order(model, levels)
            x, names = covariates_of(terms, columns, int(agreed["total"]))
        constant = intercept_name(terms, model["formula"], names)
        try:
            y, classes, family = response_of(columns[target], model["family"])
        except ValueError as error:
            raise Refused(
                f"the target {target!r} must suit the family {model['family']!r}; it does not at this site. logistic "
                "needs 0 and 1, poisson counts, one_versus_rest classes, and all others numbers."
            ) from error
        here = Design(x, names, constant, y, target, classes, family, ("here",), np.array([self._rows]))
        try:
            check_huber(here)
        except ValueError as error:
            raise Refused(
                f"the threshold of family 'huber', 1.345, must not be far below the spread of the target; at this site "
                f"it is for {target!r}. Measure it in other units at all sites."
            ) from error
        self._here, self._sides = here, sides_of(family, target, classes, y)
        self._sizes = {
            "p": len(names), "C": max(1, len(classes)), "d": len(here.all_names), "s": len(self._sides),
            "t": min(self._rows, len(names)),
        }  # fmt: skip
        return {
            "names": list(here.all_names),
            "sums": x.sum(axis=0),
            "response": float(y.sum()),
            "marks": marks(y, family).sum(axis=0),
        }

    def _squares(self, about: Message) -> Message:
        """Sums of squares about means that all sites share."""
        return {
            "squares": ((self._here.covariates - about["means"]) ** 2).sum(axis=0),
            "response": float(((self._here.response - about["response"]) ** 2).sum()),
        }

    def _shape(self, located: Message) -> Message:
        """How columns hang together, and of which pairs of classes it is sure that no plane parts them."""
        columns = Location(located["means"], located["scales"])
        rows = Units(columns, None, self._here.constant is not None).rows(self._here.covariates)
        spans = np.linalg.matrix_rank(rows) == rows.shape[1]
        overlaps = [bool(spans and not separable(rows, side)) for side in self._sides.values()]
        return {"triangle": triangle(self._here.covariates, columns), "overlaps": overlaps}

    def _begin(self, plan: Message) -> Message:
        """The mean Hessian at the start over the first steps."""
        self._run = OwnSteps(self._here, plan, self._least, self._sizes)
        self._heard["begin"] = plan  # before anything is told: there is no second try
        return self._run.warm_up()
