"""A site's own rules, as its owner writes them down in a TOML file. Orders that break one are refused."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from fedgauss._shown import Shown
from fedgauss.inference.federated.disclosure import FEWEST, Refused, check_many
from fedgauss.inference.tables import FrameColumn, listed

MASKS = ("required", "allowed", "off")
DROP_OUTS = ("allowed", "refused")


@dataclass(frozen=True, repr=False)
class Policy(Shown):
    """What a site answers, and to whom it does not.

    Attributes
    ----------
    least_rows : int
        Take part only with at least so many rows.
    least_rows_in_a_level : int
        A level must have so many rows, and so many must differ from a column's most common value.
    least_rows_in_a_cell : int
        So many rows, or none, in each cell of two columns of the design. 1 switches the rule off.
    rows_per_parameter : float
        At least so many rows for each parameter.
    largest_share : float
        Of a sum of squares that one row may make up.
    fewest_sites : int
        Take part only with at least so many sites.
    columns : tuple of str, optional
        Columns that may be asked for; all by default.
    never : tuple of str
        Columns that may not.
    families : tuple of str, optional
        Families that may be fitted; all by default.
    masks : {"required", "allowed", "off"}
        Whether sums leave the site masked.
    drop_outs : {"allowed", "refused"}
        Whether to go on without a site that was lost from a masked run.
    most_rounds : int
        Answer at most so many orders for sums in a run.
    ledger : str, optional
        A file in which the site keeps track of what it has answered (`Ledger`), to see differences between runs.
    secret : str, optional
        A file with what the owners of the sites have agreed on without the coordinator (`Mask`).

    Examples
    --------
    >>> policy = Policy.read("policy.toml")
    >>> policy.check_rows(8)
    Traceback (most recent call last):
    Refused: this site takes part with at least 10 rows; it has 8.
    """

    least_rows: int = 10
    least_rows_in_a_level: int = FEWEST
    least_rows_in_a_cell: int = 3
    rows_per_parameter: float = 3.0
    largest_share: float = 0.75
    fewest_sites: int = 2
    columns: tuple[str, ...] | None = None
    never: tuple[str, ...] = ()
    families: tuple[str, ...] | None = None
    masks: str = "allowed"
    drop_outs: str = "allowed"
    most_rounds: int = 100
    ledger: str | None = None
    secret: str | None = None

    def __post_init__(self) -> None:
        for name, least in _WHOLE.items():
            _check_number(name, getattr(self, name), int, least, None)
        _check_number("rows_per_parameter", self.rows_per_parameter, float, 1, None)
        _check_number("largest_share", self.largest_share, float, 0, 1)
        for name in ("columns", "never", "families"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        for name, choices in (("masks", MASKS), ("drop_outs", DROP_OUTS)):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} must be one of {listed(choices)}; got {getattr(self, name)!r}."
                    + _nearest(getattr(self, name), choices)
                )
        for name in ("ledger", "secret"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ValueError(f'{name} must be the path of a file; got {value!r}. Use {name} = "{name}.jsonl"?')
        both = sorted(set(self.columns or ()) & set(self.never))
        if both:
            raise ValueError(
                f"a column must not be both in columns and in never; {listed(both)} is. Take it out of one."
            )

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """The policy in a TOML file with a table [site]; what is not in it stays as it is by default.

        Parameters
        ----------
        path : path
            Paths in the file itself start from its folder.

        Returns
        -------
        Policy

        Raises
        ------
        ValueError
            If the file cannot be read, or has a key or a value that is none of a policy's.
        """
        file = Path(path)
        try:
            told = tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"a policy must be a file that can be read; {file} is not ({error.strerror}).") from error
        except ValueError as error:  # of TOML, or of UTF-8
            raise ValueError(
                f"a policy must be TOML; {file} is not: {error}. See fedgauss site --example-policy."
            ) from error
        try:
            policy = cls(**_checked_keys(told))
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        for name in ("ledger", "secret"):
            if (value := getattr(policy, name)) is not None:
                object.__setattr__(policy, name, str(file.parent / Path(value).expanduser()))
        return policy

    def open_columns(self, names: Iterable[str]) -> list[str]:
        """Of the columns of a table, those that may be asked for. One that the policy names must be there."""
        there = list(names)
        for name in (*(self.columns or ()), *self.never):
            if name not in there:
                raise ValueError(
                    f"the policy names the column {name!r}, which the table does not have.{_nearest(name, there)}"
                )
        return [name for name in there if self._is_open(name)]

    def check_family(self, name: str, *aliases: str) -> None:
        """A family must be among those that may be fitted, by one of its names."""
        if self.families is not None and not {name, *aliases} & set(self.families):
            raise Refused(f"this site's policy allows the families {listed(self.families)}; got {name!r}.")

    def check_rows(self, rows: int) -> None:
        """There must be enough of them."""
        if rows < self.least_rows:
            raise Refused(f"this site takes part with at least {self.least_rows} rows; it has {rows}.")

    def check_weightless(self, rows: int) -> None:
        """Rows of weight 0, which are left out, must be none or enough: else a run without weights would tell them."""
        if 0 < rows < self.least_rows_in_a_level:
            raise Refused(
                f"no row must have weight 0 at this site, or at least {self.least_rows_in_a_level}, or sums with and "
                "without weights would reveal single rows; fewer have. Leave the weights out."
            )

    def check_levels(self, column: FrameColumn) -> None:
        """Levels must have enough rows each (`disclosure.check_many`)."""
        check_many(column, self.least_rows_in_a_level)

    def check_parameters(self, rows: int, parameters: int) -> None:
        """There must be enough rows for each parameter."""
        if rows < self.rows_per_parameter * parameters:
            raise Refused(
                f"this site's policy wants {self.rows_per_parameter:g} rows for each parameter; {parameters} "
                f"parameters and {rows} rows are fewer. Use at most {int(rows / self.rows_per_parameter)} parameters."
            )

    def check_masked(self, masked: bool) -> None:
        """Sums must be masked where that is required, and not where it is off."""
        if masked and self.masks == "off":
            raise Refused("this site's policy has masks = \"off\". Fit without --masked, or ask the site's owner.")
        if not masked and self.masks == "required":
            raise Refused('this site\'s policy has masks = "required": it sends no sums of its own. Fit with --masked.')

    def check_sites(self, sites: int) -> None:
        """There must be enough of them."""
        if sites < self.fewest_sites:
            raise Refused(f"this site takes part with at least {self.fewest_sites} sites; this fit has {sites}.")

    def check_round(self, number: int) -> None:
        """Rounds count from 1, and there are not more of them than are allowed."""
        if number > self.most_rounds:
            raise Refused(
                f"this site's policy answers at most {self.most_rounds} rounds of a run; this would be round {number}. "
                "Each tells something more about the same rows. Does the fit converge?"
            )

    def _is_open(self, name: str) -> bool:
        return name not in self.never and (self.columns is None or name in self.columns)

    def __str__(self) -> str:
        lines = ["Policy of a site"]
        for field in fields(self):
            value, words = getattr(self, field.name), _WORDS[field.name]
            lines.append(f"  {field.name:<22} {_shown(value):<12} {words}")
        return "\n".join(lines)


_WHOLE = {
    "least_rows": 2, "least_rows_in_a_level": 1, "least_rows_in_a_cell": 1, "fewest_sites": 1, "most_rounds": 1,
}  # fmt: skip

_WORDS = {
    "least_rows": "rows that this site must have to take part",
    "least_rows_in_a_level": "rows that a level must have",
    "least_rows_in_a_cell": "rows, or none, in each cell of two columns; 1 for no such rule",
    "rows_per_parameter": "rows that there must be for each parameter",
    "largest_share": "of a sum of squares that one row may make up",
    "fewest_sites": "sites that a fit must have; 3 if one of the sites coordinates",
    "columns": "columns that may be asked for",
    "never": "columns that may not",
    "families": "families that may be fitted",
    "masks": '"required", "allowed" or "off": whether sums leave the site masked',
    "drop_outs": '"allowed" or "refused": whether to go on without a site that was lost from a masked run',
    "most_rounds": "orders for sums that are answered in a run",
    "ledger": "file in which the site keeps track of what it has answered, to see differences between runs",
    "secret": "file with what the owners agreed on without the coordinator, the same at all sites",
}

_EXAMPLES = {
    "columns": ["age", "dose", "died"], "never": ["name", "postcode"], "families": ["gaussian", "binomial"],
    "ledger": "answered.jsonl", "secret": "sites.secret",
}  # fmt: skip


def example_policy() -> str:
    """A policy file with every rule at its default and a comment on each, to be edited by a site's owner."""
    lines = ["# What this site answers: fedgauss site data.csv --policy policy.toml", "[site]"]
    for field in fields(Policy):
        value = _EXAMPLES.get(field.name, field.default)
        off = "# " if field.name in _EXAMPLES else ""
        lines.append(f"{off}{field.name} = {_toml(value)}  # {_WORDS[field.name]}")
    return "\n".join(lines) + "\n"


