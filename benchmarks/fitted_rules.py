"""How far rules come that are fitted to the columns of `rival_table.py` themselves, and what they pay elsewhere.

A rule adds up likelihood ratios of a change after each of its first s values, at four sizes of shift,

    alarm after value t  if  sum_{s < t, m} w_smt L_smt > 1,    L = I_0(delta_m sqrt(n) z) exp(-delta_m^2 n / 2)

with z^2 the squared difference of means before and after s in standard errors, n = s (t - s) / t and delta_m the size
of a shift in standard deviations of a value, its direction unknown. Weights are fitted by gradient steps on runs of the
table's own ten columns of shifts, with other seeds, until every figure is level with the best rival's: alarms are soft
at first and become harder, and every figure that is worse costs something. Two kinds:

    alike     w_sm(t-s): a rule that knows nothing of when a change may begin
    free      w_smt: a rule that may learn the table's onsets by heart, and when they are asked for

Both are then tuned to .05 on the honest runs of the table, and tried on its columns and at onsets between them.

    python benchmarks/fitted_rules.py [--rounds 800]

Takes about a quarter of an hour of one core; the packages of rivals are not needed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rival_data as data
from jax.scipy.special import i0e
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rival_bounds import RECORD, name_of

import fedgauss as fg
from fedgauss.detect.runs import watch_runs
from fedgauss.detect.thresholds import boundary

Array = np.ndarray[Any, Any]
Column = tuple[int, float]  # t_0 and mu

LEVEL = 0.05
SHIFTS = np.array([0.25, 0.5, 1.0, 2.0])
SIZE = 2.63  # |theta| at mu = 1, from `rival_bounds.py`
BETWEEN = [(after, mu) for mu in (0.5, 1.0, 2.0) for after in (160, 200, 300, 350)]
BATCH, HONEST_BATCH = 2_500, 12_000
MARGIN = 0.5  # standard errors by which a fitted figure should be better than asked for


class Pairs:
    """All (s, t) with 0 < s < t <= J values, and what likelihood ratios need of them."""

    def __init__(self, n_values: int) -> None:
        self.before, self.now = np.array([(s, t) for t in range(2, n_values + 1) for s in range(1, t)]).T
        self.information = self.before * (self.now - self.before) / self.now

    def evidence(self, values: Array) -> Array:
        """z of every pair, from values (R, J, d); (R, pairs)."""
        sums = np.cumsum(values.astype(np.float32), axis=1)
        share = (self.before / self.now).astype(np.float32)[:, None]
        found = [
            np.linalg.norm(part[:, self.before - 1] - share * part[:, self.now - 1], axis=2)
            for part in np.array_split(sums, max(1, len(sums) // 5_000))
        ]
        return np.concatenate(found) / np.sqrt(self.information).astype(np.float32)


def scores(pairs: Pairs, log_weights: jax.Array, z: jax.Array) -> jax.Array:
    """log sum_{s, m} w_smt L_smt after each value but the first; (R, J - 1)."""
    size = jnp.asarray(SIZE * SHIFTS * np.sqrt(pairs.information)[:, None], jnp.float32)
    along = z[..., None] * size
    terms = jnp.exp(jnp.clip(log_weights + jnp.log(i0e(along)) + along - size**2 / 2, -60.0, 60.0)).sum(axis=-1)
    return jnp.log(jax.ops.segment_sum(terms.T, jnp.asarray(pairs.now - 2), int(pairs.now[-1]) - 1).T + 1e-30)


def alike(pairs: Pairs, theta: jax.Array) -> jax.Array:
    """Weights by age and size of shift."""
    return theta[pairs.now - pairs.before - 1]


def free(pairs: Pairs, theta: jax.Array) -> jax.Array:
    """A weight of its own for everything."""
    return theta


def wanted_of(record: dict[str, Any]) -> dict[Column, tuple[Array, Array]]:
    """By column: the share missed and the delay with which a rule is level with every rival, and their standard errors.

    Where a rival missed none of N runs a rule is level by two standard errors with 4 / N.
    """
    found = {}
    for label, column in record["columns"].items():
        if not label.startswith("mu"):
            continue
        mu, after = (float(part.split(" = ")[1]) for part in label.split(", "))
        rivals = [entry for name, entry in column.items() if name != "Monitor"]

        def bound(figure: str, sign: float, rivals: list[Any] = rivals) -> tuple[float, float]:
            each = [(sign * e["figures"][figure]["mean"], e["Monitor minus this"][figure]["se"]) for e in rivals]
            return min((value + 2 * se, se) for value, se in each)

        (missed, error), (delay, steps) = bound("power", -1.0), bound("delay", 1.0)
        least = max(-max(e["figures"]["power"]["mean"] for e in rivals) + 1.0, 0.0)
        if least < 0.002:  # Monitor's own early alarms make up the recorded error
            missed, error = max(least + 2 * np.sqrt(2 * least / record["runs"]), 4 / record["runs"]) - 1.0, 2e-4
        found[int(after), mu] = np.array([missed + 1.0, delay]), np.array([error, steps])
    return found


def figures(alarms: jax.Array, ends: Array, after: int) -> jax.Array:
    """The share missed and the delay, from the chances (R, J - 1) that a first alarm comes after each value."""
    seen = alarms * (ends > after)
    late = 1.0 - seen.sum(axis=1)
    delay = (seen * (ends - after)).sum(axis=1) + late * (data.N_STEPS - after)
    return jnp.stack([late.mean(), delay.mean()])


def first_alarms(score: jax.Array, sharpness: float) -> jax.Array:
    """Chances of the first alarm after each value, if one rings with chance sigmoid(sharpness score)."""
    ring = jax.nn.sigmoid(sharpness * score)
    silent = jnp.cumprod(1.0 - ring, axis=1)
    return ring * jnp.concatenate([jnp.ones_like(silent[:, :1]), silent[:, :-1]], axis=1)


def fitted(
    pairs: Pairs,
    kind: Callable[[Pairs, jax.Array], jax.Array],
    theta: jax.Array,
    honest: Array,
    runs: dict[Column, Array],
    wanted: dict[Column, tuple[Array, Array]],
    ends: Array,
    rounds: int,
) -> Array:
    """log w after so many steps of Adam."""

    def loss(theta: jax.Array, quiet: jax.Array, attacked: Sequence[jax.Array], sharpness: float) -> jax.Array:
        weights = kind(pairs, theta)
        level = first_alarms(scores(pairs, weights, quiet), sharpness).sum(axis=1).mean()
        short = [(level - LEVEL)[None] / 8e-4]
        for (column, (most, error)), z in zip(wanted.items(), attacked, strict=True):
            found = figures(first_alarms(scores(pairs, weights, z), sharpness), ends, column[0])
            short.append((found - most) / error)
        return (jax.nn.softplus(2.0 * (jnp.concatenate(short) + MARGIN)) / 2.0).sum()

    step, generator = jax.jit(jax.grad(loss)), np.random.default_rng(0)
    mean, square = jnp.zeros_like(theta), jnp.zeros_like(theta)
    for k in track(range(rounds), kind.__name__, transient=True):
        quiet = honest[generator.integers(len(honest), size=HONEST_BATCH)]
        attacked = [runs[column][generator.integers(len(runs[column]), size=BATCH)] for column in wanted]
        slope = jnp.nan_to_num(step(theta, quiet, attacked, min(2.0 + 0.03 * k, 12.0)))
        mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
        rate = 0.15 * 0.1 ** (k / rounds) / (1.0 - 0.9 ** (k + 1))
        theta = theta - rate * mean / (jnp.sqrt(square / (1.0 - 0.99 ** (k + 1))) + 1e-8)
    return np.asarray(kind(pairs, theta))


def tried(
    score: Callable[[data.Stream], Array], honest: data.Stream, streams: dict[Column, data.Stream]
) -> dict[str, Any]:
    """Figures at a threshold that .05 of honest runs exceed; alarms of honest runs up to step 240."""
    quiet = score(honest)
    threshold = np.sort(quiet.max(axis=1))[len(quiet) - int(LEVEL * len(quiet)) - 1]
    ends = honest.ends[-quiet.shape[1] :]
    found = {"early": float((quiet[:, ends <= 240] > threshold).any(axis=1).mean())}
    for column, stream in streams.items():
        over = score(stream) > threshold
        first = jax.nn.one_hot(np.where(over.any(axis=1), over.argmax(axis=1), len(ends)), len(ends))
        missed, delay = figures(first, ends, column[0])
        found[name_of(column)] = [1.0 - float(missed), float(delay)]
    return found


def monitor_scores(stream: data.Stream) -> Array:
    """The louder channel's statistic over its shipped threshold, (R, J)."""
    limits = boundary(2, data.SYNC_EVERY, LEVEL, data.N_STEPS)
    seen = watch_runs(fg.linearize(data.linear()), data.STEPS, stream.means, data.SYNC_EVERY, limits)
    ratios = [top / limit for top, limit in zip(seen.statistics.values(), limits.at(data.N_STEPS), strict=True)]
    return np.max(ratios, axis=0)[stream.dropped :].T


