"""How `GroupMonitor` does on federated runs under secure aggregation: false alarms, power, names, and what groups tell.

    python benchmarks/watch_groups.py levels             # honest runs of every frozen setting
    python benchmarks/watch_groups.py power              # flips of labels and signs by one and two of 20
    python benchmarks/watch_groups.py told               # what sums over groups give away of a client's own mean

Sums of four of 20 clients; two bad ones are in different groups. `--runs`, `--only` (a part of a row's name) and
`--workers` make it smaller or faster. Nothing is downloaded: digits are drawn, blobs are Gaussian.

The constants of `detect/group_sums.py` were chosen on `CALIBRATED`. `FROZEN` was written down before any of them was
chosen, and has other images, seeds and networks.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import beta

from fedgauss.data.digits import drawn
from fedgauss.detect.group_sums import LEFT_OUT_FIRST, LENGTH, judged
from fedgauss.detect.spending import spent
from fedgauss.federated.group_sums import determined

sys.path.insert(0, str(Path(__file__).parent))  # spawned workers have another path

from federated_runs import Attack, Federation, Images, Runs, images_from

ALPHA, RATE = 0.05, 0.01  # those of GroupMonitor
ONSET, ROUNDS = 41, 60
SIZE, CLIENTS = 4, 20
AT_ONCE = 10  # runs; their moves are in memory
SEED = 9_000  # of the frozen settings; the calibrated ones have 1,000
PIXELS = 64
HIDDEN = {"small": 16, "wide": 48}

BASE = Federation(clients=CLIENTS, rounds=ROUNDS, model="small", images=200)


class Setting(NamedTuple):
    """Who trains on what."""

    images: str  # "digits" or "blobs", and the seed of their draw
    federation: Federation


CALIBRATED = {
    "digits .5": Setting("digits 1", replace(BASE, rate=0.05, dirichlet=0.5)),
    "digits .1": Setting("digits 1", replace(BASE, rate=0.05, dirichlet=0.1)),
    "blobs .5, SGD": Setting("blobs 2", replace(BASE, rate=0.1, dirichlet=0.5, optimiser="sgd")),
    "blobs .1": Setting("blobs 2", replace(BASE, rate=0.03, dirichlet=0.1)),
    "digits .3, Adam": Setting("digits 1", replace(BASE, rate=0.003, dirichlet=0.3, optimiser="adam")),
    "digits .5, falling": Setting("digits 1", replace(BASE, rate=0.1, dirichlet=0.5, schedule="falling")),
}
FRESH = replace(BASE, images=300, local_steps=10)
FROZEN = {
    "Dirichlet .5": Setting("digits 11", replace(FRESH, rate=0.03, dirichlet=0.5)),
    "Dirichlet .1": Setting("digits 11", replace(FRESH, rate=0.03, dirichlet=0.1)),
    "Dirichlet .05": Setting("digits 11", replace(FRESH, rate=0.03, dirichlet=0.05)),
    "alike": Setting("digits 11", replace(FRESH, rate=0.03, dirichlet=np.inf)),
    ".5, SGD": Setting("digits 11", replace(FRESH, rate=0.2, dirichlet=0.5, optimiser="sgd")),
    ".5, Adam": Setting("digits 11", replace(FRESH, rate=0.003, dirichlet=0.5, optimiser="adam", local_steps=20)),
    ".5, wide": Setting("digits 11", replace(FRESH, rate=0.03, dirichlet=0.5, model="wide")),
    ".5, rate falls": Setting("digits 11", replace(FRESH, rate=0.1, dirichlet=0.5, schedule="falling")),
    ".5, rate drops": Setting("digits 11", replace(FRESH, rate=0.05, dirichlet=0.5, schedule="drop")),
    "blobs .3": Setting("blobs 12", replace(FRESH, rate=0.03, dirichlet=0.3)),
}
ATTACKS = {
    "labels, one": Attack("flip", 1, ONSET),
    "labels, two": Attack("flip", 2, ONSET),
    "signs, one": Attack("sign", 1, ONSET),
    "signs, two": Attack("sign", 2, ONSET),
}
POWER = ("Dirichlet .5", "Dirichlet .1", ".5, SGD", ".5, Adam", ".5, wide")


def images(name: str) -> Images:
    """12,000 of 8 x 8."""
    kind, seed = name.split()
    rng = np.random.default_rng(int(seed))
    labels = rng.integers(0, 10, 12_000)
    if kind == "digits":
        padded = np.pad(drawn(labels, int(seed), 0.5).astype(float), ((0, 0), (2, 2), (2, 2)))
        pixels = 1.5 * padded.reshape(-1, 8, 4, 8, 4).mean((2, 4))
    else:
        centres = rng.normal(size=(10, PIXELS)) * 25 + 128
        pixels = (centres[labels] + 45 * rng.normal(size=(len(labels), PIXELS))).reshape(-1, 8, 8)
    return images_from(np.clip(pixels, 0, 255).astype(np.uint8), labels)


class Seen(NamedTuple):
    """What the server has of R runs."""

    numbers: np.ndarray  # along the model and along its last matrix, over the usual length of a group  (R, T, K, 2)
    accuracy: np.ndarray  # (R,)


def group_of(client: np.ndarray | int) -> np.ndarray | int:
    """Clients 0 and 1, which turn bad, are in different groups."""
    return client % (CLIENTS // SIZE)


def seen(setting: Setting, attack: Attack, n_runs: int, seed: int) -> Seen:
    """Runs, round by round."""
    runs = Runs(setting.federation, attack, images(setting.images), n_runs, seed)
    hidden = HIDDEN[setting.federation.model]
    last = slice(PIXELS * hidden + hidden, PIXELS * hidden + hidden + hidden * 10)
    numbers = []
    for _ in range(setting.federation.rounds):
        model = np.asarray(runs.model, dtype=np.float64)
        runs.step()
        moves = np.asarray(runs.moves, dtype=np.float64)
        along = [_along(moves, model), _along(moves[:, :, last], model[:, last])]
        sums = moves.reshape(n_runs, SIZE, CLIENTS // SIZE, -1).mean(axis=1)
        usual = np.median(np.linalg.norm(sums, axis=2), axis=1)
        numbers.append(np.stack(along, axis=-1) / usual[:, None, None])
    return Seen(np.stack(numbers, axis=1), runs.accuracy())


def _along(moves: np.ndarray, direction: np.ndarray) -> np.ndarray:
    return np.einsum("rkd,rd->rk", moves, direction) / np.linalg.norm(direction, axis=1)[:, None]


class Outcome(NamedTuple):
    """Of R runs, each with those left out that an alarm named."""

    alarm: np.ndarray  # round of the first from the onset on, 0 for none  (R,)
    named: np.ndarray  # within 20 rounds of the onset  (R, K)
    nearest: np.ndarray  # the smallest chance over what its round may spend: below 1, and named, an alarm  (R,)


def watched(numbers: np.ndarray, onset: int) -> Outcome:
    """Rounds before the onset are not acted on: false alarms are counted in honest runs."""
    n_runs, rounds, clients, _ = numbers.shape
    history = np.full((n_runs, clients, LENGTH, 2), np.nan)
    alarm, named = np.zeros(n_runs, int), np.zeros((n_runs, clients), bool)
    nearest = np.full(n_runs, np.inf)
    for number in range(1, rounds + 1):
        row = numbers[:, number - 1] if number > LEFT_OUT_FIRST else np.full((n_runs, clients, 2), np.nan)
        history = np.concatenate([history[:, :, 1:], row[:, :, None]], axis=2)
        found, share = judged(np.where(named[..., None, None], np.nan, history), RATE), spent(ALPHA, rounds, number)
        nearest = np.minimum(nearest, found.chance / share)
        hit = (found.chance <= share) & found.named.any(axis=1) & (number >= onset)
        alarm = np.where((alarm == 0) & hit, number, alarm)
        if onset > 1:
            named |= hit[:, None] & found.named
    return Outcome(alarm, named, nearest)


Cell = tuple[str, str, int, int]  # setting, attack, runs, seed


def outcome(cell: Cell) -> tuple[Cell, Outcome, float]:
    """One chunk of a row."""
    setting, attack, n_runs, seed = cell
    known = FROZEN | CALIBRATED
    onset = 1 if attack == "honest" else ONSET
    found = seen(known[setting], ATTACKS.get(attack, Attack()), n_runs, seed)
    return cell, watched(found.numbers, onset), float(found.accuracy.mean())


def limits(count: int, of: int, level: float = 0.95) -> str:
    """A share with Clopper and Pearson's limits."""
    low = 0.0 if count == 0 else float(beta.ppf((1 - level) / 2, count, of - count + 1))
    high = 1.0 if count == of else float(beta.ppf((1 + level) / 2, count + 1, of - count))
    return f"{count / of:.3f} ({low:.3f} to {high:.3f})"


