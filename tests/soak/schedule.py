"""Which fault comes when: a function of the seed, the scenario and a number."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

_OFTEN = {"kill -9": 3}  # times in a deck, since so much depends on the moment


@dataclass(frozen=True)
class Planned:
    """Fault `number` of a scenario, counted from 1."""

    seed: int
    scenario: str
    number: int
    kind: str

    def rng(self) -> random.Random:
        """Everything random about the fault: the moment, the place, who is hit."""
        return random.Random(f"{self.seed}/{self.scenario}/{self.number}")

    def __str__(self) -> str:
        return f"fault {self.number} of {self.scenario}: {self.kind}"


def planned(seed: int, scenario: str, kinds: Iterable[str], number: int) -> Planned:
    """Kinds are dealt like cards, so that each comes up before the deck is dealt again."""
    deck = sorted(kind for kind in kinds for _ in range(_OFTEN.get(kind, 1)))
    dealt, place = divmod(number - 1, len(deck))
    random.Random(f"{seed}/{scenario}/deck {dealt}").shuffle(deck)
    return Planned(seed, scenario, number, deck[place])
