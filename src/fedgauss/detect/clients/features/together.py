"""Which features are judged together, and what share of alpha each judgement has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedgauss._types import IntArray
from fedgauss.detect.clients.features.base import Feature


class Together(NamedTuple):
    """Features that have one statistic."""

    places: IntArray  # in the list of features
    share: float


def together(features: Sequence[Feature]) -> list[Together]:
    """First all that have no share of their own, with what the others leave; then these one by one."""
    alone = [place for place, feature in enumerate(features) if feature.share]
    rest = [place for place, feature in enumerate(features) if not feature.share]
    left = 1.0 - sum(features[place].share for place in alone)
    parts = [(rest, left), *(([place], features[place].share) for place in alone)]
    return [Together(np.array(places), share) for places, share in parts]