def _checked_keys(told: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the table [site], all of which a policy must have."""
    strange = [name for name in told if name != "site"]
    if strange:
        raise ValueError(f"a policy has one table, [site]; got {listed(strange)} beside it. Move it below [site].")
    site = told.get("site", {})
    if not isinstance(site, dict):
        raise ValueError(f"site must be a table, [site]; got {site!r}. Write [site] on a line of its own.")
    known = [field.name for field in fields(Policy)]
    for name in site:
        if name not in known:
            fix = _nearest(name, known) or f" The keys are {', '.join(known)}."
            raise ValueError(f"a policy has no key {name!r}.{fix}")
    return site


def _check_number(name: str, value: Any, kind: type, least: float, most: float | None) -> None:
    wanted = "a whole number" if kind is int else "a number"
    right = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    if not right or not least <= value < float("inf") or (most is not None and not 0 < value <= most):
        rule = f"of at least {least:g}" if most is None else f"above {least:g}, at most {most:g}"
        fix = _nice(getattr(Policy, name))
        raise ValueError(f"{name} must be {wanted} {rule}; got {value!r}. Use {name} = {fix}?")


def _names(name: str, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(part, str) for part in value):
        raise ValueError(f"{name} must be a list of names; got {value!r}. Use {name} = {_toml(_EXAMPLES[name])}?")
    return tuple(value)


def _nearest(name: Any, choices: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), list(choices), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _nice(value: float) -> str:
    return f"{value:g}"


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, tuple):
        return listed(value, quote=False) if value else "-"
    return value if isinstance(value, str) else _nice(value)


def _toml(value: Any) -> str:
    """A value as TOML has it: text in double quotes, lists in brackets, numbers as they are."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else _nice(value)
