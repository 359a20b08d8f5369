"""How `ClientMonitor` does on thousands of federated runs: false alarms, power and names, the closed loop.

    python benchmarks/client_study.py levels --images mnist_train.npz
    python benchmarks/client_study.py power  --images mnist_train.npz
    python benchmarks/client_study.py loop   --images mnist_train.npz

`--images` is a .npz with `images` (n, 28, 28) and `labels` (n,). The networks train on a GPU where there is one; the
watching is NumPy, in as many processes as there are cores. `--runs` makes it smaller, `--only` takes one row.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedgauss.detect.clients.features import Moves
from fedgauss.detect.clients.groups import chance
from fedgauss.detect.clients.naming import Named, named
from fedgauss.detect.clients.watch import ClientWatch, joined
from fedgauss.detect.spending import spent

sys.path.insert(0, str(Path(__file__).parent))  # spawned workers have another path

ALPHA = 0.05
RATE = 0.05  # of wrong names


class Outcome(NamedTuple):
    """Of one run, watched to its first alarm."""

    alarm: int  # the round; 0 for none
    forever: bool  # whether thresholds without a horizon are passed at any time
    nearest: float  # the smallest p over what its round may spend: an alarm at 1
    jumps: int  # rounds in which all clients changed together
    clients: tuple[int, ...]
    onset: int
    earliest: int


def watched(rounds: list[Moves], n_clients: int, onset: int) -> list[Outcome]:
    """Runs to their first alarm from round `onset` on: an earlier one is false, and counted elsewhere."""
    n_runs = len(rounds[0].who)
    watch, horizon = ClientWatch(n_runs, n_clients), len(rounds)
    alarm, forever, jumps = np.zeros(n_runs, int), np.zeros(n_runs, bool), np.zeros(n_runs, int)
    nearest = np.full(n_runs, np.inf)
    who: list[Named | None] = [None] * n_runs
    for number, moves in enumerate(rounds, 1):
        p, jumped = watch.update(moves)
        smallest = chance(watch, np.where(alarm[:, None] > 0, np.nan, p))  # after an alarm nothing more is asked
        new = (smallest <= spent(ALPHA, horizon, number)) & (alarm == 0) & (number >= onset)
        nearest = np.minimum(nearest, smallest / spent(ALPHA, horizon, number))
        forever |= (smallest <= spent(ALPHA, None, number)) & (number >= onset)
        for run in np.flatnonzero(new):
            alarm[run] = number
            if onset > 1:
                who[run] = named(watch, int(run), RATE)
        jumps += jumped
        watch.forget(jumped & ~new)
    found = [(w.clients, w.onset, w.earliest) if w else ((), 0, 0) for w in who]
    return [
        Outcome(int(a), bool(f), float(n), int(j), *w)
        for a, f, n, j, w in zip(alarm, forever, nearest, jumps, found, strict=True)
    ]


def moves_of(seen: Any, kind: Any) -> Moves:
    """What the server saw, as the watch takes it."""
    who, products, along, evenness = seen
    fields = {"along_own": along.astype(kind), "evenness": evenness.astype(kind)}
    return Moves(who.astype(np.int64), products.astype(kind), fields)


def _parts(rounds: list[Moves], n_parts: int) -> list[list[Moves]]:
    """The runs shared out."""
    shares = np.array_split(np.arange(len(rounds[0].who)), n_parts)
    return [[moves.of_runs(share) for moves in rounds] for share in shares if len(share)]


def settings() -> dict[str, Any]:
    """Honest federations."""
    from federated_runs import Federation as F

    alike, adam = float("inf"), {"optimiser": "adam", "rate": 0.001}
    return {
        "momentum": F(),
        "momentum, Dirichlet .1": F(dirichlet=0.1),
        "momentum, alike": F(dirichlet=alike),
        "SGD, alike": F(optimiser="sgd", rate=0.05, dirichlet=alike),
        "Adam": F(**adam),
        "Adam, Dirichlet .1": F(dirichlet=0.1, **adam),
        "falling rate": F(schedule="falling", rate=0.05),
        "rate drops by ten": F(schedule="drop"),
        "rate drops by ten, alike": F(schedule="drop", dirichlet=alike),
        "heavy-tailed features": F(heavy_tails=True),
        "30 clients": F(clients=30, local_steps=8),
        "a third of 30 clients": F(clients=30, present=10, rounds=120, local_steps=8),
        "a third of 100 clients": F(clients=100, present=33, local_steps=5),
        "1,000 rounds": F(rounds=1000, local_steps=4),
        "100 images each, 300 rounds": F(images=100, rate=0.03, rounds=300, local_steps=8),
        "CNN": F(model="cnn", local_steps=5),
    }


def attacks() -> dict[str, Any]:
    """From round 41 on."""
    from federated_runs import Attack as A

    return {
        "label flip, 2": A("flip", 2),
        "label flip, 4": A("flip", 4),
        "sign flip, 2": A("sign", 2),
        "sign flip, 4": A("sign", 4),
        "scaling x5, 2": A("scale", 2, boost=5.0),
        "ALIE, 4": A("alie", 4),
        "IPM, 2": A("ipm", 2),
        "IPM, 4": A("ipm", 4),
        "idle, 2": A("idle", 2),
        "noise, 2": A("noise", 2),
        "boosted flip x5, 2": A("flip", 2, boost=5.0),
        "one class, 2": A("one class", 2),
        "flip, ramp of 20, 2": A("flip", 2, ramp=20),
        "backdoor, 2": A("backdoor", 2),
        "in range, 2": A("in range", 2),
        "mimic, 2": A("mimic", 2),
        "flip, ramp of 60, 2": A("flip", 2, ramp=60),
        "sleep and wake, 2": A("flip", 2, sleep=10),
        "flip from the start, 2": A("flip", 2, onset=1),
    }


class Study:
    """The images, and processes that watch."""

    def __init__(self, images: str, workers: int) -> None:
        from federated_runs import images_from

        data = np.load(images)
        self.images = images_from(data["images"], data["labels"])
        self.workers = workers
        self.pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn")) if workers > 1 else None

    def rounds(
        self, federation: Any, attack: Any, n_runs: int, n_rounds: int, seed: int
    ) -> tuple[list[Moves], np.ndarray]:
        """Of runs that nobody acts on, and their accuracy at the end."""
        from federated_runs import Runs

        chunk = max(1, min(n_runs, 12_000 // federation.clients, 12_000_000 // (federation.clients * 100)))
        parts, accuracy = [], []
        for i, first in enumerate(range(0, n_runs, chunk)):
            runs = Runs(federation, attack, self.images, min(chunk, n_runs - first), seed * 1000 + i)
            parts.append([moves_of(runs.step(), np.float32) for _ in range(n_rounds)])
            accuracy.append(runs.accuracy())
        return [joined(moves) for moves in zip(*parts, strict=True)], np.concatenate(accuracy)

    def outcomes(self, rounds: list[Moves], n_clients: int, onset: int) -> Any:
        """A function that waits for them: the next runs can train meanwhile."""
        if self.pool is None:
            return lambda: watched(rounds, n_clients, onset)
        waiting = [self.pool.submit(watched, part, n_clients, onset) for part in _parts(rounds, self.workers)]
        return lambda: [outcome for part in waiting for outcome in part.result()]


def levels(study: Study, n_runs: int, only: str | None) -> list[dict[str, Any]]:
    """False alarms in honest runs."""
    from federated_runs import Attack

    waiting: list[Any] = []
    for i, (name, federation) in enumerate(settings().items()):
        if only and only != name:
            continue
        began = time.perf_counter()
        rounds, accuracy = study.rounds(federation, Attack(), n_runs, federation.rounds, i)
        waiting.append((name, federation, accuracy, study.outcomes(rounds, federation.clients, 1)))
        print(f"# {name}: trained in {time.perf_counter() - began:.0f} s", flush=True)
    rows = []
    for name, federation, accuracy, wait in waiting:
        outcomes = wait()
        rows.append(
            {
                "setting": name,
                "runs": n_runs,
                "rounds": federation.rounds,
                "accuracy": float(accuracy.mean()),
                "false alarms": sum(o.alarm > 0 for o in outcomes),
                "without a horizon": sum(o.forever for o in outcomes),
                "one in 20 comes within": float(np.quantile([o.nearest for o in outcomes], 0.05)),
                "jumps": sum(o.jumps for o in outcomes) / n_runs,
            }
        )
        print(rows[-1], flush=True)
    return rows


def power(study: Study, n_runs: int, only: str | None) -> list[dict[str, Any]]:
    """What is seen, how soon, and who is named."""
    from federated_runs import Federation as F

    adam = {"optimiser": "adam", "rate": 0.001}
    federations = {
        "MLP, momentum": F(),
        "MLP, Adam": F(**adam),
        "CNN, momentum": F(model="cnn", local_steps=8),
        "CNN, Adam": F(model="cnn", local_steps=8, **adam),
        "MLP, momentum, a third of 30": F(clients=30, present=10, local_steps=8),
    }
    waiting = []
    for i, (where, federation) in enumerate(federations.items()):
        for j, (name, attack) in enumerate(attacks().items()):
            if (only and only not in (name, where, f"{where}: {name}")) or (federation.model == "cnn" and j > 11):
                continue
            attack = replace_bad(attack, federation)
            rounds, accuracy = study.rounds(federation, attack, n_runs, 62, 100 + 20 * i + j)
            waiting.append(
                (where, name, attack, accuracy, study.outcomes(rounds, federation.clients, max(attack.onset, 2)))
            )
        print(f"# {where}: trained", flush=True)
    rows = []
    for where, name, attack, accuracy, wait in waiting:
        rows.append({"where": where, "attack": name, "accuracy": float(accuracy.mean()), **summary(wait(), attack)})
        print(rows[-1], flush=True)
    return rows


def replace_bad(attack: Any, federation: Any) -> Any:
    """The same share of bad clients among more clients."""
    from dataclasses import replace

    return replace(attack, bad=attack.bad * federation.clients // 10)


def summary(outcomes: list[Outcome], attack: Any) -> dict[str, Any]:
    """Of runs under one attack."""
    seen = [o for o in outcomes if o.alarm]
    delays = np.array([o.alarm - attack.onset + 1 for o in seen])
    right = sum(c < attack.bad for o in seen for c in o.clients)
    all_named = sum(len(o.clients) for o in seen)
    return {
        "runs": len(outcomes),
        "seen": len(seen) / len(outcomes),
        "within 8": float((delays <= 8).sum() / len(outcomes)) if len(seen) else 0.0,
        "median delay": float(np.median([o.alarm - attack.onset + 1 if o.alarm else 999 for o in outcomes])),
        "recall": right / (attack.bad * len(seen)) if seen else None,
        "wrong names": 1 - right / all_named if all_named else None,
        "onset right": float(np.mean([o.onset == attack.onset for o in seen])) if seen else None,
        "rollback before": float(np.mean([o.earliest <= attack.onset for o in seen])) if seen else None,
        "rolled back too far": float(np.mean([attack.onset - o.earliest for o in seen])) if seen else None,
    }


def loop(study: Study, n_runs: int, only: str | None) -> list[dict[str, Any]]:
    """Alarm, rollback, exclusion: the accuracy at the end, beside FedAvg and runs without the bad from the onset."""
    from federated_runs import Attack as A
    from federated_runs import Federation as F

    federation = F()
    chosen = {"honest": A(), **{name: attacks()[name] for name in list(attacks())[:11]}}
    chosen["boosted flip x5, 2"] = attacks()["boosted flip x5, 2"]
    rows = []
    for i, (name, attack) in enumerate(chosen.items()):
        if only and only != name:
            continue
        healed, left, wrong = protected(study, federation, attack, n_runs, 500 + i)
        plain = study.rounds(federation, attack, n_runs, federation.rounds, 500 + i)[1]
        perfect = left_out_at_onset(study, federation, attack, n_runs, 500 + i)
        error = float(np.std(healed - perfect) / np.sqrt(n_runs))
        rows.append(
            {
                "attack": name,
                "runs": n_runs,
                "FedAvg": float(plain.mean()),
                "left out at the onset": float(perfect.mean()),
                "fedgauss": float(healed.mean()),
                "gap": float((perfect - healed).mean()),
                "error of the gap": error,
                "bad left out": left,
                "honest left out": wrong,
            }
        )
        print(rows[-1], flush=True)
    return rows


def protected(study: Study, federation: Any, attack: Any, n_runs: int, seed: int) -> tuple[np.ndarray, float, float]:
    """Accuracy of runs that are watched and healed; bad and honest clients left out, a run."""
    from federated_runs import Runs

    runs = Runs(federation, attack, study.images, n_runs, seed * 1000)
    watch = ClientWatch(n_runs, federation.clients)
    models = [np.asarray(runs.model)]
    for number in range(1, federation.rounds + 1):
        seen = runs.step(watch.left_out.copy())
        models.append(np.asarray(runs.model))
        p, jumped = watch.update(moves_of(seen, np.float64))
        smallest = chance(watch, p)
        new = smallest <= spent(ALPHA, federation.rounds, number)
        changed = models[-1].copy()
        for run in np.flatnonzero(new):
            found = named(watch, int(run), RATE)
            if found is None or watch.left_out[run].sum() + len(found.clients) > federation.clients // 2:
                continue
            watch.leave_out(int(run), found.clients, found.earliest - 1)
            changed[run] = models[found.earliest - 1][run]
        watch.forget(jumped & ~new)
        if new.any():
            runs.set_model(changed)
            models[-1] = changed
    bad = np.arange(federation.clients) < attack.bad
    return runs.accuracy(), float(watch.left_out[:, bad].sum(1).mean()), float(watch.left_out[:, ~bad].sum(1).mean())


def left_out_at_onset(study: Study, federation: Any, attack: Any, n_runs: int, seed: int) -> np.ndarray:
    """What a perfect loop would give."""
    from federated_runs import Runs

    runs = Runs(federation, attack, study.images, n_runs, seed * 1000)
    bad = np.broadcast_to(np.arange(federation.clients) < attack.bad, (n_runs, federation.clients))
    for number in range(1, federation.rounds + 1):
        runs.step(bad & (number >= attack.onset))
    return runs.accuracy()


def main() -> None:
    """One table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("levels", "power", "loop"))
    parser.add_argument("--images", required=True)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--only")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    given = parser.parse_args()
    study = Study(given.images, max(1, (os.cpu_count() or 2) - 1))
    table, n_runs = {"levels": (levels, 1000), "power": (power, 200), "loop": (loop, 100)}[given.table]
    rows = table(study, given.runs or n_runs, given.only)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / f"client_{given.table}.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
