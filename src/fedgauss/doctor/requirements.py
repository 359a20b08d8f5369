"""What the installed metadata of fedgauss asks for: names of packages, their bounds, and the extra they belong to.

By hand, since `packaging` is no dependency of ours and may be just what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata

_LINE = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)\s*\(?(?P<bounds>[^;)]*)\)?\s*(?:;(?P<marker>.*))?$")
_BOUND = re.compile(r"(>=|<)\s*(\d+(?:\.\d+)*)")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


@dataclass(frozen=True)
class Requirement:
    """A package, its bounds as (">=", "2.0"), and the extra that asks for it."""

    name: str
    bounds: tuple[tuple[str, str], ...]
    extra: str | None = None

    @property
    def words(self) -> str:
        """The bounds as pip writes them: ">=1.41,<1.42"."""
        return ",".join(sign + bound for sign, bound in self.bounds)

    def admits(self, version: str) -> bool:
        """Whether a version is within the bounds; what follows its numbers (rc1, +cpu) does not count."""
        here = _numbers(version)
        return all(here >= _numbers(bound) if sign == ">=" else here < _numbers(bound) for sign, bound in self.bounds)


def requirements(lines: Iterable[str] | None = None) -> list[Requirement]:
    """Those of the installed fedgauss, or of lines like those of its metadata.

    Raises
    ------
    importlib.metadata.PackageNotFoundError
        If fedgauss is not installed, but found on the path.
    """
    found = (_LINE.match(line) for line in (metadata.requires("fedgauss") or [] if lines is None else lines))
    return [_requirement(line) for line in found if line is not None]


def installed(name: str) -> str | None:
    """The version of a package here, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _requirement(line: re.Match[str]) -> Requirement:
    extra = _EXTRA.search(line["marker"] or "")
    return Requirement(line["name"], tuple(_BOUND.findall(line["bounds"])), extra[1] if extra else None)


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(number) for number in release[0].split(".")] if release else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
