"""From columns to a regression: the matrix of covariates with a name for each column, the response, the clients.

Covariates are a list of columns or a formula such as "y ~ a*b + log(c) + C(d) - 1" (`formula`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauss._types import BoolArray, FloatArray, IntArray
from fedgauss.families import Family, chosen, names
from fedgauss.families.base import is_number
from fedgauss.inference.formula.design import Design, Renamed
from fedgauss.inference.formula.parser import parse
from fedgauss.inference.formula.terms import SITE, Agreed, Expression, Formula, check_columns
from fedgauss.inference.model import Model
from fedgauss.inference.tables import Frame, FrameColumn, listed, repeats

OTHER = "other"  # what rare levels become
# The values of a target as its family reads them, its classes if it has them, and the family.
Response = tuple[FloatArray, tuple[Any, ...], Family]
_WEIGHTS = "row weights must be at least 0, and some above; those in {!r} are not."


@dataclass(frozen=True)
class ModelData:
    """Rows sorted by client. `covariates` has no column of ones; `constant` is the name of the intercept, if any."""

    covariates: FloatArray  # (N, p)
    names: tuple[str, ...]  # (p,)
    constant: str | None
    response: FloatArray  # (N,)
    target: str
    classes: tuple[Any, ...]  # of the response, for families with an output for each class
    family: Family
    clients: tuple[str, ...]  # (K,)
    counts: IntArray  # (K,)
    offset: FloatArray | None = None  # (N,), added to the predictor: offsets and the logarithm of the exposure
    row_weights: FloatArray | None = None  # (N,)
    cluster: IntArray | None = None  # (N,), indices into `cluster_labels`
    cluster_labels: tuple[str, ...] = ()
    beside: FloatArray | None = None  # (N,): trials or events; (N, 2) for events with the number of a stratum
    dropped: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # (K,) rows that were left out
    design: Design | None = None  # makes the covariates of other rows,
    agreed: Agreed = field(default_factory=dict)  # with these means and standard deviations
    renamed: Renamed = field(default_factory=dict)  # rare levels that became one
    model: Model | None = None
    client: str = "site"  # the column that says whose rows they are

    @property
    def firsts(self) -> IntArray:
        """Where each client's rows begin."""
        return np.cumsum(self.counts) - self.counts

    @property
    def owner(self) -> IntArray:
        """The client of each row, by number."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def mean_response(self) -> FloatArray:
        """What the mean of a family is the mean of: the response, or the share of successes."""
        trials = self.beside is not None and self.family.beside == "trials"
        return self.response / self.beside if trials else self.response  # type: ignore[operator]

    @property
    def one_output(self) -> tuple[str, ...]:
        """Names of one output's parameters, the intercept first."""
        return self.names if self.constant is None else (self.constant, *self.names)

    @property
    def all_names(self) -> tuple[str, ...]:
        """Names of all parameters, class by class, then those that a family has besides coefficients."""
        each, labels = self.one_output, self.family.classes_of_outputs(self.classes)
        named = tuple(f"{label}: {name}" for label in labels for name in each) if labels else each
        return named + self.family.extra_names

    @property
    def sides(self) -> dict[str, FloatArray]:
        """What might be linearly separable, by name, with the side of a plane on which each row would have to lie."""
        labels = [f"{self.target} == {label!r}" for label in self.classes] or [self.target]
        return dict(zip(labels, self.family.sides(self.response), strict=False))


