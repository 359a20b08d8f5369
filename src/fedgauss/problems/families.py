"""The former home of `fedgauss.families`."""

from typing import Any

from fedgauss import families
from fedgauss._deprecated import warn_renamed


def __getattr__(name: str) -> Any:
    warn_renamed(f"fedgauss.problems.families.{name}", f"fedgauss.families.{name}")
    return getattr(families, name)
