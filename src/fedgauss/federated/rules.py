"""A site's reasons not to take part, by its policy.

A level, an outcome or a stretch between knots has enough rows at the site, or none, masked or not: other sites that
join forces can take their own part off a total. All reasons are gathered before any is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray, IntArray
from fedgauss.families import Family
from fedgauss.federated.plan import Plan
from fedgauss.federated.policy import Policy
from fedgauss.federated.refusal import Refused
from fedgauss.federated.spans import Search, Span, extend, plainly_enough, plainly_enough_beside, search, span_of
from fedgauss.inference.formula.terms import FUNCTIONS, Agreed, Expression, Formula, Pooled, Spline
from fedgauss.inference.preparation import Location
from fedgauss.inference.tables import FrameColumn, listed

_POWERS = (("**", 2.0), ("**", 3.0))  # steps whose numbers are no constants to choose
_EFFORT = 0.02  # of a search, for levels that no column has: 60 ms, and models of functions alone need one
_FARTHEST = 1e6  # that a mean or a row may lie from the other, in units of it: ten digits are left
_THOUSAND = 1e3  # orders of magnitude are its powers: all else that a refusal tells of a value would be its digits
_UNITS = (
    "means and scales of all sites must suit the rows of each; those of this run are a million times off here. A site "
    "sent wrong sums, or its columns are in other units."
)


@contextmanager
def noted(reasons: dict[str, bool], counts: bool = True) -> Iterator[None]:
    """Put a refusal among the reasons, with whether it depends on rows and so counts, and go on.

    Checks inside name columns, levels and shapes, and no value of a row.
    """
    try:
        yield
    except ValueError as error:
        reasons[str(error)] = counts and getattr(error, "counts", True)


def check_plan(policy: Policy, plan: Plan) -> None:
    """How many sites there must be, and whether sums must be masked."""
    sites = len(plan.sites)
    if sites < policy.fewest_sites:
        raise Refused(f"this site takes part in runs of at least {policy.fewest_sites} sites; this one has {sites}.")
    if plan.sgd is not None and not policy.passes:
        raise Refused(
            "this site's policy has passes = 0: it makes no pass of SGD, which tells of the few rows between two "
            "synchronisations. Fit by scoring, or ask the site's owner for passes = 1."
        )
    if plan.masked and policy.masks == "off":
        raise Refused("this site's policy has masks = \"off\". Fit without --masked, or ask the site's owner.")
    if not plan.masked and policy.masks == "required":
        raise Refused('this site\'s policy has masks = "required": it sends no sums of its own. Fit with --masked.')
    if plan.masked and sites < 2:
        raise Refused("masks hide a site among others; this run has one site. Fit without --masked.")


def check_rows(policy: Policy, rows: int, weightless: int) -> None:
    """There must be enough rows, and none of weight 0 or enough: a run without weights would tell of them."""
    if rows < policy.least_rows:
        raise Refused(
            f"this site takes part with at least {policy.least_rows} rows; it has fewer of this kind ({rows})."
        )
    if 0 < weightless < policy.few:
        raise Refused(
            f"no row must have weight 0 at this site, or at least {policy.few}, or sums with and without weights would "
            "tell of single rows; fewer have. Leave the weights out."
        )


def check_family(policy: Policy, family: Family) -> None:
    """A family must be among those that may be fitted, by one of its names."""
    if policy.families is not None and not {family.name, *family.aliases} & set(policy.families):
        raise Refused(
            f"this site's policy allows the families {listed(policy.families)}; got {family.name!r}.", counts=False
        )


def check_constants(formula: Formula) -> None:
    """Constants must be round: with any constants a function can rise between two rows of any column.

    One constant with two digits to an expression, and two digits to a knot, leave a coarse grid of thresholds. What
    stands in a spline has knots for constants.
    """
    for factor in (*formula.factors, *formula.offsets):
        of = factor.of if isinstance(factor, Pooled | Spline) else factor
        steps = of.steps if isinstance(of, Expression) else ()
        constants = [number for sign, number in steps if number != 0.0 and (sign, number) not in _POWERS]
        knots = (*(factor.knots or ()), *(factor.bounds or ())) if isinstance(factor, Spline) else ()
        if isinstance(factor, Spline) and (len(steps) > 1 or any(sign not in FUNCTIONS for sign, _ in steps)):
            raise Refused(
                "in a run between sites ns() has a column or one function of it, or its knots could be put between two "
                f"rows; {factor.name} has more. Leave constants and powers out."
            )
        if len(constants) > 1 or not all(map(_is_round, (*constants, *knots))):
            raise Refused(
                "an expression of a run between sites may have one constant, and constants and knots two digits, or "
                f"they could be put between two rows; {factor.name} has more. Use center(), scale(), or rounder "
                "numbers."
            )


def check_levels(few: int, column: FrameColumn) -> None:
    """A level must have enough rows at this site, or none."""
    if column.levels is None:
        return
    counts = np.bincount(column.values.astype(int), minlength=len(column.levels))
    if np.any((counts > 0) & (counts < few)):  # which they are is not said: one may be the name of a patient
        raise Refused(
            f"levels must have at least {few} rows at this site, or none; some of {column.name!r} have fewer. Pool "
            f"rare levels (pool_rare={few}), merge them, or leave the column out."
        )


def check_outcome(few: int, column: FrameColumn) -> None:
    """A target of zeros and ones must have enough of both at this site, or none of one."""
    if column.levels is not None or not np.all((column.values == 0.0) | (column.values == 1.0)):
        return
    ones = int(np.sum(column.values))
    if 0 < ones < few or 0 < len(column.values) - ones < few:
        raise Refused(
            f"{column.name!r} must have at least {few} rows of either outcome at this site, or none of one; it has "
            "fewer of one. Take an outcome that is less rare, or leave this site out."
        )


def check_parameters(policy: Policy, parameters: int, rows: int, masked: bool) -> None:
    """There must be enough rows for each parameter: of all sites under masks, of this one without."""
    most = int(rows / policy.rows_per_parameter)
    if parameters > most:
        raise Refused(
            f"there must be {policy.rows_per_parameter:g} rows {'of all sites' if masked else 'at this site'} for each "
            f"parameter; {rows} rows are enough for {most}, and this model has {parameters}. Use fewer columns, pool "
            f"levels{'' if masked else ', or fit with --masked'}.",
            counts=False,  # how many rows there are is told in any case
        )


class Cells(NamedTuple):
    """In how many rows two columns are both not zero, and in how many a column is neither zero nor one."""

    both: FloatArray  # (m, m)
    valued: FloatArray  # (m,)

    @classmethod
    def of(cls, columns: FloatArray) -> Cells:
        """Those of columns, (n, m)."""
        there = (columns != 0.0).astype(float)
        return cls(there.T @ there, np.sum((columns != 0.0) & (columns != 1.0), axis=0).astype(float))

    def of_levels(self) -> Cells:
        """Of columns of zeros and ones alone, and which are others: of these a total would tell who has a value."""
        plain = self.valued == 0.0
        return Cells(self.both * np.outer(plain, plain), (~plain).astype(float))


def check_cells(few: int, names: Sequence[str], cells: Cells, n_rows: float, of_levels: int = 1) -> None:
    """Products that tell values must rest on enough rows: each cell of two columns has as many, or none.

    A product of two columns of zeros and ones tells a count, and in a weighted matrix what the model says of the rows
    of that cell; these have `of_levels` rows, or none. Where a column has other values, the product tells these.
    """
    alone, plain = np.diag(cells.both), cells.valued == 0.0
    second = np.broadcast_to(plain, cells.both.shape)  # of zeros and ones: its zeros are a column, too
    levels = second & second.T
    counts = [
        cells.both, np.where(second, alone[:, None] - cells.both, 0.0),
        np.where(levels, n_rows - alone[:, None] - alone[None, :] + cells.both, 0.0),
    ]  # fmt: skip
    least = np.where(levels, of_levels, few)
    rare = np.logical_or.reduce([(count > 0.0) & (count < least) for count in counts])
    pairs = sorted({tuple(sorted(pair)) for pair in np.argwhere(rare).tolist() if pair[0] != pair[1]})
    if pairs:
        shown = listed([f"{names[j]!r} and {names[k]!r}" for j, k in pairs], quote=False)
        raise Refused(
            f"every cell of two columns must have at least {max(few, of_levels)} rows, or none; {shown} have one with "
            "fewer. Pool levels, or leave a column or an interaction out."
        )


def check_spreads(formula: Formula, needed: Mapping[str, FloatArray], agreed: Agreed) -> None:
    """Knots that nobody wrote follow a spread that a site can lie about: one far below that of the rows is refused.

    To a power of two, so that a refusal tells no more. Before columns are made: all else that they break would tell
    where knots are.
    """
    for name in {factor.of.name for factor in formula.factors if isinstance(factor, Spline)} & needed.keys():
        spread = float(needed[name].std())
        if spread > 0.0 and not agreed[name].sd >= 2.0 ** np.floor(np.log2(spread)) / 2.0:
            raise Refused(
                f"where ns() has no knots they follow the spread of all sites; that of {name} is less than half of "
                "what it is at this site. Give knots= and bounds=, or use the logarithm of a skewed column."
            )


def check_stretches(few: int, fewest: Mapping[str, int]) -> None:
    """There must be enough rows between two knots of every spline. Which has too few is not said."""
    if any(count < few for count in fewest.values()):
        raise Refused(
            f"at least {few} rows of this site must lie between two knots of a spline; for one of "
            f"{listed(fewest, quote=False)} fewer do. Use fewer knots, or the logarithm of a skewed column."
        )


def check_functions(needed: int, of_model: Span) -> None:
    """Combinations of columns must rest on so many rows as the model's functions leave unknown (`shares`)."""
    if not _is_enough(search(of_model, needed, _EFFORT)):
        raise Refused(
            f"so many functions of so few columns tell the rows that a combination of them rests on, unless there are "
            f"{needed} at this site; this could not be shown. Use fewer powers, splines and products, or pool levels."
        )