def read_model_data(frame: Any, client: str, model: Model) -> ModelData:
    """Read the columns that are asked for, and refuse what no model can use."""
    table, target = Frame(frame), model.target
    table.check_name(target, "target")
    table.check_name(client, "client")
    if target == client:
        raise ValueError(f"target and client must be two columns; both are {target!r}.")
    formula = right_hand_side(table, model, client)
    columns, kept = read_columns(table, model, formula, client)
    rare = _pool(columns, formula.columns, model.pool_rare)
    if len(set(columns[target].values.tolist())) == 1:
        value = columns[target].labels[0]
        raise ValueError(f"the target {target!r} is constant ({value!r}): there is nothing to explain.")
    who = columns[client].as_levels()
    owner = who.values.astype(np.int64)
    order = np.argsort(owner, kind="stable")
    labels = tuple(str(level) for level in who.levels or ())
    counts = np.bincount(owner, minlength=len(labels))
    everybody = who if kept.all() else table.read([client])[client].as_levels()
    if gone := [str(level) for level in everybody.levels or () if level not in (who.levels or ())]:
        raise ValueError(
            f"clients must have rows that are complete and of a weight above 0; {listed(gone)} has none. Leave it out, "
            "or use fewer columns."
        )
    dropped = np.bincount(everybody.values.astype(np.int64)[~kept], minlength=len(labels))
    columns = {name: FrameColumn(name, column.values[order], column.levels) for name, column in columns.items()}
    response = response_of(columns[target], model.family, *beside_columns(model, columns), link=model.link)
    data = model_data(model, formula, columns, response, labels, counts, len(order), dropped=dropped)
    if data.design is not None:
        data.design.check_stretches(columns, data.agreed)
    return replace(data, renamed=rare, client=client)


def rare_levels(counts: Mapping[str, float], fewest: int) -> dict[str, str]:
    """What becomes of levels that fewer rows have than this."""
    return {level: OTHER for level, rows in counts.items() if rows < fewest and level != OTHER}


def _pool(columns: dict[str, FrameColumn], names: Sequence[str], fewest: int) -> dict[str, dict[str, str]]:
    """Pool rare levels of columns of text, of those that are named; what became of them, by column."""
    renamed: dict[str, dict[str, str]] = {}
    for name in names if fewest else ():
        levels = columns[name].levels
        if levels and isinstance(levels[0], str):
            counts = np.bincount(columns[name].values.astype(int), minlength=len(levels))
            renamed[name] = rare_levels(dict(zip(levels, counts.tolist(), strict=True)), fewest)
            columns[name] = columns[name].relabelled(renamed[name])
    return renamed


def right_hand_side(table: Frame, model: Model, client: str | None = None) -> Formula:
    """The terms of the model, whether they were given as columns or as a formula."""
    roles, chosen = {name: role for role, name in model.roles.items()}, model.features
    target = table.check_name(model.target, "target")
    for column, role in roles.items():
        table.check_name(column, role)
    others = [name for name in table.names if name not in (target, client, *roles)]
    if model.formula is not None:
        formula = parse(model.formula, table, target, others)
        formula = formula._replace(intercept=formula.intercept and model.intercept)
    else:
        if chosen is not None and (repeated := repeats(chosen)):
            raise ValueError(f"features must be different columns; {listed(repeated)} occurs more than once.")
        names = others if chosen is None else [table.check_name(name, "features") for name in chosen]
        formula = Formula(tuple((Expression(name, (), name),) for name in names), model.intercept)
    for name, role in ((target, "target"), (client, "client")):
        if name in formula.columns:
            raise ValueError(f"{name!r} is the {role} and cannot be a covariate too. Leave it out.")
        if name in roles and (name, roles[name]) != (client, "cluster"):
            raise ValueError(f"{name!r} is the {role} and cannot be the column of {roles[name]} too.")
    if not formula.terms and not formula.intercept and not model.site_effects:
        raise ValueError("a model needs a covariate or an intercept; got neither.")
    return formula


