"""One table of detectors at one level: small and large shifts, early and late ones, and runs that get quieter.

Runs and innovations are those of `rivals.py`. Every detector has its threshold tuned to .05 on the same 20,000 honest
runs; 10,000 others check it, and 10,000 runs stand behind every column. Power is the share of runs whose first alarm
comes after the change; delay is the mean number of steps to it, to the end of the run where there is none or where the
first alarm came too early. Figures "given silence" leave out runs with an alarm before the change. Differences are
paired, and their errors include that of tuning both thresholds (a bootstrap over the honest runs).

    python benchmarks/rival_table.py [--runs 10000]

Needs river (the dependency group `rivals`) for the comparison of its own alarms with those from arrays. Takes about
three minutes of one core.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rival_data as data
import rival_scores as rivals
from rich.console import Console
from rich.table import Table
from rival_data import N_CLIENTS, N_STEPS, SYNC_EVERY, Array, Stream
from rival_detectors import LEVEL, STOCK_ADWIN, Default, adwin, exceeded_by, page_hinkley

import fedgauss as fg

OURS = "Monitor"
DRAWS = 60  # of the bootstrap over honest runs
FITTED_ADWIN = {"min_window_length": 1, "max_buckets": 30, "grace_period": 1}
SHIFTS = (
    np.sqrt(SYNC_EVERY) * 0.32 * np.geomspace(0.25, 2.0, 7)
)  # of a round, in a coordinate, for mu of .25 to 2 or so


class Column(NamedTuple):
    """A change after step `after`: half of the clients shift by `shift`, or noise is multiplied by `noise`."""

    after: int
    shift: float = 0.0
    noise: float = 1.0
    who: str = "half"

    @property
    def label(self) -> str:
        """As it stands in the table."""
        if self.shift:
            return f"mu = {self.shift:g}, t_0 = {self.after}"
        return f"noise x {self.noise:g}, {self.who}"

    def runs(self, count: int, seed: int) -> Stream:
        """Attacked runs as detectors see them."""
        if self.shift:
            return data.whitened(data.simulate(self.shift, self.after, count, seed), SYNC_EVERY)
        touched = np.arange(N_CLIENTS) < (N_CLIENTS if self.who == "all" else N_CLIENTS // 2)
        quieter = data.linear(noise=np.where(touched, self.noise, 1.0))
        changed = fg.problems.change_at(data.linear(), quieter, self.after + 1)
        return data.whitened(data.paths(changed, count, seed), SYNC_EVERY)


COLUMNS = [Column(250, shift) for shift in (0.25, 0.5, 1.0, 2.0)]
COLUMNS += [Column(after, shift) for after in (100, 400) for shift in (0.5, 1.0, 2.0)]
COLUMNS += [Column(250, noise=noise, who=who) for noise in (0.5, 0.0) for who in ("all", "half")]

Scorer = Callable[[Stream], Array]


def of_values(scores: rivals.Scores) -> Scorer:
    """A rival sees the whitened innovations."""
    return lambda stream: scores(stream.values)


def together(parts: Callable[[Array], tuple[Array, ...]], honest: Stream) -> Scorer:
    """Several statistics, each over the value that half the level exceeds, and the largest."""
    limits = [exceeded_by(part.max(axis=1), LEVEL / 2) for part in parts(honest.values)]
    return lambda stream: np.max([p / h for p, h in zip(parts(stream.values), limits, strict=True)], axis=0)


def detectors(honest: Stream) -> dict[str, Scorer]:
    """By name; ours first."""
    return {
        OURS: Default(SYNC_EVERY).scores,
        "Focus": of_values(rivals.focus_scores),
        "PageHinkley, stock": of_values(rivals.page_hinkley_scores(0.005)),
        "PageHinkley, fitted": of_values(rivals.page_hinkley_scores(0.5)),
        "ADWIN, stock": of_values(rivals.adwin_scores(**STOCK_ADWIN)),
        "ADWIN, fitted": of_values(rivals.adwin_scores(**FITTED_ADWIN)),
        "ocd": together(rivals.ocd_parts(2.0), honest),
        "e-SR": of_values(rivals.e_detector_scores(SHIFTS, "SR")),
        "e-CUSUM": of_values(rivals.e_detector_scores(SHIFTS, "CUSUM")),
        "covariance CUSUM": of_values(rivals.covariance_scores),
    }


class Alarmed(NamedTuple):
    """What the first alarms of R runs come to."""

    hit: Array  # whether the first alarm comes after the change
    silent: Array  # whether there was none before it
    delay: Array  # up to the end of the run

    def figures(self) -> Array:
        """Power, delay, and both given silence."""
        quiet = self.silent.mean()
        return np.array(
            [
                self.hit.mean(),
                self.delay.mean(),
                self.hit.mean() / quiet,
                (self.delay * self.silent).mean() / quiet,
            ]
        )

    def influences(self) -> Array:
        """How much each run moves each figure, (4, R): figures of ratios are linearised."""
        power, delay, power_if, delay_if = self.figures()
        quiet = self.silent.mean()
        return np.stack(
            [
                self.hit - power,
                self.delay - delay,
                (self.hit - power_if * self.silent) / quiet,
                self.silent * (self.delay - delay_if) / quiet,
            ]
        )


FIGURES = ("power", "delay", "power given silence", "delay given silence")
SMALLER_IS_BETTER = (False, True, False, True)


def alarmed(loudest: Array, threshold: float, ends: Array, after: int) -> Alarmed:
    """From the loudest score up to each round, (R, J)."""
    rounds = (loudest <= threshold).sum(axis=1)  # before the first alarm
    step = np.append(ends, 0)[rounds]
    hit = step > after
    return Alarmed(hit, hit | (step == 0), np.where(hit, step, N_STEPS) - after)


def measured(scores: dict[str, dict[str, Array]], ends: Array, column: Column) -> dict[str, Any]:
    """Figures of every detector in a column, and ours minus each rival's, with errors."""
    generator = np.random.default_rng(7)
    honest = {name: kept["tune"].max(axis=1) for name, kept in scores.items()}
    loudest = {name: np.maximum.accumulate(kept[column.label], axis=1) for name, kept in scores.items()}
    limits = {name: exceeded_by(top, LEVEL) for name, top in honest.items()}
    seen = {name: alarmed(loudest[name], limits[name], ends, column.after) for name in scores}
    drawn = {name: np.zeros((DRAWS, 4)) for name in scores}
    for k in range(DRAWS):
        rows = generator.integers(len(honest[OURS]), size=len(honest[OURS]))
        for name, top in honest.items():
            again = alarmed(loudest[name], exceeded_by(top[rows], LEVEL), ends, column.after)
            drawn[name][k] = again.figures()
    found = {}
    for name, alarms in seen.items():
        own = alarms.influences().std(axis=1) / np.sqrt(len(alarms.hit))
        entry: dict[str, Any] = {"figures": pairs(alarms.figures(), np.hypot(own, drawn[name].std(axis=0)))}
        if name != OURS:
            paired = (seen[OURS].influences() - alarms.influences()).std(axis=1) / np.sqrt(len(alarms.hit))
            error = np.hypot(paired, (drawn[OURS] - drawn[name]).std(axis=0))
            gap = seen[OURS].figures() - alarms.figures()
            entry["Monitor minus this"] = pairs(gap, error)
            entry["Monitor is"] = {
                figure: standing(-g if less else g, e)
                for figure, less, g, e in zip(FIGURES, SMALLER_IS_BETTER, gap, error, strict=True)
            }
        found[name] = entry
    return found


