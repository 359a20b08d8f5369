"""A site: a party of a federated fit that keeps its rows. Its replies are all that others learn of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from fedgauss import _checks, families
from fedgauss.inference.federated import disclosure
from fedgauss.inference.federated.disclosure import Refused, in_words
from fedgauss.inference.federated.fields import ASKED, REPLIES, Fields, check_fields
from fedgauss.inference.federated.lines import Message
from fedgauss.inference.federated.scoring_site import ScoringRun
from fedgauss.inference.model_data import ModelSpec, model_data, response_of, right_hand_side
from fedgauss.inference.preparation import Location, Units, separable, triangle
from fedgauss.inference.tables import Frame

# What may follow an order before a run begins: a pass of SGD with "begin", an exact fit with "units".
_NEXT = {
    "": ("describe",),
    "describe": ("design",),
    "design": ("squares",),
    "squares": ("shape", "units"),
    "shape": ("begin",),
}
_BEGINNINGS = ("begin", "units")


class Run(Protocol):
    """A site's part in a fit, once the columns are agreed on."""

    @property
    def orders(self) -> tuple[str, ...]:
        """Those that it answers."""

    def asked(self, order: str) -> Fields:
        """The fields of an order, as things stand."""

    def told(self, order: str, content: Message) -> Fields:
        """The fields of the reply to an order, as things stand."""

    def reply(self, order: str, content: Message) -> Message:
        """The reply to an order."""

    def state(self) -> Message:
        """All that is needed to resume."""

    def resume(self, state: Message) -> None:
        """Resume from a saved state."""


