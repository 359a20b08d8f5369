"""The command itself: its help, its version, and the verbs that other modules add to it."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from fedgauss import __version__

# Help is laid out here because a line break in it is one on the screen.
_HELP = """\
Measure, infer and watch decentralised federated learning with local SGD.

Clients on a network take gradient steps on their own data and average with their neighbours now and then. \
This command simulates them and says what theory promises, with an error beside every simulated number.

[bold]Examples[/bold]
  fedgauss demo                               a page in ./demo, in seconds
  fedgauss demo --replicates 20000 --out big  smaller Monte-Carlo errors
  fedgauss advise --steps 5000 --clients 40   which step sizes to use
  fedgauss reproduce --scale quick            the paper's results, thinned out
  fedgauss fit data.csv --target y --client hospital --family logistic
  fedgauss coverage --runs 200                do intervals cover?
  fedgauss watch run.jsonl --monitor m.npz    a live page, and alarms
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
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options that stand before the verb; and a terminal or pipe that lacks a letter shows ? in its place."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
