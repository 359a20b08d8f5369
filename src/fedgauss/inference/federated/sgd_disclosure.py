"""How many rows must stand behind the numbers that leave a site in a pass of SGD.

The coordinator knows the order in which a site reads its rows, so each number is an equation in the rows it sums up.
There must be many more unknowns than equations, also in the difference of any two numbers.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedgauss.inference.federated.disclosure import FEWEST, Refused
from fedgauss.inference.passes import StepPlan, warm_rows


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
