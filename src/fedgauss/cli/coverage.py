"""The command `fedgauss coverage`."""

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

from rich.console import Console
from typer import Option

from fedgauss._families import shipped_families
from fedgauss._progress import bar
from fedgauss.cli.app import (
    FAMILIES,
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
from fedgauss.cli.completion import several_among

_COVERAGE_HELP = """\
Check interval coverage by simulation: how often intervals cover, and how wide they are, over many runs of a federation.

Every option takes several values, separated by commas, and every combination is run. Prints the coverage of each \
method with its Monte Carlo error, and what the bias diagnostic predicts. Writes coverage.html, figures, and rows \
as CSV. Finished federations are kept in the output folder: after Ctrl-C the same command resumes, and another command \
adds to them.

[bold]Networks[/bold]
  ring, path, star, complete; ring^4 mixes four times at each synchronisation; a number such as 0.9 is the second \
eigenvalue, rho; gossip draws pairs, failing is a ring whose links are each down in three mixings of ten

[bold]Examples[/bold]
  fedgauss coverage --runs 200 --steps 500,1000            a first look, in half a minute
  fedgauss coverage --clients 40 --network ring,complete   does a large ring drift?
  fedgauss coverage --family logistic --sync-every 10,50 --beta 0.6,0.75
"""

T = TypeVar("T")


@app.command(help=_COVERAGE_HELP)
def coverage(
    family: Annotated[
        str, Option(help=f"{FAMILIES}.", autocompletion=several_among(shipped_families()))
    ] = "linear,logistic,poisson",
    offsets: Annotated[str, Option(help="Standard deviation of the clients' coefficients.")] = "0.5",
    condition: Annotated[str, Option(help="Condition number of the covariates' covariance.")] = "1",
    clients: Annotated[str, Option(help="Number of clients K.")] = "10",
    sync_every: Annotated[str, Option(help="Steps between two mixings, tau.")] = "10",
    network: Annotated[
        str,
        Option(
            help="Network over which clients average.",
            autocompletion=several_among(["ring", "path", "star", "complete", "gossip", "failing"]),
        ),
    ] = "ring",
    beta: Annotated[str, Option(help="Decay of the step sizes.")] = "0.75",
    steps: Annotated[str, Option(help="Steps n of each client.")] = "500,1000,2000",
    dim: Annotated[str, Option(help="Number of covariates d.")] = "5",
    runs: Annotated[int, Option(help="Runs of each federation, at least 20.")] = 1000,
    bootstrap_runs: Annotated[int, Option(help="Runs for the bootstrap, with 200 chains each; 0 skips it.")] = 0,
    seed: Annotated[int, Option(help="Fixes every random number.")] = 0,
    out: Annotated[Path, Option(help="Folder for the report and for finished federations.")] = Path("coverage"),
    workers: Workers = None,
    engine: Engine = "local",
    scheduler: Scheduler = None,
) -> None:
    """The coverage laboratory."""
    command = shlex.join(["fedgauss", *sys.argv[1:]])
    with plain_endings(), sweep_endings(command):
        from fedgauss import _checks
        from fedgauss.coverage.federation import federations

        grid = federations(
            family=_values("family", family, str),
            offsets=_values("offsets", offsets, float),
            condition=_values("condition", condition, float),
            n_clients=_values("clients", clients, int),
            sync_every=_values("sync-every", sync_every, int),
            network=_values("network", network, str),
            beta=_values("beta", beta, float),
            n_steps=_values("steps", steps, int),
            dim=_values("dim", dim, int),
        )
        _checks.whole("runs", runs, at_least=20)
        _checks.whole("bootstrap_runs", bootstrap_runs, at_least=0)
        _checks.seed(seed)
        executor = executor_of(engine, scheduler)
        from fedgauss._files import writable_folder
        from fedgauss.coverage.results import measure

        folder = writable_folder(out, room=ROOM)
        began = time.monotonic()
        results = measure(grid, runs, bootstrap_runs, seed, folder, workers, command, executor)
        with bar() as tick:
            tick("drawing", 0, 1)
            from fedgauss.coverage.page import write_coverage
            from fedgauss.report.text import print_table

            tables, page = write_coverage(results, folder, tick)
        console = Console()
        for table in tables:
            print_table(table, console)
            console.print()
        print_place(page, "figures and rows", began)


def _values(option: str, text: str, kind: Callable[[str], T]) -> list[T]:
    """The values of an option, without repeats."""
    try:
        values = [kind(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError:
        values = []
    if not values:
        numbers = {int: "whole numbers", float: "numbers"}.get(kind, "names")  # type: ignore[call-overload]
        raise ValueError(f"--{option} must be {numbers} separated by commas; got {text!r}.")
    return list(dict.fromkeys(values))
