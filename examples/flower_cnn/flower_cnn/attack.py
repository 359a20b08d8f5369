"""What bad clients do, and from when on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flower_cnn.data import CLASSES, Config

Arrays = dict[str, npt.NDArray[np.float32]]
ATTACKS = ("flip", "sign", "scale", "none")
_SCALE = 5


def bad_clients(config: Config) -> list[int]:
    """Partitions that will turn bad."""
    if config["attack"] not in ATTACKS:
        raise ValueError(f"attack must be one of {', '.join(ATTACKS)}; got {config['attack']!r}.")
    if config["attack"] == "none":
        return []
    return sorted(int(k) for k in str(config["bad"]).split(",") if k.strip())


def attack_of(config: Config, client: int, server_round: int) -> str:
    """What this client does in this round: "none", as long as it is honest."""
    bad = client in bad_clients(config) and server_round > int(config["attack-after"])
    return str(config["attack"]) if bad else "none"


def labelled(attack: str, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The labels that a client trains on: 9 - y after a flip."""
    return CLASSES - 1 - labels if attack == "flip" else labels


def uploaded(attack: str, sent: Arrays, trained: Arrays) -> Arrays:
    """What a client sends back: the opposite of what it learnt, or five times as much, or just that."""
    factor = {"sign": -1, "scale": _SCALE}.get(attack, 1)
    if factor == 1:
        return trained
    return {name: before + factor * (trained[name] - before) for name, before in sent.items()}
