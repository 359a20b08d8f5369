"""The command itself: its help, its version, and what the subcommands that other modules add to it share.

A subcommand ends with one line and an exit code where Python would print a traceback.
"""

import inspect
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text
from typer import Option

from fedgauss import __version__
from fedgauss._families import shipped_families
from fedgauss.cli.completion import among
from fedgauss.inference import model as models

if TYPE_CHECKING:
    from fedgauss.inference.fit_result import Fit
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
FAMILIES = ", ".join(shipped_families())
# Options of several commands.
Level = Annotated[float, Option(help="Level of the intervals.")]
Out = Annotated[Path, Option(help="Folder for the numbers and the figure.")]
Workers = Annotated[int | None, Option(help="Processes, 0 for none; by default one for each core, at most 8.")]
Engine = Annotated[
    str,
    Option(help="Where to compute: local, or dask for a cluster.", autocompletion=among(["local", "dask"])),
]
Scheduler = Annotated[str | None, Option(help="Address of the Dask scheduler, as tcp://host:8786.")]

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


def show_fit(fitted: "Fit", folder: Path) -> None:
    """Write a fit as JSON, and a figure of its coefficients; print its summary, and where the files are."""
    from fedgauss._figures import png, svg
    from fedgauss._files import write_whole

    figure = fitted.plot(standardised=True)
    fitted.save(folder / "fit.json")
    write_whole(folder / "coefficients.png", png(figure))
    write_whole(folder / "coefficients.svg", svg(figure))
    console = Console()
    console.print(Text(fitted.summary()), soft_wrap=True)
    console.print()
    text = f"Wrote {folder / 'fit.json'}, and the figure as {folder / 'coefficients.png'} and SVG."
    console.print(Text(text), soft_wrap=True)


def take_one_core() -> None:
    """Before NumPy loads. Several sites on a machine would have more threads than cores, and those that wait burn one.

    A user's own setting is left as it is.
    """
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def _end(code: int, message: str) -> NoReturn:
    """One red line on standard error, and this exit code."""
    one_line = " ".join(message.split())
    Console(stderr=True).print(Text(one_line, style="red"), soft_wrap=True)
    raise typer.Exit(code) from None


def executor_of(engine: str, scheduler: str | None) -> "Executor | None":
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


def with_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command, whose argument `model` is made from an option for each field of a Model."""
    own = inspect.signature(command, eval_str=True).parameters
    made = [_as_parameter(part) for part in fields(models.Model)]
    named = {name: old.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, old in own.items()}
    parameters = [new for name, old in named.items() for new in (made if name == "model" else [old])]

    def call(**given: Any) -> None:
        options = {new.name: given.pop(new.name) for new in made}
        with plain_endings():
            model = _model_of(options)
        command(model=model, **given)

    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__annotations__ = {new.name: new.annotation for new in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _as_parameter(part: Field[Any]) -> inspect.Parameter:
    """A field as an option: its help, and its choices to complete from."""
    kind, choices = part.metadata["kind"], list(part.metadata["choices"])
    default = None if part.default is MISSING else part.default
    words = part.metadata["words"] + (f" One of {', '.join(choices)}." if choices else "")
    if kind is models.FAMILY:
        choices = shipped_families()
        words = f"{', '.join(choices)}. {words}"
    types = {models.TRUTH: bool, models.NUMBER: float, models.WHOLE: int, models.LEVELS: list[str] | None}
    value = types.get(kind, str | None)
    declared = ["--" + part.name.replace("_", "-")] if default is False else []  # which has no opposite
    option = Option(*declared, help=words, autocompletion=among(choices) if choices else None)
    annotation = Annotated[value, option]  # type: ignore[valid-type]
    return inspect.Parameter(part.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _model_of(options: dict[str, Any]) -> models.Model:
    """The model that options describe; lists are written with commas, levels as stage:IV=III."""
    merged: dict[str, dict[str, str]] = {}
    for text in options.pop("merged") or []:
        column, colon, levels = text.partition(":")
        old, equals, new = levels.partition("=")
        if not (colon and equals):
            raise ValueError(f"merged must be a column and two of its levels, such as stage:IV=III; got {text!r}.")
        merged.setdefault(column, {})[old] = new
    return models.Model(**options | {"features": listed_names(options["features"]), "merged": merged})


def listed_names(features: str | None) -> list[str] | None:
    """Names that commas separate; None where none are given."""
    if features is None:
        return None
    names = [name.strip() for name in features.split(",") if name.strip()]
    if not names:
        raise ValueError(f"columns must be names with commas between them; got {features!r}. Leave them out for all.")
    return names
