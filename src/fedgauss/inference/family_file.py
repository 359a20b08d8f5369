"""A family as plain fields, for files and models that are sent: its name and its settings."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from fedgauss import _checks, families
from fedgauss.families import Family
from fedgauss.inference.saved_fields import check_keys, number_of, object_of, text_of

_MOST_OUTPUTS = 2_000


def family_fields(family: Family) -> dict[str, Any]:
    """A family by its name and settings."""
    return {"name": family.name, "settings": {name: getattr(family, name) for name in _settings(family)}}


def read_family(value: Any) -> Family | None:
    """The family that `family_fields` wrote; None where this process knows none of that name."""
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
