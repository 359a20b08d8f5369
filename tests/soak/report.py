"""What a soak has to tell: a line while it runs, a table, the stories of what failed, and a record."""

from __future__ import annotations

import json
import platform
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import fedgauss
from soak.runner import Outcome


def table(outcomes: Sequence[Outcome]) -> str:
    """Faults by kind: how many, after how many everything held, and in which scenarios."""
    by_kind: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_kind[outcome.fault.kind].append(outcome)
    rows = [("fault", "count", "recovered", "scenarios")]
    for kind in sorted(by_kind):
        found = by_kind[kind]
        where = ", ".join(sorted({outcome.fault.scenario for outcome in found}))
        rows.append((kind, str(len(found)), str(sum(not outcome.story for outcome in found)), where))
    recovered = sum(not outcome.story for outcome in outcomes)
    rows.append((f"all, of {len(by_kind)} kinds", str(len(outcomes)), str(recovered), ""))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = [f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in rows]
    lines.insert(1, "-" * len(lines[0]))
    lines.insert(-1, lines[1])
    return "\n".join(lines)


def stories(outcomes: Sequence[Outcome]) -> str:
    """Of the faults after which something did not hold."""
    return "\n\n".join(outcome.story.rstrip() for outcome in outcomes if outcome.story)


def record(outcomes: Sequence[Outcome], seed: int, seconds: float) -> str:
    """The same as JSON, with what it was run on."""
    kinds: dict[str, dict[str, Any]] = {}
    for fault, _, story in outcomes:
        row = kinds.setdefault(fault.kind, {"count": 0, "recovered": 0, "scenarios": defaultdict(int)})
        row["count"] += 1
        row["recovered"] += not story
        row["scenarios"][fault.scenario] += 1
    held = {
        "fedgauss": fedgauss.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "seed": seed,
        "seconds": round(seconds),
        "faults": len(outcomes),
        "recovered": sum(not outcome.story for outcome in outcomes),
        "kinds": dict(sorted(kinds.items())),
    }
    return json.dumps(held, indent=1)