def read_columns(
    table: Frame, model: Model, formula: Formula, client: str | None = None
) -> tuple[dict[str, FrameColumn], BoolArray]:
    """The columns that a model uses, checked, and which rows of the frame they are of.

    Rows of weight 0 are left out, as if they were not there. Rows with a missing value in any of the columns are
    refused, or left out too where model.missing == "drop".
    """
    used = model.columns(formula)
    kept = None if model.row_weights is None else ~table.zeros(model.row_weights)
    if kept is not None and not kept.any():
        raise ValueError(_WEIGHTS.format(model.row_weights))
    if model.missing == "drop":
        complete = table.complete(used)
        kept = complete if kept is None else kept & complete
        if not kept.any():
            raise ValueError(f"every row has a missing value in {listed(used)}. Use fewer columns?")
    fix = "Fill them in, or leave those rows out with missing='drop'." if model.missing == "refuse" else "Fill them in?"
    columns = table.read(used if client is None else list(dict.fromkeys([*used, client])), kept, fix)
    for name, levels in model.merged.items():
        if name not in columns:
            raise ValueError(f"merged must be about columns of the model; {name!r} is none of them. Leave it out.")
        columns[name] = columns[name].relabelled(levels)
    check_columns(formula, columns)
    return columns, np.ones(len(columns[model.target].values), dtype=bool) if kept is None else kept


def family_of(column: FrameColumn, family: str | Family | None) -> str | Family:
    """The family that was asked for; "gaussian" where none was and the target can be nothing else.

    Parameters
    ----------
    column : FrameColumn
        The target.
    family : str, Family or None
        As given to `fit`.

    Returns
    -------
    str or Family

    Raises
    ------
    ValueError
        If no family was given and the target has two values, or is text.

    Examples
    --------
    >>> family_of(FrameColumn("cost", np.array([1.5, 2.0, 7.1])), None)
    'gaussian'
    """
    if family is not None:
        return family
    target, levels = column.name, column.levels
    if levels is None:
        seen = np.unique(column.values)
        if len(seen) != 2:
            return "gaussian"
        low, high = (int(v) if v == np.floor(v) else v for v in seen.tolist())
        fix = "" if (low, high) == (0, 1) else f" and frame[{target!r}] == {high!r} as the target"
        raise ValueError(
            f"family must be given for a target with two values; {target!r} has {low} and {high}. Use "
            f"family='binomial'{fix} for odds, or family='gaussian' for a linear model."
        )
    if all(isinstance(level, bool) for level in levels):
        raise ValueError(
            f"family must be given for a target with two values; {target!r} is true or false. Use family='binomial'?"
        )
    if all(map(is_number, levels)):
        raise ValueError(
            f"the target {target!r} holds numbers as text or as categories. Make them numbers: "
            f"frame[{target!r}].astype(float), or give a family for classes."
        )
    if len(levels) == 2:
        raise ValueError(
            f"family must be given for a target with two values; {target!r} has {levels[0]!r} and {levels[1]!r}. Use "
            f"family='binomial' and frame[{target!r}] == {levels[1]!r} as the target, or write 0 and 1 in the file?"
        )
    classes = "multinomial" if "multinomial" in names() else "one_versus_rest"
    raise ValueError(f"family must be given for a target of text; {target!r} is. Use family={classes!r} for classes?")


def usual_family(family: str | Family | None, trials: str | None, event: str | None) -> str | Family | None:
    """The family that was given, or that of a target with trials or events; None where only its values can tell."""
    if family is None and trials is not None:
        return "binomial"
    return "cox" if family is None and event is not None else family


def response_of(
    column: FrameColumn,
    family: str | Family | None,
    trials: FrameColumn | None = None,
    event: FrameColumn | None = None,
    link: str | None = None,
) -> Response:
    """The target as its family reads it; with trials it is successes, with events it is times."""
    if trials is not None and event is not None:
        raise ValueError("give trials, for counts out of so many, or event, for times; not both.")
    if trials is not None:
        return _successes(column, trials), (), chosen("binomial" if family is None else family, link)
    if event is not None:
        return _times(column), (), chosen("cox" if family is None else family, link)
    found = chosen(family_of(column, family), link)
    if not found.by_class:
        return found.read(column.name, column.values, column.levels), (), found
    if column.levels is None and np.any(column.values != np.floor(column.values)):
        raise ValueError(f"{found.name} needs classes; {column.name!r} has fractions. Use family='linear'?")
    column = column.as_levels()
    classes = column.levels or ()
    return found.read(column.name, column.values, classes), classes, found.with_classes(len(classes))


