"""The command `fedgauss`. What computes or draws is imported inside the verbs, so that help comes at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedgauss import __version__

if TYPE_CHECKING:
    from fedgauss.report.demonstration.run import Tick

# Help is laid out here because a line break in it is one on the screen.
_HELP = """\
Measure, infer and watch decentralised federated learning with local SGD.

Clients on a network take gradient steps on their own data and average with their neighbours now and then. \
This command simulates them and says what theory promises, with an error beside every simulated number.

[bold]Examples[/bold]
  fedgauss demo                               a page in ./demo, in seconds
  fedgauss demo --replicates 20000 --out big  smaller Monte-Carlo errors
  fedgauss advise --steps 5000 --clients 40   which step sizes to use
"""
_DEMO_HELP = """\
Simulate ten clients on a ring, put exact theory beside them, and leave a page with figures.

This is the paper's random-effects regression, started at the optimum and at zero. It prints a table of simulated, \
exact and approximate values, and writes index.html with every figure as PNG and SVG.
"""
_ADVISE_HELP = """\
Say which step sizes to use for n steps and K clients, and which theorems then hold.

Clients are taken to average completely whenever they mix.

[bold]Example[/bold]
  fedgauss advise --steps 5000 --clients 40 --sync-every 20
"""

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


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
    """Options that stand before the verb."""


@app.command(help=_DEMO_HELP)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page and its figures.")] = Path("demo"),
    replicates: Annotated[int, typer.Option(help="Simulated runs from each start, at least 200.")] = 2000,
    seed: Annotated[int, typer.Option(help="Fixes every random number.")] = 0,
) -> None:
    """The main job, end to end."""
    with _plain_endings():
        from fedgauss.report.output import writable_folder

        folder = writable_folder(out)
        began = time.monotonic()
        with _progress() as tick:
            tick("starting JAX", 0, 1)
            from fedgauss.report.demonstration.run import run_demo
            from fedgauss.report.demonstration.setup import demo_setup

            setup = demo_setup(replicates, seed)
            tick("starting JAX", 1, 1)
            result = run_demo(setup, tick)
            from fedgauss.report.demonstration.story import write_demo
            from fedgauss.report.demonstration.terminal import print_demo

            page = write_demo(result, folder, tick)
        console = Console()
        print_demo(result, console)
        console.print()
        console.print(
            Text(f"The page is {page}, its figures beside it; {time.monotonic() - began:.0f} s."), soft_wrap=True
        )


@app.command(help=_ADVISE_HELP)
def advise(
    steps: Annotated[int, typer.Option(help="Steps n that every client takes.")],
    clients: Annotated[int, typer.Option(help="Clients K.")],
    beta: Annotated[
        float | None, typer.Option(help="Decay of the step sizes, eta_t = eta0 t^-beta; the best one if not given.")
    ] = None,
    sync_every: Annotated[int, typer.Option(help="Steps between two mixings, tau.")] = 1,
) -> None:
    """Print `fedgauss.advise`."""
    with _plain_endings():
        from fedgauss.theory.advise import advise as advise_on

        advice = advise_on(steps, clients, beta=beta, sync_every=sync_every)
        Console().print(Text(str(advice)))


@contextmanager
def _plain_endings() -> Iterator[None]:
    """End with one line and an exit code where Python would print a traceback that tells a user nothing."""
    try:
        yield
    except ValueError as error:
        _complain(str(error))
        raise typer.Exit(2) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        _complain(f"a file could not be written; {error}.")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        _complain("stopped; no file is left half written.")
        raise typer.Exit(130) from None


def _complain(message: str) -> None:
    one_line = " ".join(message.split())
    Console(stderr=True).print(Text(one_line, style="red"), soft_wrap=True)


@contextmanager
def _progress() -> Iterator[Tick]:
    """A bar for each kind of work, in a terminal; elsewhere nothing. Ctrl-C acts at the next tick."""
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from fedgauss.report.interrupt import deferred_interrupts

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    tasks: dict[str, TaskID] = {}
    shown = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with deferred_interrupts() as check_interrupt, shown as bar:

        def tick(what: str, done: int, total: int) -> None:
            check_interrupt()
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield tick
