"""A site's own rules, as its owner writes them down in a TOML file. Whoever asks for more is refused."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from fedgauss._shown import Shown
from fedgauss.federated.budget import PRIVACY, Budget
from fedgauss.federated.keys import is_hex
from fedgauss.federated.privacy import Privacy, check_range
from fedgauss.inference.tables import listed

MASKS = ("required", "allowed", "off")


def _rule(default: Any, words: str, kind: str, example: Any = None, least: float = 0) -> Any:
    """A field with what is said of it and what it may be."""
    return field(default=default, metadata={"words": words, "kind": kind, "example": example, "least": least})


@dataclass(frozen=True, repr=False)
class Policy(Shown):
    """What a site answers, and to whom.

    Examples
    --------
    >>> policy = Policy.read("policy.toml")
    >>> print(policy)
    """

    least_rows: int = _rule(10, "rows that this site must have to take part", "whole", least=2)
    few: int = _rule(
        3, "rows, or none, that a level, an outcome or whatever sums are told of must rest on", "whole", least=2
    )
    cells: int = _rule(
        1, "rows, or none, of all sites in each cell of two columns of zeros and ones under masks", "whole", least=1
    )
    rows_per_parameter: float = _rule(3.0, "rows that there must be for each parameter", "number", least=1)
    fewest_sites: int = _rule(2, "sites that a run must have; 3 where one of the sites coordinates", "whole", least=1)
    sites_apart: int = _rule(3, "sites that must join or leave together between runs about the same", "whole", least=1)
    masks: str = _rule("allowed", '"required", "allowed" or "off": whether sums leave the site masked', "masks")
    columns: tuple[str, ...] | None = _rule(None, "columns that may be asked for", "names", ["age", "dose", "died"])
    never: tuple[str, ...] = _rule((), "columns that may not", "names", ["name", "postcode"])
    families: tuple[str, ...] | None = _rule(None, "families that may be fitted", "names", ["gaussian", "binomial"])
    tries: int = _rule(Budget().tries, "runs that are begun, refused ones among them", "whole", least=1)
    refusals: int = _rule(Budget().refusals, "runs that are refused for what the rows say", "whole", least=1)
    parameters: int = _rule(Budget().parameters, "parameters at which sums are told, over all runs", "whole", least=1)
    matrices: int = _rule(Budget().matrices, "matrices that are told, over all runs", "whole", least=1)
    passes: int = _rule(Budget().passes, "passes of SGD over all runs; without masks each may tell rows", "whole")
    epsilon: float = _rule(PRIVACY.epsilon, "of private runs together; 0 for no such run", "number", least=0)
    delta: float = _rule(PRIVACY.delta, "at which that epsilon holds; below 1 / rows", "number", least=0)
    ranges: Mapping[str, tuple[float, float]] | None = _rule(
        None, "between what columns lie in private runs that do not say", "ranges", {"age": [18, 100]}
    )
    sites: Mapping[str, str] | None = _rule(
        None, "keys of the sites that runs may have, by name", "keys", {"south": "..."}
    )
    askers: Mapping[str, str] | None = _rule(None, "keys of those who may ask, by name", "keys", {"coordinator": "..."})
    secret: str | None = _rule(None, "file with what owners agreed on without anybody else", "file", "sites.secret")

    def __post_init__(self) -> None:
        for one in fields(self):
            object.__setattr__(self, one.name, _checked(one, getattr(self, one.name)))
        self.privacy  # noqa: B018 - it checks epsilon and delta
        both = sorted(set(self.columns or ()) & set(self.never))
        if both:
            raise ValueError(
                f"a column must not be both in columns and in never; {listed(both)} is. Take it out of one."
            )

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """The policy in a TOML file with a table [site]; what is not in it stays as it is by default.

        A path in the file starts from the file's folder.
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
            policy = cls(**_known(told))
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        if policy.secret is not None:
            object.__setattr__(policy, "secret", str(file.parent / Path(policy.secret).expanduser()))
        return policy

    @property
    def budget(self) -> Budget:
        """How much a table answers before its owner is asked again."""
        return Budget(**{one.name: getattr(self, one.name) for one in fields(Budget)})

    @property
    def privacy(self) -> Privacy | None:
        """What private runs may tell of a row together; None where there must be none."""
        return Privacy(self.epsilon, self.delta) if self.epsilon else None

    def open_columns(self, names: Iterable[str]) -> list[str]:
        """Of the columns of a table, those that may be asked for. One that the policy names must be there."""
        there = list(names)
        for name in (*(self.columns or ()), *self.never):
            if name not in there:
                raise ValueError(
                    f"the policy names the column {name!r}, which the table does not have.{_nearest(name, there)}"
                )
        return [name for name in there if name not in self.never and (self.columns is None or name in self.columns)]

    def __str__(self) -> str:
        lines = ["Policy of a site"]
        for one in fields(self):
            lines.append(f"  {one.name:<20} {_shown(getattr(self, one.name)):<12} {one.metadata['words']}")
        return "\n".join(lines)