def rows_of(what: str, calibrated: bool) -> list[tuple[str, str]]:
    """Settings and attacks."""
    if calibrated:
        return [(s, a) for s in CALIBRATED for a in (["honest"] if what == "levels" else ATTACKS)]
    return [(s, "honest") for s in FROZEN] if what == "levels" else [(s, a) for s in POWER for a in ATTACKS]


def table(what: str, runs: int, only: str, workers: int, calibrated: bool) -> None:
    """A line a row, as soon as it is there."""
    rows = [(number, *row) for number, row in enumerate(rows_of(what, calibrated)) if only in " ".join(row)]
    print("setting | attack | runs | alarms | recall | precision | median delay | nearest | accuracy", flush=True)
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, context) as pool:
        for number, setting, attack in rows:
            seed = (1_000 if calibrated else SEED) + 1_000 * number
            chunks = [(setting, attack, min(AT_ONCE, runs - done), seed + done) for done in range(0, runs, AT_ONCE)]
            each = list(pool.map(outcome, chunks))
            alarm, named, nearest = (np.concatenate([getattr(o, f) for _, o, _ in each]) for f in Outcome._fields)
            bad = ATTACKS[attack].bad if attack in ATTACKS else 0
            right, wrong = int(named[:, :bad].sum()), int(named[:, bad:].sum())
            parts = [setting, attack, str(runs), limits(int((alarm > 0).sum()), runs)]
            parts += [limits(right, bad * runs) if bad else "", limits(right, right + wrong) if right + wrong else ""]
            delay = f"{np.median(alarm[alarm > 0]) - ONSET + 1:.0f}" if bad and (alarm > 0).any() else ""
            accuracy = np.mean([a for _, _, a in each])
            print(" | ".join([*parts, delay, f"{nearest.min():.2g}", f"{accuracy:.3f}"]), flush=True)


