"""Orders to all sites of a federated fit, and their replies, checked."""

from collections.abc import Callable, Sequence

from fedgauss.inference.federated.fields import REPLIES, Fields, check_fields
from fedgauss.inference.federated.lines import Message, printable

# An order and what goes with it for each site; their replies in the same order.
Ask = Callable[[str, Sequence[Message]], Sequence[Message]]
Tick = Callable[[str, int, int], None]  # what, done, total
_LONGEST = 1000  # characters of an error


class Conversation:
    """Orders to all sites and their checked replies. `sizes` has each site's sizes by letter, as `fields` uses them."""

    def __init__(self, ask: Ask, sites: Sequence[str]) -> None:
        self._ask, self._sites = ask, sites
        self.sizes: list[dict[str, int]] = [{} for _ in sites]

    def all(self, order: str, content: Message, fields: Fields | None = None) -> list[Message]:
        """The same order to every site."""
        return self.each(order, [content] * len(self._sites), fields)

    def each(self, order: str, contents: Sequence[Message], fields: Fields | None = None) -> list[Message]:
        """An order to every site, with a content of its own; replies must have `fields`, by default the order's."""
        replies = list(self._ask(order, contents))
        for site, reply, sizes in zip(self._sites, replies, self.sizes, strict=True):
            if "error" in reply:
                raise ValueError(f"site {site!r}: {printable(str(reply['error']))[:_LONGEST]}")
            try:
                check_fields(REPLIES[order] if fields is None else fields, reply, sizes)
            except ValueError as error:
                raise ValueError(f"site {site!r} sent a wrong reply to {order!r}: {error}") from error
        return replies