def pairs(values: Array, errors: Array) -> dict[str, dict[str, float]]:
    """By figure, for JSON."""
    return {name: {"mean": float(v), "se": float(e)} for name, v, e in zip(FIGURES, values, errors, strict=True)}


def standing(lead: float, error: float) -> str:
    """Ahead, level or behind by two standard errors."""
    return "level" if abs(lead) <= 2 * error else "ahead" if lead > 0 else "behind"


def differing_from_river(values: Array) -> int:
    """First alarms from arrays that are not those of river's own objects, over four settings and two thresholds."""
    stream = Stream(values, values, SYNC_EVERY, 1)
    pairs_of = [
        (rivals.page_hinkley_scores(0.005), page_hinkley("", 0.005), lambda h: h),
        (rivals.page_hinkley_scores(0.5), page_hinkley("", 0.5), lambda h: h),
        (rivals.adwin_scores(**STOCK_ADWIN), adwin("", **STOCK_ADWIN), lambda h: float(np.exp(-h))),
        (rivals.adwin_scores(**FITTED_ADWIN), adwin("", **FITTED_ADWIN), lambda h: float(np.exp(-h))),
    ]
    count = 0
    for scores, river, knob in pairs_of:
        found = np.maximum.accumulate(scores(values), axis=1)
        for level in (0.3, 0.7):
            h = float(np.quantile(found[:, -1], level))
            rounds = (found <= h).sum(axis=1)
            count += int((np.append(stream.ends, 0)[rounds] != river.alarms(stream, knob(h)).step).sum())
    return count