def beside_of(trials: FrameColumn | None, event: FrameColumn | None) -> FloatArray | None:
    """The number of trials of each row, or whether its time ends in an event (1) or is censored (0)."""
    if trials is not None:
        return numbers(trials, "trials")
    if event is None:
        return None
    truths = event.levels is None or all(isinstance(level, bool) for level in event.levels)
    values = np.array([float(label) for label in event.labels]) if truths else np.empty(0)
    if not truths or not np.all(np.isin(values, (0.0, 1.0))):
        raise ValueError(
            f"event must be a column of 1 (it happened) and 0 (censored), or true and false; {event.name!r} is not."
        )
    return values


def _successes(column: FrameColumn, trials: FrameColumn) -> FloatArray:
    values, of = numbers(column, "target"), numbers(trials, "trials")
    whole = np.all(values == np.floor(values)) and np.all(of == np.floor(of))
    if not whole or np.any(values < 0.0) or np.any(values > of) or np.any(of < 1.0):
        raise ValueError(
            f"successes must be whole numbers from 0 to the trials of their row, of which there is at least one; "
            f"{column.name!r} and {trials.name!r} are not so in every row."
        )
    return values


def _times(column: FrameColumn) -> FloatArray:
    values = numbers(column, "target")
    if np.any(values < 0.0):
        raise ValueError(f"times must not be negative; {column.name!r} has negative values.")
    return values


def numbers(column: FrameColumn, role: str) -> FloatArray:
    """The values of a column that has to be numeric for its role."""
    if column.levels is not None:
        raise ValueError(f"{role} must be a column of numbers; {column.name!r} holds text or categories.")
    return column.values


def model_data(
    model: Model,
    formula: Formula,
    columns: Mapping[str, FrameColumn],
    response: Response,
    clients: Sequence[str],
    counts: npt.ArrayLike,
    total: int,
    *,
    sites: Sequence[str] | None = None,
    here: int | None = None,
    agreed: Agreed | None = None,
    dropped: IntArray | None = None,
    made: tuple[Design, Mapping[str, FrameColumn]] | None = None,
) -> ModelData:
    """The model on the rows of these columns, of which there may be none: clients have `total` rows together.

    Parameters
    ----------
    model, formula
        The model, and its right-hand side.
    columns : mapping of str to FrameColumn
        Rows sorted by client, with the levels of all sites.
    response : Response
        By `response_of`.
    clients, counts, total
        Whose rows these are, how many each has, and how many all sites have.
    sites, here
        All sites, and which of them has these rows, where there are effects of sites; by default the clients.
    agreed : mapping of str to Summary, optional
        Means and standard deviations of what `design.needs()`; by default those of the rows at hand.
    dropped : (K,) array, optional
        Rows of each client that were left out: of weight 0, or with missing values.
    made : (Design, mapping), optional
        What `design_of` gives, where it is there already.

    Returns
    -------
    ModelData
    """
    n_rows, counts = len(columns[model.target].values), np.asarray(counts)
    if model.site_effects and not response[2].by_row:
        raise ValueError(
            f"site_effects must be left out for family {response[2].name!r}, which compares rows of one site: sites "
            "are strata already."
        )
    if model.strata is not None and response[2].by_row:
        raise ValueError(
            f"strata must be left out for family {response[2].name!r}, whose rows are not compared. Use "
            "site_effects=True, or the column as a covariate."
        )
    design, rows = made or design_of(model, formula, columns, total, sites or clients, here, counts)
    if agreed is None:
        agreed = design.agreed(rows) if n_rows else {}
    values, classes, family = response
    labels = rows[model.cluster].as_levels() if model.cluster is not None else None
    return ModelData(
        design.columns(rows, agreed), design.names,
        intercept_name(formula, model, design.names) if family.has_intercept else None, values, model.target,
        classes, family, tuple(clients), counts,
        offset=offset_of(model, design, rows, columns), row_weights=_row_weights(model, columns),
        cluster=None if labels is None else labels.values.astype(np.int64),
        cluster_labels=() if labels is None else tuple(map(str, labels.levels or ())),
        beside=_beside(model, columns),
        dropped=np.zeros(len(counts), dtype=np.int64) if dropped is None else dropped,
        design=design, agreed=agreed, model=model,
    )  # fmt: skip


