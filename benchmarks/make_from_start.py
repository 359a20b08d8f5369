"""Make src/fedgauss/detect/clients/from_start.json: the scores by which `FromStart` judges, and their law.

    PYTHONPATH=src python benchmarks/make_from_start.py --folder build/from_start --workers 8

In each of the settings `start_settings.LEARNT` there are honest runs, runs with two clients whose labels are permuted,
each by a permutation of its own, and runs with two that send the opposite of what they learnt. `FromStart` averages its
features over rounds; what it has at each look is kept in --folder, a file a setting, so that the script can be stopped.

Labels and directions have a logistic regression each (ridge 1e-3 of standardised features, all settings counting the
same), learnt from bad clients against honest ones. Its law is that of the largest score of an honest run over clients
and looks, from scores of regressions that were learnt without a fifth of the settings, with an exponential tail beyond
the largest fifth: for each chance the score of the setting where it is largest. Runs of twenty clients count for two of
ten.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # spawned workers have another path

from fedgauss.detect.clients.from_start import FEATURES, LEARNT, LOOKS, FromStart

TABLE = Path(__file__).parents[1] / "src/fedgauss/detect/clients/from_start.json"
SEED = 29
BATCH = 40  # runs at once
BATCHES = {"none": 2, "permuted": 1, "sign": 1}
BAD = 2
FOLDS = 5
RIDGE = 1e-3
CHANCES = (0.2, 0.1, 0.05, 0.025, 0.01)  # the first from a quantile, the others by an exponential tail beyond it
AGREEMENT = FEATURES.index("agreement")
LABELS = ("first layer", "nearest rows", "agreement")
Data = dict[str, dict[str, np.ndarray]]  # by setting and attack: (runs, looks, K, F)
LAWS = (
    ("direction", "sign", ("others",)),
    ("direction", "sign", ("first layer", "rows", "nearest rows", "agreement")),
    ("labels", "permuted", LABELS),
    ("labels", "permuted", (*LABELS, "best class", "right rows")),
)


def averages(setting: str, attack: str, batch: int) -> np.ndarray:
    """At each look, (runs, looks, K, F)."""
    import start_settings
    from federated_runs import Attack
    from start_runs import RunsFromStart

    federation, kind = start_settings.LEARNT[setting]
    seed = SEED + 1000 * list(start_settings.LEARNT).index(setting) + 100 * list(BATCHES).index(attack) + batch
    bad = Attack(attack, BAD, onset=1) if attack != "none" else Attack()
    runs = RunsFromStart(federation, kind, bad, BATCH, seed)
    asked: list[np.ndarray] = []
    watches = [FromStart(root=runs.root(asked)) for _ in range(BATCH)]
    found = []
    for number, seen in enumerate(runs.rounds(), 1):
        for r, watch in enumerate(watches):
            asked[:] = seen.root_scores[r][::-1]
            moves = {k: runs.by_layer(seen.moves[r, k]) for k in range(federation.clients)}
            watch.update(moves, runs.by_layer(seen.model[r]))
        if number - 2 in LOOKS:
            found.append([[watch.averages[k] for k in range(federation.clients)] for watch in watches])
    return np.array(found, dtype=np.float32).swapaxes(0, 1)


def measure(folder: Path, setting: str) -> None:
    """All runs of a setting, unless they are there."""
    file = folder / (setting.replace(" ", "_") + ".npz")
    if not file.exists():
        runs = {
            attack: np.concatenate([averages(setting, attack, b) for b in range(n)]) for attack, n in BATCHES.items()
        }
        np.savez(file, **runs)
        print(setting, flush=True)


def judged(rows: np.ndarray, places: list[int]) -> np.ndarray:
    """At which looks of which runs by these features, (runs, looks)."""
    knows = np.median(rows[..., AGREEMENT], axis=2) >= LEARNT
    return knows if AGREEMENT in places else np.ones_like(knows)


def logistic(parts: list[tuple[np.ndarray, bool]]) -> tuple[np.ndarray, float]:
    """Weights and constant from rows of features and whether these are bad; each part counts the same."""
    x = np.concatenate([rows for rows, _ in parts])
    y = np.concatenate([np.full(len(rows), float(bad)) for rows, bad in parts])
    w = np.concatenate([np.full(len(rows), 1.0 / len(rows)) for rows, _ in parts]) / len(parts)
    middle = w @ x
    scale = np.sqrt(w @ (x - middle) ** 2)
    design = np.column_stack([np.ones(len(x)), (x - middle) / scale])
    penalty = np.diag([0.0, *np.full(x.shape[1], RIDGE)])
    beta = np.zeros(design.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(design @ beta, -30, 30)))
        information = (design * (w * p * (1 - p))[:, None]).T @ design + penalty
        step = np.linalg.solve(information, design.T @ (w * (y - p)) - penalty @ beta)
        beta += step
        if np.abs(step).max() < 1e-9:
            break
    weights = beta[1:] / scale
    return weights, float(beta[0] - weights @ middle)


def learnt(data: Data, attack: str, places: list[int]) -> tuple[np.ndarray, float]:
    """From these settings: honest clients, those beside bad ones, and the bad ones."""
    parts: list[tuple[np.ndarray, bool]] = []
    for runs in data.values():
        for name, clients, bad in (
            ("none", slice(None), False),
            (attack, slice(BAD, None), False),
            (attack, slice(BAD), True),
        ):
            rows = runs[name][judged(runs[name], places)][:, clients][..., places].reshape(-1, len(places))
            if len(rows):
                parts.append((rows.astype(float), bad))
    return logistic(parts)


def tail(tops: np.ndarray) -> np.ndarray:
    """Scores that honest runs reach with `CHANCES`."""
    start = np.quantile(tops, 1 - CHANCES[0], method="higher")
    beyond = tops[tops > start] - start
    return start + (beyond.mean() if np.isfinite(start) else 0.0) * np.log(CHANCES[0] / np.array(CHANCES))


def law(data: Data, why: str, attack: str, features: tuple[str, ...]) -> dict[str, object]:
    """A regression and the law of its largest score."""
    places = [FEATURES.index(name) for name in features]
    tops = {}
    for fold in range(FOLDS):
        out = list(data)[fold::FOLDS]
        weights, constant = learnt({n: runs for n, runs in data.items() if n not in out}, attack, places)
        for name in out:
            honest = data[name]["none"]
            score = honest[..., places] @ weights + constant
            used = judged(honest, places) & (np.median(score, axis=2) <= 0)
            score = np.where(used[..., None], score, -np.inf)
            halves = np.split(score, score.shape[2] // 10, axis=2)
            tops[name] = np.concatenate([half.max(axis=(1, 2)) for half in halves])
    levels = {name: tail(top) for name, top in tops.items()}
    worst = np.max(list(levels.values()), axis=0)
    loudest = max(levels, key=lambda name: levels[name][-1])
    weights, constant = learnt(data, attack, places)
    told = {"why": why, "features": features, "weights": weights.round(4).tolist(), "constant": round(constant, 4)}
    return told | {"scores": worst.round(4).tolist(), "chances": CHANCES, "loudest setting": loudest}


def main() -> None:
    """Measure what is missing, then learn."""
    import start_settings

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/from_start"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="", help="settings whose name holds this; nothing is learnt then")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    settings = [name for name in start_settings.LEARNT if args.only in name]
    if args.workers > 1:
        with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
            list(pool.map(partial(measure, args.folder), settings))
    else:
        for name in settings:
            measure(args.folder, name)
    if args.only:
        return
    files = {name: args.folder / (name.replace(" ", "_") + ".npz") for name in settings}
    data = {name: dict(np.load(file)) for name, file in files.items()}
    table = {
        "made by": "benchmarks/make_from_start.py",
        "honest runs": BATCH * BATCHES["none"] * len(data),
        "settings": settings,
        "versions": {"numpy": np.__version__},
        "laws": [law(data, *kind) for kind in LAWS],
    }
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
