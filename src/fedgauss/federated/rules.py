"""A site's reasons not to take part, by its policy. Each rule is about what somebody would see.

Where sums leave a site masked, nobody sees its own: levels, outcomes and parameters are held against the totals of all
sites. Without masks they are held against what this site alone would tell. All reasons are gathered before any is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from fedgauss._types import IntArray
from fedgauss.families import Family
from fedgauss.federated.plan import Plan
from fedgauss.federated.policy import Policy
from fedgauss.federated.refusal import Refused
from fedgauss.inference.tables import listed


@contextmanager
def noted(reasons: list[str]) -> Iterator[None]:
    """Put a refusal among the reasons, and go on. Checks inside name columns, levels and shapes, and no value of a row."""
    try:
        yield
    except ValueError as error:
        reasons.append(str(error))


def check_plan(policy: Policy, plan: Plan) -> None:
    """How many sites there must be, and whether sums must be masked."""
    sites = len(plan.sites)
    if sites < policy.fewest_sites:
        raise Refused(f"this site takes part in runs of at least {policy.fewest_sites} sites; this one has {sites}.")
    if plan.masked and policy.masks == "off":
        raise Refused('this site\'s policy has masks = "off". Fit without --masked, or ask the site\'s owner.')
    if not plan.masked and policy.masks == "required":
        raise Refused('this site\'s policy has masks = "required": it sends no sums of its own. Fit with --masked.')
    if plan.masked and sites < 2:
        raise Refused("masks hide a site among others; this run has one site. Fit without --masked.")


def check_rows(policy: Policy, rows: int, weightless: int) -> None:
    """There must be enough rows, and none of weight 0 or enough: a run without weights would tell of them."""
    if rows < policy.least_rows:
        raise Refused(f"this site takes part with at least {policy.least_rows} rows; it has fewer of this kind ({rows}).")
    if 0 < weightless < policy.few:
        raise Refused(
            f"no row must have weight 0 at this site, or at least {policy.few}, or sums with and without weights would "
            "tell of single rows; fewer have. Leave the weights out."
        )


def check_family(policy: Policy, family: Family) -> None:
    """A family must be among those that may be fitted, by one of its names."""
    if policy.families is not None and not {family.name, *family.aliases} & set(policy.families):
        raise Refused(f"this site's policy allows the families {listed(policy.families)}; got {family.name!r}.")


def check_levels(
    few: int, levels: Mapping[str, Sequence[object]], counts: Mapping[str, Sequence[float]], whose: str
) -> None:
    """Every level must have enough rows."""
    rare = [
        f"{name} = {level}"
        for name, of_all in levels.items()
        for level, count in zip(of_all, counts[name], strict=False)
        if 0 < count < few
    ]
    if rare:
        raise Refused(
            f"levels must have at least {few} rows {whose}; fewer have {listed(rare, quote=False)}. Pool rare levels "
            f"(pool_rare={few}), merge them, or leave the column out."
        )


def check_outcome(few: int, target: str, ones: float, n_rows: float, whose: str) -> None:
    """A target of zeros and ones must have enough of both."""
    rarer = min(ones, n_rows - ones)
    if 0 < rarer < few:
        raise Refused(
            f"{target!r} must have at least {few} rows of either outcome {whose}; one has fewer. Fit it with more sites, "
            "or take an outcome that is less rare."
        )


def check_parameters(policy: Policy, parameters: int, rows: int, whose: str) -> None:
    """There must be enough rows for each parameter."""
    most = int(rows / policy.rows_per_parameter)
    if parameters > most:
        raise Refused(
            f"there must be {policy.rows_per_parameter:g} rows {whose} for each parameter; {rows} rows are enough for "
            f"{most}, and this model has {parameters}. Use fewer columns, or pool levels."
        )


def check_clusters(policy: Policy, clusters: IntArray | None) -> None:
    """Squared sums of clusters are told where clusters are asked for: two rows in most would be rows."""
    if clusters is not None and len(np.unique(clusters)) < policy.few:
        raise Refused(f"there must be at least {policy.few} clusters at this site; there are fewer.")
