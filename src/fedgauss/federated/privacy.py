"""Differential privacy: what a fit may tell of any one row, and how much noise that takes.

Two tables are neighbours if they are equal but for one row, which in one of them answers zeros to every question. The
number of rows is public. A fit is (epsilon, delta)-private if no event is more probable on one of them than
exp(epsilon) times what it is on the other, plus delta.

Each part of an answer gets Gaussian noise with a standard deviation of a multiplier times its sensitivity. What all
parts tell together, and all fits of a table, `dp-accounting` works out from their privacy loss distributions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fedgauss import _checks

GRID = 1_000  # noise multipliers are multiples of a thousandth, rounded up, so that all machines agree on them
Cost = tuple[float, ...]  # the noise multipliers of a run, which is what a ledger keeps of it

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

    Examples
    --------
    >>> privacy = Privacy(epsilon=1.0, delta=1e-6)
    """

    epsilon: float
    delta: float = 1e-6

    def __post_init__(self) -> None:
        if _checks.real("epsilon", self.epsilon) < _LEAST:
            raise ValueError(f"epsilon must be at least {_LEAST:g}; got {self.epsilon:g}. Use 1?")
        if not 0.0 < _checks.real("delta", self.delta) <= _LARGEST_DELTA:
            raise ValueError(f"delta must be above 0 and at most {_LARGEST_DELTA:g}; got {self.delta:g}. Use 1e-6?")

    def check_rows(self, n_rows: int) -> None:
        """Refuse a delta at which a row could be told whole."""
        if not self.delta * n_rows < 1.0:
            raise ValueError(f"delta must be below 1 / {n_rows}, the number of rows; got {self.delta:g}. Use 1e-6?")

    def multipliers(self, shares: Mapping[str, float]) -> dict[str, float]:
        """The noise multiplier of each part of a run; a part's share is that of 1 / multiplier^2 in the sum of all.

        The smallest on the grid with which the run as a whole costs no more than this.
        """
        found = _calibrated(self.epsilon, self.delta, tuple(shares.values()))
        return dict(zip(shares, found, strict=True))

    def cost(self, shares: Mapping[str, float]) -> Cost:
        """What a ledger keeps of such a run."""
        return tuple(self.multipliers(shares).values())


def compose(spent: Iterable[Cost], following: Cost, delta: float) -> Privacy:
    """What the rows of a table have told after these runs and the one that follows, at this delta."""
    return Privacy(_epsilon([*(m for cost in spent for m in cost), *following], delta), delta)


def remaining(budget: Privacy, spent: Sequence[Cost]) -> Privacy | None:
    """The largest epsilon of a run that the budget of a table still has room for, at the budget's delta; None if none.

    A little less than what would use it up to the last digit: multipliers are whole numbers of thousandths.
    """
    before = tuple(m for cost in spent for m in cost)
    largest = _calibrated(_LEAST, budget.delta, (1.0,))
    if _epsilon([*before, *largest], budget.delta) > budget.epsilon:
        return None
    return Privacy(_epsilon(_calibrated(budget.epsilon, budget.delta, (1.0,), before), budget.delta), budget.delta)


@lru_cache(maxsize=64)
def _calibrated(epsilon: float, delta: float, shares: tuple[float, ...], before: Cost = ()) -> tuple[float, ...]:
    """The smallest multipliers m / sqrt(share) on the grid which with those before cost at most (epsilon, delta)."""
    dp = _accounting()
    if not all(share > 0.0 for share in shares):
        raise ValueError(f"shares of a privacy budget must be above 0; got {shares}. Leave a part out that has none.")
    total = math.fsum(shares)

    def of(unit: int) -> tuple[float, ...]:
        return tuple(math.ceil(unit / math.sqrt(share / total)) / GRID for share in shares)

    least, most = (dp.get_sigma_gaussian(one, delta) * GRID for one in (epsilon, _LEAST if before else epsilon))
    bracket = dp.ExplicitBracketInterval(math.floor(0.9 * least) - 1, math.ceil(1.1 * most) + 1)
    unit = dp.calibrate_dp_mechanism(
        _accountant, lambda unit: _events([*before, *of(unit)]), epsilon, delta, bracket, discrete=True
    )
    return of(int(unit))


def _epsilon(multipliers: Sequence[float], delta: float) -> float:
    accountant = _accountant()
    accountant.compose(_events(multipliers))
    return float(accountant.get_epsilon(delta))


def _events(multipliers: Iterable[float]) -> Any:
    """Gaussian mechanisms one after the other."""
    dp = _accounting()
    return dp.ComposedDpEvent([dp.GaussianDpEvent(multiplier) for multiplier in multipliers])


def _accountant() -> Any:
    dp = _accounting()
    return dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)


def _accounting() -> Any:
    try:
        import dp_accounting  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("privacy needs the package dp-accounting: pip install 'fedgauss[private]'") from error
    return dp_accounting
