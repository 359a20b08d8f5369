"""Names of a package that load their module on first use (PEP 562): JAX takes a second, and not everybody needs it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy(
    package: str, modules: Mapping[str, str], names: list[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: `modules` says in which of its modules a name is.

    A name that is a module has the package before it there, "engine." or "". No module of the package itself may have
    the name of a function in it: once imported it would stand in its place.
    """

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        where = modules[name]
        if not where or where.endswith("."):
            return importlib.import_module(f"{package}.{where}{name}")
        return getattr(importlib.import_module(f"{package}.{where}"), name)

    return __getattr__, lambda: sorted(names)
