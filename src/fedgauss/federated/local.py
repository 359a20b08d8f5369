"""Sites in this process, for tests, simulations and a first look: what they say goes through the wire all the same."""

from __future__ import annotations

from collections.abc import Mapping

from fedgauss.federated.site import Site
from fedgauss.federated.wire import Message, decode, encode


class LocalSites:
    """Sites by name, all of them here.

    Examples
    --------
    >>> with LocalSites({"a": Site(north, "a"), "b": Site(south, "b")}) as sites:
    ...     fit = federate(Model("died ~ age", family="binomial"), sites)
    """

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self.sites = dict(sites)

    @property
    def names(self) -> list[str]:
        """Of all sites."""
        return sorted(self.sites)

    def ask(self, order: str, contents: Mapping[str, Message]) -> dict[str, Message]:
        """The replies of all sites."""
        return {
            name: decode(encode(self.sites[name].answer(order, decode(encode(content)))))
            for name, content in contents.items()
        }

    def __enter__(self) -> LocalSites:
        return self

    def __exit__(self, *error: object) -> None:
        for site in self.sites.values():
            site.close()
