"""Compare the default detector with stock ones: river's ADWIN and PageHinkley, Focus of changepoint-online, ruptures.

Runs are those of the base setting: random-effects regression, 10 clients on a ring, 500 steps, synchronisation every
20, half of the clients shifted by mu in each coordinate after step 250. Every detector sees the same whitened
innovations, one a round, and has its threshold tuned to .05 on the same 4,000 honest runs; 2,000 others check the
level. An alarm counts as a detection when it is the run's first and comes after the attack. Differences are paired:
both detectors see the same runs. Further rows: innovations of single steps, raw iterates, attacks early and late.

river's detectors have further knobs, and stand here in two settings: `stock`, the package's own but for clock 1 and
min_instances 1 (with 32 and 30 they would hardly look at 24 rounds), and `fitted`, among the best of ten to twenty
tried on other runs for a short delay at mu = .5 and 1. Thresholds are tuned for each.

Needs the dependency group `rivals`: `make rivals` installs it. Takes three to four minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import common
import rival_measures as measures
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rival_data import SYNC_EVERY, Stream, raw, simulate, whitened
from rival_detectors import (
    STOCK_ADWIN,
    AlwaysFires,
    Default,
    Detector,
    Focus,
    adwin,
    focus_difference,
    page_hinkley,
    ruptures_onsets,
)
from rival_measures import Attack, mean_of
from rival_report import RAW, ROUNDS, SINGLE, lines, onset_table, table_of, verdicts

import fedgauss

BASE = [Attack(0.5), Attack(1.0), Attack(2.0)]
EARLY_AND_LATE = [Attack(1.0, 100), Attack(1.0, 400)]
DETECTORS: dict[str, list[Detector]] = {
    ROUNDS: [
        Default(SYNC_EVERY),
        Default(SYNC_EVERY, shipped=True),
        Focus(),
        page_hinkley("PageHinkley, stock", delta=0.005),
        page_hinkley("PageHinkley, fitted", delta=0.5),
        adwin("ADWIN, stock", **STOCK_ADWIN),
        adwin("ADWIN, fitted", min_window_length=1, max_buckets=30, grace_period=1),
        AlwaysFires(),
    ],
    RAW: [
        Focus(),
        page_hinkley("PageHinkley, stock", delta=0.005),
        page_hinkley("PageHinkley, fitted", delta=2.5),
        adwin("ADWIN, stock", **STOCK_ADWIN),
        adwin("ADWIN, fitted", scale=0.1, min_window_length=2, max_buckets=5, grace_period=1),
    ],
    SINGLE: [
        Default(1),
        Default(1, shipped=True),
        Focus(library=False),
        page_hinkley("PageHinkley, stock", delta=0.005),
        page_hinkley("PageHinkley, fitted", delta=0.1),
        adwin("ADWIN, stock", **STOCK_ADWIN),
        adwin("ADWIN, fitted", min_window_length=20, max_buckets=30, grace_period=10),
    ],
}
ATTACKS = {ROUNDS: BASE + EARLY_AND_LATE, RAW: BASE + EARLY_AND_LATE, SINGLE: BASE}


class Show:
    """A progress bar over everything; lines instead where there is no terminal."""

    def __init__(self, console: Console, total: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.console = console
        self.bar = Progress(*columns, console=console, transient=True)
        self.task = self.bar.add_task("", total=total)

    def __call__(self, text: str) -> None:
        """Say what comes next."""
        self.bar.update(self.task, description=text)
        if not self.console.is_terminal:
            self.console.print(text)

    def done(self) -> None:
        """One piece more."""
        self.bar.advance(self.task)


def streams(runs: int, seed: int, show: Show) -> dict[str, dict[Any, Stream]]:
    """For each input: honest runs to tune on ("null"), others to check ("fresh"), and runs under each attack."""
    jobs: list[tuple[Any, Attack, int]] = [("null", Attack(0.0), 2 * runs), ("fresh", Attack(0.0), runs)]
    jobs += [(attack, attack, runs) for attack in BASE + EARLY_AND_LATE]
    found: dict[str, dict[Any, Stream]] = {ROUNDS: {}, RAW: {}, SINGLE: {}}
    scale = None
    for number, (name, attack, count) in enumerate(jobs):
        show(f"simulate {count:,} runs, {attack.label}" if attack.shift else f"simulate {count:,} honest runs")
        path = simulate(attack.shift, attack.after, count, seed + number)
        if scale is None:
            scale = path[:, -1].std(axis=0)  # of honest iterates at the end
        found[ROUNDS][name] = whitened(path, SYNC_EVERY)
        found[RAW][name] = raw(path, scale)
        if name not in EARLY_AND_LATE:
            found[SINGLE][name] = whitened(path, 1)
        show.done()
    return found


def row_of(detector: Detector, kind: str, data: dict[Any, Stream], show: Show) -> dict[str, Any]:
    """Tune the detector, check its level, and watch the attacked runs."""
    show(f"{detector.name}, {kind}: tune")
    threshold = detector.tune(data["null"])
    show.done()
    show(f"{detector.name}, {kind}: watch")
    level = mean_of(detector.alarms(data["fresh"], threshold).step > 0)
    alarms = {attack: detector.alarms(data[attack], threshold) for attack in ATTACKS[kind]}
    show.done()
    return {
        "detector": detector.name,
        "input": kind,
        "knob": detector.knob,
        "threshold": threshold,
        "false alarms": level,
        "alarms": alarms,
        "measured": {attack: measures.measured(alarms[attack], attack) for attack in alarms},
    }


def compare(rows: list[dict[str, Any]]) -> None:
    """Add to each row the default minus it; the default is the tuned one that sees as often."""
    tuned = {row["input"]: row["alarms"] for row in rows if row["detector"] == "default, tuned"}
    tuned[RAW] = tuned[ROUNDS]
    for row in rows:
        default = tuned[row["input"]]
        row["default minus this"] = {
            attack: measures.compared(default[attack], row["alarms"][attack], attack) for attack in row["alarms"]
        }


def add_tuning_errors(rows: list[dict[str, Any]], data: dict[Any, Stream], show: Show) -> None:
    """Focus on rounds comes close to the default: there the error of tuning on so many honest runs matters."""
    row = next(row for row in rows if row["detector"] == "Focus" and row["input"] == ROUNDS)
    detectors = (Default(SYNC_EVERY), Focus())
    show("Focus, rounds: error of tuning")
    scores = {name: [detector.scores(stream) for detector in detectors] for name, stream in data.items()}
    for attack in ATTACKS[ROUNDS]:
        errors = measures.tuning_errors(scores["null"], scores[attack], data[attack].ends, attack)
        row["default minus this"][attack] = measures.widened(row["default minus this"][attack], errors)
    show.done()


def ruptures_rows(default: dict[Attack, Any], data: dict[Any, Stream], show: Show) -> dict[str, Any]:
    """Onset errors of ruptures, with the whole run and with what the default had at its alarm, beside the default's."""
    found = {}
    for attack in BASE:
        show(f"ruptures, {attack.label}")
        alarms, stream = default[attack], data[attack]
        hit = measures.detected(alarms, attack)
        errors = {
            "default at its alarm": measures.onset_errors(alarms.onset, attack),
            "ruptures at that alarm": measures.onset_errors(ruptures_onsets(stream, alarms.step), attack),
            "ruptures, whole run": measures.onset_errors(ruptures_onsets(stream), attack),
        }
        found[attack.label] = {name: mean_of(error[hit]) for name, error in errors.items()}
        found[attack.label]["ruptures, whole run, all runs"] = mean_of(errors["ruptures, whole run"])
        show.done()
    return found