def check_clusters(few: int, clusters: IntArray | None) -> None:
    """Squared sums of clusters are told beside those of rows: few rows that share one would be in the difference."""
    if clusters is None:
        return
    counts = np.unique(clusters, return_counts=True)[1]
    shared, outside = int(counts[counts > 1].sum()), len(clusters) - int(counts.max(initial=0))
    if 0 < shared < few or 0 < outside < few:
        raise Refused(
            f"at least {few} rows must share their cluster with others at this site, and as many be outside of the "
            "largest cluster; fewer do. Use errors='HC0'."
        )


def check_means(columns: Sequence[FloatArray], means: FloatArray) -> None:
    """Means of all sites must be near enough to the rows of this one for a difference to keep its digits.

    Where a site that lies moves means and scales, what is refused turns at a value of the rows: it may be an order of
    magnitude, and nothing finer.
    """
    for own, mean in zip(columns, means.tolist(), strict=True):
        largest = float(np.abs(own).max(initial=0.0))
        if largest > 0.0 and not abs(mean) <= _FARTHEST / _THOUSAND * _thousands(largest):
            raise Refused(_UNITS)


def check_units(covariates: FloatArray, columns: Location) -> None:
    """Scales of all sites must be of the size of these rows: in others a parameter would cut rows apart."""
    check_means(list(covariates.T), columns.mean)
    if not np.all(columns.scale > 0.0):
        raise Refused(_UNITS)
    for own, mean, scale in zip(covariates.T, *columns, strict=True):
        reach = _thousands(max(float(np.ptp(own)), float(np.abs(own).max()) / _THOUSAND))
        about = reach * round(float(own.mean()) / reach) if reach else 0.0
        if not abs(mean - about) + reach <= _FARTHEST * scale:
            raise Refused(_UNITS)


