"""How the approximations of U_n rank, in words."""

from __future__ import annotations

from collections.abc import Sequence

from fedgauss.experiments.gaps import Order
from fedgauss.report.reproduction.words import SHORT
from fedgauss.report.text import listed, number


def order_sentences(found: Sequence[Order]) -> list[str]:
    """Whether the functional CLT is the worst, and whether Aggr-GA and Client-GA can be told apart."""
    worst = [f"{o.clearly_worst} of {o.panels} settings {SHORT[o.reading]}" for o in found]
    better, panels = sum(o.aggregated for o in found), sum(o.panels for o in found)
    largest = max(o.largest_z for o in found)
    # The largest of a dozen absolute normals exceeds 3 once in thirty runs.
    apart = "as between two samples of one law" if largest <= 3.0 else "more than two samples of one law should differ"
    return [
        "By $Q$ trimmed to levels 5 to 95 %, the functional CLT is worse than both others by more than two errors in "
        f"{listed(worst)}.",
        f"Aggr-GA has a smaller gap than Client-GA in {better} of {panels} settings, which share their random numbers; "
        f"the largest difference between the two is {number(largest, 1)} errors, {apart}.",
    ]
