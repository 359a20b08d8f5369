"""The verb `doctor`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Annotated

from rich.console import Console
from rich.text import Text
from typer import Exit, Option, echo

from fedgauss import __version__
from fedgauss._progress import progress
from fedgauss.cli.app import app, plain_endings

_DOCTOR_HELP = """\
Check this installation, and say what to do where something is wrong.

Looks at versions, extras, folders, thresholds, the devices that JAX sees and how long it compiles, then raises known \
alarms: a Monitor and a ClientMonitor must see a seeded attack in the right round and name the right clients, and stay \
quiet in its honest twin; a fit must equal its closed form. Takes up to ten seconds. Where JAX or NumPy is missing the \
other checks still run.

Every line says ok, warning or problem, and what to do. The exit code is 1 where there is a problem, else 0.

[bold]Examples[/bold]
  fedgauss doctor
  fedgauss doctor --json > doctor.json    for a report, or a machine
"""
_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@app.command(help=_DOCTOR_HELP)
def doctor(
    as_json: Annotated[bool, Option("--json", help="Print all of it as one JSON object.")] = False,
) -> None:
    """`fedgauss.doctor`."""
    with plain_endings():
        from fedgauss.doctor.checkup import checkup

        began = time.monotonic()
        with progress() as tick:
            findings = checkup(tick)
        took = time.monotonic() - began
        counts = {state: sum(found.state == state for found in findings) for state in _COLOURS}
        if as_json:
            whole = {"fedgauss": __version__, "ok": not counts["problem"], "seconds": round(took, 1)}
            echo(json.dumps(whole | {"checks": [asdict(found) for found in findings]}, indent=2))
        else:
            console = Console()
            width = max(len(found.name) for found in findings)
            for found in findings:
                line = Text.assemble(
                    (f"{found.state:<8}", _COLOURS[found.state]), f" {found.name:<{width}}  {found.found}"
                )
                console.print(line, soft_wrap=True)
                if found.fix:
                    console.print(Text(f"{'':9}{'':{width}}  -> {found.fix}"), soft_wrap=True)
            number = counts["problem"]
            told = "no problem" if not number else "1 problem" if number == 1 else f"{number} problems"
            warned = {0: "", 1: ", 1 warning"}.get(counts["warning"], f", {counts['warning']} warnings")
            console.print(Text(f"{told}{warned}; {took:.0f} s.".capitalize()), soft_wrap=True)
        if counts["problem"]:
            raise Exit(1)