def design_of(
    model: Model,
    formula: Formula,
    columns: Mapping[str, FrameColumn],
    total: int,
    sites: Sequence[str],
    here: int | None,
    counts: IntArray,
) -> tuple[Design, dict[str, FrameColumn]]:
    """The design of a model and the columns that it reads, one of sites among them where these have effects."""
    rows = dict(columns)
    if model.site_effects:
        formula = with_sites(formula)
        rows[SITE] = _sites_column(sites, here, counts, len(columns[model.target].values))
    as_levels = formula.as_levels
    rows = {name: column.as_levels() if name in as_levels else column for name, column in rows.items()}
    return Design(formula, {name: column.levels for name, column in rows.items()}, total), rows


def with_sites(formula: Formula) -> Formula:
    """The formula with effects of sites, its last term."""
    return formula._replace(terms=(*formula.terms, (Expression(SITE, (), "site"),)))


def check_plain(data: ModelData) -> None:
    """Refuse what one pass of SGD does not know: all that stands beside covariates and response."""
    beside = {
        "an offset or exposure": data.offset, "row weights": data.row_weights, "trials or events": data.beside,
        "clusters": data.cluster,
    }  # fmt: skip
    if got := [what for what, values in beside.items() if values is not None]:
        raise ValueError(
            f"SGD takes covariates and a response alone; got {listed(got, quote=False)}. Use solver='scoring'."
        )


def intercept_name(formula: Formula, model: Model, names: Sequence[str]) -> str | None:
    """As statsmodels calls it, in brackets where a covariate has that name."""
    if not formula.intercept:
        return None
    name = "const" if model.formula is None else "Intercept"
    while name in names:
        name = f"({name})"
    return name


def _sites_column(sites: Sequence[str], here: int | None, counts: IntArray, n_rows: int) -> FrameColumn:
    """The site of each row as a column with levels."""
    if len(sites) < 2:
        raise ValueError("effects of sites need at least two sites; there is one. Use site_effects=False.")
    whole = np.repeat(np.arange(len(counts)), counts) if here is None else np.full(n_rows, here)
    return FrameColumn("site", whole[:n_rows].astype(float), tuple(sites))


def beside_columns(model: Model, rows: Mapping[str, FrameColumn]) -> tuple[FrameColumn | None, FrameColumn | None]:
    """The columns of trials and of events."""
    trials, event = (None if name is None else rows[name] for name in (model.trials, model.event))
    return trials, event


def _beside(model: Model, rows: Mapping[str, FrameColumn]) -> FloatArray | None:
    """Trials, or events with the number of the stratum where there are strata."""
    beside = beside_of(*beside_columns(model, rows))
    if beside is None or model.strata is None:
        return beside
    return np.column_stack([beside, rows[model.strata].as_levels().values])


def offset_of(
    model: Model, design: Design, rows: Mapping[str, FrameColumn], columns: Mapping[str, FrameColumn]
) -> FloatArray | None:
    """The column of offsets, those of the formula, and the logarithm of the exposure, together."""
    parts = [design.offset(rows)]
    if model.offset is not None:
        parts.append(numbers(columns[model.offset], "offset"))
    if model.exposure is not None:
        exposure = numbers(columns[model.exposure], "exposure")
        if np.any(exposure <= 0.0):
            raise ValueError(f"exposure must be above 0; column {model.exposure!r} has other values. Drop those rows?")
        parts.append(np.log(exposure))
    given = [part for part in parts if part is not None]
    return np.sum(given, axis=0) if given else None


def _row_weights(model: Model, rows: Mapping[str, FrameColumn]) -> FloatArray | None:
    if model.row_weights is None:
        return None
    weights = numbers(rows[model.row_weights], "row_weights")
    if np.any(weights < 0.0):  # those of weight 0 are not here
        raise ValueError(_WEIGHTS.format(model.row_weights))
    return weights
