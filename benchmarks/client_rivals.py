"""Rival detectors and robust means on the federated runs that `ClientMonitor` is measured on: same seeds, same runs.

    python benchmarks/client_rivals.py detectors   --images mnist_train.npz
    python benchmarks/client_rivals.py aggregators --images mnist_train.npz

`detectors`: FLDetector, FLANDERS, FLAME's clustering and robust z-scores beside ClientMonitor, in runs that nobody acts
on: honest ones of `client_study.py levels`, and those of its table `power` for the network 784-32-10 with momentum.
All watch from round 12 on, FLDetector from 21, when its window is full. FLANDERS must be told how many are good. In one
column it is, with two bad in honest runs; in the other it keeps three of ten, as its published configuration does.
FLAME looks at the cosines of uploads, as in its paper; a second column has those of the moves. It names the clients
outside its cluster; its clipping and noise name nobody and are left out. Robust z: 3.5 deviations. "Two at random" is
what any figure must beat.

`aggregators`: accuracy after 80 rounds of FedAvg, of robust means that are told f, and of FedAvg without the bad
clients from the onset on, in the runs of `client_study.py loop`, which has the figures of fedgauss. In honest runs f is
what they guard against. Bulyan needs 4 f + 3 clients, so ten allow f = 1 only, which it gets everywhere.

`--images` is a .npz with `images` (n, 28, 28) and `labels` (n,). `--runs` makes it smaller, `--only` takes one row.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import client_study
import jax
import jax.numpy as jnp
import numpy as np
from federated_runs import Attack, Federation, Runs, n_parameters
from rival_flanders import Flanders
from rival_fldetector import FLDetector
from rival_rounds import cosines, outside_the_majority, robust_z
from robust_means import RULES

FIRST = 12  # round that is watched
ROUNDS = 62  # of attacked runs, as in the table `power`
OURS = "ClientMonitor"
HONEST = ("momentum", "momentum, Dirichlet .1", "momentum, alike", "Adam")  # of client_study.settings
LOOP = (  # of client_study.attacks
    "label flip, 2",
    "label flip, 4",
    "boosted flip x5, 2",
    "sign flip, 2",
    "sign flip, 4",
    "scaling x5, 2",
    "ALIE, 4",
    "IPM, 4",
)


# --- detectors -------------------------------------------------------------------------------------------------------


class Round(NamedTuple):
    """What a rival may look at in a round of R runs with all K clients."""

    sent: jax.Array  # the model  (R, d)
    moves: jax.Array  # (R, K, d)
    products: np.ndarray  # of moves  (R, K, K)


Watch = Callable[[Round], np.ndarray]  # who is named, (R, K)


def rivals(n_runs: int, federation: Federation, bad: int) -> dict[str, Watch]:
    """Of R runs; `bad` is what FLANDERS is told."""
    size, rng = n_parameters(federation.model), np.random.default_rng(0)
    fldetector = FLDetector(n_runs)
    told, untold = (Flanders(size, keep) for keep in (federation.clients - bad, 3))
    return {
        "FLDetector": lambda r: fldetector.update(r.sent, r.moves),
        "FLANDERS, told f": lambda r: told.update(r.sent, r.moves),
        "FLANDERS, keeps 3": lambda r: untold.update(r.sent, r.moves),
        "FLAME": lambda r: outside_the_majority(1 - np.asarray(_upload_cosines(r.sent, r.moves), float)),
        "FLAME on moves": lambda r: outside_the_majority(1 - cosines(r.products)),
        "robust z": lambda r: robust_z(r.products),
        "two at random": lambda r: rng.uniform(size=r.products.shape[:2]).argsort(axis=1) < 2,
    }


@jax.jit
def _upload_cosines(sent: jax.Array, moves: jax.Array) -> jax.Array:
    uploads = sent[:, None] + moves
    units = uploads / jnp.linalg.norm(uploads, axis=2, keepdims=True)
    return jnp.matmul(units, units.swapaxes(1, 2), precision=jax.lax.Precision.HIGHEST)


class Watched(NamedTuple):
    """R runs under one attack."""

    named: dict[str, np.ndarray]  # by rivals, in every round  (T, R, K)
    ours: Callable[[], list[client_study.Outcome]]  # waits for ClientMonitor


def watched(
    study: client_study.Study, federation: Federation, attack: Attack, n_runs: int, n_rounds: int, seed: int
) -> Watched:
    """All detectors on the same runs."""
    runs = Runs(federation, attack, study.images, n_runs, seed * 1000)
    watches = rivals(n_runs, federation, attack.bad or 2)
    named: dict[str, list[np.ndarray]] = {name: [] for name in watches}
    rounds = []
    for number in range(1, n_rounds + 1):
        sent = runs.model
        seen = runs.step()
        rounds.append(client_study.moves_of(seen, np.float32))
        this = Round(sent, runs.moves, seen.products.astype(float))
        for name, watch in watches.items():
            named[name].append(watch(this) & (number >= FIRST))
    # From round 2 on: from round 1 on it would not name anyone.
    ours = study.outcomes(rounds, federation.clients, 2)
    return Watched({name: np.stack(masks) for name, masks in named.items()}, ours)


def honest_row(named: np.ndarray) -> dict[str, float]:
    """Of (T, R, K) names in honest runs."""
    return {
        "ever names anyone": float(named.any(axis=(0, 2)).mean()),
        "named a round": float(named[FIRST - 1 :].sum(axis=2).mean()),
    }


def our_honest_row(outcomes: list[client_study.Outcome], n_rounds: int) -> dict[str, float]:
    """The same of ClientMonitor, to its first alarm."""
    names = sum(len(o.clients) for o in outcomes if o.alarm)
    return {
        "ever names anyone": float(np.mean([o.alarm > 0 for o in outcomes])),
        "named a round": names / (len(outcomes) * (n_rounds - FIRST + 1)),
    }


def attacked_row(named: np.ndarray, attack: Attack) -> dict[str, Any]:
    """Of (T, R, K) names under attack: the first round from the onset on in which anyone is named, and all of them."""
    begin = max(attack.onset, FIRST)
    alarms = named.any(axis=2)
    bad = np.arange(named.shape[2]) < attack.bad
    since = named[begin - 1 :]
    any_since = alarms[begin - 1 :]
    first = np.where(any_since.any(axis=0), begin + any_since.argmax(axis=0), 0)
    outcomes = [
        client_study.Outcome(int(a), False, 0.0, 0, tuple(np.flatnonzero(named[a - 1, run])) if a else (), 0, 0)
        for run, a in enumerate(first)
    ]
    quiet = ~alarms[: begin - 1].any(axis=0)
    return {
        **shared(client_study.summary(outcomes, attack)),
        "quiet before": float(quiet.mean()),
        "quiet before, then seen": float((quiet & (first > 0)).mean()),
        "recall a round": float(since[..., bad].mean()),
        "honest named a round": float(since[..., ~bad].sum(axis=2).mean()),
    }


def our_attacked_row(outcomes: list[client_study.Outcome], attack: Attack) -> dict[str, Any]:
    """The same of ClientMonitor, to its first alarm: one before the onset is false, and nothing is seen after it."""
    early = [0 < o.alarm < attack.onset for o in outcomes]
    counted = [o._replace(alarm=0) if e else o for o, e in zip(outcomes, early, strict=True)]
    row = shared(client_study.summary(counted, attack))
    return {**row, "quiet before": 1 - float(np.mean(early)), "quiet before, then seen": row["seen"]}


def shared(summary: dict[str, Any]) -> dict[str, Any]:
    """What a detector without an onset has, too."""
    return {name: summary[name] for name in ("runs", "seen", "within 8", "median delay", "recall", "wrong names")}


def detectors(study: client_study.Study, n_runs: int, only: str | None) -> list[dict[str, Any]]:
    """Names in honest runs, and in runs under attack."""
    jobs = []
    for i, (name, federation) in enumerate(client_study.settings().items()):
        if name in HONEST and (only is None or only == name):
            jobs.append((f"honest: {name}", federation, Attack(), federation.rounds, i))
    for j, (name, attack) in enumerate(client_study.attacks().items()):
        if only is None or only == name:
            jobs.append((name, Federation(), attack, ROUNDS, 100 + j))
    waiting = []
    for name, federation, attack, n_rounds, seed in jobs:
        waiting.append((name, attack, n_rounds, watched(study, federation, attack, n_runs, n_rounds, seed)))
        print(f"# {name}: trained", flush=True)
    rows = []
    for name, attack, n_rounds, found in waiting:
        ours = found.ours()
        if attack.bad:
            row = {OURS: our_attacked_row(ours, attack)}
            row |= {rival: attacked_row(named, attack) for rival, named in found.named.items()}
        else:
            row = {OURS: our_honest_row(ours, n_rounds)}
            row |= {rival: honest_row(named) for rival, named in found.named.items()}
        rows.append({"runs of": name, "bad": attack.bad, "runs": n_runs, "rounds": n_rounds, "detectors": row})
    honest, attacked = ([row for row in rows if bool(row["bad"]) is is_bad] for is_bad in (False, True))
    if honest:
        print("\nHonest runs: share in which anyone is ever named / clients named a round")
        table(honest, lambda d: f"{d['ever names anyone']:.2f} / {d['named a round']:.2f}")
    if attacked:
        print("\nAttacked runs: seen / median delay / at the first alarm, share of the bad named / of names wrong")
        table(attacked, first_alarm)
        print("\nAttacked runs: share without a name before the attack / and with one after it")
        table(attacked, lambda d: f"{d['quiet before']:.2f} / {d['quiet before, then seen']:.2f}")
        print("\nEvery round of the attack: share of the bad named / honest clients named")
        table(attacked, every_round)
    return rows


def first_alarm(cell: dict[str, Any]) -> str:
    """As in docs/clients.md."""
    if not cell["seen"]:
        return "0.00"
    delay = f"{cell['median delay']:g}" if cell["median delay"] < 999 else "-"
    wrong = "-" if cell["wrong names"] is None else f"{cell['wrong names']:.2f}"
    return f"{cell['seen']:.2f} / {delay} / {cell['recall']:.2f} / {wrong}"


def every_round(cell: dict[str, Any]) -> str:
    """Of rivals, which name afresh in each round."""
    if "recall a round" not in cell:
        return ""
    return f"{cell['recall a round']:.2f} / {cell['honest named a round']:.2f}"


def table(rows: list[dict[str, Any]], cell: Callable[[dict[str, Any]], str]) -> None:
    """A line for each kind of run, a column for each detector."""
    names = list(rows[0]["detectors"])
    print_table(["runs", *names], [[row["runs of"], *(cell(row["detectors"][n]) for n in names)] for row in rows])


def print_table(head: list[str], lines: list[list[str]]) -> None:
    """In Markdown."""
    for line in (head, ["---"] * len(head), *lines):
        print("| " + " | ".join(line) + " |")


# --- aggregators -----------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=(0, 1))
def _robust(rule: str, f: int, sent: jax.Array, moves: jax.Array) -> jax.Array:
    return sent + jax.vmap(lambda m: RULES[rule](m, f))(moves)


def accuracy(runs: Runs, rule: str | None, f: int) -> np.ndarray:
    """At the end of runs aggregated by a robust rule, or by the mean, (R,)."""
    for _ in range(runs.federation.rounds):
        sent = runs.model
        runs.step()
        if rule:
            runs.model = _robust(rule, f, sent, runs.moves)
    return runs.accuracy()


def aggregators(study: client_study.Study, n_runs: int, only: str | None) -> list[dict[str, Any]]:
    """Final accuracy by rule."""
    names = list(client_study.attacks())
    jobs = [("honest, f = 2", Attack(), 2, 500), ("honest, f = 4", Attack(), 4, 500)]
    for name in LOOP:
        attack = client_study.attacks()[name]
        jobs.append((name, attack, attack.bad, 501 + names.index(name)))
    rows = []
    for name, attack, f, seed in jobs:
        if only and only != name:
            continue
        federation = Federation()
        found = {}
        for rule in (None, *RULES):
            runs = Runs(federation, attack, study.images, n_runs, seed * 1000)
            found[rule or "FedAvg"] = accuracy(runs, rule, {"median": 0, "Bulyan": 1}.get(rule or "", f))
        found["left out at the onset"] = client_study.left_out_at_onset(study, federation, attack, n_runs, seed)
        rows.append({"attack": name, "runs": n_runs, "f": f, "accuracy": {r: with_error(a) for r, a in found.items()}})
        print(rows[-1], flush=True)
    if rows:
        print("\nAccuracy after the last round ± standard error")
        head = list(rows[0]["accuracy"])
        lines = [[r["attack"], *("{:.3f} ± {:.3f}".format(*r["accuracy"][n]) for n in head)] for r in rows]
        print_table(["attack", *(f"{n}, f = 1" if n == "Bulyan" else n for n in head)], lines)
    return rows


def with_error(values: np.ndarray) -> tuple[float, float]:
    """The mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def main() -> None:
    """One table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("detectors", "aggregators"))
    parser.add_argument("--images", required=True)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--only")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    given = parser.parse_args()
    study = client_study.Study(given.images, max(1, (os.cpu_count() or 2) - 1))
    rows = {"detectors": detectors, "aggregators": aggregators}[given.table](study, given.runs, given.only)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"client_{given.table}.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
