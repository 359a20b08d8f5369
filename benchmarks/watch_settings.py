"""What the watch of clients is measured on: cells that were fixed before its laws were chosen.

A cell is a federation, a wire and an attack. Its seed follows from its name, so that adding a cell does not change
the others, and from a stage: 0 is for figures that are told, any other number for development. No law, tolerance or
threshold may be chosen in sight of stage 0.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from watch_runs import Attack, Federation, Wire

CLIPS = (0.5, 1.1, 1.35, 1.6, 2.2)  # binds always; for most; is passed in mid-run; early; seldom. Lengths are 2.2 to 1
ADAM: dict[str, Any] = {"adam": True, "rate": 0.005}
PLAIN = Federation()
COSINE = Federation(schedule="cosine")
ALIKE = float("inf")


@dataclass(frozen=True)
class Cell:
    """One setting of many runs."""

    name: str
    federation: Federation = field(default_factory=Federation)
    wire: Wire = field(default_factory=Wire)
    attack: Attack = field(default_factory=Attack)
    weighted: bool = False  # whether the watch is told the examples, by which the server averages
    runs: int = 100

    def seed(self, chunk: int, stage: int) -> list[int]:
        """Of a chunk of runs."""
        return [zlib.crc32(self.name.encode()), chunk, stage]


def honest() -> Iterator[Cell]:
    """Cells in which nobody is bad; at most 13 of 100 runs may alarm where alpha is .05 over the run."""
    for rates, federation in (("constant", PLAIN), ("cosine", COSINE)):
        for clip in CLIPS:
            yield Cell(f"clip {clip}, {rates} rate", federation, Wire(clip=clip))
        yield Cell(f"adaptive clip, {rates} rate", federation, Wire(clip=1.0, adaptive=True))
        for clip in (0.5, 1.35):
            yield Cell(f"clip {clip}, central noise, {rates} rate", federation, Wire(clip=clip, central_noise=0.3))
        for noise in (0.001, 0.01, 0.1):
            wire = Wire(clip=1.35, local_noise=noise)
            yield Cell(f"clip 1.35, local noise {noise}, {rates} rate", federation, wire)
        for code in ("signs", "bytes", "float16"):
            yield Cell(f"{code}, {rates} rate", federation, Wire(code=code))
        for share in (0.001, 0.01, 0.1):
            for feedback in (False, True):
                name = f"top {share:.1%}{', feedback' if feedback else ''}, {rates} rate"
                yield Cell(name, federation, Wire(code="top", share=share, feedback=feedback))
    for model in ("network", "softmax", "regression"):
        for dirichlet in (0.5, ALIKE):
            full = Federation(model=model, batch=None, rounds=300, rows=100, local_steps=5, dirichlet=dirichlet)
            yield Cell(f"full batches, {model}, Dirichlet {dirichlet}", full)
    nearly = Federation(batch=None, rows=800, dirichlet=ALIKE, local_steps=5)
    yield Cell("nearly alike, full batches", nearly)
    for noise in (0.001, 0.01, 0.1):
        yield Cell(f"directions, noise {noise}", Federation(model="directions", noise=noise))
    yield Cell("BatchNorm", Federation(model="normalised"))
    yield Cell("BatchNorm, cosine rate", Federation(model="normalised", schedule="cosine"))
    yield Cell("BatchNorm, unnamed statistics", Federation(model="normalised", buffers=True))
    yield Cell("examples 1:100", Federation(examples="1:100"), weighted=True)
    yield Cell("examples 1:100, random", Federation(examples="random"), weighted=True)
    yield Cell("half of ten", Federation(present=5))
    yield Cell("half of ten, BatchNorm", Federation(present=5, model="normalised"))
    yield Cell("20 of 200", Federation(clients=200, present=20, rounds=150, rows=60))
    # Those that held before laws knew atoms, as far as these small federations have them.
    yield Cell("plain")
    yield Cell("plain, Dirichlet .1", Federation(dirichlet=0.1))
    yield Cell("plain, alike", Federation(dirichlet=ALIKE))
    yield Cell("SGD, alike", Federation(momentum=0.0, rate=0.5, dirichlet=ALIKE))
    yield Cell("Adam", Federation(**ADAM))
    yield Cell("Adam, Dirichlet .1", Federation(dirichlet=0.1, **ADAM))
    yield Cell("cosine rate", COSINE)
    yield Cell("falling rate", Federation(schedule="falling", rate=0.4))
    yield Cell("rate drops by ten", Federation(schedule="drop"))
    yield Cell("rate drops by ten, alike", Federation(schedule="drop", dirichlet=ALIKE))
    yield Cell("heavy-tailed rows", Federation(heavy_tails=True))
    yield Cell("30 clients", Federation(clients=30))
    yield Cell("a third of 30", Federation(clients=30, present=10, rounds=120))
    yield Cell("a third of 100", Federation(clients=100, present=33, rows=60))
    yield Cell("1,000 rounds", Federation(rounds=1000, local_steps=2))
    yield Cell("100 rows, 300 rounds", Federation(rounds=300, rows=100))
    yield Cell("four clients", Federation(clients=4))


WIRES = {
    "plain": Wire(),
    "clip 0.5": Wire(clip=0.5),
    "clip 1.35": Wire(clip=1.35),
    "clip 1.35, local noise 0.01": Wire(clip=1.35, local_noise=0.01),
    "signs": Wire(code="signs"),
    "top 10%": Wire(code="top", share=0.1),
    "top 1%": Wire(code="top", share=0.01),
    "top 1%, feedback": Wire(code="top", share=0.01, feedback=True),
    "bytes": Wire(code="bytes"),
}
ATTACKS = {
    "flip, 2": Attack("flip", 2),
    "sign, 2": Attack("sign", 2),
    "LIE, 2": Attack("lie", 2),
    "min-max, 2": Attack("min-max", 2),
    "min-sum, 2": Attack("min-sum", 2),
    "Fang, 2": Attack("fang", 2),
    "scale by 5, 2": Attack("scale", 2, strength=5.0),
    "backdoor, 2": Attack("backdoor", 2),
    "idle, 2": Attack("idle", 2),
    "last global move, 2": Attack("last", 2),
    "noise, 2": Attack("noise", 2),
    "7 to 1, 2": Attack("seven to one", 2),
}
EVERYWHERE = ("flip, 2", "sign, 2", "LIE, 2", "scale by 5, 2", "backdoor, 2", "7 to 1, 2")


def attacked() -> Iterator[Cell]:
    """Cells with two bad of ten from round 41 on, to be seen within five rounds."""
    short = Federation(rounds=60)
    for wire_name, wire in WIRES.items():
        for name, attack in ATTACKS.items():
            if wire_name == "plain" or name in EVERYWHERE:
                yield Cell(f"{wire_name}: {name}", short, wire, attack)
    for name in EVERYWHERE:
        yield Cell(f"BatchNorm: {name}", Federation(rounds=60, model="normalised"), Wire(), ATTACKS[name])
    for strength in (0.2, 1.0, 5.0):  # colluders whose lengths are equal, so that they look like a cap
        for what in ("flip", "backdoor"):
            yield Cell(f"plain: tied x{strength}, {what}", short, Wire(), Attack(f"tied, {what}", 2, 41, strength))
    yield Cell("clip 1.35: tied x5.0, flip", short, Wire(clip=1.35), Attack("tied, flip", 2, 41, 5.0))
    for examples in ("equal", "1:100", "random"):
        for times in (1.4, 2.0, 100.0):
            known = Federation(rounds=60, examples=examples)
            attack = Attack("claim", 1, 41, times)
            yield Cell(f"examples {examples}: claims x{times}", known, Wire(), attack, weighted=True)
    for model, called in (("network", ""), ("normalised", ", BatchNorm")):
        for name in ("flip", "sign"):
            half = Federation(present=5, model=model)
            yield Cell(f"half of ten{called}: {name} from round 21", half, Wire(), Attack(name, 2, 21))
    for name in ("flip", "sign"):
        many = Federation(clients=200, present=20, rounds=150, rows=60)
        yield Cell(f"20 of 200: {name}, 40", many, Wire(), Attack(name, 40, 121), runs=20)


def cells() -> list[Cell]:
    """All of them."""
    return [*honest(), *attacked()]
