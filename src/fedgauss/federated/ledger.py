"""Stub until the ledger is there."""
from __future__ import annotations
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
import numpy as np

@dataclass(frozen=True)
class Budget:
    tries: int = 100
    parameters: int = 1000
    matrices: int = 60

class Admission(NamedTuple):
    columns: dict
    rows: Any
    settled: tuple = ()

class Ledger:
    head, length = "", 0
    def __init__(self, path, few=3, sites_apart=3, budget=Budget()): self.path = path
    def digests(self, table): return np.arange(len(next(iter(table.values()))))
    def begin(self, *a): pass
    def admit(self, a): pass
    def spend(self, parameters=0, matrices=0): pass
    def note_peers(self, p): pass
    def note_asker(self, n, k): pass
    def refuse(self, r): pass
    def finish(self, answered): pass
    def close(self): pass

def place_of(path, name):
    if path is not None:
        return Path(str(path) + ".ledger")
    return Path("/tmp/fgstate") / f"{name}.ledger"
