"""Measure, print a table, write JSON: `make bench`, or one benchmark with `--only NAME`.

Ratios are taken within one run, because seconds differ between machines; nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import clients
import common
import compilations
import cusum
import exact
import federate
import growth
import intervals
import loop
import monitor
import normals
import start
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import fedgauss

BENCHMARKS = {
    module.__name__: module
    for module in (start, normals, loop, compilations, growth, cusum, monitor, clients, intervals, exact, federate)
}


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    versions = {name: version(name) for name in ("jax", "jaxlib", "numpy", "scipy")}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {"fedgauss": fedgauss.__version__, **versions},
    }


def shown(value: float, unit: str) -> str:
    """Three digits are all that a timing deserves."""
    number = f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:.3g}"
    return f"{number} {unit}".strip()


def table_of(name: str, figures: list[common.Figure]) -> Table:
    title = (BENCHMARKS[name].__doc__ or name).splitlines()[0]
    table = Table(title=f"{name}: {title}", title_justify="left", min_width=90)
    table.add_column("quantity")
    table.add_column("measured", justify="right")
    table.add_column("goal", justify="right")
    for figure in figures:
        table.add_row(figure.quantity, shown(figure.value, figure.unit), figure.goal)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=BENCHMARKS, help="run one benchmark")
    parser.add_argument("--out", type=Path, default=common.HERE / "out" / "bench.json", help="where the JSON goes")
    options = parser.parse_args()
    console = Console()
    results: dict[str, list[dict[str, Any]]] = {}
    for name in [options.only] if options.only else BENCHMARKS:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(name, total=None)

            def say(text: str, name: str = name, progress: Progress = progress, task: Any = task) -> None:
                progress.update(task, description=f"{name}: {text}")
                if not console.is_terminal:
                    console.print(f"{name}: {text}")

            figures = BENCHMARKS[name].figures(say)
        console.print(table_of(name, figures))
        results[name] = [figure._asdict() for figure in figures]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({**machine(), "figures": results}, indent=2) + "\n")
    console.print(f"Written to {options.out}")


if __name__ == "__main__":
    main()
