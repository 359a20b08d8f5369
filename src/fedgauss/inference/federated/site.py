"""A site: a party of a federated fit that keeps its rows. Its replies are all that others learn of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedgauss import _checks, families, networks
from fedgauss._random import stage_key
from fedgauss._types import FloatArray
from fedgauss.engine.simulate import padded, simulate
from fedgauss.inference.client_steps import ClientSums, Guard, Preconditioned, in_batches, shuffled
from fedgauss.inference.federated import disclosure
from fedgauss.inference.federated.disclosure import Refused, in_words
from fedgauss.inference.federated.fields import ASKED, REPLIES, Fields, Sizes, check_fields
from fedgauss.inference.federated.lines import Message
from fedgauss.inference.model_data import (
    ModelData,
    ModelSpec,
    check_plain,
    model_data,
    read_columns,
    response_of,
    right_hand_side,
)
from fedgauss.inference.passes import LastClients, schedule, warm_hessians
from fedgauss.inference.preparation import Location, Units, separable, triangle
from fedgauss.inference.tables import Frame
from fedgauss.problems.arrays import from_arrays

_SUMS = ("gradient_sum", "square_sum", "hessian_sum")
_PREPARATIONS = ("describe", "design", "squares", "shape", "begin")


class Site:
    """A party of a federated fit that keeps its rows and answers orders about them.

    Orders come in turn, once each: describe, design, squares, shape, begin; then advance and report.

    What leaves a site: its number of rows and the names of columns and levels; sums and sums of squares of columns; the
    triangular factor of a QR, which is as much as their covariance matrix; a Hessian; its parameters at each
    synchronisation; after the burn-in a sum of Hessians, and at the end sums of gradients, their squares and Hessians.

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
        self._run: SiteRun | None = None

    def answer(self, order: str, content: Message) -> Message:
        """The reply to an order, or {"error": why}.

        Parameters
        ----------
        order : str
            Its name: describe, design, squares, shape, begin, advance or report.
        content : dict
            What goes with it, as `fields` has it.

        Returns
        -------
        dict
        """
        try:
            self._check_turn(order)
            run = self._run
            asked = run.asked() if run and order == "advance" else ASKED[order]
            with in_words(f"the order {order!r} is not as it should be: "):
                check_fields(asked, content, self._sizes)
            told = run.told(order, content) if run else REPLIES[order]
            if run is None:
                reply: Message = getattr(self, f"_{order}")(content)  # in turn, so one of _PREPARATIONS
            else:
                reply = run.report() if order == "report" else run.advance(content)
            with in_words(f"the reply to {order!r} cannot be told: "):
                check_fields(told, reply, self._sizes)
            if order in _PREPARATIONS:
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
        for order, prepare in (("describe", site._describe), ("design", site._design)):
            if order in heard:
                prepare(heard[order])
                site._heard[order] = heard[order]
        if "begin" in heard:
            site._run = SiteRun(site._data, heard["begin"], site._least, site._sizes)
            site._run.resume(state["run"])
        site._heard = heard
        return site

    def _check_turn(self, order: str) -> None:
        if order not in ASKED:
            raise Refused(f"an order must be one of {', '.join(ASKED)}; got {order!r}.")
        if self.begun and order in _PREPARATIONS:
            raise Refused(f"a site takes part in one run; {order!r} would begin another. Restart the site.")
        due = "" if self.begun else _PREPARATIONS[len(self._heard)]
        if due and order != due:
            raise Refused(f"orders must come in turn, once each; {due} is due, got {order!r}. Restart the site.")

    def _describe(self, model: Message) -> Message:
        """The number of rows, and the levels of each column, in the order of the columns."""
        target = model["target"]
        with in_words():
            by_class = families.family(model["family"]).by_class
            spec = ModelSpec(**model)
            terms = right_hand_side(self._table, spec)
            columns, _ = read_columns(self._table, spec, terms)
        rows = len(columns[target].values)
        if rows < self._least:
            raise Refused(f"this site takes part with at least {self._least} rows; it has {rows}.")
        as_levels = terms.as_levels | ({target} if by_class else set())
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
        family = families.family(model["family"])
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
            data = model_data(spec, terms, columns, response, ("here",), (self._rows,), total, agreed={})
            check_plain(data, apart=True)
        disclosure.check_design(data, columns)
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
        """The mean Hessian at the start over the first steps."""
        self._run = SiteRun(self._data, plan, self._least, self._sizes)
        self._heard["begin"] = plan  # before any reply: there is no second try
        return self._run.warm_up()


