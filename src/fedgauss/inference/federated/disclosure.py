"""What a site may release: why it refuses an order, how many rows a level or a reported number must be based on.

The coordinator knows the order in which a site reads its rows, so each number is an equation in the rows it sums up.
There must be many more unknowns than equations, also in the difference of any two numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fedgauss.inference.model_data import ModelData
from fedgauss.inference.passes import StepPlan, warm_rows
from fedgauss.inference.tables import FrameColumn, coded

FEWEST = 5  # rows behind a level, or behind parameters


class Refused(ValueError):
    """Words without a value of a row. What any other error says stays at the site."""


@contextmanager
def in_words(before: str = "") -> Iterator[None]:
    """For checks whose messages name columns, levels and shapes, and no value of a row."""
    try:
        yield
    except ValueError as error:
        raise Refused(f"{before}{error}") from error


def check_many(column: FrameColumn) -> None:
    """Levels, and values other than the most common one, must each occur in at least FEWEST rows."""
    counts = np.unique(column.values, return_counts=True)[1]
    if column.levels is not None and counts.min() < FEWEST:
        raise Refused(
            f"levels must have at least {FEWEST} rows each at this site, or sums would reveal single rows; some of "
            f"{column.name!r} have fewer. Merge rare levels, or leave the column out."
        )
    if 0 < len(column.values) - counts.max() < FEWEST:
        raise Refused(
            f"at least {FEWEST} rows must differ from the others in a column, or sums would reveal single rows; in "
            f"{column.name!r} fewer do at this site. Leave the column out, or the site."
        )


def check_design(data: ModelData, columns: Mapping[str, FrameColumn]) -> None:
    """Products of columns and splines must not set a few rows apart either."""
    design = data.design
    if design is None:
        return
    for name, rows in design.fewest_in_a_cell(columns).items():
        if rows < FEWEST:
            raise Refused(
                f"levels that occur together must have at least {FEWEST} rows at this site, or sums would reveal "
                f"single rows; some of {name} have fewer. Merge rare levels, or leave the interaction out."
            )
    for j in design.products():
        check_many(FrameColumn(data.names[j], data.covariates[:, j]))
    with in_words():
        design.check_stretches(columns, data.agreed, FEWEST)


def plain_levels(column: FrameColumn) -> list[Any] | None:
    """As JSON has them."""
    if column.levels is None:
        return None
    levels = [level.item() if isinstance(level, np.generic) else level for level in column.levels]
    kinds = {float if type(level) is int else type(level) for level in levels}
    if kinds not in ({str}, {bool}, {float}):
        raise Refused(
            "categories must all be text, numbers or true and false to be compared with other sites'; those of "
            f"{column.name!r} are not. Make them text."
        )
    return levels


def recoded(column: FrameColumn, levels: list[Any] | None) -> FrameColumn:
    """The same column with the levels of all sites."""
    if levels is None and column.levels is None:
        return column
    if levels is None or column.levels is None or not set(column.levels) <= set(levels):
        raise Refused(f"the levels of {column.name!r} must be those of all sites, this one's among them.")
    return coded(column.name, column.labels, levels)


def behind_parameters(classes: int) -> int:
    """Rows between two synchronisations: each is p + 1 unknowns, against (p + 1) C numbers told."""
    return max(FEWEST, 2 * classes)


def behind_matrix(dim: int) -> int:
    """Rows behind a sum of d x d matrices. Up to d of them could be read off two such sums by their eigenvectors."""
    return max(FEWEST, 2 * dim)


def behind_difference(dim: int) -> int:
    """Rows behind the difference of two Hessians, which is one d x d matrix by itself."""
    return max(FEWEST, dim)


def stops_of(plan: StepPlan, sync_every: int) -> list[int]:
    """Synchronisations, the end of the burn-in, and the end."""
    n_steps = len(plan.eta)
    return sorted({*range(sync_every, n_steps + 1, sync_every), plan.burn_in, n_steps})


def rows_read(steps: int, rows: int, n_steps: int) -> int:
    """Of a site with so many rows, in its first steps of a pass."""
    return steps * rows // n_steps


def told_apart(warm: int, plan: StepPlan, rows: int, dim: int) -> bool:
    """Whether no difference between the Hessians of warm-up, burn-in and all rows is one of few rows."""
    n_steps = len(plan.eta)
    first, second = (rows_read(steps, rows, n_steps) for steps in (warm % n_steps, plan.burn_in))
    gaps = {first, abs(first - second), rows - first} - {0}
    return min(gaps) >= behind_difference(dim)


def warm_steps(plan: StepPlan, counts: Sequence[int], dim: int) -> int:
    """Over how many steps the warm-up goes: as `fit` has it, or as many as the burn-in or the pass if that is near."""
    n_steps, usual = len(plan.eta), warm_rows(dim, len(counts))
    if all(told_apart(usual, plan, rows, dim) for rows in counts):
        return usual
    return min((plan.burn_in, n_steps), key=lambda steps: abs(steps - usual))


def check_rows_behind(plan: StepPlan, tau: int, warm: int, rows: int, least: int, sizes: Mapping[str, int]) -> None:
    """Refuse a plan by which a reply of a site, or the difference of two, would be based on few of its rows."""
    n_steps, few = len(plan.eta), behind_parameters(sizes["C"])
    between = int(np.diff(np.arange(0, n_steps + 1, tau) * rows // n_steps).min(initial=rows))
    if between < few:
        raise Refused(
            f"at least {few} rows must be read between two synchronisations, or parameters would reveal single rows; "
            f"here it would be {between}. Use a larger sync_every."
        )
    few = max(least, behind_matrix(sizes["d"]))
    if (read := rows_read(plan.burn_in, rows, n_steps)) < few:
        raise Refused(
            f"the burn-in must read at least {few} rows at this site, or its sums would reveal single rows; of its "
            f"{rows} rows it reads {read}. {-(-few * n_steps // plan.burn_in)} rows would be enough. Use fewer "
            "columns, or merge small sites?"
        )
    if rows_read(min(warm, n_steps), rows, n_steps) < few:
        raise Refused(f"the Hessian of the warm-up must be of at least {few} rows at this site.")
    if not told_apart(warm, plan, rows, sizes["d"]):
        raise Refused(
            f"warm-up and burn-in must read the same rows, or differ in at least {behind_difference(sizes['d'])}."
        )