def versions() -> dict[str, str]:
    """Of everything that the figures depend on."""
    packages = ("changepoint-online", "river", "ruptures", "jax", "jaxlib", "numpy", "scipy")
    return {"fedgauss": fedgauss.__version__, **{name: version(name) for name in packages}}


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row for JSON: without the alarms of single runs, attacks by their label."""
    row = {name: value for name, value in row.items() if name != "alarms"}
    if isinstance(row["threshold"], float) and math.isnan(row["threshold"]):
        row["threshold"] = None
    for name in ("measured", "default minus this"):
        row[name] = {attack.label: entry for attack, entry in row[name].items()}
    return measures.as_plain(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="runs a cell; twice as many to tune on (default 2000)")
    parser.add_argument("--seed", type=int, default=40_000, help="the first of the seeds used, one a cell")
    parser.add_argument("--out", type=Path, default=common.HERE / "out" / "rivals.json", help="where the JSON goes")
    options = parser.parse_args()
    if options.runs < 100:
        parser.error(f"--runs must be at least 100 to tune a rate of .05; got {options.runs}. Try --runs 200.")
    console = Console() if sys.stdout.isatty() else Console(width=170)
    pieces = 2 + len(BASE + EARLY_AND_LATE) + 2 * sum(map(len, DETECTORS.values())) + 2 + len(BASE)
    show = Show(console, pieces)
    with show.bar:
        data = streams(options.runs, options.seed, show)
        show("Focus from arrays against the package")
        difference = focus_difference(data[SINGLE]["null"].values[:10])
        show.done()
        rows = [row_of(detector, kind, data[kind], show) for kind, group in DETECTORS.items() for detector in group]
        compare(rows)
        add_tuning_errors(rows, data[ROUNDS], show)
        onsets = ruptures_rows(rows[0]["alarms"], data[ROUNDS], show)
    for attack in BASE + EARLY_AND_LATE:
        console.print(table_of(attack, rows))
    console.print(onset_table(onsets))
    found = verdicts(rows, BASE)
    console.print(*lines(found), sep="\n", highlight=False)
    console.print(
        f"Focus on steps comes from arrays; on 10 runs it differs from the package by {difference:.1g} at most."
    )
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "runs": options.runs,
        "runs to tune on": 2 * options.runs,
        "seed": options.seed,
        "rows": [plain(row) for row in rows],
        "onset errors": measures.as_plain(onsets),
        "demands": found,
        "focus from arrays minus package, largest": difference,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    console.print(f"Written to {options.out}")


if __name__ == "__main__":
    main()