def runs_of(column: Column, count: int, seed: int) -> data.Stream:
    """Attacked runs as detectors see them."""
    after, mu = column
    return data.whitened(data.simulate(mu, after, count, seed), data.SYNC_EVERY)


def shown(rules: dict[str, dict[str, Any]], wanted: dict[Column, tuple[Array, Array]]) -> Table:
    """Power and delay of every rule; a star where a figure is worse than is level with the best rival."""
    table = Table("column", "level with the best rival", *rules)
    table.add_row("alarms of honest runs up to step 240", "", *(f"{rule['early']:.4f}" for rule in rules.values()))
    for column in [*wanted, *BETWEEN]:
        most = wanted.get(column, (np.full(2, np.inf), None))[0]
        cells = ["" if column not in wanted else f"{1 - most[0]:.4f} {most[1]:.1f}"]
        for power, delay in (rule[name_of(column)] for rule in rules.values()):
            stars = ["*" if worse else "" for worse in (1.0 - power > most[0], delay > most[1])]
            cells.append(f"{power:.4f}{stars[0]} {delay:.1f}{stars[1]}")
        table.add_row(name_of(column), *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=800, help="steps of Adam")
    parser.add_argument("--runs", type=int, default=10_000, help="behind each figure; twice as many honest ones")
    parser.add_argument("--out", type=Path, default=Path("build/fitted_rules.json"))
    options = parser.parse_args()
    record = json.loads(RECORD.read_text())
    wanted, seed = wanted_of(record), record["seed"]
    to_fit = data.whitened(data.simulate(0.0, 0, 100_000, 9001), data.SYNC_EVERY)
    pairs, ends = Pairs(to_fit.values.shape[1]), to_fit.ends[1:]
    honest = pairs.evidence(to_fit.values)
    runs = {c: pairs.evidence(runs_of(c, 20_000, 9100 + k).values) for k, c in enumerate(wanted)}
    begin = jnp.full(len(SHIFTS), -7.5, jnp.float32)
    starts = {alike: jnp.tile(begin, (int(pairs.now[-1]) - 1, 1)), free: jnp.tile(begin, (len(pairs.now), 1))}
    quiet = data.whitened(data.simulate(0.0, 0, 2 * options.runs, seed), data.SYNC_EVERY)
    streams = {c: runs_of(c, options.runs, seed + 2 + k) for k, c in enumerate(wanted)}
    streams |= {c: runs_of(c, options.runs, seed + 100 + k) for k, c in enumerate(BETWEEN)}
    rules, score = {"Monitor": tried(monitor_scores, quiet, streams)}, jax.jit(partial(scores, pairs))
    for kind, start in starts.items():
        weights = fitted(pairs, kind, start, honest, runs, wanted, ends, options.rounds)

        def rule(stream: data.Stream, weights: Array = weights) -> Array:
            parts = np.array_split(pairs.evidence(stream.values), max(1, len(stream) // 5_000))
            return np.concatenate([score(weights, part) for part in parts])

        rules[kind.__name__] = tried(rule, quiet, streams)
    Console(width=140).print(shown(rules, wanted))
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"fedgauss": fg.__version__, "jax": jax.__version__},
        "rounds": options.rounds,
        "runs": options.runs,
        "wanted": {name_of(c): [1.0 - float(most[0]), float(most[1])] for c, (most, _) in wanted.items()},
        "rules": rules,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"Written to {options.out}")


if __name__ == "__main__":
    main()
