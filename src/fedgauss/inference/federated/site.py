"""A site: a party of a federated fit that keeps its rows. Its replies are all that others learn of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from fedgauss import families
from fedgauss.inference.federated import disclosure
from fedgauss.inference.federated.disclosure import Refused, in_words
from fedgauss.inference.federated.fields import ASKED, REPLIES, SUMMED, Fields, check_fields
from fedgauss.inference.federated.ledger import Ledger
from fedgauss.inference.federated.lines import Message
from fedgauss.inference.federated.model_disclosure import Columns, check_model, check_needed, told_columns
from fedgauss.inference.federated.policy import Policy
from fedgauss.inference.federated.scoring_site import ScoringRun
from fedgauss.inference.federated.site_masks import SiteMasks
from fedgauss.inference.formula.values import Summary
from fedgauss.inference.model import Model
from fedgauss.inference.model_data import beside_columns, design_of, model_data, read_columns
from fedgauss.inference.model_terms import right_hand_side
from fedgauss.inference.preparation import Location, Units, separable, triangle
from fedgauss.inference.response import family_of, response_of, usual_family
from fedgauss.inference.tables import Frame

# What may follow an order before a run begins: a pass of SGD with "begin", an exact fit with "units".
_NEXT = {
    "": ("describe", "keys"),
    "keys": ("meet",),
    "meet": ("describe",),
    "describe": ("levels",),
    "levels": ("spread", "design"),
    "spread": ("design",),
    "design": ("squares",),
    "squares": ("shape", "units"),
    "shape": ("begin",),
}
_AGAIN = ("keys", "meet", "describe", "levels", "spread", "design", "begin", "units")  # to restore a site
_MOST_TRIES = 3  # of a design: whether knots are refused tells where rows are
_LONGEST = 1000  # characters of an error


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

    Orders come in turn, once each: describe, levels, design and squares (and spread, where the formula needs means and
    standard deviations). An exact fit goes on with units, then sums, final and goodness; a pass of SGD with shape and
    begin, then advance and report. In a masked fit keys and meet come first.

    What leaves a site: its number of rows and the names of columns and levels; sums and sums of squares of columns. In
    an exact fit, over all of its rows, a log-likelihood with its gradient and information at each parameter it is
    asked about, and at the end their squares; masked, none of these sums by itself. In a pass of SGD the triangular
    factor of a QR, which is as much as a covariance matrix; a Hessian; its parameters at each synchronisation; after
    the burn-in a sum of Hessians, and at the end sums of gradients, their squares and Hessians.

    What it refuses, by an error in place of a reply: all that breaks its policy; designs, values and parameters whose
    sums would tell of few rows (`few_rows`); missing values, unless they are to be dropped; what is not in `fields`;
    orders out of turn; and a second run. By starting sites over and over a coordinator could still learn something
    about single rows: a ledger notices differences between runs, and the log shows them.

    Parameters
    ----------
    frame : DataFrame or dict
        The rows of this site.
    policy : Policy, optional
        The rules of the site's owner; careful ones by default.

    Notes
    -----
    The family of a fit is found by its name in the registry of the site's own process: a family of your own must be
    registered here too (`fedgauss.families.register`).

    Examples
    --------
    >>> serve_lines(Site(read_table("north.csv"), Policy(least_rows=50)), sys.stdin, sys.stdout)
    """

    def __init__(self, frame: Any, policy: Policy | None = None) -> None:
        self._policy = Policy() if policy is None else policy
        table = Frame(frame)
        self._table = Frame({name: table.column(name) for name in self._policy.open_columns(table.names)})
        self._heard: dict[str, Message] = {}
        self._sizes: dict[str, int] = {}
        self._masks = SiteMasks(self._policy)
        self._rounds, self._tries = 0, 0
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
            masking, content = self._masks.parted(order, content)
            run = self._run
            with in_words(f"the order {order!r} is not as it should be: "):
                check_fields(run.asked(order) if run else ASKED[order], content, self._sizes)
            if order in SUMMED:
                self._policy.check_round(self._rounds + 1)
            told = run.told(order, content) if run else REPLIES[order]
            reply: Message = run.reply(order, content) if run else getattr(self, f"_{order}")(content)
            with in_words(f"the reply to {order!r} cannot be told: "):
                check_fields(told, reply, self._sizes)
            if masking is not None:
                reply = self._masks.hidden(order, content, reply, masking)
            if run is None:
                self._heard[order] = content
            self._rounds += order in SUMMED
            return reply
        except Refused as error:
            return {"error": str(error)[:_LONGEST]}
        except Exception as error:  # its message may quote a row, as a traceback would
            return {"error": f"the order {order!r} failed at this site ({type(error).__name__})."}

    @property
    def begun(self) -> bool:
        """Whether a run has begun; there is no second one."""
        return self._run is not None

    def expects(self, order: str) -> bool:
        """Whether this order may come next."""
        return order in (_NEXT[next(reversed(self._heard), "")] if self._run is None else self._run.orders)

    @property
    def fingerprint(self) -> str:
        """Of the keys of a masked run, for owners to compare; empty otherwise."""
        return self._masks.fingerprint

    def state(self) -> Message:
        """What another `Site` with the same rows needs to resume from here; it reveals more than the replies do."""
        return {
            "heard": self._heard, "rounds": self._rounds, "tries": self._tries, "masks": self._masks.state(),
            "run": None if self._run is None else self._run.state(),
        }  # fmt: skip

    @classmethod
    def restored(cls, frame: Any, state: Message, policy: Policy | None = None) -> Site:
        """The site whose `state` this was."""
        site, heard = cls(frame, policy), state["heard"]
        site._restoring = True
        site._masks.restore(state["masks"])
        for order in _AGAIN:
            if order in heard and order not in ("keys", "meet"):
                getattr(site, f"_{order}")(heard[order])
            if order in heard:
                site._heard[order] = heard[order]
        if site._run is not None:
            site._run.resume(state["run"])
        site._heard, site._rounds, site._restoring = heard, int(state["rounds"]), False
        site._tries = int(state["tries"])
        return site

    _restoring = False  # whether orders are heard again that were answered before

    def _check_turn(self, order: str) -> None:
        if order not in ASKED:
            raise Refused(f"an order must be one of {', '.join(ASKED)}; got {order[:60]!r}.")
        if self.expects(order):
            return
        if self._run is not None:
            raise Refused(f"a site takes part in one run; {order!r} is no part of it. Restart the site.")
        due = " or ".join(_NEXT[next(reversed(self._heard), "")])
        raise Refused(f"orders must come in turn, once each; {due} is due, got {order!r}. Restart the site.")

    # Before a run. Nothing is kept of an order that is refused on the way.

    def _keys(self, asked: Message) -> Message:
        """A public key for this run."""
        return self._masks.keys(asked["name"])

    def _meet(self, others: Message) -> Message:
        """All public keys of the run."""
        return self._masks.meet(others)

    def _describe(self, asked: Message) -> Message:
        """The number of rows, and the levels of the target and of each covariate, in the order of the columns."""
        model = {name: value for name, value in asked.items() if name not in ("sites", "name")}
        policy, target = self._policy, model["target"]
        with in_words():
            spec = Model.from_wire(model)
            policy.check_sites(len(asked["sites"]))
            policy.check_masked(self._masks.on)
            self._masks.check_sites(asked["sites"], asked["name"])
            if asked["name"] not in asked["sites"]:
                raise Refused("a site must be among the sites of its fit.")
            self._sites, self._here = tuple(asked["sites"]), asked["sites"].index(asked["name"])
            terms = right_hand_side(self._table, spec)
            columns, self._kept = read_columns(self._table, spec, terms)
        rows = len(columns[target].values)
        policy.check_rows(rows)
        if spec.row_weights is not None:
            policy.check_weightless(int(np.sum(self._table.zeros(spec.row_weights))))
        columns = {name: c.as_levels() if name in terms.as_levels else c for name, c in columns.items()}
        told = [target, *(name for name in columns if name in terms.columns)]
        for name in {*told, *filter(None, [spec.event])}:
            policy.check_levels(columns[name])
        with in_words():  # which may name the two values of a target: only now that many rows have each
            usual = usual_family(spec.family, spec.trials, spec.event)  # type: ignore[arg-type]
            family = families.family(family_of(columns[target], usual))  # type: ignore[arg-type]
            policy.check_family(family.name, *family.aliases)
        if family.by_class:
            columns[target] = columns[target].as_levels()
            policy.check_levels(columns[target])
        self._spec = replace(spec, family=family.name)
        self._columns, self._rows, self._told = columns, rows, list(dict.fromkeys(told))
        return {
            "rows": rows, "dropped": int(np.sum(~self._kept)),
            "levels": {name: disclosure.plain_levels(columns[name]) for name in self._told},
        }  # fmt: skip

    def _levels(self, agreed: Message) -> Message:
        """Sums of what the formula needs means of, once levels are those of all sites."""
        levels = agreed["levels"]
        if list(levels) != self._told and set(levels) != set(self._told):
            raise Refused("levels must be those of the columns that were described, and of no others.")
        agreed_on = {name: disclosure.recoded(self._columns[name], of_all) for name, of_all in levels.items()}
        roles = {name: column for name, column in self._columns.items() if name not in agreed_on}
        columns, total, counts = agreed_on | roles, int(agreed["total"]), np.array([self._rows])
        with in_words():
            terms = right_hand_side(Frame(columns), self._spec)
            design, rows = design_of(self._spec, terms, columns, total, self._sites, self._here, counts)
            needed = design.needed(rows)
        check_needed(needed, self._policy)
        self._admit("means", needed)
        self._agreed = (terms, columns, total)
        self._design_rows, self._sizes = (design, rows), {"m": len(needed)}
        return {"needed": design.sums(rows)}

    def _spread(self, about: Message) -> Message:
        """Their sums of squares about means that all sites share."""
        design, rows = self._design_rows
        return {"needed": design.squares(rows, about["means"])}

    def _design(self, agreed: Message) -> Message:
        """Sums of the columns."""
        spec, policy, family = self._spec, self._policy, families.family(self._spec.family)  # type: ignore[arg-type]
        terms, columns, total = self._agreed
        try:
            response = response_of(columns[spec.target], spec.family, *beside_columns(spec, columns), link=spec.link)
        except ValueError as error:
            needs = family.needs if spec.trials is None else "whole numbers from 0 to the trials of their row"
            raise Refused(
                f"the target {spec.target!r} must suit the family {family.name!r}, which needs {needs}; it does not at "
                "this site."
            ) from error
        design, rows = self._design_rows
        pairs = zip(design.needs(), agreed["means"].tolist(), agreed["sds"].tolist(), strict=True)
        means = {name: Summary(mean, sd) for name, mean, sd in pairs}
        if self._tries >= _MOST_TRIES and not self._restoring:
            raise Refused(f"a design is tried at most {_MOST_TRIES} times. Restart the site.")
        self._tries += 1
        with in_words():
            data = model_data(
                spec, terms, columns, response, ("here",), (self._rows,), total, sites=self._sites, here=self._here,
                agreed=means,
            )  # fmt: skip
            policy.check_parameters(self._rows, len(data.all_names))
            design.check_stretches(rows, means, policy.least_rows_in_a_level)
        check_model(data, policy, self._masks.on)
        self._admit(family.name, told_columns(data))
        self._data = data
        self._sizes = data.sizes(self._rows) | self._sizes
        return {
            "names": list(data.all_names),
            "sums": data.covariates.sum(axis=0),
            "response": float(data.mean_response.sum()),
            "marks": data.family.start_terms(data.mean_response).sum(axis=0),
        }

    def _admit(self, what: str, columns: Columns) -> None:
        """Write what is about to be told into the ledger, which refuses what differs from earlier runs in few rows."""
        if self._policy.ledger is None or self._restoring or not columns:
            return
        ledger = Ledger(self._policy.ledger, self._policy.least_rows_in_a_level)
        signs = ledger.signs({name: self._table.column(name) for name in self._table.names})
        ledger.admit(f"{self._spec.target} by {what}", columns, signs[self._kept])

    def _squares(self, about: Message) -> Message:
        """Sums of squares about means that all sites share."""
        return {
            "squares": ((self._data.covariates - about["means"]) ** 2).sum(axis=0),
            "response": float(((self._data.mean_response - about["response"]) ** 2).sum()),
        }

    def _shape(self, located: Message) -> Message:
        """The triangular factor of the columns, and for which pairs of classes no plane separates this site's rows."""
        columns = Location(located["means"], located["scales"])
        rows = Units(columns, None, self._data.constant is not None).rows(self._data.covariates)
        spans = np.linalg.matrix_rank(rows) == rows.shape[1]
        overlaps = [bool(spans and not separable(rows, side)) for side in self._data.sides.values()]
        return {"triangle": triangle(self._data.covariates, columns), "overlaps": overlaps}

    def _units(self, located: Message) -> Message:
        """An exact fit, in units of these means and scales."""
        self._run, self._heard["units"] = ScoringRun(self._data, located, self._policy, self._masks.on), located
        return {}
