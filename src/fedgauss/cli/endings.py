"""How verbs end: with one line and an exit code where Python would print a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
import typer
from rich.console import Console
from rich.text import Text


@contextmanager
def sweep_endings(command: str) -> Iterator[None]:
    """Say how far a sweep came, and how to go on."""
    from fedgauss.sweep.outcome import SweepError, SweepInterrupted

    try:
        yield
    except SweepInterrupted as ended:
        done = ended.summary.found + ended.summary.run
        complain(f"stopped; {done} of {ended.summary.total} cells are finished and kept. To go on: {command}")
        raise typer.Exit(130) from None
    except KeyboardInterrupt:
        complain(f"stopped; what is finished is kept, and no file is left half written. To go on: {command}")
        raise typer.Exit(130) from None
    except SweepError as error:
        complain(str(error))
        raise typer.Exit(1) from None
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        complain(f"a file could not be read or written; {error}. What is finished is kept. To go on: {command}")
        raise typer.Exit(1) from None


@contextmanager
def plain_endings() -> Iterator[None]:
    """End with one line and an exit code where Python would print a traceback that tells a user nothing."""
    try:
        yield
    except ValueError as error:
        complain(_of_options(str(error)))
        raise typer.Exit(2) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        complain(f"a file could not be read or written; {error}.")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        complain("stopped; no file is left half written.")
        raise typer.Exit(130) from None


def _of_options(message: str) -> str:
    """`n_steps must be ...`, as the library says it, with the option for the argument: `--steps must be ...`."""
    context = click.get_current_context(silent=True)
    known = [] if context is None else [one for one in context.command.params if isinstance(one, click.Option)]
    argument, _, rule = message.partition(" ")
    option = next((one.opts[0] for one in known if one.name in (argument, argument.removeprefix("n_"))), argument)
    return f"{option} {rule}"


def complain(message: str) -> None:
    """One red line on standard error."""
    one_line = " ".join(message.split())
    Console(stderr=True).print(Text(one_line, style="red"), soft_wrap=True)
