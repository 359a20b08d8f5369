"""A site's part in an exact fit: sums over all of its rows at the parameters it is asked about."""

from __future__ import annotations

from typing import Any, TypeVar, get_type_hints

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.families.rows import Sums
from fedgauss.inference.exact import Own, client_rows, final_terms, finite_sums, own_fit, unlikely
from fedgauss.inference.federated import few_rows
from fedgauss.inference.federated.disclosure import Refused
from fedgauss.inference.federated.fields import ASKED, REPLIES, Fields
from fedgauss.inference.federated.lines import Message
from fedgauss.inference.federated.policy import Policy
from fedgauss.inference.model_data import ModelData
from fedgauss.inference.preparation import Location, Units
from fedgauss.inference.scoring import MOST_ROUNDS

_MOST = {"sums": 2 * MOST_ROUNDS, "final": 3, "goodness": 9, "own": 3}  # times that each is asked
_LARGEST, _LARGEST_MASKED = 1e150, 2.0**95  # numbers in a reply
Term = TypeVar("Term", bound=tuple)


class ScoringRun:
    """Rows in units of means and scales that all sites share.

    Far from any estimate a parameter can give all but a few rows no weight: sums at it would be theirs alone
    (`few_rows.check_round`). A site then only says that the parameter is unlikely, which is what scoring needs to turn
    back, and so it does where sums are too large to be told. Each order is answered a few times, and what is refused
    counts: that it was refused tells something, too.
    """

    orders = ("sums", "final", "goodness", "own")

    def __init__(self, data: ModelData, located: Message, policy: Policy, masked: bool = False) -> None:
        units = Units(Location(located["means"], located["scales"]), None, data.constant is not None)
        self._family, self._policy, self._masked = data.family, policy, masked
        self._largest = _LARGEST_MASKED if masked else _LARGEST
        self._rows = client_rows(data, units.rows(data.covariates), slice(None))
        self._asked = dict.fromkeys(self.orders, 0)

    def asked(self, order: str) -> Fields:
        """The fields of an order."""
        return ASKED[order]

    def told(self, order: str, content: Message) -> Fields:
        """The fields of its reply."""
        return REPLIES[order]

    def state(self) -> Message:
        """How often each was asked."""
        return dict(self._asked)

    def resume(self, state: Message) -> None:
        """Resume from a saved state."""
        self._asked = {order: int(state[order]) for order in self.orders}

    def reply(self, order: str, content: Message) -> Message:
        """Sums at a parameter, or the site's own estimate."""
        self._asked[order] += 1
        if self._asked[order] > _MOST[order]:
            raise Refused(f"{order!r} is answered at most {_MOST[order]} times in a fit. Restart the site.")
        theta = content["theta"]
        if order == "own":
            return as_message(self._own(theta))
        if order == "sums":
            return as_message(self._sums(theta))
        self._check_rows_behind(theta)
        if order == "final":
            return as_message(final_terms(self._family, self._rows, theta))
        return as_message(self._family.goodness(self._rows, theta, float(content["dispersion"])))

    def _sums(self, theta: FloatArray) -> Sums:
        """Of all rows, or that the parameter is unlikely."""
        nothing = unlikely(len(theta), -self._largest)
        try:
            self._check_rows_behind(theta)
        except Refused:
            return nothing
        sums = finite_sums(self._family, self._rows, theta)
        return sums if all(np.all(np.abs(part) < self._largest) for part in sums) else nothing

    def _own(self, start: FloatArray) -> Own:
        """The estimate of this site's rows alone; none where few of them would decide it."""
        if self._masked:
            raise Refused("sums of this run leave the site masked, and its own estimate would tell of them.")
        found = own_fit(self._family, self._rows, start)
        try:
            if found.theta is not None:
                self._check_rows_behind(found.theta)
        except Refused:
            return Own(None, None)
        return found

    def _check_rows_behind(self, theta: FloatArray) -> None:
        """Refuse a parameter at which few rows have any weight."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            behind = self._family.behind(self._rows, theta)
        if not all(np.all(np.isfinite(part)) for part in behind):
            raise Refused("at this parameter numbers are not finite.")
        weights, policy = behind.pop(1), self._policy
        for residuals in behind:
            few_rows.check_round(
                self._rows.x, weights, residuals, share=policy.largest_share, fewest=policy.least_rows_in_a_level
            )


def as_message(term: Any) -> Message:
    """The fields of a term by name, those of parts as "part.field"."""
    message: Message = {}
    for name, value in term._asdict().items():
        if hasattr(value, "_asdict"):
            message |= {f"{name}.{inner}": part for inner, part in as_message(value).items()}
        else:
            message[name] = value
    return message


def from_message(kind: type[Term], message: Message) -> Term:
    """The term that `as_message` wrote."""
    parts = []
    for name, hint in get_type_hints(kind).items():
        if hasattr(hint, "_fields"):
            inside = {key.partition(".")[2]: value for key, value in message.items() if key.startswith(f"{name}.")}
            parts.append(from_message(hint, inside))
        else:
            parts.append(message[name])
    return kind(*parts)
