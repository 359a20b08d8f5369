"""The subcommands `demo` and `advise`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text
from typer import Option

from fedgauss._progress import progress
from fedgauss.cli.app import app, plain_endings, print_place

_DEMO_HELP = """\
Watch a network heal after clients turn bad, then compare simulation with theory; a page with pictures.

Ten clients train a small network to read digits. Half-way, three of them turn bad; a monitor raises an alarm and \
names them, and the run goes back and continues without them. Then the paper's random-effects regression is simulated \
and compared with exact theory. All of this is in index.html; every figure is also written as PNG and SVG.

[bold]Examples[/bold]
  fedgauss demo
  fedgauss demo --paper    with a short version of the paper's results, in the subfolder paper
"""


@app.command(help=_DEMO_HELP)
def demo(
    out: Annotated[Path, Option(help="Folder for the page and its figures.")] = Path("demo"),
    replicates: Annotated[int, Option(help="Simulated runs for each start, 200 to 1,000,000.")] = 2000,
    seed: Annotated[int, Option(help="Fixes every random number.")] = 0,
    paper: Annotated[bool, Option("--paper", help="Also compute a short version of the paper's results.")] = False,
) -> None:
    """Train, heal, simulate, compare, and write the page."""
    with plain_endings():
        from fedgauss._files import writable_folder

        folder = writable_folder(out)
        began = time.monotonic()
        with progress() as tick:
            tick("starting JAX", 0, 1)
            from fedgauss.demo.healing import heal
            from fedgauss.demo.run import run_demo
            from fedgauss.demo.setup import demo_setup

            setup = demo_setup(replicates, seed)
            tick("starting JAX", 1, 1)
            healing = heal(seed, tick)
            result = run_demo(setup, tick)
        from fedgauss.demo.story import write_demo
        from fedgauss.demo.terminal import print_demo

        print_demo(healing, result, Console())
        report = _paper_report(folder / "paper") if paper else None
        with progress() as tick:
            page = write_demo(healing, result, folder, tick, report)
        print_place(page, "figures", began)


def _paper_report(folder: Path) -> Path:
    """The paper's results in short, as `fedgauss reproduce --scale quick` leaves them."""
    from fedgauss.cli.reproduce import reproduce

    reproduce(scale="quick", out=folder)
    return folder / "report.html"


@app.command()
def advise(
    steps: Annotated[int, Option(help="Steps n that every client takes.")],
    clients: Annotated[int, Option(help="Clients K.")],
    beta: Annotated[
        float | None, Option(help="Decay of the step sizes, eta_t = eta0 t^-beta. Default: the best one.")
    ] = None,
    sync_every: Annotated[int, Option(help="Steps between two rounds of averaging, tau.")] = 1,
) -> None:
    """Recommend step sizes for n steps and K clients, and say which theorems then apply.

    Clients are assumed to average completely whenever they mix.

    [bold]Example[/bold]
      fedgauss advise --steps 5000 --clients 40 --sync-every 20
    """
    with plain_endings():
        from fedgauss.theory.advice import advise as advise_on

        if beta is not None and not 0.5 < beta < 1.0:
            raise ValueError(f"beta must lie in (1/2, 1) (Theorem 2.1); got {beta:g}. Leave it out for the best one.")
        advice = advise_on(steps, clients, beta=beta, sync_every=sync_every)
        Console().print(Text(str(advice)))