class Site:
    """A party of a federated fit that keeps its rows and answers orders about them.

    Orders come in turn: describe, design and squares, once each. An exact fit goes on with units, then sums, final and
    goodness; a pass of SGD with shape and begin, then advance and report.

    What leaves a site: its number of rows and the names of columns and levels; sums and sums of squares of columns. In
    an exact fit, over all of its rows, a log-likelihood with its gradient and information at each parameter it is
    asked about, and at the end their squares. In a pass of SGD the triangular factor of a QR, which is as much as a
    covariance matrix; a Hessian; its parameters at each synchronisation; after the burn-in a sum of Hessians, and at
    the end sums of gradients, their squares and Hessians.

    What it refuses, by an error in place of a reply: to take part with fewer than `least_rows` rows, or with a missing
    value; columns other than `columns`, where these are given; a level or a value that distinguishes fewer than 5 of
    its rows from all others; Hessians over fewer than `least_rows` rows, or fewer than two for each parameter;
    parameters between which fewer than 5 rows were read; what is not in `fields`; orders out of turn; and a second run.
    It works out step sizes and burn-in itself. By starting sites over and over a coordinator could still learn
    something about single rows: the log shows it.

    Parameters
    ----------
    frame : DataFrame or dict
        The rows of this site.
    least_rows : int
        Take part only with at least so many rows.
    columns : sequence of str, optional
        Columns that may be asked about; all by default.

    Notes
    -----
    The family of a fit is found by its name in the registry of the site's own process: a family of your own must be
    registered here too (`fedgauss.families.register`).

    Examples
    --------
    >>> serve_lines(Site(read_table("north.csv"), least_rows=50), sys.stdin, sys.stdout)
    """

    def __init__(self, frame: Any, least_rows: int = 10, columns: Sequence[str] | None = None) -> None:
        self._table = Frame(frame)
        if columns is not None:
            self._table = Frame({self._table.check_name(name, "columns"): frame[name] for name in columns})
        self._least = _checks.whole("least_rows", least_rows)
        self._heard: dict[str, Message] = {}
        self._sizes: dict[str, int] = {}
        self._run: Run | None = None

    def answer(self, order: str, content: Message) -> Message:
        """The reply to an order, or {"error": why}.

        Parameters
        ----------
        order : str
            Its name, one of `fields.ASKED`.
        content : dict
            What goes with it, as `fields` has it.

        Returns
        -------
        dict
        """
        try:
            self._check_turn(order)
            run = self._run
            with in_words(f"the order {order!r} is not as it should be: "):
                check_fields(run.asked(order) if run else ASKED[order], content, self._sizes)
            told = run.told(order, content) if run else REPLIES[order]
            reply: Message = run.reply(order, content) if run else getattr(self, f"_{order}")(content)
            with in_words(f"the reply to {order!r} cannot be told: "):
                check_fields(told, reply, self._sizes)
            if run is None:
                self._heard[order] = content
            return reply
        except Refused as error:
            return {"error": str(error)}
        except Exception as error:  # its message may quote a row, as a traceback would
            return {"error": f"the order {order!r} failed at this site ({type(error).__name__})."}

    @property
    def begun(self) -> bool:
        """Whether a run has begun; there is no second one."""
        return self._run is not None

    def state(self) -> Message:
        """What another `Site` with the same rows needs to resume from here; it reveals more than the replies do."""
        return {"heard": self._heard, "run": None if self._run is None else self._run.state()}

    @classmethod
    def restored(cls, frame: Any, state: Message, least_rows: int = 10) -> Site:
        """The site whose `state` this was."""
        site, heard = cls(frame, least_rows), state["heard"]
        for order in ("describe", "design", *_BEGINNINGS):
            if order in heard:
                getattr(site, f"_{order}")(heard[order])
                site._heard[order] = heard[order]
        if site._run is not None:
            site._run.resume(state["run"])
        site._heard = heard
        return site

    def _check_turn(self, order: str) -> None:
        if order not in ASKED:
            raise Refused(f"an order must be one of {', '.join(ASKED)}; got {order!r}.")
        if self._run is not None:
            if order not in self._run.orders:
                raise Refused(f"a site takes part in one run; {order!r} is no part of it. Restart the site.")
            return
        due = _NEXT[next(reversed(self._heard), "")]
        if order not in due:
            raise Refused(
                f"orders must come in turn, once each; {' or '.join(due)} is due, got {order!r}. Restart the site."
            )

    def _describe(self, model: Message) -> Message:
        """The number of rows, and the levels of each column, in the order of the columns."""
        target = model["target"]
        with in_words():
            by_class = families.family(model["family"] or "linear").by_class
            terms = right_hand_side(self._table, ModelSpec(**model))
            columns = self._table.read(list(dict.fromkeys([target, *(term.column for term in terms.terms)])))
        rows = len(columns[target].values)
        if rows < self._least:
            raise Refused(f"this site takes part with at least {self._least} rows; it has {rows}.")
        as_levels = {term.column for term in terms.terms if term.levels} | ({target} if by_class else set())
        columns = {name: c.as_levels() if name in as_levels else c for name, c in columns.items()}
        for column in columns.values():
            disclosure.check_many(column)
        levels = {name: disclosure.plain_levels(column) for name, column in columns.items()}
        self._columns, self._rows = columns, rows
        return {"rows": rows, "levels": levels}

    def _design(self, agreed: Message) -> Message:
        """Sums of the columns, once levels are those of all sites."""
        model, levels = self._heard["describe"], agreed["levels"]
        if levels.keys() != self._columns.keys():
            raise Refused("levels must be those of the columns that were described, and of no others.")
        columns = {name: disclosure.recoded(self._columns[name], of_all) for name, of_all in levels.items()}
        family = families.family(model["family"] or "linear")
        try:
            response = response_of(columns[model["target"]], family)
        except ValueError as error:
            raise Refused(
                f"the target {model['target']!r} must suit the family {model['family']!r}, which needs {family.needs}; "
                "it does not at this site."
            ) from error
        with in_words():
            spec, total = ModelSpec(**model), int(agreed["total"])
            terms = right_hand_side(Frame(columns), spec)
            data = model_data(spec, terms, columns, response, ("here",), (self._rows,), total)
        self._data = data
        self._sizes = data.sizes(self._rows)
        return {
            "names": list(data.all_names),
            "sums": data.covariates.sum(axis=0),
            "response": float(data.response.sum()),
            "marks": data.family.start_terms(data.response).sum(axis=0),
        }

    def _squares(self, about: Message) -> Message:
        """Sums of squares about means that all sites share."""
        return {
            "squares": ((self._data.covariates - about["means"]) ** 2).sum(axis=0),
            "response": float(((self._data.response - about["response"]) ** 2).sum()),
        }

    def _shape(self, located: Message) -> Message:
        """The triangular factor of the columns, and for which pairs of classes no plane separates this site's rows."""
        columns = Location(located["means"], located["scales"])
        rows = Units(columns, None, self._data.constant is not None).rows(self._data.covariates)
        spans = np.linalg.matrix_rank(rows) == rows.shape[1]
        overlaps = [bool(spans and not separable(rows, side)) for side in self._data.sides.values()]
        return {"triangle": triangle(self._data.covariates, columns), "overlaps": overlaps}

    def _begin(self, plan: Message) -> Message:
        """A pass of SGD: the mean Hessian at the start over the first steps."""
        from fedgauss.inference.federated.sgd_site import SgdRun  # which needs JAX

        run = SgdRun(self._data, plan, self._least, self._sizes)
        self._run, self._heard["begin"] = run, plan  # before any reply: there is no second try
        return run.warm_up()

    def _units(self, located: Message) -> Message:
        """An exact fit, in units of these means and scales."""
        self._run, self._heard["units"] = ScoringRun(self._data, located, self._sizes), located
        return {}