def check_parameter(few: int, columns: Mapping[str, FloatArray], of_model: Span) -> None:
    """What rows count for at a parameter must rest on enough of them: a site that lies can move it.

    Scores are taken together with the columns of the model, since residuals and outcomes tell means.
    """
    scores = _columns(columns, "score")
    enough = (
        scores is None
        or plainly_enough_beside(of_model, scores, few)
        or _is_enough(search(extend(of_model, scores), few))
    )
    more = any(not name.startswith("score") for name in columns)  # scores alone are part of that
    if not enough or (more and not are_enough(few, columns)):
        raise Refused(
            f"at least {few} rows of this site must count at every parameter; at this one fewer do. Is a level "
            "without both outcomes, or a value far from all others? Leave the column out, or take its logarithm."
        )


def are_enough(few: int, columns: Mapping[str, FloatArray]) -> bool:
    """Whether all combinations of what rows count for at a parameter rest on enough rows, as far as can be shown.

    Squared scores are multiplied with each other alone. Of deviances and of Pearson's residuals one number is told: a
    combination of both would tell a number of its rows, and none of their columns, so each is looked at by itself.
    """
    matrices, squares = _columns(columns, "information", "observed"), _columns(columns, "squares")
    more = [one for what in ("score", "deviance", "pearson") if (one := _columns(columns, what)) is not None]
    beside = [matrices] if matrices is not None else []
    if (more or beside) and not plainly_enough(np.hstack(beside + more), few):
        spans = [span_of(one) for one in beside]
        spans += [extend(spans[0], one) if beside else span_of(one) for one in more]
    else:
        spans = []
    if squares is not None and not plainly_enough(squares, few):
        spans.append(span_of(squares))
    return all(_is_enough(search(span, few)) for span in spans)


def _is_enough(found: Search) -> bool:
    return found.rows is None and found.complete


def _columns(columns: Mapping[str, FloatArray], *what: str) -> FloatArray | None:
    """Those of some names, each once; none where nothing is told, or the round is void."""
    once = {own.tobytes(): own for name, own in columns.items() if name.startswith(what)}
    found = np.column_stack(list(once.values())) if once else None
    return None if found is None or not np.isfinite(found).all() else found


def _thousands(size: float) -> float:
    """The power of 1000 that is not below a size; 0 for 0."""
    return float(10.0 ** (3.0 * np.ceil(np.log10(size) / 3.0))) if size > 0.0 else 0.0


def _is_round(number: float) -> bool:
    return float(f"{number:.1e}") == number
