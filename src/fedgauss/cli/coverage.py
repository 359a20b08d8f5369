"""The verb `coverage`."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedgauss.cli.app import app
from fedgauss.cli.bars import bar
from fedgauss.cli.endings import plain_endings, sweep_endings
from fedgauss.cli.engines import ROOM
from fedgauss.cli.engines import executor as executor_of
from fedgauss.cli.fit import FAMILIES

_COVERAGE_HELP = """\
Put intervals to the test: how often they cover, and how wide they are, over many runs of a federation.

Every option takes several values with commas between them, and every combination is run. Prints coverage of each \
method with its Monte-Carlo error, and what the diagnostic of bias predicts. Writes coverage.html, figures, and rows \
as CSV. Finished federations are kept in the output folder: after Ctrl-C the same command goes on, and another command \
adds to them.

[bold]Networks[/bold]
  ring, path, star, complete; ring^4 mixes four times at each synchronisation; 0.9 has this second eigenvalue, rho

[bold]Examples[/bold]
  fedgauss coverage --runs 200 --steps 500,1000            a first look, in half a minute
  fedgauss coverage --clients 40 --network ring,complete   does a large ring drift?
  fedgauss coverage --family logistic --sync-every 10,50 --beta 0.6,0.75
"""
_COVERAGE = Path("coverage")


@app.command(help=_COVERAGE_HELP)
def coverage(
    family: Annotated[str, typer.Option(help=f"{FAMILIES}.")] = "linear,logistic,poisson",
    offsets: Annotated[str, typer.Option(help="How much clients differ: sd of their coefficients.")] = "0.5",
    condition: Annotated[str, typer.Option(help="Condition number of the covariates.")] = "1",
    clients: Annotated[str, typer.Option(help="Clients K.")] = "10",
    sync_every: Annotated[str, typer.Option(help="Steps between two mixings, tau.")] = "10",
    network: Annotated[str, typer.Option(help="Who averages with whom.")] = "ring",
    beta: Annotated[str, typer.Option(help="Decay of the step sizes.")] = "0.75",
    steps: Annotated[str, typer.Option(help="Steps n of a client.")] = "500,1000,2000",
    dim: Annotated[str, typer.Option(help="Covariates d.")] = "5",
    runs: Annotated[int, typer.Option(help="Runs of each federation, at least 20.")] = 1000,
    bootstrap_runs: Annotated[
        int, typer.Option(help="Runs that the bootstrap is tried on, with 200 chains each; 0 leaves it out.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Fixes every random number.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the report, and for what is finished so far.")] = _COVERAGE,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes that compute, 0 for this one alone; one for each core, at most 8, if not given."),
    ] = None,
    engine: Annotated[str, typer.Option(help="Who computes: local, or dask for a cluster.")] = "local",
    scheduler: Annotated[str | None, typer.Option(help="The scheduler of Dask, as tcp://host:8786.")] = None,
) -> None:
    """The coverage laboratory."""
    command = shlex.join(["fedgauss", *sys.argv[1:]])
    with plain_endings(), sweep_endings(command):
        from fedgauss import _checks
        from fedgauss.experiments.coverage_settings import federations, listed

        grid = federations(
            family=listed("family", family, str),
            offsets=listed("offsets", offsets, float),
            condition=listed("condition", condition, float),
            n_clients=listed("clients", clients, int),
            sync_every=listed("sync-every", sync_every, int),
            network=listed("network", network, str),
            beta=listed("beta", beta, float),
            n_steps=listed("steps", steps, int),
            dim=listed("dim", dim, int),
        )
        _checks.whole("runs", runs, at_least=20)
        _checks.whole("bootstrap_runs", bootstrap_runs, at_least=0)
        _checks.whole("seed", seed, at_least=0)
        executor = executor_of(engine, scheduler)
        from fedgauss.report.coverage.sweep import measure
        from fedgauss.report.output import writable_folder

        folder = writable_folder(out, room=ROOM)
        began = time.monotonic()
        measured = measure(grid, runs, bootstrap_runs, seed, folder, workers, command, executor)
        with bar() as tick:
            tick("drawing", 0, 1)
            from fedgauss.report.coverage.files import write_coverage
            from fedgauss.report.table import print_table

            tables, page = write_coverage(measured, folder, tick)
        console = Console()
        for table in tables:
            print_table(table, console)
            console.print()
        console.print(
            Text(f"The page is {page}, its figures and rows beside it; {time.monotonic() - began:.0f} s."),
            soft_wrap=True,
        )
