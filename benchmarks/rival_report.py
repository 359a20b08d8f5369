"""The comparison of detectors in tables and in words."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import rival_measures as measures
from rich.table import Table
from rival_data import N_STEPS
from rival_measures import Attack, Mean

ROUNDS, SINGLE, RAW = "rounds", "steps", "raw"


class Demand(NamedTuple):
    """What the default must be against the rows whose names begin so, in one measure."""

    text: str
    kind: str
    prefixes: tuple[str, ...]
    measure: str
    enough: tuple[str, ...]


MEASURES = {
    "power": "in power",
    "restricted delay": "in delay over all runs",
    "delay": "in delay over the runs that both detect",
}
DEMANDS = [
    Demand(f"{text} {words}", kind, prefixes, measure, enough)
    for text, kind, prefixes, enough in (
        ("ahead of ADWIN and PageHinkley", ROUNDS, ("PageHinkley", "ADWIN"), ("ahead",)),
        ("not behind Focus by more than two standard errors", ROUNDS, ("Focus",), ("ahead", "level")),
        ("ahead of all on raw iterates", RAW, ("",), ("ahead",)),
    )
    for measure, words in MEASURES.items()
]


def share(mean: Mean | None) -> str:
    """A proportion, or a difference of two."""
    return "-" if mean is None else f"{mean.value:.3f} ({mean.error:.3f})".replace("0.", ".")


def steps(mean: Mean | None) -> str:
    """A number of steps."""
    return "-" if mean is None else f"{mean.value:.1f} ({mean.error:.1f})"


def table_of(attack: Attack, rows: list[dict[str, Any]]) -> Table:
    """All detectors under one attack."""
    title = (
        f"{attack.label}: mean (standard error). Delays in steps; `delay` is over all runs, undetected ones as "
        f"{N_STEPS - attack.after}.\nInput: whitened innovations of rounds or steps, or raw iterates after each round."
    )
    table = Table(title=title, title_justify="left")
    table.add_column("detector", no_wrap=True)
    table.add_column("input")
    for heading in ("threshold", "false alarms", "power", "early alarms", "delay if detected", "delay", "onset error"):
        table.add_column(heading, justify="right")
    for heading in ("power", "delay"):
        table.add_column(f"default minus this: {heading}", justify="right")
    last = None
    for row in (row for row in rows if attack in row["measured"]):
        if last not in (None, row["input"]):
            table.add_section()
        last = row["input"]
        table.add_row(row["detector"], last, *cells_of(row, attack))
    return table


def cells_of(row: dict[str, Any], attack: Attack) -> list[str]:
    """The numbers of one row."""
    found, gap = row["measured"][attack], row["default minus this"][attack]
    reference = row["detector"] == "default, tuned"
    return [
        "-" if math.isnan(row["threshold"]) else f"{row['threshold']:.3g}",
        *(share(mean) for mean in (row["false alarms"], found["power"], found["early"])),
        *(steps(found[name]) for name in ("delay", "restricted delay", "onset error")),
        "" if reference else share(gap["power"]),
        "" if reference else steps(gap["restricted delay"]),
    ]


def onset_table(onsets: dict[str, dict[str, Mean | None]]) -> Table:
    """ruptures beside the default."""
    table = Table(title="mean |onset error| in steps, on runs that the tuned default detects unless said otherwise")
    table.add_column("attack")
    for name in next(iter(onsets.values())):
        table.add_column(name, justify="right")
    for label, entry in onsets.items():
        table.add_row(label, *(steps(mean) for mean in entry.values()))
    return table


def verdicts(rows: list[dict[str, Any]], attacks: list[Attack]) -> list[dict[str, Any]]:
    """Each demand, whether these runs meet it, and every comparison it rests on, in words."""
    found = []
    for demand in DEMANDS:
        words = []
        met = True
        for row in (row for row in rows if row["input"] == demand.kind and row["detector"].startswith(demand.prefixes)):
            for attack in attacks:
                gap = row["default minus this"][attack]
                word = measures.standings(gap)[demand.measure]
                met &= word in demand.enough
                words.append(f"{row['detector']}, {attack.label}: {word}, {difference(gap, demand.measure)}")
        found.append({"demand": demand.text, "met": met, "default minus rival": words})
    return found


def difference(gap: dict[str, Mean | None], measure: str) -> str:
    """Default minus rival, and for power how much of it is alarms before the attack."""
    if measure != "power":
        return steps(gap[measure])
    return f"{share(gap['power'])}; early alarms {share(gap['early'])}"


def lines(found: list[dict[str, Any]]) -> list[str]:
    """The verdicts for the terminal."""
    text = [
        "Demands, at t_0 = 250; default minus rival (standard error), level is within two standard errors.",
        "Runs are paired; for Focus on rounds standard errors include that of tuning both thresholds.",
    ]
    for entry in found:
        text.append(f"{'MET' if entry['met'] else 'NOT MET'}: {entry['demand']}")
        text.extend(f"    {words}" for words in entry["default minus rival"])
    text.append("`always fires` has power 0, because its first alarms come before the attack, and false alarms 1.")
    return text
