"""How commands end: with one line and an exit code where Python would print a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console
from rich.text import Text

# The options of the command that is running, by the name of the argument: typer tells only the callback of the app.
_options: dict[str, str] = {}


def name_options(context: typer.Context) -> None:
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
    from fedgauss.sweep.outcome import SweepError, SweepInterrupted

    try:
        yield
    except SweepInterrupted as ended:
        done = ended.summary.found + ended.summary.run
        _end(130, f"Interrupted; {done} of {ended.summary.total} cells are finished and saved. Resume with: {command}")
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
        _end(2, f"{_options.get(argument, argument)} {rule}")
    except BrokenPipeError:
        raise
    except OSError as error:
        _end(1, f"A file could not be read or written: {error}.")
    except KeyboardInterrupt:
        _end(130, "Interrupted; no file is left half written.")


def _end(code: int, message: str) -> NoReturn:
    """One red line on standard error, and this exit code."""
    one_line = " ".join(message.split())
    Console(stderr=True).print(Text(one_line, style="red"), soft_wrap=True)
    raise typer.Exit(code) from None
