"""A site behind a pair of pipes: a line of JSON in, a line of JSON out, and a log of both."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import IO, Any

from fedgauss.inference.federated.messages import Message, decoded, encoded
from fedgauss.inference.federated.site import Site


def serve_lines(site: Site, orders: Iterable[str], replies: IO[str], log: IO[str] | None = None) -> None:
    """Answer orders, a line of JSON each, until there are no more.

    Lines that cannot be read are answered with an error, and change nothing.

    Parameters
    ----------
    site : Site
    orders : iterable of str
        Such as standard input.
    replies : file
        Such as standard output.
    log : file, optional
        Where every order and its reply are logged before the reply leaves.
    """
    for line in orders:
        order, asked, reply = _answered(site, line)
        text = encoded(reply)
        if log is not None:
            write_down(log, order, reply, asked)
        replies.write(text + "\n")
        replies.flush()


def write_down(log: IO[str], order: str, reply: Message, asked: Message | None = None) -> None:
    """A line of the log, written before the reply leaves: the log has at least as much as was sent."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    log.write(encoded({"time": now, "order": order, "asked": asked, "sent": reply}) + "\n")
    log.flush()


def _answered(site: Site, line: str) -> tuple[str, Message | None, Message]:
    """The order, what came with it, and the reply."""
    try:
        told = decoded(line)
        order, content = told.get("order"), told.get("content")
        if not isinstance(order, str) or not isinstance(content, dict):
            raise ValueError("an order must have a name and its content.")
    except ValueError as error:
        return "unreadable", None, {"error": str(error)}
    return order, content, site.answer(order, content)


def order_line(order: str, content: Any) -> str:
    """What `serve_lines` reads."""
    return encoded({"order": order, "content": content}) + "\n"
