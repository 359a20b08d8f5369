"""Which fault comes when: a function of the seed, the scenario and a number."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass


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
    """Kinds are dealt like cards, so that each comes up before any comes up again."""
    deck = sorted(kinds)
    dealt, place = divmod(number - 1, len(deck))
    random.Random(f"{seed}/{scenario}/deck {dealt}").shuffle(deck)
    return Planned(seed, scenario, number, deck[place])
