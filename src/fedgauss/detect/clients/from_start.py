"""Who is unlike the other clients since the first rounds: a channel that needs no past."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._types import FloatArray
from fedgauss.detect.clients import first_rounds, root_rows
from fedgauss.detect.clients.first_rounds import Layers, features_of, output_layer
from fedgauss.detect.clients.root_rows import RootRows
from fedgauss.detect.clients.verdict import Name, counted

FEATURES = (*first_rounds.FEATURES, *root_rows.FEATURES)
FIRST = 3  # round that counts: in the first two everybody leaves a start that knows nothing
LOOKS = (4, 8, 13, 18, 23)  # rounds of its own after which a client is judged: 6, 10, 15, 20 and 25 of a run
LEARNT = 0.05  # median agreement below which the model knows too little for anybody's to say something
FEWEST = 5  # clients that are compared
_AGREEMENT = FEATURES.index("agreement")
_COPY = 0.995  # cosine of copies; honest pairs were at most .989
_MUCH_CLOSER = 0.1  # of clients' usual distance to their nearest: what copies are closer than
_CLIENTS = 10  # of the runs behind the tails


@dataclass(frozen=True)
class Unlike:
    """What is unlike the others in a client.

    Attributes
    ----------
    why : str
        "labels", as if they were permuted; "direction", as if its sign were turned; "copies", the same as another. The
        first two are told apart by which is less likely of an honest client, and may be confused.
    chance : float
        Of such a client in an honest run, over all looks; 0 for copies, which have no law.
    round : int
        In which it was found.
    """

    why: str
    chance: float
    round: int

    def __str__(self) -> str:
        return {
            "labels": "moves as if its labels were permuted",
            "direction": "moves as if its sign were turned",
            "copies": "sends what another client sends",
        }[self.why]


@dataclass(frozen=True)
class FromStartVerdict:
    """Who is unlike the others since the first rounds; nobody is said to have turned.

    Attributes
    ----------
    unlike : mapping
        From a client's name to `Unlike`.
    note : str
        What cannot be judged, and why.
    """

    unlike: Mapping[Name, Unlike] = field(default_factory=dict)
    note: str = ""

    def __str__(self) -> str:
        told = [f"{counted((name,))} {who}, as it did from its first rounds on." for name, who in self.unlike.items()]
        return " ".join([*told, self.note]).strip().capitalize()


class FromStart:
    """Compares each client with the others and with the model over its first rounds.

    Features (`first_rounds`, `root_rows`) are averaged over a client's rounds from the run's third on. A logistic score
    of the averages says how much they look like permuted labels, and another how much like turned signs. The chance of
    a score is how many of a hundred honest runs of ten clients had as large a one at any look, in the setting that had
    most (`benchmarks/make_from_start.py`), times K / 10 for K clients. Copies are pairs whose cosine is above .995 in
    four rounds in a row, and whose distance is a tenth of what is usual between nearest clients.

    Parameters
    ----------
    alpha : float
        The chance that an honest client is found by labels or by direction, over all looks; each has half of it.
    root : RootRows, optional
        A few rows at the server.
    output : int, optional
        The place of the output layer among a move's arrays; by default the last with two axes.
    """

    def __init__(self, alpha: float = 0.05, root: RootRows | None = None, output: int | None = None) -> None:
        self.alpha = _checks.probability("alpha", alpha, fix="Use 0.05, a false finding in 20 runs?")
        self.root, self.output = root, output
        self.round = 0
        self.unlike: dict[Name, Unlike] = {}
        self._sums: dict[Name, FloatArray] = {}  # of features
        self._counts: dict[Name, int] = {}  # of rounds in them
        self._same: dict[frozenset[Name], int] = {}  # rounds in a row in which a pair sent the same

    def update(
        self, moves: Mapping[Name, FloatArray | Layers], model: Layers | None = None, round: int | None = None
    ) -> FromStartVerdict:
        """Look at a round.

        Parameters
        ----------
        moves : mapping
            What each client changed: a vector, or arrays by layer in the model's order.
        model : sequence of arrays, optional
            The model that clients were sent. Without it, or without layers, labels are not judged.
        round : int, optional
            The number of the round; one more than the last by default.

        Raises
        ------
        ValueError
            If a move is not finite, or has other arrays than most moves or the model; nothing is changed then.
        """
        number = self.round + 1 if round is None else _checks.whole("round", round, at_least=self.round + 1)
        if number < FIRST or len(moves) < FEWEST:
            self.round = number
            return self._verdict(f"Clients are compared from round {FIRST} on, where {FEWEST} or more take part.")
        if min(self._counts.get(name, 0) for name in moves) >= LOOKS[-1]:
            self.round = number
            return self._verdict()
        names, layers = tuple(moves), _by_layer(moves)
        shapes = [array.shape for array in layers[0]]
        if model is not None and [np.shape(array) for array in model] != shapes:
            raise ValueError(f"model must have arrays as moves have them, of shapes {shapes}, in the same order.")
        output = output_layer(shapes) if self.output is None else self.output
        rows, products = features_of(layers, model, output)
        told = np.full((len(names), len(root_rows.FEATURES)), np.nan)
        if self.root is not None and model is not None:
            told = self.root.features_of(model, layers)
        self.round = number  # nothing fails from here on: a round is taken in whole or not at all
        self._add(names, np.hstack([rows, told]))
        self._pair(names, products)
        self._judge(names)
        return self._verdict(self._remark(names))

    def _add(self, names: tuple[Name, ...], rows: FloatArray) -> None:
        for name, row in zip(names, rows, strict=True):
            if self._counts.get(name, 0) < LOOKS[-1]:
                self._sums[name] = self._sums.get(name, np.zeros(len(FEATURES))) + row
            self._counts[name] = self._counts.get(name, 0) + 1

    def _pair(self, names: tuple[Name, ...], products: FloatArray) -> None:
        """Count the rounds in a row in which two clients sent the same."""
        sizes = np.sqrt(np.diag(products))
        both = sizes[:, None] * sizes
        apart = 1 - np.divide(products, both, out=np.zeros_like(products), where=both > 0)
        np.fill_diagonal(apart, np.inf)
        limit = min(1 - _COPY, _MUCH_CLOSER * float(np.median(apart.min(axis=1))))
        now = {frozenset((names[k], names[j])) for k, j in np.argwhere(np.triu(apart < limit, 1))}
        apart_now = {pair for pair in self._same if pair <= set(names) and pair not in now}
        self._same = {pair: n for pair, n in self._same.items() if pair not in apart_now}
        for pair in now:
            self._same[pair] = self._same.get(pair, 0) + 1
            for name in pair if self._same[pair] >= LOOKS[0] else ():
                self._find(name, Unlike("copies", 0.0, self.round))

    def _judge(self, names: tuple[Name, ...]) -> None:
        """Those for whom it is time to look, by the law to which somebody here is least likely honest.

        The others are silent: turned signs move the model, and honest clients' labels then seem to contradict it.
        """
        averages = self.averages
        due = {name for name in names if self._counts[name] in LOOKS}
        usable = sharpest(np.array([averages[name] for name in names])) if due else []
        many = max(1.0, len(averages) / _CLIENTS)
        told = [(law.why, {name: many * law.chance(averages[name]) for name in names}) for law in usable]
        why, chances = min(told, key=lambda law: min(law[1].values()), default=("", {}))
        for name, chance in chances.items():
            if name in due and chance <= self.alpha / 2:
                self._find(name, Unlike(why, chance, self.round))

    @property
    def averages(self) -> dict[Name, FloatArray]:
        """The average of each of `FEATURES` over a client's rounds; NaN where one is not known."""
        return {name: total / min(self._counts[name], LOOKS[-1]) for name, total in self._sums.items()}

    def _find(self, name: Name, unlike: Unlike) -> None:
        self.unlike.setdefault(name, unlike)

    def _verdict(self, note: str = "") -> FromStartVerdict:
        return FromStartVerdict(dict(self.unlike), note)

    def _remark(self, names: tuple[Name, ...]) -> str:
        if max(self._counts[name] for name in names) < LOOKS[0]:
            return f"Clients are judged after {LOOKS[0]} rounds that count, from round {FIRST} on."
        everybody = np.array([self.averages[name] for name in names])
        judged = {law.why for law in sharpest(everybody)}
        if "labels" in judged:
            return ""
        if np.isnan(everybody[:, _AGREEMENT]).any():
            return "Labels are not judged: that takes moves by layer, one of them with two axes, and the model."
        if np.median(everybody[:, _AGREEMENT]) < LEARNT:
            return "Labels are not judged: the model knows too little of them."
        return "Labels are not judged: most clients differ too much, as under noise."

    def state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """What `restore` goes on from, as words and arrays."""
        words = {
            "round": self.round,
            "clients": list(self._counts),
            "same": [[*sorted(pair, key=list(self._counts).index), n] for pair, n in self._same.items()],
            "unlike": [[name, who.why, who.chance, who.round] for name, who in self.unlike.items()],
        }
        sums = [self._sums[name] for name in self._counts]
        arrays = {
            "sums": np.reshape(np.array(sums, dtype=np.float64), (-1, len(FEATURES))),
            "counts": np.array([*self._counts.values()], dtype=np.int64),
        }
        return words, arrays

    def restore(self, words: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on from there; a ValueError where parts do not fit together."""
        names, sums, counts = words["clients"], arrays["sums"], arrays["counts"]
        if len(set(names)) != len(names) or sums.shape != (len(names), len(FEATURES)) or counts.shape != (len(names),):
            raise ValueError(f"sums must have a row of {len(FEATURES)} and a count for each of {len(names)} clients")
        if np.isinf(sums).any() or sums.dtype.kind != "f" or counts.dtype.kind != "i" or (counts < 1).any():
            raise ValueError("sums must be finite or unknown, and counts whole and positive")
        pairs, found = words["same"], words["unlike"]
        if not {name for *pair, _ in pairs for name in pair} | {name for name, *_ in found} <= set(names):
            raise ValueError("clients that are unlike or alike must be among those seen")
        if not {why for _, why, *_ in found} <= {law.why for law in laws()} | {"copies"}:
            raise ValueError("a client is unlike by labels, by direction, or as a copy")
        self.round = _checks.whole("round", words["round"], at_least=0)
        self._counts = dict(zip(names, counts.tolist(), strict=True))
        self._sums = dict(zip(names, sums.copy(), strict=True))
        self._same = {frozenset(pair): _checks.whole("same", n, at_least=1) for *pair, n in pairs}
        self.unlike = {
            name: Unlike(
                why, _checks.real("chance", chance), _checks.whole("round", at, at_least=1, at_most=self.round)
            )
            for name, why, chance, at in found
        }


@dataclass(frozen=True)
class Law:
    """How a score of features comes out in honest runs.

    Attributes
    ----------
    why : str
        What it looks for.
    features : tuple of str
    weights : tuple of float
        Of the features in the score.
    constant : float
    scores, chances : tuple of float
        Scores, ascending, and how often the largest of an honest run of ten clients reaches them.
    """

    why: str
    features: tuple[str, ...]
    weights: tuple[float, ...]
    constant: float
    scores: tuple[float, ...]
    chances: tuple[float, ...]

    def score(self, means: FloatArray) -> FloatArray:
        """Of averages of all features, (..., F)."""
        places = [FEATURES.index(name) for name in self.features]
        return np.asarray(means[..., places] @ np.array(self.weights) + self.constant)

    def chance(self, means: FloatArray) -> float:
        """Of a client like this in an honest run: log-linear between scores, and beyond the last as before it."""
        score, logs = float(self.score(means)), np.log(self.chances)
        if score <= self.scores[-1]:
            return float(np.exp(np.interp(score, self.scores, logs))) if score >= self.scores[0] else 1.0
        slope = (logs[-1] - logs[0]) / (self.scores[-1] - self.scores[0])
        return float(np.exp(logs[-1] + slope * (score - self.scores[-1])))


@cache
def laws() -> tuple[Law, ...]:
    """Those that ship, from `from_start.json`."""
    stored = resources.files("fedgauss.detect.clients").joinpath("from_start.json").read_text()
    return tuple(law_of(words) for words in json.loads(stored)["laws"])


def law_of(words: Mapping[str, Any]) -> Law:
    """From what the file holds of it."""
    numbers = (tuple(map(float, words[name])) for name in ("scores", "chances"))
    weights = tuple(map(float, words["weights"]))
    return Law(words["why"], tuple(words["features"]), weights, float(words["constant"]), *numbers)


def sharpest(averages: FloatArray) -> list[Law]:
    """For each kind the law with most features among those that are known of all clients, (K, F).

    Laws that ask whether labels agree with the model wait until it has learnt some: until the clients' median agreement
    is .05. And a law is used only where it calls the median client honest, by a score of at most 0, which is even odds:
    noise and compression make all clients unlike those it was learnt from.
    """
    known = {name for i, name in enumerate(FEATURES) if np.isfinite(averages[:, i]).all()}
    if np.median(averages[:, _AGREEMENT]) < LEARNT:
        known.discard("agreement")
    usable = [law for law in laws() if known.issuperset(law.features)]
    best = {law.why: law for law in sorted(usable, key=lambda law: len(law.features))}
    return [law for law in best.values() if np.median(law.score(averages)) <= 0]


def _by_layer(moves: Mapping[Name, FloatArray | Layers]) -> list[list[FloatArray]]:
    """Everybody's arrays; a ValueError where a client has others than most have, or numbers without a square."""
    found = {
        name: [move] if isinstance(move, np.ndarray) else [np.asarray(array) for array in move]
        for name, move in moves.items()
    }
    shapes = {name: tuple(array.shape for array in arrays) for name, arrays in found.items()}
    ((usual, _),) = Counter(shapes.values()).most_common(1)
    for name, own in shapes.items():
        if own != usual:
            raise ValueError(f"all moves must have arrays of shapes {usual}, as most have; client {name!r} has {own}.")
        if not all(np.isfinite(np.vdot(array, array)) for array in found[name]):
            raise ValueError(f"the move of client {name!r} must be finite, and so its squared length. Leave it out?")
    return list(found.values())
