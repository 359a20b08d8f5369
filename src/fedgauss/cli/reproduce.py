"""The verb `reproduce`."""

import shlex
import time
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Argument, Option

from fedgauss._progress import bar
from fedgauss.cli.app import (
    ROOM,
    Engine,
    Scheduler,
    Workers,
    app,
    executor_of,
    plain_endings,
    print_place,
    sweep_endings,
)
from fedgauss.cli.completion import among
from fedgauss.paper.results import ORDER

_REPRODUCE_HELP = """\
Recompute the paper's numbers under every reading of its settings, and say which ones agree.

Prints a verdict for each result; with -v also the paper's numbers, ours with their Monte-Carlo errors, and reasons. \
Writes report.html, every figure as PNG and SVG, rows as CSV and verdicts as JSON. NAMES selects results; without \
any, all are run.

[bold]Scales[/bold]
  quick  fewer runs and points, one draw of the clients; attacks, and results beyond the paper, only if named; \
twenty seconds
  paper  the runs and points of the paper, four draws of the clients; two minutes on two cores
  large  100 times the runs, over eight draws of the clients; an hour, or minutes on a GPU

Finished parts are kept in results.sqlite in the output folder. After Ctrl-C, a crash or a reboot, the same command \
continues where it stopped; once everything is there, it only redraws. A folder holds one scale, and its report \
includes every result that is finished there.

[bold]Examples[/bold]
  fedgauss reproduce --list                   what there is to reproduce
  fedgauss reproduce --scale quick            everything, thinned out
  fedgauss reproduce figure1_left connection  two results
  fedgauss reproduce --out study --workers 8  everything, by 8 processes
  fedgauss reproduce my_result.py             a result of your own, in a file that ends in RESULT = ...
"""
_REPRODUCTION = Path("reproduction")


@app.command(help=_REPRODUCE_HELP)
def reproduce(
    names: Annotated[
        list[str] | None,
        Argument(help="Results by name; all of them if none is given.", autocompletion=among(ORDER)),
    ] = None,
    scale: Annotated[
        str,
        Option(help="How much to compute: quick, paper or large.", autocompletion=among(["quick", "paper", "large"])),
    ] = "paper",
    out: Annotated[Path, Option(help="Folder for the report, and for what is finished so far.")] = _REPRODUCTION,
    workers: Workers = None,
    engine: Engine = "local",
    scheduler: Scheduler = None,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Print numbers and reasons too.")] = False,
    list_them: Annotated[bool, Option("--list", help="Print what there is, and stop.")] = False,
) -> None:
    """The paper's results, from cells to a page."""
    names = names or []
    command = _reproduce_command(names, scale.lower(), out, workers, scheduler)
    with plain_endings(), sweep_endings(command):
        from fedgauss.paper.result import chosen, measure, scale_named, write_reproduction

        how_much = scale_named(scale)
        if list_them:
            from fedgauss.paper.page import print_list

            print_list(chosen(names), Console())
            return
        results, executor = chosen(names, how_much), executor_of(engine, scheduler)
        from fedgauss._files import writable_folder

        folder = writable_folder(out, room=ROOM)
        began = time.monotonic()
        measured = measure(results, how_much, folder, workers, command, executor)
        with bar() as tick:
            tick("drawing", 0, len(measured.results) + 1)
            from fedgauss.paper.page import print_reproduction

            sections, page = write_reproduction(measured, folder, tick)
        print_reproduction(sections, Console(), verbose)
        print_place(page, "figures and rows", began)


def _reproduce_command(
    names: list[str], scale: str, out: Path, workers: int | None, scheduler: str | None = None
) -> str:
    """The command that does, or goes on with, the same."""
    parts = ["fedgauss", "reproduce", *names]
    parts += ["--scale", scale] if scale != "paper" else []
    parts += ["--out", str(out)] if out != _REPRODUCTION else []
    parts += ["--workers", str(workers)] if workers is not None else []
    parts += ["--engine", "dask", "--scheduler", scheduler] if scheduler is not None else []
    return shlex.join(parts)
