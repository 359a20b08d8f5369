"""From terms to named columns, in two stages: what must be summed over all sites first, and then the columns.

    design = Design(formula, {"age": None, "ward": ("east", "west")}, total=1000)
    design.needs()                                  # ("age",) where the formula has scale(age) or ns(age, df=4)
    mean = sum of design.needed(rows) over the rows of all sites / N
    sd = sqrt(sum of their squares about the mean / N)
    design.names, design.columns(rows, {"age": Summary(mean, sd)})

Names, coding and order are those of patsy, which statsmodels uses. Which levels get a column: full rank, with as few
reduced factors as can be.

A factor with L levels has a full coding, L indicators, and a reduced one, L - 1: all but the base. The full coding of a
product spans the reduced codings of all its sub-products,

    full(a) full(b) = 1 + reduced(a) + reduced(b) + reduced(a) reduced(b),

1 being the intercept. So a term contributes those sub-products that no earlier term spans; they are put together
again, S + S reduced(a) = S full(a), until nothing can be joined. The rule holds among terms with the same numeric
factors, by themselves: x a has as many columns as a has levels unless x is a term too.
"""

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from enum import IntEnum
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.inference.formula.terms import (
    SITE,
    Agreed,
    Expression,
    Factor,
    Formula,
    Levels,
    Pooled,
    Spline,
    Summary,
    Term,
    column_of,
    knots_of,
    pooled_values,
    spline_values,
    values_of,
)
from fedgauss.inference.tables import Frame, FrameColumn, coded, listed, repeats

Rows = Mapping[str, FrameColumn]
Renamed = Mapping[str, Mapping[str, str]]  # what became of levels, by column
_MOST_COLUMNS = 2_000  # sites obey strangers: three factors of 50 levels would be 125,000


class Coding(IntEnum):
    """Of a factor in a product."""

    ABSENT = 0
    REDUCED = 1
    FULL = 2


class Product(NamedTuple):
    """Factors of one term, with the coding of those that have levels; each column is a product of theirs."""

    parts: tuple[tuple[Factor, Coding | None], ...]


