"""The covariance of an exact fit, from sums over sites.

With I the expected information and A the observed one, B = sum_i s_i s_i' the squared scores of rows, and
C = sum_g s_g s_g' those of clusters:

    model     phi I^-1 (phi A^-1 for families that say so)
    HC0       A^-1 B A^-1
    HC1       n / (n - d) times HC0
    cluster   G / (G - 1) (n - 1) / (n - d) times A^-1 C A^-1, with G clusters
    site      the same, each site a cluster
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np

from fedgauss import _checks
from fedgauss._types import FloatArray
from fedgauss.families import Family
from fedgauss.families.same_bits import inverse
from fedgauss.inference.model import Errors
from fedgauss.inference.tables import listed

ERRORS: tuple[str, ...] = get_args(Errors)
_FEW = 30  # clusters
_FEW_ROWS = 5  # as many as a site wants in a level


def check_errors(errors: str, family: Family, clustered: bool) -> None:
    """Refuse clusters without a use or a name, and model-based errors where the loss is not that of a model."""
    _checks.one_of("errors", errors, ERRORS)
    if errors == "cluster" and not clustered:
        raise ValueError(
            "errors='cluster' needs a column that says who belongs together: cluster='doctor'. For sites as clusters "
            "use errors='site'."
        )
    if clustered and errors != "cluster":
        raise ValueError(f"cluster is for errors='cluster'; got errors={errors!r}. Leave it out, or use 'cluster'.")
    if errors == "model" and family.model_errors == "none":
        raise ValueError(
            f"family {family.name!r} has no model for errors='model' to be right about: its loss is no likelihood. "
            "Use errors='HC0'."
        )


def parts_of(errors: Errors, family: Family) -> tuple[str, ...]:
    """What is asked for at the estimate (`Ask.parts`): no more than these errors need."""
    if errors == "model":
        return ("information",) if family.model_errors == "expected" else ("observed",)
    squares = {"cluster": ("squares.clusters",), "site": ("squares.sites",)}
    return ("observed", *squares.get(errors, ("squares.rows",)))


def clusters_of(errors: Errors, matrices: Mapping[str, FloatArray], n_sites: int) -> int:
    """How many clusters there are; none for errors by rows."""
    if errors == "cluster":
        return int(matrices["squares.n_clusters"])
    return n_sites if errors == "site" else 0


def few_clusters(groups: int, dim: int) -> tuple[str, ...]:
    """A note where a covariance is from so few clusters that its errors are too small."""
    if not 0 < groups < _FEW:
        return ()
    rank = f" They have rank {groups - 1}, and there are {dim} parameters." if groups <= dim else ""
    return (
        f"Errors are those of {groups} clusters: with fewer than {_FEW} or so they come out too small.{rank} Compare "
        "them with errors='HC0', and with the intervals of the sites' own fits.",
    )


def few_rows(errors: str, names: Sequence[str], covariates: FloatArray) -> tuple[str, ...]:
    """A note where a coefficient rests on so few rows that their residuals, made small by it, say little of its error.

    The coefficient of a level with one row fits that row exactly: its robust error counts no noise of that row at all.
    """
    there = covariates != 0.0
    counts = dict(zip(names, there.sum(axis=0).tolist(), strict=True))
    factors = {name.partition("[T.")[0] for name in names if "[T." in name and ":" not in name}
    for factor in sorted(factors):
        levels = [j for j, name in enumerate(names) if name.startswith(f"{factor}[T.") and ":" not in name]
        counts[f"the base level of {factor}"] = int(np.sum(~there[:, levels].any(axis=1)))
    rare = [f"{name} ({count})" for name, count in counts.items() if count < _FEW_ROWS]
    if errors == "model" or not rare:
        return ()
    return (
        f"Fewer than {_FEW_ROWS} rows stand behind {listed(rare, quote=False)}: robust errors are then too small. "
        "Merge rare levels, or use errors='model'.",
    )


def covariance(
    errors: Errors,
    family: Family,
    matrices: Mapping[str, FloatArray],
    dispersion: float,
    n_rows: int,
    n_sites: int,
) -> FloatArray:
    """The covariance of the estimate, (d, d), from the parts that `parts_of` names."""
    if errors == "model":
        return dispersion * inverse(matrices[parts_of(errors, family)[0]])
    bread = inverse(matrices["observed"])
    dim = len(bread)
    if errors in ("HC0", "HC1"):
        return (n_rows / (n_rows - dim) if errors == "HC1" else 1.0) * bread @ matrices["squares.rows"] @ bread
    meat = matrices["squares.sites" if errors == "site" else "squares.clusters"]
    groups = clusters_of(errors, matrices, n_sites)
    if groups <= 1:
        raise ValueError(f"errors={errors!r} needs several clusters; there is {groups}. Use errors='HC0'?")
    return groups / (groups - 1) * (n_rows - 1) / (n_rows - dim) * bread @ meat @ bread
