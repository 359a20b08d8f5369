"""Names of a package that load their module on first use (PEP 562): JAX takes a second, and not everybody needs it."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from fedgauss._deprecated import warn_renamed


def lazy(
    package: str, modules: Mapping[str, str], names: list[str], renamed: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: `modules` has the names that each module defines.

    Names that are themselves modules stand under the package above them, "engine." or "". No module of the package
    itself may have the name of a function in it: once imported it would stand in its place. `renamed` maps old names to
    new ones; they go on working, with a DeprecationWarning.
    """
    old_names = renamed or {}
    places = {name: module for module, defined in modules.items() for name in defined.split()}

    def __getattr__(name: str) -> Any:
        if name in old_names:
            warn_renamed(f"{package}.{name}", old_names[name])
            return getattr(importlib.import_module(package), old_names[name])
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        where = places[name]
        if not where or where.endswith("."):
            return importlib.import_module(f"{package}.{where}{name}")
        return getattr(importlib.import_module(f"{package}.{where}"), name)

    return __getattr__, lambda: sorted(names)