class Design:
    """The columns of a formula, once levels are known.

    Parameters
    ----------
    formula : Formula
        The terms.
    levels : mapping
        Of each column its levels, or None where it holds numbers.
    total : int
        How many rows all sites have: there are limits to how many levels a column may have.
    """

    def __init__(self, formula: Formula, levels: Mapping[str, Sequence[Any] | None], total: int) -> None:
        self.formula = formula
        self.levels = levels
        self._asked = {
            part.of.name: part.of for part in formula.factors
            if isinstance(part, Pooled) or (isinstance(part, Spline) and None in (part.knots, part.bounds))
        }  # fmt: skip
        for factor in formula.factors:
            if self._has_levels(factor):
                self._check_levels(factor, total)
        self._products = self._coded()
        sizes = [math.prod(self._width(*part) for part in one.parts) for one in self._products]
        if sum(sizes) > _MOST_COLUMNS:
            raise ValueError(
                f"a formula may make at most {_MOST_COLUMNS:,} columns; this one makes {sum(sizes):,}. Merge levels, "
                "or leave out an interaction."
            )
        self.names = tuple(name for one in self._products for name in self._product_names(one))
        if repeated := repeats(self.names):
            raise ValueError(f"columns must have different names; {listed(repeated)} occurs more than once.")

    def needs(self) -> tuple[str, ...]:
        """Expressions of which count, sum, and sum of squares about the mean are asked for over all sites."""
        return tuple(self._asked)

    def needed(self, rows: Rows) -> dict[str, FloatArray]:
        """Of each that is needed, its values in these rows, (n,)."""
        return {name: values_of(part, rows) for name, part in self._asked.items()}

    def agreed(self, rows: Rows) -> dict[str, Summary]:
        """Means and standard deviations over these rows."""
        return {name: Summary(float(v.mean()), float(v.std())) for name, v in self.needed(rows).items()}

    def read(self, frame: Any, *renamed: Renamed) -> dict[str, FrameColumn]:
        """The columns of another frame, such as one to predict for, with the levels that are known here.

        Levels that are `renamed`, one mapping after the other, are others here. With effects of sites the caller adds
        a column `SITE`.
        """
        table = Frame(frame)
        names = [name for name in self.formula.columns if name != SITE]
        if gone := [name for name in names if name not in table.names]:
            raise ValueError(
                f"the frame must have all columns of the model; it lacks {listed(gone)}. It has {listed(table.names)}."
            )
        columns = table.read(names) if names else {}
        for became in renamed:
            columns = {name: column.relabelled(became.get(name, {})) for name, column in columns.items()}
        return {name: self._recoded(column) for name, column in columns.items()}

    def columns(self, rows: Rows, agreed: Agreed) -> FloatArray:
        """The columns, (n, p), given means and standard deviations of what is needed."""
        n_rows = len(next(iter(rows.values())).values)
        if missing := [name for name in self._asked if name not in agreed]:
            if n_rows:
                raise ValueError(f"means and standard deviations must be agreed on; those of {missing[0]!r} are not.")
            return np.empty((0, len(self.names)))
        made: dict[tuple[Factor, Coding | None], list[FloatArray]] = {}
        filled = np.empty((n_rows, len(self.names)))
        j = 0
        for one in self._products:
            made |= {part: self._factor_columns(*part, rows, agreed) for part in one.parts if part not in made}
            for chosen in _first_fastest([made[part] for part in one.parts]):
                filled[:, j] = chosen[0]
                for more in chosen[1:]:
                    filled[:, j] *= more
                j += 1
        return filled

    def ranges(self, of: Callable[[str], tuple[float, float]]) -> dict[str, tuple[float, float]]:
        """Between what each column lies; `of` says it of factors of numbers, by name, and levels are zeros and ones."""
        found = {}
        for one in self._products:
            ends = [
                [(0.0, 1.0) if coding is not None else of(name) for name in self._factor_names(factor, coding)]
                for factor, coding in one.parts
            ]
            for name, factors in zip(self._product_names(one), _first_fastest(ends), strict=True):
                corners = [math.prod(corner) for corner in product(*factors)]
                found[name] = (min(corners), max(corners))
        return found

    def functions(self, agreed: Agreed, as_levels: Collection[str] = ()) -> list[tuple[str, frozenset[str]]]:
        """Of each column its function of numbers, whatever level it is multiplied by, and the columns of that.

        A level by itself has none, "", a column less its mean is no other function, and a spline with other knots is
        one. Some columns of numbers may be taken as levels.
        """
        found = []
        for one in self._products:
            are_numbers = [coding is None and column_of(factor) not in as_levels for factor, coding in one.parts]
            parts = list(zip(one.parts, are_numbers, strict=True))
            names = [
                self._function_names(factor, agreed) if is_number else [""] * self._width(factor, coding)
                for (factor, coding), is_number in parts
            ]
            of = frozenset(column_of(factor) for (factor, _), is_number in parts if is_number)
            found += [(":".join(filter(None, chosen)), of) for chosen in _first_fastest(names)]
        return found

    def _function_names(self, factor: Factor, agreed: Agreed) -> list[str]:
        if isinstance(factor, Spline):
            knots = ", ".join(f"{knot:g}" for knot in knots_of(factor, agreed.get(factor.of.name)))
            return [f"{name} at {knots}" for name in self._factor_names(factor, None)]
        return [factor.of.name if isinstance(factor, Pooled) else factor.name]

    def offset(self, rows: Rows) -> FloatArray | None:
        """The sum of the offset() terms, (n,), if there are any."""
        parts = [values_of(part, rows) for part in self.formula.offsets]
        return np.sum(parts, axis=0) if parts else None

    def fewest_between_knots(self, rows: Rows, agreed: Agreed) -> dict[str, int]:
        """For each spline, the fewest rows between two of its knots: with few, its columns tell of single rows."""
        found = {}
        for factor in self.formula.factors:
            if isinstance(factor, Spline):
                knots = knots_of(factor, agreed.get(factor.of.name))
                stretch = np.searchsorted(knots, values_of(factor.of, rows))
                found[factor.name] = int(np.bincount(stretch, minlength=len(knots) + 1)[1:-1].min())
        return found

    def check_stretches(self, rows: Rows, agreed: Agreed) -> None:
        """Refuse a spline without a row between two of its knots."""
        for name, count in self.fewest_between_knots(rows, agreed).items():
            if count == 0:
                raise ValueError(
                    f"at least 1 rows must lie between two knots of a spline; for {name} fewer do. Give knots= "
                    "and bounds=, use fewer, or take the logarithm of a skewed column: ns(log(x), df=4)."
                )

    def _recoded(self, column: FrameColumn) -> FrameColumn:
        levels = self.levels[column.name]
        if levels is None:
            return column
        column = column.as_levels()
        if unknown := [str(level) for level in column.levels or () if level not in levels]:
            raise ValueError(
                f"levels must be among those of the fit; {listed(unknown)} of {column.name!r} is not. Leave out "
                "those rows."
            )
        return coded(column.name, column.labels, list(levels))

    def _has_levels(self, factor: Factor) -> bool:
        """Text and the like has levels where it stands by itself; a function of it is refused when it is read."""
        if isinstance(factor, Expression):
            return not factor.steps and self.levels[factor.column] is not None
        return isinstance(factor, Levels)

    def _check_levels(self, factor: Factor, total: int) -> None:
        """Refuse identifiers, constants, and a base that is none of the levels."""
        name = column_of(factor)
        levels = self.levels[name] or ()
        if len(levels) > max(2, total // 5):
            raise ValueError(
                f"column {name!r} has {len(levels):,} levels in {total:,} rows. Is it an identifier, or a "
                "number read as text? Leave it out, or make it a number."
            )
        if len(levels) == 1:
            raise ValueError(f"column {name!r} is constant ({levels[0]!r}). Leave it out.")
        if isinstance(factor, Levels) and factor.reference is not None and self._base(factor) is None:
            shown = listed([str(level) for level in levels])
            raise ValueError(
                f"Treatment() must name a level of {name!r}; got {factor.reference!r}. The levels are {shown}."
            )

    def _base(self, factor: Factor) -> int | None:
        """The number of the level that a reduced coding leaves out; of a level that is none, None."""
        if not isinstance(factor, Levels) or factor.reference is None:
            return 0
        wanted, levels = factor.reference, self.levels[factor.column] or ()
        same_kind = (i for i, level in enumerate(levels) if level == wanted)
        # 1 == True, but a level of one kind is none of the other
        return next((i for i in same_kind if isinstance(levels[i], bool) == isinstance(wanted, bool)), None)

    def _coded(self) -> list[Product]:
        """Terms as products with codings, in the order in which columns come."""
        ones: list[Term] = [()] if self.formula.intercept else []  # a product of nothing
        terms = [*ones, *self.formula.terms]
        groups: dict[frozenset[Factor], list[Term]] = {frozenset(): []}
        for term in terms:
            groups.setdefault(frozenset(f for f in term if not self._has_levels(f)), []).append(term)
        coded: dict[Term, list[Product]] = {}
        for group in groups.values():
            spanned: set[frozenset[Any]] = set()
            for term in sorted(group, key=len):
                coded[term] = [_product(term, some) for some in self._term_codings(term, spanned)]
        order = list(coded) if self.formula.regrouped else terms
        return [one for term in order for one in coded[term] if term]

    def _term_codings(self, term: Term, spanned: set[frozenset[Any]]) -> list[dict[Factor, Coding]]:
        with_levels = [factor for factor in term if self._has_levels(factor)]
        return [dict(zip(with_levels, some, strict=True)) for some in codings(with_levels, spanned)]

    def _width(self, factor: Factor, coding: Coding | None) -> int:
        if coding is None:
            return factor.df if isinstance(factor, Spline) else 1
        return len(self.levels[column_of(factor)] or ()) - int(coding == Coding.REDUCED)

    def _kept(self, factor: Factor, coding: Coding) -> list[int]:
        """Numbers of the levels that have a column."""
        base = self._base(factor) if coding == Coding.REDUCED else None
        return [i for i in range(len(self.levels[column_of(factor)] or ())) if i != base]

    def _product_names(self, one: Product) -> list[str]:
        return [":".join(chosen) for chosen in _first_fastest([self._factor_names(*part) for part in one.parts])]

    def _factor_names(self, factor: Factor, coding: Coding | None) -> list[str]:
        if coding is not None:
            levels, mark = self.levels[column_of(factor)] or (), "T." if coding == Coding.REDUCED else ""
            return [f"{factor.name}[{mark}{levels[i]}]" for i in self._kept(factor, coding)]
        if isinstance(factor, Spline):
            return [f"{factor.name}[{i}]" for i in range(factor.df)]
        return [factor.name]

    def _factor_columns(self, factor: Factor, coding: Coding | None, rows: Rows, agreed: Agreed) -> list[FloatArray]:
        if coding is not None:
            codes = rows[column_of(factor)].as_levels().values
            return [(codes == i).astype(float) for i in self._kept(factor, coding)]
        if isinstance(factor, Spline):
            return list(spline_values(factor, values_of(factor.of, rows), agreed.get(factor.of.name)).T)
        if isinstance(factor, Pooled):
            return [pooled_values(factor, values_of(factor.of, rows), agreed[factor.of.name])]
        assert isinstance(factor, Expression)
        return [values_of(factor, rows)]


def summaries(needs: Sequence[str], total: int, means: FloatArray, squares: FloatArray) -> dict[str, Summary]:
    """Mean and standard deviation of each that was needed, from the totals over all sites."""
    return {
        name: Summary(float(mean), math.sqrt(square / total))
        for name, mean, square in zip(needs, means, squares, strict=True)
    }


def _product(term: Term, coded: Mapping[Factor, Coding]) -> Product:
    """The term without the factors that are absent from this one of its products."""
    parts = [(factor, coded.get(factor)) for factor in term]
    return Product(tuple(part for part in parts if part[1] != Coding.ABSENT))


def _first_fastest(parts: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """One of each, the first changing fastest."""
    return [chosen[::-1] for chosen in product(*reversed(parts))]


def codings(factors: Sequence[Hashable], spanned: set[frozenset[Hashable]]) -> list[tuple[Coding, ...]]:
    """How the factors with levels of one term are coded: one or several products, a coding for each factor in each.

    Parameters
    ----------
    factors : sequence
        Those of the term, in its order.
    spanned : set of frozensets
        The sub-products that terms before it span; this term's are added.

    Returns
    -------
    list of tuple of Coding
    """
    new: list[tuple[Coding, ...]] = []
    for size in range(len(factors) + 1):
        for chosen in combinations(range(len(factors)), size):
            product = frozenset(factors[i] for i in chosen)
            if product not in spanned:
                spanned.add(product)
                new.append(tuple(Coding(i in chosen) for i in range(len(factors))))
    while _join(new):
        pass
    return new


def _join(products: list[tuple[Coding, ...]]) -> bool:
    """Put the first two together that differ in one factor, absent from one and reduced in the other."""
    for (i, short), (j, long) in combinations(enumerate(products), 2):
        apart = [k for k, (one, other) in enumerate(zip(short, long, strict=True)) if one != other]
        if len(apart) == 1 and (short[apart[0]], long[apart[0]]) == (Coding.ABSENT, Coding.REDUCED):
            products[j] = (*long[: apart[0]], Coding.FULL, *long[apart[0] + 1 :])
            del products[i]
            return True
    return False
