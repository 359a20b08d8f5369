"""The images, who has which, and what bad clients do to theirs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss.data.digits import drawn

Config = Mapping[str, Any]
CLASSES = 10
_HELD_OUT = 1_000  # images that no client has


class Images(NamedTuple):
    """Pixels (n, 28, 28) as bytes, and labels (n,)."""

    pixels: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]

    def at(self, places: npt.NDArray[np.int64]) -> Images:
        """Some of them."""
        return Images(self.pixels[places], self.labels[places])


def of_client(config: Config, client: int) -> Images:
    """A client's own images: of some digits many, of others hardly any."""
    everything = _everything(str(config["data"]), int(config["n-clients"]) * int(config["images"]), int(config["seed"]))
    rest = everything.labels[:-_HELD_OUT]
    own = dealt(rest, int(config["n-clients"]), float(config["dirichlet"]), int(config["seed"]))[client]
    if not len(own):
        raise ValueError(f"partition {client} got no image; dirichlet must be larger, or there must be more images.")
    return everything.at(own)


def held_out(config: Config) -> Images:
    """What the server tests its model on."""
    everything = _everything(str(config["data"]), int(config["n-clients"]) * int(config["images"]), int(config["seed"]))
    return everything.at(np.arange(len(everything.labels) - _HELD_OUT, len(everything.labels)))


@lru_cache(maxsize=1)  # a process of a simulation plays many clients, in many rounds
def _everything(path: str, n_images: int, seed: int) -> Images:
    """Drawn, or a sample of a file's; those held out come last."""
    n, rng = n_images + _HELD_OUT, np.random.default_rng(seed)
    if not path:
        labels = rng.permutation(np.arange(n) % CLASSES)
        return Images(drawn(labels, seed), labels)
    with np.load(path, allow_pickle=False) as file:
        found = Images(file["images"], file["labels"].astype(np.int64))
    if len(found.labels) < n:
        raise ValueError(f"{path} has {len(found.labels)} images; n-clients times images and those held out are {n}.")
    return found.at(rng.permutation(len(found.labels))[:n])


def dealt(labels: npt.NDArray[np.int64], n_clients: int, dirichlet: float, seed: int) -> list[npt.NDArray[np.int64]]:
    """Places of each client's images: every class is shared out by shares of its own, from a Dirichlet law."""
    rng = np.random.default_rng([seed, 1])
    hands: list[list[npt.NDArray[np.int64]]] = [[] for _ in range(n_clients)]
    for digit in range(CLASSES):
        places = rng.permutation(np.flatnonzero(labels == digit))
        shares = rng.dirichlet(np.full(n_clients, dirichlet))
        cuts = (np.cumsum(shares)[:-1] * len(places)).round().astype(int)
        for hand, part in zip(hands, np.split(places, cuts), strict=True):
            hand.append(part)
    return [np.concatenate(hand) for hand in hands]
