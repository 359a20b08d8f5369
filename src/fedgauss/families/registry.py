"""The registry in which families are found by name."""

from __future__ import annotations

from typing import TypeVar

from fedgauss import _checks
from fedgauss.families.base import Family

F = TypeVar("F", bound="type[Family]")

_REGISTRY: dict[str, type[Family]] = {}


def register(cls: F) -> F:
    """Make a family known by its name and aliases, in this process. Use it as a decorator or call it.

    Raises
    ------
    ValueError
        If the class is not a family with a name, or a name belongs to another family.
    """
    if not (isinstance(cls, type) and issubclass(cls, Family) and isinstance(getattr(cls, "name", None), str)):
        raise ValueError(f"register needs a subclass of Family with a name; got {cls!r}.")
    for name in (cls.name, *cls.aliases):
        other = _REGISTRY.get(name, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"the family name {name!r} belongs to {other.__qualname__}. Choose another name.")
    _REGISTRY.update(dict.fromkeys((cls.name, *cls.aliases), cls))
    return cls


def names() -> list[str]:
    """The names and aliases of all registered families."""
    return list(_REGISTRY)


def family(name: str, n_classes: int | None = None) -> Family:
    """The registered family with this name or alias, with its default settings.

    Parameters
    ----------
    name : str
        A name or alias, such as "logistic" or "binomial".
    n_classes : int, optional
        For families with an output for each class: how many there are.
    """
    chosen = _REGISTRY[_checks.one_of("family", name, _REGISTRY)]()
    if chosen.by_class and n_classes is not None:
        return chosen.with_classes(_checks.whole("n_classes", n_classes, at_least=2))
    return chosen


def as_family(value: str | Family) -> Family:
    """A family given by name or as an instance."""
    if isinstance(value, str):
        return family(value)
    if not isinstance(value, Family):
        raise ValueError(f"family must be a name, such as 'linear', or an instance of a Family; got {value!r}.")
    return value


def chosen(value: str | Family, link: str | None = None) -> Family:
    """A family given by name or as an instance, with a link of its own choice.

    Parameters
    ----------
    value : str or Family
        A name or alias, such as "binomial", or an instance.
    link : str, optional
        One of the family's links, such as "probit"; by default the link that it has.

    Raises
    ------
    ValueError
        If there is no such family, or it does not have that link; the message lists those that it has.

    Examples
    --------
    >>> chosen("binomial", "probit")
    Logistic(link='probit')
    """
    found = as_family(value)
    return found if link is None else found.with_link(link)
