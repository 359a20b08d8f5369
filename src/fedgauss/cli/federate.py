"""The verbs `site` and `federate`: a fit to files that stay where they are."""

import os
import sys
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fedgauss._files import append_private
from fedgauss._progress import bar
from fedgauss.cli import options
from fedgauss.cli.app import app, plain_endings
from fedgauss.cli.completion import among
from fedgauss.cli.fit import show_fit
from fedgauss.cli.options import listed_names
from fedgauss.inference.model import Model

_ROUNDS = "rounds.jsonl"  # of a fit that is not done

_SITE_HELP = """\
Take part in a federated fit with rows that stay here.

Answers the questions of `fedgauss federate`, line by line, with names of columns and levels and with sums over all \
rows. No row leaves. With --log, every order and every line sent is written down. `fedgauss federate` starts this \
command, here or through ssh, and ends it.

[bold]Example[/bold]
  fedgauss site --example-policy > policy.toml
  fedgauss site data.csv --policy policy.toml --log sent.jsonl
"""
_FEDERATE_HELP = """\
Fit a regression to files that stay where they are, and print what `fedgauss fit` would print for all rows together.

Each --site has a name and a command that runs `fedgauss site`. Orders and replies go through its pipes: no port is \
opened, and with ssh they are encrypted. Sites sum over all of their rows, one round for each step of the fit. With \
--masked they add masks that cancel in the total, so that nobody sees a single site's sums. A fit that was stopped \
resumes from the rounds in the output folder when it is started again.

[bold]Example[/bold]
  fedgauss federate --target died --family logistic \
--site north="fedgauss site north.csv" --site south="ssh south fedgauss site south.parquet"
"""


@app.command(help=_SITE_HELP)
def site(
    data: Annotated[Path | None, Argument(help="A .csv or .parquet file, a row for each observation.")] = None,
    policy: Annotated[Path | None, Option(help="File with this site's own rules.")] = None,
    least_rows: Annotated[int | None, Option(help="Take no part with fewer rows than this; 10 by default.")] = None,
    columns: Annotated[
        str | None, Option(help="Columns that may be asked about, separated by commas; all if not given.")
    ] = None,
    log: Annotated[Path | None, Option(help="File that records every order and every line sent.")] = None,
    example_policy: Annotated[bool, Option("--example-policy", help="Print a sample policy and exit.")] = False,
) -> None:
    """`fedgauss.inference.federated.lines` on standard input and output."""
    _take_one_core()
    with plain_endings():
        from fedgauss.inference.federated import policy as policies

        if example_policy:
            print(policies.example_policy(), end="")
            return
        from fedgauss.inference.federated.lines import lines_of, serve_lines
        from fedgauss.inference.federated.site import Site
        from fedgauss.inference.tables import read_table

        if data is None:
            raise ValueError("a site needs a file with its rows, such as: fedgauss site data.csv")
        rules = policies.Policy() if policy is None else policies.Policy.read(policy)
        named = listed_names(columns)
        if least_rows is not None:
            rules = replace(rules, least_rows=least_rows)
        if named is not None:
            rules = replace(rules, columns=tuple(named))
        here = Site(read_table(data), rules)
        with ExitStack() as stack:
            written = None if log is None else stack.enter_context(append_private(log))
            serve_lines(here, lines_of(sys.stdin.buffer), sys.stdout, written)


@app.command(help=_FEDERATE_HELP)
@options.with_model_options
def federate(
    sites: Annotated[list[str], Option("--site", help="NAME=COMMAND, once for each site.")],
    model: Model,
    level: options.Level = 0.95,
    masked: Annotated[bool, Option("--masked", help="Show the coordinator totals over sites only.")] = False,
    lost: Annotated[
        str,
        Option(help="When a site is lost: stop, or leave it out and go on.", autocompletion=among(["stop", "leave"])),
    ] = "stop",
    timeout: Annotated[float, Option(help="Seconds to wait for a site's reply.")] = 600.0,
    out: options.Out = Path("fit"),
) -> None:
    """`fedgauss.inference.federated.coordinator` with sites behind pipes."""
    _take_one_core()
    with plain_endings():
        from fedgauss.inference.federated.journal import Journal
        from fedgauss.integrations.site_processes import SiteProcesses
        from fedgauss.report.output import writable_folder

        commands = dict(_named(text) for text in sites)
        if len(commands) < len(sites):
            raise ValueError("sites must have different names; one occurs more than once.")
        folder = writable_folder(out)
        journal = Journal(folder / _ROUNDS)
        if len(journal):
            print(f"{len(journal)} rounds of a fit that was stopped are in {journal.path}; they are used if they fit.")
        with SiteProcesses(commands, timeout) as reached, bar() as tick:
            # Sites load their libraries and tables while this process loads its own.
            from fedgauss.inference.federated.coordinator import fit_sites
            from fedgauss.report.coefficients import write_fit

            asked = {part.name: getattr(model, part.name) for part in fields(model)}
            fitted = fit_sites(
                reached.ask, reached.names, **asked, level=level, masked=masked, lost=lost, journal=journal, tick=tick
            )
        show_fit(fitted, write_fit(fitted, folder))
        journal.remove()


def _take_one_core() -> None:
    """Before NumPy loads. Several sites on a machine would have more threads than cores, and those that wait burn one.

    A user's own setting is left as it is.
    """
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def _named(text: str) -> tuple[str, str]:
    name, equals, command = text.partition("=")
    if not (name.strip() and equals and command.strip()):
        raise ValueError(f'--site must be NAME=COMMAND; got {text!r}. Use a="fedgauss site a.csv"?')
    return name.strip(), command
