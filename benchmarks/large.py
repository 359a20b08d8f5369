"""The paper's ten results at a scale, on whatever JAX finds: `PYTHONPATH=src python3 benchmarks/large.py`.

Needs fedgauss, JAX, SciPy and nothing else of this folder: rows only, no report. On a GPU several workers share it, so
that one compiles or counts while another computes.
"""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import tempfile
import time
from importlib.metadata import version
from pathlib import Path


def main() -> None:
    """Run every cell into a new store and print the seconds it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", default="large", choices=["quick", "paper", "large"])
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    parser.add_argument("--store", type=Path, help="where to keep the rows")
    options = parser.parse_args()

    from fedgauss.paper.result import SCALES, catalogue
    from fedgauss.sweep.run import run_cells
    from fedgauss.sweep.store import Store

    cells = [cell for result in catalogue().values() if result.quick for cell in result.cells(SCALES[options.scale])]
    with tempfile.TemporaryDirectory() as folder:
        path = options.store or Path(folder) / "rows.sqlite"
        began = time.perf_counter()
        with Store(path) as store:
            summary = run_cells(cells, store, workers=options.workers)
        seconds = time.perf_counter() - began
        by_result = _seconds(path)
    print(f"{options.scale}: {summary}")
    for name, spent in by_result.items():
        print(f"  {name:18}{spent:8.1f} s in workers")
    figures = {
        "scale": options.scale,
        "workers": options.workers,
        "cells": summary.total,
        "seconds": round(seconds, 1),
        "worker_seconds": by_result,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("jax", "numpy", "scipy")},
        "device": _device(),
    }
    if options.out is not None:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")


def _seconds(path: Path) -> dict[str, float]:
    connection = sqlite3.connect(path)
    try:
        query = "SELECT experiment, round(sum(seconds), 1) FROM cells GROUP BY experiment"
        return dict(connection.execute(query))
    finally:
        connection.close()


def _device() -> str:
    import jax  # last, so that it takes no memory from the workers

    return str(jax.devices()[0].device_kind)


if __name__ == "__main__":
    main()
