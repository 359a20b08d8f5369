"""Who is found to be bad from round 1 on: `FromStart` and rules without a past, where nothing was learnt from.

    PYTHONPATH=src python benchmarks/watch_start.py --runs 100 --workers 16 --to build/watch_start.json

Ten clients, two of them bad from the first round on, 25 rounds. "No root" has moves by layer and the model, "root" also
50 rows, five of each class, and "vectors" has vectors alone. The level is the share of honest runs with anybody found,
and "found" that of bad clients; in brackets limits by Clopper and Pearson at 99 %, where the two clients of a run count
as two. "Wrong" is the share of attacked runs in which an honest client is found.

Rivals score each round, and have their mean over rounds 3 to 25; they find a client above what .05 of the honest runs
of the same setting have, so they are told each setting's level, as `FromStart` is not. Accuracy after 25 rounds: of the
mean, of MultiKrum, which is told that two are bad, and of the mean without those found from the round on in which they
are (two more runs of the same seed).

--only takes settings whose name holds a word, --attacks some attacks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # spawned workers have another path
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import stats

from fedgauss.detect.clients.from_start import FromStart

BATCH = 25  # runs at once
BAD = 2
SEED = 2_900_000
ATTACKS = ("flip", "permuted", "sign", "alie", "mimic", "backdoor", "idle", "in range")
ACCURACY = ("flip", "sign")  # attacks in whose runs the model of each remedy is scored
SEES = ("no root", "root", "vectors")


def batch_of(job: tuple[str, str, int]) -> dict[str, Any]:
    """One batch of runs of a setting under an attack: who was found by whom, and how accurate models are."""
    import start_settings
    from federated_runs import Attack
    from start_rivals import RIVALS, Scorer
    from start_runs import RunsFromStart

    setting, attack, part = job
    federation, kind = start_settings.TESTED[setting]
    bad = Attack() if attack == "none" else Attack(attack, BAD, onset=1)
    seed = (
        SEED + 10_000 * list(start_settings.TESTED).index(setting) + 100 * (1 + ("none", *ATTACKS).index(attack)) + part
    )
    runs = RunsFromStart(federation, kind, bad, BATCH, seed)
    asked: list[np.ndarray] = []
    watches = {
        "no root": [FromStart() for _ in range(BATCH)],
        "root": [FromStart(root=runs.root(asked)) for _ in range(BATCH)],
        "vectors": [FromStart() for _ in range(BATCH)],
    }
    scorer = Scorer(federation, runs)
    for seen in runs.rounds():
        for r in range(BATCH):
            asked[:] = seen.root_scores[r][::-1]
            model = runs.by_layer(seen.model[r])
            by_layer = {int(k): runs.by_layer(u) for k, u in zip(seen.who[r], seen.moves[r], strict=True)}
            vectors = {int(k): u for k, u in zip(seen.who[r], seen.moves[r], strict=True)}
            watches["no root"][r].update(by_layer, model)
            watches["root"][r].update(by_layer, model)
            watches["vectors"][r].update(vectors)
        scorer.add(seen)
    found = {
        name: [{k: [who.why, who.round] for k, who in watch.unlike.items()} for watch in each]
        for name, each in watches.items()
    }
    result: dict[str, Any] = {"job": job, "found": found, "scores": {n: scorer.of(n).tolist() for n in RIVALS}}
    if attack in ("none", *ACCURACY):
        result["accuracy"] = {"mean": runs.runs.accuracy().tolist()} | remedies(federation, kind, bad, seed, found)
    return result


def remedies(federation: Any, kind: str, bad: Any, seed: int, found: dict[str, list[Any]]) -> dict[str, list[float]]:
    """Accuracy of the same runs under MultiKrum, and without those found."""
    from start_rivals import multi_krum_round
    from start_runs import RunsFromStart

    accuracies = {}
    for name in ("MultiKrum", "no root", "root"):
        runs = RunsFromStart(federation, kind, bad, BATCH, seed)
        for number in range(1, federation.rounds + 1):
            if name == "MultiKrum":
                multi_krum_round(runs.runs, BAD)
                continue
            out = np.zeros((BATCH, federation.clients), bool)
            for r, who in enumerate(found[name]):
                out[r, [k for k, (_, at) in who.items() if at < number]] = True
            runs.runs.step(out)
        accuracies[name] = runs.runs.accuracy().tolist()
    return accuracies


def limits(hits: int, of: int) -> str:
    """A share with limits by Clopper and Pearson at 99 %."""
    low = stats.beta.ppf(0.005, hits, of - hits + 1) if hits else 0.0
    high = stats.beta.ppf(0.995, hits + 1, of - hits) if hits < of else 1.0
    return f"{hits / of:.2f} ({low:.2f}-{high:.2f})"


def row(batches: list[dict[str, Any]], honest: list[dict[str, Any]]) -> dict[str, str]:
    """Of the table, for one setting under one attack."""
    attack, cells = batches[0]["job"][1], {}
    for name in SEES:
        found = [set(map(int, who)) for batch in batches for who in batch["found"][name]]
        if attack == "none":
            cells[name] = limits(sum(map(bool, found)), len(found))
        else:
            cells[name] = limits(sum(len(who & set(range(BAD))) for who in found), BAD * len(found))
            cells[f"{name}, wrong"] = limits(sum(bool(who - set(range(BAD))) for who in found), len(found))
    for name in batches[0]["scores"] if attack != "none" and honest else ():
        null = np.concatenate([np.max(batch["scores"][name], axis=1) for batch in honest])
        scores = np.concatenate([batch["scores"][name] for batch in batches])[:, :BAD]
        hits = scores > np.sort(null)[len(null) - int(0.05 * len(null)) - 1]
        cells[name] = f"{hits.mean():.2f}"
    for name in batches[0].get("accuracy", ()):
        cells[f"accuracy, {name}"] = f"{np.mean([batch['accuracy'][name] for batch in batches]):.3f}"
    return cells


def main() -> None:
    """All settings and attacks."""
    import start_settings

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--only", default="")
    parser.add_argument("--attacks", default=",".join(("none", *ATTACKS)))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--to", type=Path)
    args = parser.parse_args()
    settings = [name for name in start_settings.TESTED if args.only in name]
    attacks = args.attacks.split(",")
    jobs = [(s, a, part) for s in settings for a in attacks for part in range(-(-args.runs // BATCH))]
    if args.workers > 1:
        with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
            done = list(pool.map(batch_of, jobs))
    else:
        done = list(map(batch_of, jobs))
    table: dict[str, dict[str, dict[str, str]]] = {}
    for setting in settings:
        of = {a: [batch for batch in done if batch["job"][:2] == (setting, a)] for a in attacks}
        table[setting] = {a: row(of[a], of.get("none", [])) for a in attacks}
        for attack, cells in table[setting].items():
            print(f"{setting} | {attack} | " + " | ".join(f"{k} {v}" for k, v in cells.items()), flush=True)
    if args.to:
        said = {
            "date": datetime.now(UTC).date().isoformat(),
            "runs": args.runs,
            "numpy": np.__version__,
            "table": table,
        }
        args.to.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