def example_policy() -> str:
    """A policy file with every rule at its default and a comment on each, to be edited by a site's owner."""
    lines = ["# What this site answers: fedgauss site data.csv --policy policy.toml", "[site]"]
    for one in fields(Policy):
        example = one.metadata["example"]
        value = one.default if example is None else example
        lines.append(f"{'' if example is None else '# '}{one.name} = {_toml(value)}  # {one.metadata['words']}")
    return "\n".join(lines) + "\n"


def _checked(one: Field[Any], value: Any) -> Any:
    """The value of a rule, if it may have it."""
    check = {"whole": _number, "number": _number, "masks": _masks, "names": _names, "keys": _keys, "file": _file}
    check |= {"ranges": _ranges}
    return value if value is None and one.default is None else check[one.metadata["kind"]](one, value)


def _number(one: Field[Any], value: Any) -> Any:
    whole, least = one.metadata["kind"] == "whole", one.metadata["least"]
    right = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not right or not least <= value < float("inf"):
        kind = "a whole number" if whole else "a number"
        raise ValueError(
            f"{one.name} must be {kind} of at least {least:g}; got {value!r}. Use {one.name} = {one.default:g}?"
        )
    return value


def _masks(one: Field[Any], value: Any) -> str:
    if value not in MASKS:
        raise ValueError(f"{one.name} must be one of {listed(MASKS)}; got {value!r}.{_nearest(value, MASKS)}")
    return str(value)


def _names(one: Field[Any], value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(part, str) for part in value):
        raise ValueError(
            f"{one.name} must be a list of names; got {value!r}. Use {one.name} = {_toml(one.metadata['example'])}?"
        )
    return tuple(value)


def _keys(one: Field[Any], value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(
        isinstance(name, str) and is_hex(key, 32) for name, key in value.items()
    ):
        raise ValueError(
            f'{one.name} must be keys by name, such as {one.name} = {{ south = "..." }}, each of 64 hexadecimal digits '
            "as `fedgauss site key FILE` prints it."
        )
    return dict(value)


def _ranges(one: Field[Any], value: Any) -> dict[str, tuple[float, float]]:
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{one.name} must be [low, high] by column; got {value!r}. Use {one.name} = "
            f"{_toml(one.metadata['example'])}?"
        )
    return {name: check_range(name, ends) for name, ends in value.items()}


def _file(one: Field[Any], value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(
            f"{one.name} must be the path of a file; got {value!r}. Use {one.name} = {_toml(one.metadata['example'])}?"
        )
    return value


def _known(told: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the table [site], all of which a policy must have."""
    strange = [name for name in told if name != "site"]
    if strange:
        raise ValueError(f"a policy has one table, [site]; got {listed(strange)} beside it. Move it below [site].")
    site = told.get("site", {})
    if not isinstance(site, dict):
        raise ValueError(f"site must be a table, [site]; got {site!r}. Write [site] on a line of its own.")
    known = [one.name for one in fields(Policy)]
    for name in site:
        if name not in known:
            raise ValueError(
                f"a policy has no key {name!r}.{_nearest(name, known) or ' The keys are ' + ', '.join(known) + '.'}"
            )
    return site


def _nearest(name: Any, choices: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), choices, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping | tuple):
        return listed(value, quote=False) if value else "-"
    return value if isinstance(value, str) else f"{value:g}"


def _toml(value: Any) -> str:
    """A value as TOML has it: text in double quotes, lists in brackets, tables in braces, numbers as they are."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(part)}" for name, part in value.items()) + " }"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"
