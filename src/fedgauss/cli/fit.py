"""The verb `fit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.text import Text
from typer import Option

from fedgauss._progress import waiting
from fedgauss.cli import options
from fedgauss.cli.app import app, plain_endings
from fedgauss.cli.completion import among
from fedgauss.inference.model import Model

if TYPE_CHECKING:
    from fedgauss.inference.fit_result import Fit

_FIT_HELP = f"""\
Fit a regression to a table whose rows belong to clients, without bringing the rows together.

Each client sums over its own rows. A few rounds of totals give the maximum-likelihood fit of all rows together, with \
its standard errors and intervals. With --solver sgd, clients take gradient steps on their own rows, read once, and \
average with their neighbours on a ring. Writes fit.json, coefficients.png and coefficients.svg to the output folder. \
Text columns are treated as categories. Missing values (unless --missing drop), collinear columns and separable \
classes are refused.

[bold]Families[/bold]
  {options.FAMILIES}

  Other names: gaussian (linear), binomial and logit (logistic), negbin and nb (negative_binomial), mnlogit \
(multinomial), coxph (cox)

[bold]Examples[/bold]
  fedgauss fit data.csv --target y --client hospital
  fedgauss fit data.parquet --target died --client hospital --family logistic --features age,sex,dose
  fedgauss fit data.csv --target y --client hospital --formula "y ~ age + C(ward)" --errors site
"""


@app.command(help=_FIT_HELP)
@options.with_model_options
def fit(
    data: options.Data,
    client: Annotated[str, Option(help="The column that names the client of each row.")],
    model: Model,
    solver: options.Solver = "scoring",
    level: options.Level = 0.95,
    passes: Annotated[
        str | None,
        Option(
            help="How often each row is read, more than once for small data; auto: until the estimate hardly moves.",
            rich_help_panel=options.SGD,
        ),
    ] = None,
    sync_every: options.SyncEvery = None,
    method: Annotated[
        str | None,
        Option(
            help="plugin, bootstrap, random_scaling or batch_means.",
            rich_help_panel=options.SGD,
            autocompletion=among(["plugin", "bootstrap", "random_scaling", "batch_means"]),
        ),
    ] = None,
    seed: options.Seed = None,
    network: options.NetworkName = None,
    weights: options.Weights = None,
    correct_drift: options.CorrectDrift = None,
    finish: Annotated[int | None, Option(help="Steps of scoring after the pass.", rich_help_panel=options.SGD)] = None,
    out: options.Out = Path("fit"),
) -> None:
    """`fedgauss.fit` on a file."""
    with plain_endings():
        from fedgauss.inference.tables import read_table
        from fedgauss.report.output import writable_folder

        with waiting("reading"):
            frame = read_table(data)
        folder = writable_folder(out)
        with waiting("fitting"):  # in place of the engine's bars, which come and go with each part of a fit
            from fedgauss.inference.fit import fit as fit_frame
            from fedgauss.report.coefficients import write_fit

            given = {
                "passes": int(passes) if passes is not None and passes.isdecimal() else passes,
                "sync_every": sync_every, "method": method, "seed": seed, "network": _network(network, frame, client),
                "weights": weights, "correct_drift": correct_drift, "finish": finish,
            }  # fmt: skip
            how = _solver(solver, {name: value for name, value in given.items() if value is not None})
            fitted = fit_frame(frame, model, client, solver=how, level=level, progress=False)
        show_fit(fitted, write_fit(fitted, folder))


def _network(name: str | None, frame: Any, client: str) -> Any:
    """The network with this name between the clients of a frame."""
    if name is None:
        return None
    from fedgauss.inference.tables import Frame

    table = Frame(frame)
    clients = table.read([table.check_name(client, "client")])[client].as_levels().levels or ()
    return options.network_named(name, len(clients))


def _solver(name: str, given: dict[str, Any]) -> Any:
    """The solver with this name and these settings, which belong to SGD."""
    from fedgauss import _checks
    from fedgauss.inference.sgd import SGD

    if _checks.one_of("solver", name, ["scoring", "sgd"]) == "sgd":
        return SGD(**given)
    if given:
        raise ValueError(f"{next(iter(given))} belongs to --solver sgd; the solver is {name}. Leave it out?")
    return name


def show_fit(fitted: Fit, written: list[Path]) -> None:
    """Print the summary, and where its files are."""
    console = Console()
    console.print(Text(fitted.summary()), soft_wrap=True)
    console.print()
    console.print(Text(f"Wrote {written[0]}, and the figure as {written[1]} and SVG."), soft_wrap=True)
