"""The verbs `site` and `federate`: a fit to files that stay where they are."""

import io
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from typer import Option

from fedgauss._progress import bar
from fedgauss.cli import options
from fedgauss.cli.app import app, plain_endings
from fedgauss.cli.fit import listed_names, show_fit

_SITE_HELP = """\
Take part in a federated fit with rows that stay here.

Answers what `fedgauss federate` asks, line by line: names of columns and levels, and sums over all rows. No row \
leaves. The log has every order and every line that left. `fedgauss federate` starts it, on this machine or through \
ssh, and ends it.

[bold]Example[/bold]
  fedgauss site data.csv --least-rows 50 --log sent.jsonl
"""
_FEDERATE_HELP = """\
Fit a regression to files that stay where they are, and print what `fedgauss fit` would print for all rows together.

Each --site has a name and the command that starts it; that command must run `fedgauss site`. Orders and replies go \
through its pipes: no port is opened, and ssh encrypts them. Sites add up sums over all of their rows, a round for \
each step of the fit; with --solver sgd they take gradient steps and average on a ring.

[bold]Example[/bold]
  fedgauss federate --target died --family logistic \
--site north="fedgauss site north.csv" --site south="ssh south fedgauss site south.parquet"
"""


@app.command(help=_SITE_HELP)
def site(
    data: options.Data,
    least_rows: Annotated[int, Option(help="Fewest rows with which to take part.")] = 10,
    columns: Annotated[
        str | None, Option(help="Columns that may be asked about, separated by commas; all if not given.")
    ] = None,
    log: Annotated[Path | None, Option(help="File for every order, and every line that leaves.")] = None,
) -> None:
    """`fedgauss.inference.federated.lines` on standard input and output."""
    with plain_endings():
        from fedgauss.inference.federated.lines import serve_lines
        from fedgauss.inference.federated.site import Site
        from fedgauss.inference.tables import read_table

        here = Site(read_table(data), least_rows, listed_names(columns))
        with ExitStack() as stack:
            written = None if log is None else stack.enter_context(log.open("a", encoding="utf-8"))
            orders = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace")
            serve_lines(here, orders, sys.stdout, written)


@app.command(help=_FEDERATE_HELP)
def federate(
    target: options.Target,
    sites: Annotated[list[str], Option("--site", help="NAME=COMMAND, once for each site.")],
    family: options.Family = None,
    features: options.Features = None,
    formula: options.Formula = None,
    intercept: options.Intercept = True,
    solver: options.Solver = "scoring",
    errors: options.Errors = "HC0",
    ridge: options.Ridge = 0.0,
    level: options.Level = 0.95,
    sync_every: options.SyncEvery = None,
    seed: options.Seed = None,
    correct_drift: options.CorrectDrift = None,
    timeout: Annotated[float, Option(help="Seconds that a site has to answer an order.")] = 600.0,
    out: options.Out = Path("fit"),
) -> None:
    """`fedgauss.inference.federated.coordinator` with sites behind pipes."""
    with plain_endings():
        from fedgauss.inference.federated.coordinator import fit_sites
        from fedgauss.integrations.site_processes import SiteProcesses
        from fedgauss.report.coefficients import write_fit
        from fedgauss.report.output import writable_folder

        commands = dict(_named(text) for text in sites)
        if len(commands) < len(sites):
            raise ValueError("sites must have different names; one occurs more than once.")
        folder = writable_folder(out)
        with SiteProcesses(commands, timeout) as reached, bar() as tick:
            fitted = fit_sites(
                reached.ask, reached.names, target, family, listed_names(features), formula, intercept=intercept,
                solver=solver, errors=errors,  # type: ignore[arg-type]
                ridge=ridge, level=level, sync_every=sync_every, seed=seed, correct_drift=correct_drift, tick=tick,
            )  # fmt: skip
        show_fit(fitted, write_fit(fitted, folder))


def _named(text: str) -> tuple[str, str]:
    name, equals, command = text.partition("=")
    if not (name.strip() and equals and command.strip()):
        raise ValueError(f'--site must be NAME=COMMAND; got {text!r}. Use a="fedgauss site a.csv"?')
    return name.strip(), command
