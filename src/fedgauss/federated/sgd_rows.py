"""A site's part in a pass of SGD: its steps, and the rules on the rows that each of its messages rests on.

A synchronisation tells of the rows read since the last one, which are few. So a site takes part only if its owner's
policy allows `passes`; every row is read once in each. Between two synchronisations, and after the last, at least
`least_rows` rows are read, and no combination of columns vanishes on them but on fewer than `few`; nor of what these
rows count for at the parameter from which they were read, which a site that lies can move. Of columns over the rows of
warm-up, burn-in and window, whose products are told, the ledger is asked like of any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.families.rows import Rows
from fedgauss.federated import rules
from fedgauss.federated.plan import Plan
from fedgauss.federated.policy import Policy
from fedgauss.federated.refusal import Refused
from fedgauss.federated.spans import span_of
from fedgauss.inference.client_pass import ClientPass, Course, Stretch
from fedgauss.inference.client_steps import read_before, shuffle
from fedgauss.inference.model_data import ModelData

PARAMETERS, MATRICES = 2, 4  # where a row's gradient is told; of warm-up, burn-in and window, and squares of the window


class SgdRows:
    """The rows of a site in a pass.

    Attributes
    ----------
    columns : dict of str to (n,) ndarray
        What products are told of, beside the columns of all rows.
    """

    def __init__(self, course: Course, data: ModelData, plan: Plan, here: int, policy: Policy) -> None:
        assert plan.sgd is not None
        rules.check_units(data.covariates, course.units.columns)
        x, y, n = course.units.rows(data.covariates), course.units.target(data.response), len(data.response)
        order = shuffle(n, here, plan.sgd.seed)
        self._x, self._y = x[order], y[order]
        self._course, self._here, self._few = course, here, policy.few
        self._check_rounds(policy.least_rows)
        self._weight = plan.sgd.share(here, n, course.n_rows, course.n_clients)
        self._pass = ClientPass(course, self._x, self._y, course.n_clients * self._weight)
        burn_in = course.plan.burn_in
        parts = {"warm-up": (0, course.warm), "burn-in": (0, burn_in), "window": (burn_in, course.n_steps)}
        names = data.names if data.constant is None else (data.constant, *data.names)
        self.columns = {}
        for part, stops in parts.items():
            read = order[self._rows_of(*stops)]
            for name, column in zip(names, x.T, strict=True):
                own = self.columns[f"{name} of the {part}"] = np.zeros(n)
                own[read] = column[read]

    def reply(
        self, what: str, again: bool, matrices: Sequence[FloatArray] = (), stretches: Sequence[Stretch] = (),
        course: Course | None = None,
    ) -> dict[str, FloatArray] | None:  # fmt: skip
        """The numbers of an answer; none `again`, when it has left already."""
        own, weight = self._pass, self._weight
        own.matrices = matrices
        if what == "begin":
            return None if again else {"hessian": weight * _symmetric(own.warm_up())}
        taken = [*own.stretches, stretches[self._here]]
        if what != "burn-in":
            own.stretches = taken
        if again:
            return None
        try:
            if what == "steps":
                self._check("score", taken[-1:])
                return {"theta": own.end()}
            if what == "burn-in":
                self._check("sums", taken)
                return {"hessian": weight * _symmetric(own.burn_in(taken))}
            since = self._course.plan.burn_in
            window = [one._replace(since=max(one.since, since), theta=one.reference) for one in taken]
            self._check("final", [one for one in window if one.until > since])
            sums, average = own.window()
        except ArithmeticError as error:
            raise Refused("the pass diverged at this site: its numbers are no longer finite.") from error
        return {
            "gradient": weight * sums.gradients[0, 0], "hessian": weight * sums.hessians[0, 0],
            "noise": weight**2 * _symmetric(sums.noise_cov[0, 0]), "average": average,
        }  # fmt: skip

    def _check(self, kind: str, stretches: Sequence[Stretch]) -> None:
        """What the rows of stretches count for, each at the parameter of its own, must rest on enough of them.

        Columns of rows between two synchronisations are not told themselves; those of burn-in and window are.
        """
        rows = [self._rows_of(one.since, one.until) for one in stretches]
        with np.errstate(all="ignore"):  # of a parameter too far off
            behind = [
                self._course.family.behind(Rows(self._x[own], self._y[own]), kind, one.theta)
                for own, one in zip(rows, stretches, strict=True)
            ]
        x = np.concatenate([self._x[own] for own in rows])
        rules.check_parameter(
            self._few, {name: np.concatenate([own[name] for own in behind]) for name in behind[0]},
            span_of(x[:, :0] if kind == "score" else x),
        )  # fmt: skip

    def _check_rounds(self, least: int) -> None:
        """Each synchronisation rests on enough rows; no two have one in common, so that each is looked at by itself."""
        course, rows = self._course, range(len(self._y))
        for tau in range(course.sync_every, course.n_steps + 1):  # without any synchronisation there are enough
            stops = replace(course, sync_every=tau).stops
            if min(len(rows[self._rows_of(*pair)]) for pair in pairwise(stops)) >= least:
                break
        if tau > course.sync_every:
            raise Refused(
                f"at least {least} rows of this site must be read between two synchronisations of SGD, and after the "
                f"last of {course.n_steps} steps; with sync_every={course.sync_every} fewer are somewhere. Use "
                f"sync_every={tau}.",
                counts=False,
            )
        pieces = [self._x[self._rows_of(*stops)] for stops in pairwise(course.stops)]
        if not all(rules.are_enough(self._few, {f"score {j}": own for j, own in enumerate(x.T)}) for x in pieces):
            raise Refused(
                f"between two synchronisations of SGD at least {self._few} rows of this site must count, however "
                "columns are combined; between some fewer do. Use a larger sync_every, or leave columns with rare "
                "values out."
            )

    def _rows_of(self, since: int, until: int) -> slice:
        """Those read between two steps, in the order in which they are read."""
        first, last = (int(read_before(step, len(self._y), self._course.n_steps)) for step in (since, until))
        return slice(first, last)


def _symmetric(matrix: FloatArray) -> FloatArray:
    return (matrix + matrix.T) / 2.0
