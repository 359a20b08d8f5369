"""The command itself: its help, its version, and what the subcommands that other modules add to it share.

A subcommand ends with one line and an exit code where Python would print a traceback.
"""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from fedgauss import __version__

if TYPE_CHECKING:
    from fedgauss.sweep.run import Executor

# Help is laid out here because a line break in it is one on the screen.
_HELP = """\
Watch, fit and simulate federated learning.

Watch a run and get an alarm when clients turn bad; fit a regression to data that stay with their owners; simulate \
local SGD and compare it with theory, with a standard error for every simulated number.

[bold]Examples[/bold]
  fedgauss demo                               a page in ./demo, in seconds
  fedgauss demo --replicates 20000 --out big  smaller Monte Carlo errors
  fedgauss advise --steps 5000 --clients 40   which step sizes to use
  fedgauss reproduce --scale quick            a short version of the paper's results
  fedgauss fit data.csv --target y --client hospital --family logistic
  fedgauss coverage --runs 200                check interval coverage
  fedgauss watch run.jsonl                    live page and alarms
  fedgauss doctor                             does this installation work?
"""
ROOM = 30_000_000  # bytes that the rows, figures and page of a sweep may need

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,  # a site's may hold rows
)
# The options of the command that is running, by the name of the argument: typer tells only the callback of the app.
_options: dict[str, str] = {}
_ARGUMENT = re.compile(r"\b([a-z_]+)=(?:'(\w+)'|(\d[\w.]*\d|\d))")  # family='binomial', ridge=1


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
    _name_options(context)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _name_options(context: typer.Context) -> None:
    """Remember the options of the invoked command, so that messages can speak of --steps where the library has n_steps.

    By way of typer alone: recent versions bring a click of their own, which the package click knows nothing of.
    """
    _options.clear()
    invoked = context.command.get_command(context, context.invoked_subcommand or "")  # type: ignore[attr-defined]
    for parameter in getattr(invoked, "params", []):
        if parameter.param_type_name == "option":
            _options[parameter.name] = _options[f"n_{parameter.name}"] = parameter.opts[0]


@contextmanager
def sweep_endings(command: str) -> Iterator[None]:
    """Say how far a sweep came, and how to resume it."""
    from fedgauss.sweep.run import SweepError, SweepInterrupted

    try:
        yield
    except SweepInterrupted as ended:
        far = f"{ended.summary.done} of {ended.summary.total} cells"
        _end(130, f"Interrupted; {far} are finished and saved. Resume with: {command}")
    except KeyboardInterrupt:
        _end(130, f"Interrupted; finished cells are saved, and no file is left half written. Resume with: {command}")
    except SweepError as error:
        _end(1, str(error))
    except BrokenPipeError:
        raise
    except OSError as error:
        _end(1, f"A file could not be read or written: {error}. Finished cells are saved. Resume with: {command}")


@contextmanager
def plain_endings() -> Iterator[None]:
    """End with one line and an exit code where Python would print a traceback that tells a user nothing."""
    try:
        yield
    except ValueError as error:
        argument, _, rule = str(error).partition(" ")
        _end(2, f"{_options.get(argument, argument)} {_ARGUMENT.sub(_as_option, rule)}")
    except BrokenPipeError:
        raise
    except OSError as error:
        _end(1, f"A file could not be read or written: {error}.")
    except KeyboardInterrupt:
        _end(130, "Interrupted; no file is left half written.")


def _as_option(found: re.Match[str]) -> str:
    """How an argument of the library is given to the running command: --family binomial for family='binomial'."""
    name, text, number = found.groups()
    return f"{_options[name]} {text or number}" if name in _options else found[0]


def print_place(page: Path, beside: str, began: float) -> None:
    """Where a page is, what lies beside it, and how long it took."""
    text = f"The page is {page}, its {beside} beside it; {time.monotonic() - began:.0f} s."
    Console().print(Text(text), soft_wrap=True)


def _end(code: int, message: str) -> NoReturn:
    """One red line on standard error, and this exit code."""
    one_line = " ".join(message.split())
    Console(stderr=True).print(Text(one_line, style="red"), soft_wrap=True)
    raise typer.Exit(code) from None


def executor_of(engine: str, scheduler: str | None) -> Executor | None:
    """What runs the cells of a sweep; None for local workers."""
    from fedgauss import _checks

    if _checks.one_of("engine", engine, ["local", "dask"]) == "local":
        if scheduler is not None:
            raise ValueError("--scheduler belongs to --engine dask; got --engine local. Add --engine dask?")
        return None
    if scheduler is None:
        raise ValueError("--engine dask needs a scheduler; got none. Use --scheduler tcp://host:8786?")
    from fedgauss.integrations.dask_cluster import on_dask

    try:
        return on_dask(scheduler)
    except ImportError as error:
        raise ValueError(str(error)) from None
