"""Settings that `FromStart` learns from, and others that it is tested on: frozen, and apart from each other.

None of those it learns from has Adam, clients with few classes each, Dirichlet below .1, convolutions, two hidden
layers, more than 32 hidden units, a falling rate, or clients that are absent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from federated_runs import Federation, Images, images_from, smaller

from fedgauss.data.digits import drawn

IMAGES = 12_000
ROUNDS = 25
ROOT_EACH = 5  # root rows of each class
_BASE: dict[str, Any] = {"model": "49-32-10", "images": 300, "rate": 0.1, "rounds": ROUNDS}
_LONG = _BASE | {"local_steps": 40, "batch": 16}
_BLOBS = _BASE | {"model": "20-16-10", "rate": 0.2}
_WIDE = _BASE | {"model": "196-48-10", "rate": 0.05}
_CNN = _BASE | {"model": "small cnn", "batch": 16, "local_steps": 8, "rate": 0.05}
_ADAM = _BASE | {"optimiser": "adam", "rate": 0.01}


def _made(base: dict[str, Any], **changes: Any) -> Federation:
    return Federation(**base | changes)


LEARNT = {
    "momentum, Dirichlet .5": (_made(_BASE), "digits 7"),
    "momentum, Dirichlet .2": (_made(_BASE, dirichlet=0.2), "digits 7"),
    "momentum, Dirichlet .1": (_made(_BASE, dirichlet=0.1), "digits 7"),
    "momentum, Dirichlet 1": (_made(_BASE, dirichlet=1.0), "digits 7"),
    "momentum, alike": (_made(_BASE, dirichlet=np.inf), "digits 7"),
    "momentum, slow, Dirichlet .3": (_made(_BASE, dirichlet=0.3, rate=0.02), "digits 7"),
    "SGD, Dirichlet .5": (_made(_BASE, optimiser="sgd", rate=0.3), "digits 7"),
    "SGD, Dirichlet .1": (_made(_BASE, optimiser="sgd", rate=0.5, dirichlet=0.1), "digits 7"),
    "40 steps, Dirichlet .1": (_made(_LONG, dirichlet=0.1), "digits 7"),
    "40 steps, slow, Dirichlet .3": (_made(_LONG, dirichlet=0.3, rate=0.03), "digits 7"),
    "40 steps of SGD, Dirichlet .15": (_made(_LONG, dirichlet=0.15, optimiser="sgd", rate=0.3), "digits 7"),
    "blobs, Dirichlet .5": (_made(_BLOBS), "blobs"),
    "blobs, Dirichlet .1": (_made(_BLOBS, dirichlet=0.1), "blobs"),
    "blobs, SGD, Dirichlet .2": (_made(_BLOBS, dirichlet=0.2, optimiser="sgd", rate=0.6), "blobs"),
    "blobs, alike": (_made(_BLOBS, dirichlet=np.inf), "blobs"),
    "20 clients, Dirichlet .3": (_made(_BASE, clients=20, dirichlet=0.3), "digits 7"),
    "20 clients, Dirichlet .1": (_made(_BASE, clients=20, dirichlet=0.1), "digits 7"),
}

TESTED = {
    "wider, Dirichlet .5": (_made(_WIDE), "digits 14"),
    "wider, Dirichlet .1": (_made(_WIDE, dirichlet=0.1), "digits 14"),
    "Adam, Dirichlet .5": (_made(_ADAM), "digits 7"),
    "Adam, Dirichlet .1": (_made(_ADAM, dirichlet=0.1), "digits 7"),
    "two classes each": (_made(_BASE, classes_each=2), "digits 7"),
    "Dirichlet .05": (_made(_BASE, dirichlet=0.05), "digits 7"),
    "CNN, Dirichlet .5": (_made(_CNN), "digits 14"),
    "CNN, Dirichlet .1": (_made(_CNN, dirichlet=0.1), "digits 14"),
    "two hidden layers, Dirichlet .2": (_made(_BASE, model="49-24-16-10", dirichlet=0.2), "digits 7"),
    "other blobs, Dirichlet .3": (_made(_BASE, model="20-24-10", dirichlet=0.3), "other blobs"),
    "no hidden layer, Dirichlet .5": (_made(_BASE, model="49-10", rate=0.2), "digits 7"),
    "falling rate, Dirichlet .3": (_made(_BASE, dirichlet=0.3, schedule="falling", rate=0.2), "digits 7"),
    "half of ten a round, Dirichlet .5": (_made(_BASE, present=5, rounds=2 * ROUNDS), "digits 7"),
}


def images(kind: str) -> Images:
    """Drawn digits of 7 or 14 pixels a side, or two clouds of points for each of ten classes."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 10, IMAGES)
    if kind.startswith("digits"):
        return images_from(smaller(drawn(labels, 3, variety=0.5), 28 // int(kind.split()[1])), labels)
    centres = rng.normal(size=(10, 2, 20))
    spread = 0.8 if kind == "blobs" else 1.2
    points = centres[labels, rng.integers(0, 2, IMAGES)] + spread * rng.normal(size=(IMAGES, 20))
    return images_from(np.clip(128 + 28 * points, 0, 255).astype(np.uint8), labels)
