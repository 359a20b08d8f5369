"""What changed at a client that an alarm names, and what that looks like.

The shift of its features is compared with those of changes that were made on purpose (`benchmarks/watch_reasons.py`):
a logistic regression on few numbers, in `reasons.json`. It knows these changes only, and whoever knows it can look like
one that is harmless. So a reason is a hint for a person; no client is spared for it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from fedgauss._shown import ShownInSentences
from fedgauss._types import FloatArray
from fedgauss.detect.clients.changes import Change, changes
from fedgauss.detect.clients.features import beside_others
from fedgauss.detect.clients.watch import ClientWatch

_SAID = 3.0  # deviations by which a feature must have moved to be spoken of
_MOST_SAID = 3  # features
_FAR = 5.0  # of a logarithm or angle, beyond which a shift counts as this far
# What each kind of change looks like, in words; the first ones are honest.
KINDS = {
    "more steps": "more local steps",
    "new data": "new data, or other ways of measuring it",
    "restart": "a restart from scratch",
    "noisy labels": "labels that are noisy now and then",
    "sign flip": "a sign flip",
    "label flip": "flipped or forged labels",
    "backdoor": "a backdoor",
    "scaling": "moves made longer",
    "noise": "noise",
    "silence": "silence: it sends next to nothing",
    "collusion": "moves made from those of others",
    "copy": "a copy of what the model did last",
}
HONEST = ("more steps", "new data", "restart", "noisy labels")


@dataclass(frozen=True, repr=False)
class Reason(ShownInSentences):
    """Why a client was named. Printed, it says so in words.

    Attributes
    ----------
    kind : str
        The change that it looks like most: one of `KINDS`; "weight" where it claims another weight; "unknown" where
        its past is too short.
    sure : float
        How probable that is among the changes that are known.
    benign : bool
        Whether it looks harmless enough to be called so: harmful changes were in less than .01 of those learnt from.
    changed : tuple of str
        What moved by more than three deviations, the most first.
    rounds : int
        Since the onset, from which this is told.
    """

    kind: str = "unknown"
    sure: float = 0.0
    benign: bool = False
    changed: tuple[str, ...] = ()
    rounds: int = 0

    def __str__(self) -> str:
        what = ", ".join(self.changed) or "nothing by itself moved far"
        if self.kind not in KINDS:
            return what
        doubt = ", but a harmful change may look alike" if self.kind in HONEST and not self.benign else ""
        return f"{what}; looks like {KINDS[self.kind]} ({self.sure:.2f}){doubt}"


@cache
def _table() -> dict[str, Any]:
    """What was learnt."""
    return dict(json.loads(resources.files("fedgauss.detect.clients").joinpath("reasons.json").read_text()))


def reasons(watch: ClientWatch, run: int, clients: Sequence[int], onset: int) -> list[Reason]:
    """Of clients that were named, changed since round `onset`."""
    found = []
    for client, change in zip(clients, changes(watch, run, clients, onset), strict=True):
        found.append(Reason() if change is None else _reason(watch, run, client, change))
    return found


def _reason(watch: ClientWatch, run: int, client: int, change: Change) -> Reason:
    far = np.where(change.known, np.abs(change.deviations), 0.0)
    said = [place for place in np.argsort(-far) if far[place] > _SAID][:_MOST_SAID]
    changed = tuple(watch.features[place].said(float(change.moved[place])) for place in said)
    if said and watch.features[said[0]].name == "claim":
        return Reason("weight", 1.0, False, changed, change.rounds)
    table = _table()
    chances = chances_of(inputs_of(watch, run, client, change, table["features"]), table)
    most = int(chances.argmax())
    benign = sum(p for kind, p in zip(table["kinds"], chances, strict=True) if kind in HONEST)
    return Reason(
        table["kinds"][most], float(chances[most]), bool(benign >= table["benign_from"]), changed, change.rounds
    )


def inputs_of(watch: ClientWatch, run: int, client: int, change: Change, names: Sequence[str]) -> FloatArray:
    """What the regression takes, of features by name: shifts, their sizes, in deviations, and where the last round is.

    Lengths are known relative to the others' only.
    """
    places = [i for name in names for i, feature in enumerate(watch.features) if feature.name == name]
    moved = np.clip(change.moved, -_FAR, _FAR)
    deviations = np.sign(change.moved) * np.log1p(np.abs(change.deviations))
    latest = next((m for _, m in reversed(watch.recent) if client in m.who[run]), None)
    levels = np.zeros(len(watch.features))
    if latest is not None:
        one = latest.of_runs(np.array([run]))
        beside = beside_others(one, ~watch.left_out[[run]][:, one.who[0]])
        at = int(np.flatnonzero(one.who[0] == client)[0])
        raw = [0.0 if f.name == "length" else f.values(one, beside)[0, at] for f in watch.features]
        levels = np.clip(np.nan_to_num(raw), -_FAR, _FAR)
    mirrored = np.abs(2.0 * levels - moved)  # 0 where it now does the opposite of what it did
    parts = (moved, np.abs(moved), deviations, levels, mirrored)
    return np.concatenate([*(part[places] for part in parts), [math.log(change.rounds)]])


def chances_of(inputs: FloatArray, table: dict[str, Any]) -> FloatArray:
    """softmax(W x + b) of standardised inputs (..., M): how probable each kind is, (..., kinds)."""
    x = np.clip((inputs - np.array(table["centre"])) / np.array(table["scale"]), -4.0, 4.0)
    score = x @ np.array(table["weights"]).T + np.array(table["bias"])
    score = np.exp(score - score.max(axis=-1, keepdims=True))
    return np.asarray(score / score.sum(axis=-1, keepdims=True))
