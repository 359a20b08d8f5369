"""A soak: everything that is meant to run for months, under faults that a seed repeats.

    make soak SECONDS=1800 SEED=7

A scenario is a small piece of production: a watcher that rounds are POSTed to, a fit whose sites are processes, a
sweep. It runs over and over, is done something to, and must come out as if nothing had happened. What may be done is a
kind of fault; what must hold afterwards is an invariant. Each scenario has a thread, and what happens to it depends on
the seed and its name alone.
"""

import sys
from pathlib import Path

_HELPERS = str(Path(__file__).parents[1] / "integrations")  # runs, grids and threads that tests use too
if _HELPERS not in sys.path:
    sys.path.append(_HELPERS)