def as_shipped(scores: dict[str, Array], ends: Array) -> dict[str, Any]:
    """What ours does at its own threshold, a score of 1, for a nominal .05."""
    found: dict[str, Any] = {"false alarms": float((scores["fresh"].max(axis=1) > 1.0).mean())}
    for column in COLUMNS:
        alarms = alarmed(np.maximum.accumulate(scores[column.label], axis=1), 1.0, ends, column.after)
        found[column.label] = pairs(alarms.figures(), alarms.influences().std(axis=1) / np.sqrt(len(alarms.hit)))
    return found


def shown(found: dict[str, Any], levels: dict[str, Any], figures: tuple[str, str]) -> Table:
    """Power and delay of every detector in every column; a star where ours is behind it."""
    table = Table(title=f"{figures[0]} and {figures[1]}; * where Monitor is behind by two standard errors")
    table.add_column("detector", no_wrap=True)
    table.add_column("false alarms")
    for label in found:
        table.add_column(label, justify="right")
    for name in levels:
        cells = []
        for entry in (column[name] for column in found.values()):
            words = []
            for figure, form in zip(figures, (".3f", ".0f"), strict=True):
                behind = entry.get("Monitor is", {}).get(figure) == "behind"
                words.append(f"{entry['figures'][figure]['mean']:{form}}{'*' if behind else ''}")
            cells.append(" ".join(words))
        table.add_row(name, f"{levels[name]:.3f}", *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=3026)
    parser.add_argument("--out", type=Path, default=Path("build/rival_table.json"))
    options = parser.parse_args()
    console = Console(width=230)
    honest = data.whitened(data.simulate(0.0, 0, 2 * options.runs, options.seed), SYNC_EVERY)
    fresh = data.whitened(data.simulate(0.0, 0, options.runs, options.seed + 1), SYNC_EVERY)
    watching = detectors(honest)
    scores = {name: {"tune": score(honest), "fresh": score(fresh)} for name, score in watching.items()}
    console.print(f"{len(honest.values):,} honest runs seen")
    for number, column in enumerate(COLUMNS):
        stream = column.runs(options.runs, options.seed + 2 + number)
        for name, score in watching.items():
            scores[name][column.label] = score(stream)
        if column == Column(250, 0.5):
            differing = differing_from_river(stream.values[:300])
        console.print(f"{column.label} seen")
    found = {column.label: measured(scores, honest.ends, column) for column in COLUMNS}
    thresholds = {name: exceeded_by(kept["tune"].max(axis=1), LEVEL) for name, kept in scores.items()}
    loud = {name: scores[name]["fresh"] > thresholds[name] for name in scores}
    levels = {name: float(alarms.any(axis=1).mean()) for name, alarms in loud.items()}
    early = {name: float(alarms[:, honest.ends <= 240].any(axis=1).mean()) for name, alarms in loud.items()}
    for figures in (("power", "delay"), ("power given silence", "delay given silence")):
        console.print(shown(found, levels, figures))
    console.print(f"alarms from arrays that are not river's own: {differing}")
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"fedgauss": fg.__version__, "numpy": np.__version__},
        "runs": options.runs,
        "runs to tune on": 2 * options.runs,
        "seed": options.seed,
        "thresholds": thresholds,
        "false alarms": levels,
        "false alarms up to step 240": early,
        "Monitor as shipped": as_shipped(scores[OURS], honest.ends),
        "columns": found,
        "alarms from arrays that are not river's": differing,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    console.print(f"Written to {options.out}")


if __name__ == "__main__":
    main()
