"""The verb `fit`."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from fedgauss._progress import waiting
from fedgauss.cli.app import FAMILIES, Level, Out, app, plain_endings, show_fit, with_model_options
from fedgauss.cli.completion import among
from fedgauss.inference.model import Model

_SGD = "With --solver sgd"
_NETWORKS = ["ring", "complete", "path"]
_FIT_HELP = f"""\
Fit a regression to a table whose rows belong to clients, without bringing the rows together.

Each client sums over its own rows. A few rounds of totals give the maximum-likelihood fit of all rows together, with \
its standard errors and intervals. With --solver sgd, clients take gradient steps on their own rows, read once, and \
average with their neighbours on a ring. Writes fit.json, coefficients.png and coefficients.svg to the output folder. \
Text columns are treated as categories. Missing values (unless --missing drop), collinear columns and separable \
classes are refused.

[bold]Families[/bold]
  {FAMILIES}

  Other names: gaussian (linear), binomial and logit (logistic), negbin and nb (negative_binomial), mnlogit \
(multinomial), coxph (cox)

[bold]Examples[/bold]
  fedgauss fit data.csv --target y --client hospital
  fedgauss fit data.parquet --target died --client hospital --family logistic --features age,sex,dose
  fedgauss fit data.csv --target y --client hospital --formula "y ~ age + C(ward)" --errors site
"""


def _sgd(words: str, *choices: str) -> Any:
    """An option of the paper's pass, and what its value is completed from."""
    complete = among(choices) if choices else None
    return Option(help=words.format(*choices), rich_help_panel=_SGD, autocompletion=complete)


@app.command(help=_FIT_HELP)
@with_model_options
def fit(
    data: Annotated[Path, Argument(help="A .csv or .parquet file, a row for each observation.")],
    client: Annotated[str, Option(help="The column that names the client of each row.")],
    model: Model,
    solver: Annotated[
        str,
        Option(
            help="scoring, the exact fit of all rows together, or sgd, the paper's pass.",
            autocompletion=among(["scoring", "sgd"]),
        ),
    ] = "scoring",
    level: Level = 0.95,
    passes: Annotated[
        str | None,
        _sgd("How often each row is read, more than once for small data; auto: until the estimate hardly moves."),
    ] = None,
    sync_every: Annotated[int | None, _sgd("Steps between two synchronisations; 10 by default.")] = None,
    method: Annotated[
        str | None, _sgd("{}, {}, {} or {}.", "plugin", "bootstrap", "random_scaling", "batch_means")
    ] = None,
    seed: Annotated[int | None, _sgd("Fixes the order in which rows are read.")] = None,
    network: Annotated[str | None, _sgd("{}, {} or {}; a ring by default.", *_NETWORKS)] = None,
    weights: Annotated[str | None, _sgd("{}, the default, or {}.", "rows", "equal")] = None,
    correct_drift: Annotated[
        bool | None,
        Option("--correct-drift", help="Subtract the bias of clients that drift apart.", rich_help_panel=_SGD),
    ] = None,
    finish: Annotated[int | None, _sgd("Steps of scoring after the pass.")] = None,
    out: Out = Path("fit"),
) -> None:
    """`fedgauss.fit` on a file."""
    with plain_endings():
        from fedgauss._files import writable_folder
        from fedgauss.inference.tables import read_table

        with waiting("reading"):
            frame = read_table(data)
        folder = writable_folder(out)
        with waiting("fitting"):  # in place of the engine's bars, which come and go with each part of a fit
            from fedgauss.inference.fit import fit as fit_frame

            given = {
                "passes": int(passes) if passes is not None and passes.isdecimal() else passes,
                "sync_every": sync_every, "method": method, "seed": seed, "network": _network(network, frame, client),
                "weights": weights, "correct_drift": correct_drift, "finish": finish,
            }  # fmt: skip
            how = _solver(solver, {name: value for name, value in given.items() if value is not None})
            fitted = fit_frame(frame, model, client, solver=how, level=level, progress=False)
        show_fit(fitted, folder)


def _network(name: str | None, frame: Any, client: str) -> Any:
    """The network with this name between the clients of a frame."""
    if name is None:
        return None
    from fedgauss import _checks, networks
    from fedgauss.inference.tables import Frame

    table = Frame(frame)
    clients = table.read([table.check_name(client, "client")])[client].as_levels().levels or ()
    return getattr(networks, _checks.one_of("network", name, _NETWORKS))(len(clients))


def _solver(name: str, given: dict[str, Any]) -> Any:
    """The solver with this name and these settings, which belong to SGD."""
    from fedgauss import _checks
    from fedgauss.inference.sgd import SGD

    if _checks.one_of("solver", name, ["scoring", "sgd"]) == "sgd":
        return SGD(**given)
    if given:
        raise ValueError(f"{next(iter(given))} belongs to --solver sgd; the solver is {name}. Leave it out?")
    return name
