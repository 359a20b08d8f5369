"""The verb `federate`: a fit to files that stay where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from fedgauss._progress import bar
from fedgauss.cli.app import Level, Out, app, plain_endings, show_fit, take_one_core, with_model_options
from fedgauss.inference.model import Model

_ROUNDS = "rounds.jsonl"  # of a fit that is not done

_HELP = """\
Fit a regression to files that stay where they are, and print what `fedgauss fit` would print for all rows together.

Each --site has a name and a command that runs `fedgauss site`, here or through ssh. This command carries the sites' \
messages and prints the result; the sites work out what is asked themselves, and check each other's messages. No port \
is opened. With --masked nobody sees a single site's sums. A fit that was stopped resumes from the rounds in the \
output folder when it is started again.

[bold]Example[/bold]
  fedgauss federate --masked --target died --family logistic \
--site north="fedgauss site north.csv" --site south="ssh south" --site east="ssh east"
"""


@app.command(help=_HELP)
@with_model_options
def federate(
    model: Model,
    sites: Annotated[list[str], Option("--site", help="NAME=COMMAND, once for each site.")],
    masked: Annotated[bool, Option("--masked", help="Show everybody totals over sites only.")] = False,
    epsilon: Annotated[
        float | None, Option(help="A differentially private fit: about what one row may change of log chances.")
    ] = None,
    delta: Annotated[float, Option(help="The chance that --epsilon may fail with; below 1 / rows.")] = 1e-6,
    ranges: Annotated[
        list[str] | None, Option("--range", help="NAME=LOW:HIGH of a column, for --epsilon; once for each.")
    ] = None,
    solver: Annotated[str, Option(hidden=True)] = "scoring",
    level: Level = 0.95,
    asker: Annotated[str, Option(help="The name of who asks, whose key sites may have pinned.")] = "coordinator",
    timeout: Annotated[float, Option(help="Seconds to wait for a site's reply.")] = 600.0,
    out: Out = Path("fit"),
) -> None:
    """`fedgauss.federated.mailbox.federate` with sites behind pipes."""
    take_one_core()
    with plain_endings():
        if solver != "scoring":
            raise ValueError(
                f"federate fits by scoring; got --solver {solver}. Leave it out: a pass of SGD is for rows that are in "
                "one place (fedgauss fit --solver sgd), for peers (fit_peers) and for Flower's nodes (fit_nodes)."
            )
        from fedgauss._files import writable_folder
        from fedgauss.federated.journal import Journal
        from fedgauss.federated.privacy import Privacy
        from fedgauss.federated.processes import SiteProcesses

        commands = dict(_named(text) for text in sites)
        if len(commands) < len(sites):
            raise ValueError("sites must have different names; one occurs more than once.")
        privacy = None if epsilon is None else Privacy(epsilon, delta, dict(map(_range, ranges or [])))
        if privacy is None and ranges:
            raise ValueError("--range is for private fits. Use --epsilon 1 too, or leave it out.")
        folder = writable_folder(out)
        journal = Journal(folder / _ROUNDS)
        if len(journal):
            print(f"{len(journal)} rounds of a fit that was stopped are in {journal.path}; they are used if they fit.")
        with SiteProcesses(commands, timeout) as reached, bar() as tick:
            # Sites load their libraries and tables while this process loads its own.
            from fedgauss.federated.mailbox import federate as fit_sites

            fitted = fit_sites(
                model, reached, masked=masked, privacy=privacy, level=level, asker=asker, journal=journal, tick=tick
            )
        show_fit(fitted, folder)
        journal.remove()


def _named(text: str) -> tuple[str, str]:
    name, equals, command = text.partition("=")
    if not (name.strip() and equals and command.strip()):
        raise ValueError(f'--site must be NAME=COMMAND; got {text!r}. Use a="fedgauss site a.csv"?')
    return name.strip(), command


def _range(text: str) -> tuple[str, tuple[float, float]]:
    name, _, ends = text.rpartition("=")
    try:
        low, high = map(float, ends.split(":"))
    except ValueError:
        name = ""
    if not name:
        raise ValueError(f"--range must be NAME=LOW:HIGH; got {text!r}. Use --range age=18:100?")
    return name, (low, high)