def told(runs: int) -> None:
    """Cosines of the best guess of a client's mean change with it: groups that stay, and groups drawn every round."""
    print("groups | rounds | cosine of the guess | by `determined`", flush=True)
    setting = FROZEN["Dirichlet .5"]
    trained = Runs(setting.federation, Attack(), images(setting.images), runs, SEED)
    moves = []
    for _ in range(ROUNDS):
        trained.step()
        moves.append(np.asarray(trained.moves, dtype=np.float64))
    each = np.stack(moves, axis=1)  # (R, T, K, d)
    own = each.mean(axis=1) - each.mean(axis=(1, 2))[:, None]  # beside what all clients share, which the model shows
    rng = np.random.default_rng(SEED)
    fixed = np.kron(np.eye(CLIENTS // SIZE), np.ones(SIZE))
    for name, changes in (("fixed", ROUNDS), ("changed once", 30), ("changed twice", 20), ("every round", 1)):
        drawn_groups = [fixed[:, rng.permutation(CLIENTS)] for _ in range(-(-ROUNDS // changes))]
        for rounds in (10, ROUNDS):
            x = np.vstack([drawn_groups[t // changes] for t in range(rounds)])
            guesses = []
            for run, mine in zip(each, own, strict=True):
                shared = run[:rounds].mean(axis=(0, 1))
                sums = np.vstack([drawn_groups[t // changes] @ (run[t] - shared) for t in range(rounds)])
                guess = np.linalg.pinv(x) @ sums
                guesses.append((guess * mine).sum(1) / np.linalg.norm(guess, axis=1) / np.linalg.norm(mine, axis=1))
            cosine, bound = np.mean(guesses), determined(x).mean()
            print(f"{name} | {rounds} | {cosine:.2f} | {bound:.2f}", flush=True)


def main() -> None:
    """Parse and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["levels", "power", "told"])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--only", default="")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--calibrated", action="store_true", help="the settings on which constants were chosen")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.what == "told":
        told(min(options.runs, AT_ONCE))
    else:
        table(options.what, options.runs, options.only, options.workers, options.calibrated)


if __name__ == "__main__":
    main()
