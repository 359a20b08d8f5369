"""Names of a package that load their module on first use (PEP 562): JAX takes a second, and not everybody needs it."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy(
    package: str, modules: Mapping[str, str], names: list[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: `modules` has the names that each module defines.

    Names that are themselves modules stand under the package above them, "engine." or "". No module of the package
    itself may have the name of a function in it: once imported it would stand in its place.
    """
    places = {name: module for module, defined in modules.items() for name in defined.split()}

    def __getattr__(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        where = places[name]
        if not where or where.endswith("."):
            return importlib.import_module(f"{package}.{where}{name}")
        return getattr(importlib.import_module(f"{package}.{where}"), name)

    return __getattr__, lambda: sorted(names)
