"""What a formula is read into: terms, which are products of factors. Each factor is about one column."""

from typing import NamedTuple

SITE = "\0site"  # the sites as a column among those of a frame, whose names it cannot be
Step = tuple[str, float]  # a sign and a number, or a function and 0


class Expression(NamedTuple):
    """A column, and what is done to its values one after the other; without steps, the column as it is."""

    column: str
    steps: tuple[Step, ...]
    name: str


class Levels(NamedTuple):
    """C(column): its values are levels, also where they are numbers. `reference` is the base, by default the first."""

    column: str
    reference: str | float | bool | None
    name: str


class Pooled(NamedTuple):
    """Values less their mean over all sites and, for `scaled`, over their standard deviation (by n, not n - 1)."""

    of: Expression
    scaled: bool
    name: str


class Spline(NamedTuple):
    """A natural cubic spline with `df` columns: df + 1 knots, the outer two of which are the bounds."""

    of: Expression
    df: int
    knots: tuple[float, ...] | None  # the inner ones
    bounds: tuple[float, float] | None
    name: str


Factor = Expression | Levels | Pooled | Spline
Term = tuple[Factor, ...]  # their product


def column_of(factor: Factor) -> str:
    """The column that a factor is about."""
    return factor.of.column if isinstance(factor, Pooled | Spline) else factor.column


class Formula(NamedTuple):
    """What a formula says. `regrouped` if columns come in statsmodels' order, not in that of the terms."""

    terms: tuple[Term, ...]
    intercept: bool
    offsets: tuple[Expression, ...] = ()
    regrouped: bool = False

    @property
    def factors(self) -> list[Factor]:
        """Of all terms."""
        return [factor for term in self.terms for factor in term]

    @property
    def columns(self) -> list[str]:
        """All columns that are used, each once."""
        used = [column_of(factor) for factor in (*self.factors, *self.offsets)]
        return list(dict.fromkeys(used))

    @property
    def as_levels(self) -> set[str]:
        """Columns whose values are levels because the formula says so."""
        return {factor.column for factor in self.factors if isinstance(factor, Levels)}


def same(one: Term, other: Term) -> bool:
    """Whether two terms are the same product, in whatever order."""
    return frozenset(one) == frozenset(other)
