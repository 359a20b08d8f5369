"""`Model`: which regression is fitted, with every option of it in one place.

A field has its help, its kind and its choices beside it. `fit`, sites, saved fits and the options of the command are
made from the fields, and a model that somebody else sends is checked against them.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, get_args

if TYPE_CHECKING:
    from fedgauss.families import Family
    from fedgauss.inference.formula.terms import Formula

Errors = Literal["HC0", "HC1", "model", "cluster", "site"]
_LONGEST = 10_000  # characters of a text, and entries of a list
_MOST_ROWS = 10**9
_MOST_OUTPUTS = 2_000
_QUOTED = re.compile(r"""Q\(\s*(['"])(.*)\1\s*\)""")


class Kind(NamedTuple):
    """What a value may be, in words, and the value as a model has it; `read` raises where it is anything else."""

    words: str
    read: Callable[[Any], Any]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST:
        raise TypeError("no text, or none that is short enough")
    return str(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("to Python 1 is True")
    return value


def _number(value: Any) -> float:
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not 0.0 <= (number := float(value)) < math.inf:
        raise ValueError("not in the range")
    return number


def _whole(value: Any) -> int:
    if (
        not isinstance(value, numbers.Integral)
        or isinstance(value, bool)
        or not 0 <= (number := int(value)) <= _MOST_ROWS
    ):
        raise ValueError("not in the range")
    return number


def _columns(value: Any) -> tuple[str, ...]:
    names = tuple(map(_text, value))
    if isinstance(value, str) or len(names) > _LONGEST:
        raise TypeError("one column is no list of columns")
    return names


def _levels(value: Any) -> dict[str, dict[str, str]]:
    return {_text(name): {_text(old): _text(new) for old, new in levels.items()} for name, levels in value.items()}


def _family(value: Any) -> str | Family:
    if isinstance(value, str):
        return _text(value)
    from fedgauss.families import Family

    found = value if isinstance(value, Family) else read_family(value)
    if found is None:
        raise ValueError("no family of that name here")
    return found


TEXT = Kind("text", _text)
FORMULA = Kind("text such as 'y ~ a + b'", _text)
COLUMN = Kind("the name of a column", _text)
COLUMNS = Kind("a list of columns", _columns)
TRUTH = Kind("true or false", _truth)
NUMBER = Kind("a number that is not negative", _number)
WHOLE = Kind(f"a whole number from 0 to {_MOST_ROWS:,}", _whole)
LEVELS = Kind("levels by column and what becomes of each, such as {'stage': {'IV': 'III'}}", _levels)
FAMILY = Kind("a name, such as 'linear', or an instance of a Family", _family)


def _option(default: Any, kind: Kind, words: str, choices: tuple[str, ...] = ()) -> Any:
    made = {"default_factory" if callable(default) else "default": default}
    return field(**made, metadata={"kind": kind, "words": words, "choices": choices})


@dataclass(frozen=True)
class Model:
    """A regression: the target, what it is explained by, and how.

    The first argument is the target, or a whole formula: `Model("y ~ x + C(z)", family="binomial")`.

    Parameters
    ----------
    target : str
        The column to explain; that of the formula where it is left out.
    features : sequence of str, optional
        The covariates; by default all other columns. Text, categories and true/false columns become indicators, with
        the first level as base.
    formula : str, optional
        In place of `features`: "y ~ a*b + log(c) + C(d) + ns(e, df=4)", with "- 1" for no intercept;
        `docs/regression.md` says what it may have.
    family : str or Family, optional
        By default "gaussian" where the target is a number with more than two values; see `fedgauss.families`.
    intercept : bool
        Whether the model has an intercept.
    link : str, optional
        "identity", "log", "logit", "probit", "cloglog" or "inverse", where the family has it; its usual one by default.
    trials, event : str, optional
        A column beside the target: of how many trials it counts the successes ("binomial"), or whether the time that it
        is ends in an event, 1, or is censored, 0 ("cox").
    offset, exposure : str, optional
        Columns that are added to the predictor, the exposure as its logarithm.
    row_weights : str, optional
        A column that says what each row counts for: `var_weights` of statsmodels' GLM, and `weights` of R's. Rows of
        weight 0 are left out.
    cluster : str, optional
        A column whose values are clusters of rows that belong together, for errors="cluster". Clusters do not reach
        over clients.
    strata : str, optional
        For "cox": rows are compared with rows of their client that have the same value in this column.
    missing : {"refuse", "drop"}
        What to do about rows with a missing value: refuse the fit, or leave them out and say how many.
    ridge : float
        lambda of a penalty lambda / 2 sum_j (b_j s_j)^2 on an exact fit, s_j the standard deviation of a covariate.
    site_effects : bool
        Whether each client but the first has an intercept of its own.
    errors : {"HC0", "HC1", "model", "cluster", "site"}
        Standard errors of an exact fit: robust to a wrong variance, the same with n / (n - d), by the model, or
        clustered, each client a cluster for "site".
    pool_rare : int
        Levels of text columns that fewer rows have, over all clients, become one level "other"; never of the target.
    merged : mapping, optional
        Levels that become others before anything else: {"stage": {"IV": "III"}}.

    Raises
    ------
    ValueError
        If a field is of another kind or not among its choices, with the name of the field.

    Examples
    --------
    >>> Model("died ~ age + C(ward)", family="poisson", exposure="years").target
    'died'
    """

    target: str = _option(None, COLUMN, "The column to explain; that of the formula where left out.")
    _: KW_ONLY
    features: Sequence[str] | None = _option(None, COLUMNS, "Covariates, comma-separated; all columns if not given.")
    formula: str | None = _option(None, FORMULA, 'In place of --features: "y ~ a + C(b)".')
    family: str | Family | None = _option(  # noqa: RUF009 - a field
        None, FAMILY, "By default linear, where the target is a number with more than two values."
    )
    intercept: bool = _option(True, TRUTH, "Whether the model has an intercept.")
    link: str | None = _option(
        None, TEXT, "Where the family has it.", ("identity", "log", "logit", "probit", "cloglog", "inverse")
    )
    trials: str | None = _option(None, COLUMN, "Column with the trials of which the target counts successes.")
    event: str | None = _option(None, COLUMN, "Column that says whether the target, a time, ends in an event.")
    offset: str | None = _option(None, COLUMN, "Column that is added to the predictor.")
    exposure: str | None = _option(None, COLUMN, "Column whose logarithm is added to the predictor.")
    row_weights: str | None = _option(None, COLUMN, "Column of row weights.")
    cluster: str | None = _option(None, COLUMN, "Column of clusters, for --errors cluster.")
    strata: str | None = _option(None, COLUMN, "Column of strata within sites, for --family cox.")
    missing: Literal["refuse", "drop"] = _option("refuse", TEXT, "Rows with a missing value.", ("refuse", "drop"))
    ridge: float = _option(0.0, NUMBER, "Penalty on squared coefficients of standardised covariates.")
    site_effects: bool = _option(False, TRUTH, "An intercept for each client or site.")
    errors: Errors = _option("HC0", TEXT, "Standard errors.", get_args(Errors))  # noqa: RUF009 - a field
    pool_rare: int = _option(0, WHOLE, "Levels that fewer rows have become one, 'other'.")
    merged: Mapping[str, Mapping[str, str]] = _option(dict, LEVELS, "A level that becomes another: stage:IV=III.")

    def __post_init__(self) -> None:
        if isinstance(self.target, str) and "~" in self.target:
            if self.formula is not None:
                raise ValueError(f"target must be a column where a formula is given too; got {self.target!r}.")
            object.__setattr__(self, "formula", self.target)
            object.__setattr__(self, "target", None)
        if self.target is None and isinstance(self.formula, str):
            object.__setattr__(self, "target", _left_hand_side(self.formula))
        for part in fields(self):
            value = getattr(self, part.name)
            if value is not None or part.default is not None:  # None is for what may be left out
                object.__setattr__(self, part.name, _read(part.name, part.metadata, value))
        if self.target is None:
            raise ValueError('target must be given: the name of a column, or a formula such as "y ~ a + b".')
        if self.features is not None and self.formula is not None:
            raise ValueError("give features or a formula, not both.")

    def of_family(self, family: str | Family | None) -> Self:
        """The model with this family."""
        return self if family == self.family else replace(self, family=family)

    @property
    def roles(self) -> dict[str, str]:
        """Columns that are no covariates, by what they are for."""
        named = {part.name: getattr(self, part.name) for part in fields(self) if part.metadata["kind"] is COLUMN}
        return {role: name for role, name in named.items() if name is not None and role != "target"}

    def columns(self, formula: Formula) -> list[str]:
        """All columns that the model uses, the target first, each once."""
        return list(dict.fromkeys([self.target, *formula.columns, *self.roles.values()]))

    def wire(self) -> dict[str, Any]:
        """As plain fields of JSON, each of which is there."""
        held = {part.name: getattr(self, part.name) for part in fields(self)}
        own = held["family"]
        return held | {
            "features": None if self.features is None else list(self.features),
            "family": own if own is None or isinstance(own, str) else family_fields(own),
            "merged": {name: dict(levels) for name, levels in self.merged.items()},
        }

    @classmethod
    def from_wire(cls, held: Any) -> Self:
        """The model that `wire` wrote, from plain fields that a stranger may have sent.

        Raises
        ------
        ValueError
            If a field is missing, unknown, of another kind, or written as `wire` would not write it.
        """
        wanted = [part.name for part in fields(cls)]
        if not isinstance(held, dict):
            raise ValueError(f"a model must be an object with the fields {', '.join(wanted)}.")
        if missing := [name for name in wanted if name not in held]:
            raise ValueError(f"{missing[0]} of a model must be there; it is missing. Is fedgauss the same everywhere?")
        if unknown := [name for name in held if name not in wanted]:
            raise ValueError(f"{str(unknown[0])[:40]!r} is no option of a model. Is fedgauss the same everywhere?")
        model = cls(**held)
        for name, value in model.wire().items():
            if held[name] != value:
                raise ValueError(f"{name} of a model must be as it is sent by fedgauss; this is not.")
        return model


def _left_hand_side(formula: str) -> str | None:
    """The target of a formula; None where it has none."""
    left = formula.rpartition("~")[0].strip()
    quoted = _QUOTED.fullmatch(left)
    return quoted.group(2) if quoted else left or None


def _read(name: str, about: Mapping[str, Any], value: Any) -> Any:
    kind, choices = about["kind"], about["choices"]
    try:
        read = kind.read(value)
    except (TypeError, ValueError, AttributeError) as error:
        shown = repr(value)[:60] if isinstance(value, str | int | float) else f"a {type(value).__name__}"
        called = getattr(value, "name", None)  # of a column in place of its name
        fix = f" Use {called!r}?" if isinstance(called, str) and kind is COLUMN else ""
        fix = f" Use [{shown}]?" if isinstance(value, str) and kind is COLUMNS else fix
        raise ValueError(f"{name} must be {kind.words}; got {shown}.{fix}") from error
    if choices and read not in choices:
        from fedgauss import _checks

        _checks.one_of(name, read[:60], choices)
    return read


def family_fields(family: Family) -> dict[str, Any]:
    """A family by its name and settings."""
    return {"name": family.name, "settings": {name: getattr(family, name) for name in _settings(family)}}


def read_family(value: Any) -> Family | None:
    """The family that `family_fields` wrote; None where this process knows none of that name."""
    from fedgauss import _checks, families
    from fedgauss.inference.saved_fields import check_keys, number_of, object_of, text_of

    held = object_of("family", value)
    check_keys("family", held, ("name", "settings"))
    name, settings = text_of("the name of the family", held["name"]), object_of("settings", held["settings"])
    if name not in families.names():
        return None
    family = families.family(name)
    if set(settings) != _settings(family):
        raise ValueError(f"settings must be those of family {name!r}.")
    for key, setting in settings.items():
        if key == "n_outputs":
            _checks.whole(key, setting, at_least=1, at_most=_MOST_OUTPUTS)
        elif setting is not None and not isinstance(setting, str):
            number_of(key, setting)
    return replace(family, **settings) if settings else family  # type: ignore[type-var]


def _settings(family: Family) -> set[str]:
    return {part.name for part in fields(family)} if is_dataclass(family) else set()
