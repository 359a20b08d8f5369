"""Old public names, which go on working and say what replaces them."""

import warnings
from typing import Any


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn whoever called the caller that `old` is now `new`."""
    warnings.warn(f"{old} is deprecated; use {new} instead.", DeprecationWarning, stacklevel=stacklevel)


def renamed_attribute(old: str, new: str) -> Any:
    """A property under an old name: `freedom = renamed_attribute("freedom", "dof")` in a class body."""

    def get(self: Any) -> Any:
        warn_renamed(f"{type(self).__name__}.{old}", new)
        return getattr(self, new)

    return property(get, doc=f"Deprecated: use `{new}`.")
