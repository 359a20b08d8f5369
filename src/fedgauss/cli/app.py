"""The command itself: its help, its version, and the subcommands that other modules add to it."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from fedgauss import __version__
from fedgauss.cli.endings import name_options

# Help is laid out here because a line break in it is one on the screen.
_HELP = """\
Measure, infer and watch decentralised federated learning with local SGD.

Clients on a network take gradient steps on their own data and average with their neighbours now and then. \
This command simulates such runs and compares them with theory, giving a standard error with every simulated number.

[bold]Examples[/bold]
  fedgauss demo                               a page in ./demo, in seconds
  fedgauss demo --replicates 20000 --out big  smaller Monte Carlo errors
  fedgauss advise --steps 5000 --clients 40   which step sizes to use
  fedgauss reproduce --scale quick            the paper's results, in short
  fedgauss fit data.csv --target y --client hospital --family logistic
  fedgauss coverage --runs 200                check interval coverage
  fedgauss watch run.jsonl --monitor m.npz    live page and alarms
"""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,  # a site's may hold rows
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedgauss {__version__}")
        raise typer.Exit


@app.callback(help=_HELP)
def main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the command's name. A terminal or pipe that lacks a letter shows ? in its place."""
    name_options(context)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
