"""A site: one place with rows of its own. It answers what it is asked, and nothing else can be known of its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedgauss import _checks, networks
from fedgauss._random import stage_key
from fedgauss._types import FloatArray
from fedgauss.engine.simulate import simulate
from fedgauss.inference.design import asked_terms, covariates_of, intercept_name, response_of
from fedgauss.inference.federated.messages import Message
from fedgauss.inference.formula import Formula
from fedgauss.inference.frames import Column, Frame
from fedgauss.inference.obstacles import separable, sides_of, triangle
from fedgauss.inference.passes import LastClients
from fedgauss.inference.row_batches import RowBatches, batch_edges, shuffled
from fedgauss.inference.standardise import Location, Units, marks
from fedgauss.inference.summaries import ClientSums
from fedgauss.inference.whitened import warm_hessians
from fedgauss.problems.arrays import from_arrays
from fedgauss.problems.families import Family
from fedgauss.problems.preconditioned import Guard, Preconditioned

_FEWEST = 5  # rows that a level, or two sets of parameters, may tell of
SUMS = ("gradient_sum", "square_sum", "hessian_sum", "place_sum")


class Site:
    """Orders come in this order: describe, design, squares, shape, begin, advance (many times), report.

    What leaves a site: its number of rows and names of columns and levels; sums and sums of squares of columns; the
    triangle of a QR, which is as much as their covariance matrix; a Hessian; its parameters at each synchronisation;
    and after the burn-in and at the end sums of gradients, their squares and Hessians.

    What it refuses, by an error in place of a reply: to take part with fewer than `least_rows` rows, or with a missing
    value; columns other than `columns`, where these are given; levels that fewer than 5 of its rows have; Hessians over
    fewer than `least_rows` rows; parameters that fewer than 5 rows stand between; reports at other times; and a second
    run. Whoever asks could still work out something of single rows by starting sites over and over: the log tells.
    """

    def __init__(self, frame: Any, least_rows: int = 10, columns: Sequence[str] | None = None) -> None:
        self._table = Frame(frame) if columns is None else Frame({name: frame[name] for name in columns})
        self._least = _checks.whole("least_rows", least_rows)
        self._heard: dict[str, Message] = {}
        self._formula: Formula | None = None
        self._columns: dict[str, Column] = {}
        self._step, self._theta, self._matrix = 0, np.empty(0), np.empty((0, 0))
        self._guard: Guard = "damped"
        self._sums: dict[str, Any] = {}
        self._path: Any = 0.0
        self._count = 0
        self._orders: dict[str, Callable[[Message], Message]] = {
            "describe": self._describe,
            "design": self._design,
            "squares": self._squares,
            "shape": self._shape,
            "begin": self._begin,
            "advance": self._advance,
            "report": self._report,
        }

    def answer(self, order: str, content: Message) -> Message:
        """The reply to an order, or {"error": why}."""
        try:
            if order not in self._orders:
                raise ValueError(f"an order must be one of {', '.join(self._orders)}; got {order!r}.")
            if "begin" in self._heard and order not in ("advance", "report"):
                raise ValueError(f"a site takes part in one run; {order!r} would begin another. Start it anew.")
            reply = self._orders[order](content)
            if order in ("describe", "design", "begin"):
                self._heard[order] = content
            return reply
        except (ValueError, ArithmeticError) as error:
            return {"error": str(error)}
        except (AttributeError, KeyError, TypeError) as error:
            return {"error": f"the order {order!r} came too early, or without something it needs ({error})."}

    def state(self) -> Message:
        """What another `Site` with the same rows needs to go on from here; it tells more than the replies do."""
        numbers = {"step": self._step, "sums": self._sums, "path": self._path, "count": self._count}
        return {"heard": self._heard, "theta": self._theta, **numbers, "matrix": self._matrix, "guard": self._guard}

    @classmethod
    def restored(cls, frame: Any, state: Message, least_rows: int = 10) -> Site:
        """The site that `state` was taken of."""
        site, heard = cls(frame, least_rows), state["heard"]
        for order, prepare in (("describe", site._describe), ("design", site._design), ("begin", site._prepare)):
            if order in heard:
                prepare(heard[order])
        site._heard = heard
        site._step, site._count = int(state["step"]), int(state["count"])
        site._sums, site._path, site._theta = state["sums"], state["path"], state["theta"]
        site._matrix, site._guard = state["matrix"], state["guard"]
        return site

    def _describe(self, asked: Message) -> Message:
        """How many rows there are, and which levels each column has."""
        self._target, self._family, self._wanted = asked["target"], asked["family"], asked["formula"]
        terms = asked_terms(self._table, self._target, None, asked["features"], self._wanted, asked["intercept"])
        self._columns = self._table.read(list(dict.fromkeys([self._target, *(term.column for term in terms.terms)])))
        self._formula, self._rows = terms, len(self._columns[self._target].values)
        if self._rows < self._least:
            raise ValueError(f"this site takes part with at least {self._least} rows; it has {self._rows}.")
        as_levels = {term.column for term in terms.terms if term.levels}
        if self._family == "one_versus_rest":
            as_levels.add(self._target)
        for name in as_levels:
            self._columns[name] = self._columns[name].as_levels()
        for name, column in self._columns.items():
            if column.levels is not None and np.bincount(column.values.astype(int)).min() < _FEWEST:
                raise ValueError(
                    f"levels must have at least {_FEWEST} rows each at this site, or they would tell of single ones; "
                    f"some of {name!r} have fewer. Join rare levels, or leave the column out."
                )
        levels = {name: None if c.levels is None else list(c.levels) for name, c in self._columns.items()}
        return {"rows": self._rows, "levels": levels}

    def _design(self, agreed: Message) -> Message:
        """Sums of the columns, once levels are those of all sites."""
        assert self._formula is not None
        columns = {name: _recoded(self._columns[name], levels) for name, levels in agreed["levels"].items()}
        self._x, names = covariates_of(self._formula, columns, int(agreed["total"]))
        self._y, classes, family = response_of(columns[self._target], self._family)
        self._kind: Family = family
        self._classes = classes
        return {
            "names": list(names),
            "constant": intercept_name(self._formula, self._wanted, names),
            "classes": list(classes),
            "sums": self._x.sum(axis=0),
            "response": float(self._y.sum()),
            "marks": marks(self._y, family).sum(axis=0),
        }

    def _squares(self, about: Message) -> Message:
        """Sums of squares about means that all sites share."""
        return {
            "squares": ((self._x - about["means"]) ** 2).sum(axis=0),
            "response": float(((self._y - about["response"]) ** 2).sum()),
        }

    def _shape(self, located: Message) -> Message:
        """How columns hang together, and of which pairs of classes it is sure that no plane parts them."""
        columns = Location(located["means"], located["scales"])
        rows = Units(columns, None, bool(located["intercept"])).rows(self._x)
        spans = np.linalg.matrix_rank(rows) == rows.shape[1]
        found = sides_of(self._kind, self._target, self._classes, self._y)
        overlaps = {what: bool(spans and not separable(rows, side)) for what, side in found.items()}
        return {"triangle": triangle(self._x, columns), "overlaps": overlaps}

    def _begin(self, plan: Message) -> Message:
        """The mean Hessian at the start over the first steps."""
        self._prepare(plan)
        warm = int(plan["warm"])
        sums = warm_hessians(self._problem, stage_key(0, "data"), jnp.float32(plan["start"]), 1, np.int32(warm))
        return {"hessian": np.asarray(sums, dtype=float)[:, :, 0, 0] / warm}

    def _prepare(self, plan: Message) -> None:
        """Take over units, the order of rows and step sizes."""
        about = plan["about"]
        response = None if about is None else Location(about[:1], about[1:])
        units = Units(Location(plan["means"], plan["scales"]), response, bool(plan["intercept"]))
        n_steps, number = int(plan["n_steps"]), int(plan["number"])
        order = shuffled(self._rows, number, int(plan["seed"]), 0)
        rows = from_arrays(
            units.rows(self._x)[order], units.target(self._y)[order], np.zeros(self._rows), units.family(self._kind),
            n_classes=len(self._classes) or None,
        )  # fmt: skip
        edges = batch_edges(rows.counts, n_steps)
        self._tau, self._burn_in = int(plan["sync_every"]), int(plan["burn_in"])
        between = int(np.diff(edges[:: self._tau, 0]).min(initial=self._rows))
        if between < _FEWEST:
            raise ValueError(
                f"at least {_FEWEST} rows must be read between two synchronisations, or parameters would tell of "
                f"single ones; here it would be {between}. Ask for a larger sync_every."
            )
        if edges[min(int(plan["warm"]), n_steps), 0] < self._least:
            raise ValueError(f"the Hessian of the warm-up must be of at least {self._least} rows here.")
        self._problem = RowBatches(rows, edges, int(np.diff(edges, axis=0).max()))
        # A step of client k is eta K w_k: alone, its share goes into the step size.
        self._eta: FloatArray = plan["eta"] * float(plan["share"])
        self._step, self._theta = 0, plan["start"]
        self._forget()

    def _advance(self, go: Message) -> Message:
        """Steps up to `until` along P g, from the parameters given or from its own. These are told only where mixed."""
        until, end = int(go["until"]), len(self._eta)
        if not self._step < until <= end or (until % self._tau and until not in (self._burn_in, end)):
            raise ValueError(f"a site stops at synchronisations, after the burn-in and at the end; got step {until}.")
        if "matrix" in go:
            self._matrix, self._guard = go["matrix"], go["guard"]
            self._forget()
        runs = simulate(
            Preconditioned(self._problem, self._matrix, self._eta, self._guard), networks.complete(1),
            self._eta[:until], until, sync_every=None, after=self._step, start=go.get("theta", self._theta),
            observe=[ClientSums(1), LastClients()], progress=False,
        )  # fmt: skip
        for name in SUMS:
            self._sums[name] = self._sums[name] + np.asarray(getattr(runs, name)[0, 0], dtype=float)
        self._path = self._path + np.asarray(runs.average[0], dtype=float) * (until - self._step)
        self._count += until - self._step
        self._step, self._theta = until, np.asarray(runs.last[0], dtype=float)
        return {} if until % self._tau else {"theta": self._theta}

    def _report(self, content: Message) -> Message:
        """The sums since the matrix last changed, and the mean of the iterates."""
        if self._step not in (self._burn_in, len(self._eta)):
            raise ValueError(f"a site reports after the burn-in and at the end; this is step {self._step}.")
        return {**self._sums, "count": self._count, "average": self._path / self._count}

    def _forget(self) -> None:
        self._sums = dict.fromkeys(SUMS, 0.0)
        self._path, self._count = 0.0, 0


def _recoded(column: Column, levels: list[Any] | None) -> Column:
    """The same column with the levels of all sites."""
    if levels is None:
        return column
    place = {level: i for i, level in enumerate(levels)}
    return Column(column.name, np.array([place[value] for value in column.labels], dtype=float), tuple(levels))
