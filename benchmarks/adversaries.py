"""Adaptive attackers of a federation, with the source in hand: what they read of honest tables under default policies.

    python benchmarks/adversaries.py mailbox --runs 10000 --seed 1
    python benchmarks/adversaries.py site --tables 1000
    python benchmarks/adversaries.py coalition --tables 1000
    python benchmarks/adversaries.py --table       # of all that was recorded

A world is drawn from a seed of its own; `--replay SEED` makes it again. Worlds are lines of JSON in `--out`, and those
that are there are not made again. `rows` is what somebody read who knew no row; `by_span` counts the rows and pairs
that who guessed the best combination of all that was told would read, for which the rows would have to be known.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / part) for part in ("", "federated")]

from campaigns import CAMPAIGNS  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: E402

HERE = Path(__file__).parent
_READS = ("rows", "tails", "sites", "masks")


def world_of(campaign: str, seed: int) -> dict[str, Any]:
    """One world as a line of the record."""
    began = time.perf_counter()
    return {
        "campaign": campaign,
        "seed": seed,
        **CAMPAIGNS[campaign](seed),
        "seconds": round(time.perf_counter() - began, 2),
    }


def table(lines: list[dict[str, Any]]) -> str:
    """What was run, and a line for each world in which something was read."""
    said = []
    for campaign in CAMPAIGNS:
        for kind in sorted({line["kind"] for line in lines if line["campaign"] == campaign}):
            own = [line for line in lines if (line["campaign"], line["kind"]) == (campaign, kind)]
            sums = {
                name: sum(line[name] for line in own)
                for name in ("runs", "answered", "parameters", "tables", "by_span")
            }
            read = {name: sum(bool(line[name]) for line in own) for name in _READS}
            said.append(
                f"{campaign:<10}{kind:<9}{len(own):>6} worlds {sums['tables']:>6} tables {sums['runs']:>7} runs "
                f"{sums['answered']:>6} answered {sums['parameters']:>7} parameters; worlds with a read: "
                + ", ".join(f"{name} {count}" for name, count in read.items())
                + f"; rows read {sum(len(line['rows']) + len(line['tails']) for line in own)}, "
                f"by span {sums['by_span']}"
            )
    for line in lines:
        said += [
            f"  --replay {line['seed']} ({line['campaign']}, {line['kind']}): {word}"
            for n in _READS
            for word in line[n][:1]
        ]
    return "\n".join(said)


def main() -> None:
    """Run a campaign, or print what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("campaign", nargs="?", choices=list(CAMPAIGNS))
    parser.add_argument("--runs", type=int, default=10_000, help="of a mailbox")
    parser.add_argument(
        "--tables", type=int, default=1_000, help="of honest sites, each asked until its budget is spent"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no world is begun")
    parser.add_argument("--out", type=Path, default=HERE / "out" / "adversaries.jsonl")
    parser.add_argument("--replay", type=int, help="one world, by its seed")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.replay is not None:
        print(json.dumps(world_of(asked.campaign, asked.replay), indent=1))
        return
    asked.out.parent.mkdir(exist_ok=True)
    lines = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    if asked.table or asked.campaign is None:
        print(table(lines))
        return
    what, most = ("runs", asked.runs) if asked.campaign == "mailbox" else ("tables", asked.tables)
    own = {line["seed"]: line for line in lines if line["campaign"] == asked.campaign}
    done: Counter[str] = Counter()
    began, number = time.perf_counter(), 0
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar, asked.out.open("a") as file:
        task = bar.add_task(asked.campaign, total=most)
        while done[what] < most and time.perf_counter() - began < asked.seconds:
            seed, number = asked.seed * 1_000_000 + number, number + 1
            if seed not in own:
                own[seed] = world_of(asked.campaign, seed)
                file.write(json.dumps(own[seed]) + "\n")
                file.flush()
            done[what] += own[seed][what]
            bar.update(task, completed=done[what])
    print(table(list(own.values())))


if __name__ == "__main__":
    main()
