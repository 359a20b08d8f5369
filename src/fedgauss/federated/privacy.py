"""Differential privacy: what a fit may tell of any one row, and how much noise that takes.

Two tables are neighbours if they are equal but for one row, which in one of them answers zeros to every question. The
number of rows is public. A fit is (epsilon, delta)-private if no event is more probable on one of them than
exp(epsilon) times what it is on the other, plus delta.

Each part of an answer gets Gaussian noise with a standard deviation of a multiplier m times its sensitivity. What
parts tell together, and all fits of a table, is what one part tells whose 1 / m^2 is the sum of theirs (Dong, Roth and
Su, 2022, corollary 3.3); epsilon and delta of that are those of `dp-accounting`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from fedgauss import _checks

GRID = 1_000  # noise multipliers are multiples of a thousandth, rounded up, so that all machines agree on them
Cost = tuple[float, ...]  # the noise multipliers of a run, which is what a ledger keeps of it
Range = tuple[float, float]

_LEAST = 0.01
_LARGEST_DELTA = 1e-2


@dataclass(frozen=True)
class Privacy:
    """A bound on what answers tell of any one row.

    Parameters
    ----------
    epsilon : float
        At least .01: the logarithm of the factor by which one row may change the probability of an event.
    delta : float
        Probability with which the bound may fail; below one over the number of rows.
    ranges : mapping, optional
        (low, high) of covariates, and of the target of a gaussian family, by name. Values outside count as the ends. A
        range is public: take it from what is known of such patients, not from the rows.

    Examples
    --------
    >>> import fedgauss as fg
    >>> fg.Privacy(epsilon=1.0, delta=1e-6, ranges={"age": (18, 100)})
    Privacy(epsilon=1.0, delta=1e-06, ranges={'age': (18.0, 100.0)})
    """

    epsilon: float
    delta: float = 1e-6
    ranges: Mapping[str, Range] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if _checks.real("epsilon", self.epsilon) < _LEAST:
            raise ValueError(f"epsilon must be at least {_LEAST:g}; got {self.epsilon:g}. Use 1?")
        if not 0.0 < _checks.real("delta", self.delta) <= _LARGEST_DELTA:
            raise ValueError(f"delta must be above 0 and at most {_LARGEST_DELTA:g}; got {self.delta:g}. Use 1e-6?")
        object.__setattr__(self, "ranges", {name: check_range(name, ends) for name, ends in self.ranges.items()})

    def to_wire(self) -> dict[str, Any]:
        """As plain fields."""
        return asdict(self) | {"ranges": {name: list(ends) for name, ends in self.ranges.items()}}

    @classmethod
    def from_wire(cls, fields: Mapping[str, Any]) -> Self:
        """From plain fields that somebody else sent; a ValueError where they are anything but what `to_wire` makes."""
        try:
            found = cls(**fields)
            same = found.to_wire() == fields
        except (TypeError, AttributeError, OverflowError):
            same = False
        if not same:
            raise ValueError("privacy must be an epsilon, a delta and ranges as fedgauss sends them; this is not.")
        return found

    def check_rows(self, n_rows: int) -> None:
        """Refuse a delta at which a row could be told whole."""
        if not self.delta * n_rows < 1.0:
            raise ValueError(f"delta must be below 1 / {n_rows}, the number of rows; got {self.delta:g}. Use 1e-6?")

    def multipliers(self, shares: Mapping[str, float]) -> dict[str, float]:
        """The noise multiplier of each part of a run; a part's share is that of 1 / multiplier^2 in the sum of all.

        The smallest on the grid with which the run as a whole costs no more than this.
        """
        found = _calibrated(self.epsilon, self.delta, shares.values())
        return dict(zip(shares, found, strict=True))

    def cost(self, shares: Mapping[str, float]) -> Cost:
        """What a ledger keeps of such a run."""
        return tuple(self.multipliers(shares).values())


def compose(spent: Iterable[Cost], following: Cost, delta: float) -> Privacy:
    """What the rows of a table have told after these runs and the one that follows, at this delta."""
    return _bound(_precision([*spent, following]), delta)


def remaining(budget: Privacy, spent: Iterable[Cost]) -> Privacy | None:
    """The largest epsilon of a run that the budget of a table still has room for, at the budget's delta; None if none.

    A little less than what would use it up to the last digit: multipliers are whole numbers of thousandths.
    """
    left = _precision([budget.cost({"all": 1.0})]) - _precision(spent)
    if left < _precision([Privacy(_LEAST, budget.delta).cost({"all": 1.0})]):
        return None
    return _bound(left, budget.delta)


def check_range(name: str, ends: Any) -> Range:
    """Between what the values of a column are, or count as."""
    shown = repr(ends)[:60]
    if not isinstance(ends, Sequence) or len(ends) != 2 or not all(type(end) in (int, float) for end in ends):
        raise ValueError(f"the range of {name!r} must be two numbers, (low, high); got {shown}. Use (18, 100)?")
    low, high = (float(end) for end in ends)
    if not (math.isfinite(high - low) and low < high):
        raise ValueError(f"the range of {name!r} must be (low, high) with low < high; got {shown}.")
    return low, high


def _calibrated(epsilon: float, delta: float, shares: Collection[float]) -> Cost:
    """The smallest multipliers m / sqrt(share) on the grid that together cost at most (epsilon, delta)."""
    if not all(share > 0.0 for share in shares):
        raise ValueError(f"shares of a budget must be above 0; got {min(shares):g}. Leave a part out that has none.")
    unit, total = math.ceil(_accounting().get_sigma_gaussian(epsilon, delta) * GRID), math.fsum(shares)
    return tuple(math.ceil(unit / math.sqrt(share / total)) / GRID for share in shares)


def _bound(precision: float, delta: float) -> Privacy:
    """What noise of this precision tells, and at least what can be said."""
    return Privacy(max(float(_accounting().get_epsilon_gaussian(precision**-0.5, delta)), _LEAST), delta)


def _precision(costs: Iterable[Cost]) -> float:
    """The sum of 1 / m^2."""
    return math.fsum(1.0 / multiplier**2 for cost in costs for multiplier in cost)


def _accounting() -> Any:
    try:
        import dp_accounting  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("privacy needs the package dp-accounting: pip install 'fedgauss[private]'") from error
    return dp_accounting
