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
def fit(
    data: options.Data,
    target: options.Target,
    client: Annotated[str, Option(help="The column that names the client of each row.")],
    family: options.Family = None,
    features: options.Features = None,
    formula: options.Formula = None,
    intercept: options.Intercept = True,
    solver: options.Solver = "scoring",
    errors: options.Errors = "HC0",
    link: options.Link = None,
    trials: options.Trials = None,
    event: options.Event = None,
    offset: options.Offset = None,
    exposure: options.Exposure = None,
    row_weights: options.RowWeights = None,
    cluster: options.Cluster = None,
    site_effects: options.SiteEffects = False,
    missing: options.Missing = "refuse",
    ridge: options.Ridge = 0.0,
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

        names = listed_names(features)
        with waiting("reading"):
            frame = read_table(data)
        folder = writable_folder(out)
        with waiting("fitting"):  # in place of the engine's bars, which come and go with each part of a fit
            from fedgauss.inference.fit import fit as fit_frame
            from fedgauss.report.coefficients import write_fit

            fitted = fit_frame(
                frame, target, client, family, names, formula, intercept=intercept,
                solver=solver, errors=errors, missing=missing,  # type: ignore[arg-type]
                link=link, trials=trials, event=event, offset=offset, exposure=exposure, row_weights=row_weights,
                cluster=cluster, site_effects=site_effects, ridge=ridge, level=level,
                passes=int(passes) if passes is not None and passes.isdecimal() else passes,  # type: ignore[arg-type]
                sync_every=sync_every, method=method,  # type: ignore[arg-type]
                seed=seed, network=_network(network, frame, client),
                weights=weights,
                correct_drift=correct_drift, finish=finish, progress=False,
            )  # fmt: skip
        show_fit(fitted, write_fit(fitted, folder))


def _network(name: str | None, frame: Any, client: str) -> Any:
    """The network with this name between the clients of a frame."""
    if name is None:
        return None
    from fedgauss.inference.tables import Frame

    table = Frame(frame)
    clients = table.read([table.check_name(client, "client")])[client].as_levels().levels or ()
    return options.network_named(name, len(clients))


def listed_names(features: str | None) -> list[str] | None:
    """Names that commas separate; None where none are given."""
    if features is None:
        return None
    names = [name.strip() for name in features.split(",") if name.strip()]
    if not names:
        raise ValueError(f"columns must be names with commas between them; got {features!r}. Leave them out for all.")
    return names


def show_fit(fitted: Fit, written: list[Path]) -> None:
    """Print the summary, and where its files are."""
    console = Console()
    console.print(Text(fitted.summary()), soft_wrap=True)
    console.print()
    console.print(Text(f"Wrote {written[0]}, and the figure as {written[1]} and SVG."), soft_wrap=True)
