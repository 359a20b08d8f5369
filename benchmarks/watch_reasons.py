"""Reasons of the watch of clients: what is learnt of changes made on purpose, and how often it is right elsewhere.

    python benchmarks/watch_reasons.py learn --runs 60 --workers 16      # writes detect/clients/reasons.json
    python benchmarks/watch_reasons.py measure --runs 200 --workers 16   # on settings that nothing was learnt from
    python benchmarks/watch_reasons.py learn --runs 20 --only SGD --seen FILE    # in parts; --runs 0 puts them together

A client changes after 30 rounds, honestly or not. In the round in which it is named the shift of its features is taken.
One that is not named within 20 rounds has no reason. Learning and measuring have other settings, seeds and numbers of
clients.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import sys
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a process a core

import numpy as np
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).parent))  # spawned workers have another path

from watch_changes import HARMFUL, HONEST, Changing
from watch_levels import Server
from watch_runs import Attack, Federation, Wire
from watch_settings import Cell

from fedgauss.detect.clients.changes import changes
from fedgauss.detect.clients.groups import chance
from fedgauss.detect.clients.naming import named
from fedgauss.detect.clients.reasons import HONEST as HONEST_KINDS
from fedgauss.detect.clients.reasons import chances_of, inputs_of
from fedgauss.detect.spending import spent

BEFORE, WITHIN, ALPHA, HORIZON = 30, 20, 0.05, 100
CHUNK = 10
FEATURES = ["direction", "closest direction", "length", "own direction", "evenness"]
RIDGE = 3e-3  # of 1e-3, 3e-3 and 1e-2 best for settings left out of the learning
KIND = {
    "twice the steps": "more steps", "new data": "new data", "new scanner": "new data", "restart": "restart",
    "noisy labels": "noisy labels", "sign": "sign flip", "flip": "label flip", "seven to one": "label flip",
    "backdoor": "backdoor", "scale": "scaling", "replacement": "scaling", "noise": "noise", "idle": "silence",
    "lie": "collusion", "min-max": "collusion", "fang": "collusion", "last": "copy",
}  # fmt: skip
F = Federation
LEARN = {
    "Dirichlet 1, 8 clients": F(dirichlet=1.0, clients=8, local_steps=5),
    "Dirichlet .2, 12 clients": F(dirichlet=0.2, clients=12, rate=0.05),
    "SGD": F(momentum=0.0, rate=0.3, dirichlet=0.7),
    "Adam .003": F(adam=True, rate=0.003, dirichlet=0.3),
    "20 clients, batches of 32": F(clients=20, dirichlet=0.7, batch=32, local_steps=4),
    "softmax": F(model="softmax", dirichlet=0.4),
    "Dirichlet 5": F(dirichlet=5.0, rate=0.07),
}
MEASURE = {
    "plain": F(),
    "Dirichlet .1": F(dirichlet=0.1),
    "Adam .005": F(adam=True, rate=0.005),
    "30 clients": F(clients=30),
    "BatchNorm": F(model="normalised"),
    "cosine rate": F(schedule="cosine"),
}


class Seen(NamedTuple):
    """A client that changed, when it was named."""

    setting: str
    change: str
    inputs: list[float]


def chunk(name: str, federation: Federation, n_runs: int, seed: list[int]) -> list[Seen]:
    """Changes that were named."""
    runs = Changing(federation, Wire(), Attack(), n_runs, seed)
    server = Server(Cell(name, federation), n_runs)
    for _ in range(BEFORE):
        server.watch.update(server.observe(runs.step()))
    found: list[Seen] = []
    for change, strength in [*((each, 1.0) for each in HONEST), *HARMFUL.items()]:
        bad = 1 if change in HONEST else 2
        other, then = runs.split(change, bad, strength), copy.deepcopy(server)
        done = np.zeros(n_runs, dtype=bool)
        for number in range(BEFORE + 1, BEFORE + 1 + WITHIN):
            p, _ = then.watch.update(then.observe(other.step()))
            smallest = chance(then.watch, np.where(done[:, None], np.nan, p))
            for run in np.flatnonzero((smallest <= spent(ALPHA, HORIZON, number)) & ~done):
                done[run] = True
                who = named(then.watch, int(run), ALPHA)
                right = [] if who is None else [client for client in who.clients if client < bad]
                for client in right[:1]:
                    moved = changes(then.watch, int(run), who.clients, who.onset)[who.clients.index(client)]
                    if moved is not None:
                        x = inputs_of(then.watch, int(run), client, moved, FEATURES)
                        found.append(Seen(name, change, x.tolist()))
            if done.all():
                break
    return found


def learnt(seen: list[Seen]) -> dict[str, Any]:
    """A logistic regression, each kind with the same weight, and the chance from which a change is called benign."""
    kinds = list(dict.fromkeys(KIND.values()))
    x, y = np.array([s.inputs for s in seen]), np.array([kinds.index(KIND[s.change]) for s in seen])
    table: dict[str, Any] = {"features": FEATURES, "kinds": kinds}
    table["centre"], table["scale"] = x.mean(axis=0).tolist(), np.maximum(x.std(axis=0), 1e-3).tolist()
    groups = np.array([s.setting for s in seen])
    out = np.zeros((len(y), len(kinds)))
    for group in dict.fromkeys(groups.tolist()):  # each setting by what the others taught
        out[groups == group] = chances_of(
            x[groups == group], table | _fit(x[groups != group], y[groups != group], table)
        )
    honest = np.array([kind in HONEST_KINDS for kind in kinds])
    benign = out[:, honest].sum(axis=1)
    harmful = np.sort(benign[~honest[y]])[::-1]
    table |= _fit(x, y, table)
    table["benign_from"] = max(float(harmful[int(0.01 * len(harmful))]), 0.5)
    print(f"left out one by one: right {np.mean(out.argmax(axis=1) == y):.3f} of {len(y)}")
    return table


def _fit(x: np.ndarray, y: np.ndarray, table: dict[str, Any]) -> dict[str, Any]:
    z = np.clip((x - np.array(table["centre"])) / np.array(table["scale"]), -4.0, 4.0)
    z = np.column_stack([z, np.ones(len(z))])
    n_kinds = len(table["kinds"])
    weight = 1.0 / np.maximum(np.bincount(y, minlength=n_kinds), 1)[y] / n_kinds

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = flat.reshape(n_kinds, -1)
        score = z @ w.T
        score -= score.max(axis=1, keepdims=True)
        log = score - np.log(np.exp(score).sum(axis=1, keepdims=True))
        gap = np.exp(log)
        gap[np.arange(len(y)), y] -= 1.0
        value = -(weight * log[np.arange(len(y)), y]).sum() + 0.5 * RIDGE * (w[:, :-1] ** 2).sum()
        slope = (gap * weight[:, None]).T @ z
        slope[:, :-1] += RIDGE * w[:, :-1]
        return float(value), slope.ravel()

    best = minimize(loss, np.zeros(n_kinds * z.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 2000})
    w = best.x.reshape(n_kinds, -1)
    return {"weights": np.round(w[:, :-1], 4).tolist(), "bias": np.round(w[:, -1], 4).tolist()}


def report(seen: list[Seen], table: dict[str, Any]) -> list[dict[str, Any]]:
    """By change: named, right, called benign."""
    rows = []
    honest = np.array([kind in HONEST_KINDS for kind in table["kinds"]])
    for setting in [*dict.fromkeys(s.setting for s in seen), "all"]:
        for change in KIND:
            some = [s for s in seen if s.change == change and setting in (s.setting, "all")]
            if not some:
                continue
            chances = chances_of(np.array([s.inputs for s in some]), table)
            kinds = [table["kinds"][i] for i in chances.argmax(axis=1)]
            benign = chances[:, honest].sum(axis=1) >= table["benign_from"]
            rows.append(
                {"setting": setting, "change": change, "named": len(some)}
                | {"right": float(np.mean([kind == KIND[change] for kind in kinds]))}
                | {"honest kind": float(np.mean([kind in HONEST_KINDS for kind in kinds]))}
                | {"called benign": float(benign.mean())}
            )
    return rows


def main() -> None:
    """Learn, or measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("learn", "measure"))
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--only", help="settings whose name holds this")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seen", type=Path, help="changes of other calls, to be used too; those of this one are added")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    settings = LEARN if given.what == "learn" else MEASURE
    seen: list[Seen] = []
    if given.seen and given.seen.exists():
        seen = [Seen(*each) for each in json.loads(given.seen.read_text())]
    jobs = []
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        for place, (name, federation) in enumerate(settings.items()):
            if (given.only or "") in name and given.runs:
                for first in range(0, given.runs, CHUNK):
                    seed = [given.seed, given.what == "learn", place, first]
                    jobs.append(pool.submit(chunk, name, federation, min(CHUNK, given.runs - first), seed))
        for job in jobs:
            seen += job.result()
    if given.seen:
        given.seen.write_text(json.dumps(seen))
        if given.only:
            return
    path = Path(__file__).parent.parent / "src/fedgauss/detect/clients/reasons.json"
    if given.what == "learn":
        table = learnt(seen)
        table["provenance"] = {
            "script": "benchmarks/watch_reasons.py learn", "date": str(date.today()), "numpy": np.__version__,
            "python": platform.python_version(), "settings": list(LEARN), "changes": len(seen), "seed": given.seed,
        }  # fmt: skip
        path.write_text(json.dumps(table, indent=1))
    rows = report(seen, json.loads(path.read_text()))
    for row in rows:
        if row["setting"] == "all":
            print(
                f"{row['change']:16} named {row['named']:4}: right {row['right']:.2f}, an honest kind "
                f"{row['honest kind']:.2f}, called benign {row['called benign']:.2f}"
            )
    if given.out:
        given.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
