"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from fedgauss._families import shipped_families
from fedgauss.cli.completion import among

SGD = "With --solver sgd"
FAMILIES = ", ".join(shipped_families())
NETWORKS = ["ring", "complete", "path"]
Data = Annotated[Path, Argument(help="A .csv or .parquet file, a row for each observation.")]
Target = Annotated[str, Option(help="The column to explain.")]
Family = Annotated[
    str | None,
    Option(
        help=f"{FAMILIES}. By default linear, where the target is a number with more than two values.",
        autocompletion=among(shipped_families()),
    ),
]
Solver = Annotated[
    str,
    Option(
        help="scoring, the exact fit of all rows together, or sgd, the paper's pass.",
        autocompletion=among(["scoring", "sgd"]),
    ),
]
Errors = Annotated[
    str,
    Option(help="HC0, HC1, model, cluster or site.", autocompletion=among(["HC0", "HC1", "model", "cluster", "site"])),
]
Link = Annotated[
    str | None,
    Option(
        help="identity, log, logit, probit, cloglog or inverse, where the family has it.",
        autocompletion=among(["identity", "log", "logit", "probit", "cloglog", "inverse"]),
    ),
]
Trials = Annotated[str | None, Option(help="Column with the trials of which the target counts successes.")]
Event = Annotated[str | None, Option(help="Column that says whether the target, a time, ends in an event.")]
Offset = Annotated[str | None, Option(help="Column that is added to the predictor.")]
Exposure = Annotated[str | None, Option(help="Column whose logarithm is added to the predictor.")]
RowWeights = Annotated[str | None, Option(help="Column of row weights.")]
Cluster = Annotated[str | None, Option(help="Column of clusters, for --errors cluster.")]
SiteEffects = Annotated[bool, Option("--site-effects", help="An intercept for each client or site.")]
Missing = Annotated[
    str, Option(help="Rows with a missing value: refuse, or drop.", autocompletion=among(["refuse", "drop"]))
]
NetworkName = Annotated[
    str | None,
    Option(help="ring, complete or path; a ring by default.", rich_help_panel=SGD, autocompletion=among(NETWORKS)),
]
Weights = Annotated[
    str | None,
    Option(help="rows, the default, or equal.", rich_help_panel=SGD, autocompletion=among(["rows", "equal"])),
]
Ridge = Annotated[float, Option(help="Penalty on squared coefficients of standardised covariates.")]
Features = Annotated[str | None, Option(help="Covariates, comma-separated; all columns if not given.")]
Formula = Annotated[str | None, Option(help='In place of --features: "y ~ a + C(b)".')]
Intercept = Annotated[bool, Option(help="Whether the model has an intercept.")]
SyncEvery = Annotated[
    int | None, Option(help="Steps between two synchronisations; 10 by default.", rich_help_panel=SGD)
]
Level = Annotated[float, Option(help="Level of the intervals.")]
CorrectDrift = Annotated[
    bool | None, Option("--correct-drift", help="Subtract the bias of clients that drift apart.", rich_help_panel=SGD)
]
Seed = Annotated[int | None, Option(help="Fixes the order in which rows are read.", rich_help_panel=SGD)]
Out = Annotated[Path, Option(help="Folder for the numbers and the figure.")]
Workers = Annotated[int | None, Option(help="Processes, 0 for none; by default one for each core, at most 8.")]
Engine = Annotated[
    str,
    Option(help="Where to compute: local, or dask for a cluster.", autocompletion=among(["local", "dask"])),
]
Scheduler = Annotated[str | None, Option(help="Address of the Dask scheduler, as tcp://host:8786.")]


def network_named(name: str | None, n_clients: int) -> Any:
    """The network with this name, between so many clients."""
    if name is None:
        return None
    from fedgauss import _checks, networks

    return getattr(networks, _checks.one_of("network", name, NETWORKS))(n_clients)