class SiteRun:
    """Units, the order of rows and the number of steps are those of a plan; step sizes and burn-in follow from them."""

    def __init__(self, data: ModelData, plan: Message, least_rows: int, sizes: Sizes) -> None:
        n_rows, n_steps, about = len(data.response), int(plan["n_steps"]), plan["about"]
        intercept = data.constant is not None
        self._plan, self._tau, self._warm = schedule(n_steps, sizes["d"]), int(plan["sync_every"]), int(plan["warm"])
        disclosure.check_rows_behind(self._plan, self._tau, self._warm, n_rows, least_rows, sizes)
        if np.any(plan["start"].reshape(sizes["C"], -1)[:, int(intercept) :] != 0.0):
            raise Refused("a run starts from the model with an intercept alone, or from zero.")
        if about is not None and about[1] <= 0.0:
            raise Refused("the scale of the response must be above 0.")
        response = None if about is None else Location(about[:1], about[1:])
        units = Units(Location(plan["means"], plan["scales"]), response, intercept)
        order = shuffled(n_rows, int(plan["number"]), int(plan["seed"]), 0)
        rows = from_arrays(
            units.rows(data.covariates)[order], units.target(data.response)[order], np.zeros(n_rows),
            units.family(data.family),
        )  # fmt: skip
        self._problem = in_batches(rows, n_steps)
        # A step of client k is eta K w_k: alone, its share goes into the step size.
        self._eta: FloatArray = self._plan.eta * float(plan["share"])
        self._theta: FloatArray = plan["start"]
        self._step, self._matrix = 0, np.empty((0, 0))
        self._sums: dict[str, Any] = {}

    def state(self) -> Message:
        """All that is needed to resume."""
        return {"step": self._step, "theta": self._theta, "matrix": self._matrix, "sums": self._sums}

    def resume(self, state: Message) -> None:
        """Resume from a saved state."""
        self._step, self._theta, self._matrix = int(state["step"]), state["theta"], state["matrix"]
        self._sums = state["sums"]

    def asked(self) -> Fields:
        """The fields of the next order to advance."""
        names = ["until"]
        if self._step and self._step % self._tau == 0:
            names.append("theta")
        if self._step in (0, self._plan.burn_in):
            names.append("matrix")
        return {name: ASKED["advance"][name] for name in names}

    def told(self, order: str, content: Message) -> Fields:
        """The fields of the reply to an order, as things stand."""
        if order == "advance":
            return {} if content["until"] % self._tau else REPLIES["advance"]
        return REPLIES["first report" if self._step == self._plan.burn_in else "report"]

    def warm_up(self) -> Message:
        """The mean Hessian at the start over the first steps."""
        start, key = jnp.float32(self._theta), stage_key(0, "data")
        sums = warm_hessians(self._problem, key, start, 1, np.int32(self._warm))
        return {"hessian": np.asarray(sums, dtype=float)[:, :, 0, 0] / self._warm}

    def advance(self, go: Message) -> Message:
        """Take steps along P g up to the next stop; reply with the parameters if it is a synchronisation."""
        since, until = self._step, int(go["until"])
        due = next((stop for stop in disclosure.stops_of(self._plan, self._tau) if stop > since), None)
        if until != due:
            raise Refused(
                f"a site stops at synchronisations, after the burn-in and at the end; {due} is due, not {until}."
            )
        self._step = len(self._eta) + 1  # should this fail, the run is over: no second try, and no sums over less
        if "matrix" in go:
            self._matrix, self._sums = go["matrix"], {}
        guard: Guard = "damped" if since < self._plan.burn_in else "capped"
        try:
            runs = simulate(
                Preconditioned(self._problem, self._matrix, padded(self._eta), guard), networks.complete(1),
                self._eta[:until], until, sync_every=None, after=since, start=go.get("theta", self._theta),
                observe=[ClientSums(1), LastClients()], progress=False,
            )  # fmt: skip
            sums = {name: np.asarray(getattr(runs, name)[0, 0], dtype=float) for name in _SUMS}
            if not all(np.all(np.isfinite(part)) for part in sums.values()):
                raise ArithmeticError("sums overflow.")
        except ArithmeticError as error:
            raise Refused("the run diverged at this site: its numbers are no longer finite.") from error
        sums["path"] = np.asarray(runs.average[0], dtype=float) * (until - since)
        self._sums = {name: self._sums.get(name, 0.0) + part for name, part in sums.items()}
        self._step, self._theta = until, np.asarray(runs.last[0], dtype=float)
        return {} if until % self._tau else {"theta": self._theta}

    def report(self) -> Message:
        """The sums since the matrix last changed, and at the end the mean of the iterates.

        After the burn-in that of Hessians only: with the mean of the iterates beside the sum of where steps began one
        would know the parameters of that moment, which may be those of a synchronisation and one row more.
        """
        if self._step == self._plan.burn_in:
            return {"hessian_sum": self._sums["hessian_sum"]}
        if self._step != len(self._eta):
            raise Refused(f"a site reports after the burn-in and at the end; this is step {self._step}.")
        return {**{name: self._sums[name] for name in _SUMS}, "average": self._sums["path"] / self._plan.window}
