"""Arguments and options that several commands share; those of a model are made from the fields of `Model`."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from fedgauss._families import shipped_families
from fedgauss.cli.app import plain_endings
from fedgauss.cli.completion import among
from fedgauss.inference import model as models

SGD = "With --solver sgd"
FAMILIES = ", ".join(shipped_families())
NETWORKS = ["ring", "complete", "path"]
Data = Annotated[Path, Argument(help="A .csv or .parquet file, a row for each observation.")]
Solver = Annotated[
    str,
    Option(
        help="scoring, the exact fit of all rows together, or sgd, the paper's pass.",
        autocompletion=among(["scoring", "sgd"]),
    ),
]
NetworkName = Annotated[
    str | None,
    Option(help="ring, complete or path; a ring by default.", rich_help_panel=SGD, autocompletion=among(NETWORKS)),
]
Weights = Annotated[
    str | None,
    Option(help="rows, the default, or equal.", rich_help_panel=SGD, autocompletion=among(["rows", "equal"])),
]
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


def with_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command, whose argument `model` is made from an option for each field of a Model."""
    own = inspect.signature(command, eval_str=True).parameters
    made = [_as_parameter(part) for part in fields(models.Model)]
    named = {name: old.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, old in own.items()}
    parameters = [new for name, old in named.items() for new in (made if name == "model" else [old])]

    def call(**given: Any) -> None:
        options = {new.name: given.pop(new.name) for new in made}
        with plain_endings():
            model = _model_of(options)
        command(model=model, **given)

    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__annotations__ = {new.name: new.annotation for new in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _as_parameter(part: Field[Any]) -> inspect.Parameter:
    """A field as an option: its help, and its choices to complete from."""
    kind, choices = part.metadata["kind"], list(part.metadata["choices"])
    default = None if part.default is MISSING else part.default
    words = part.metadata["words"] + (f" One of {', '.join(choices)}." if choices else "")
    if kind is models.FAMILY:
        choices = shipped_families()
        words = f"{', '.join(choices)}. {words}"
    types = {models.TRUTH: bool, models.NUMBER: float, models.WHOLE: int, models.LEVELS: list[str] | None}
    value = types.get(kind, str | None)
    declared = ["--" + part.name.replace("_", "-")] if default is False else []  # which has no opposite
    option = Option(*declared, help=words, autocompletion=among(choices) if choices else None)
    annotation = Annotated[value, option]  # type: ignore[valid-type]
    return inspect.Parameter(part.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _model_of(options: dict[str, Any]) -> models.Model:
    """The model that options describe; lists are written with commas, levels as stage:IV=III."""
    merged: dict[str, dict[str, str]] = {}
    for text in options.pop("merged") or []:
        column, colon, levels = text.partition(":")
        old, equals, new = levels.partition("=")
        if not (colon and equals):
            raise ValueError(f"merged must be a column and two of its levels, such as stage:IV=III; got {text!r}.")
        merged.setdefault(column, {})[old] = new
    return models.Model(**options | {"features": listed_names(options["features"]), "merged": merged})


def listed_names(features: str | None) -> list[str] | None:
    """Names that commas separate; None where none are given."""
    if features is None:
        return None
    names = [name.strip() for name in features.split(",") if name.strip()]
    if not names:
        raise ValueError(f"columns must be names with commas between them; got {features!r}. Leave them out for all.")
    return names
