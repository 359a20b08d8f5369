"""A federated fit through Flower: each node has a table of its own, and the server prints the summary of all of them.

    app = site_app(lambda context: read_table(context.node_config["data"]))         # the ClientApp of every node

    @server.main()                                                                  # the ServerApp
    def main(grid, context):
        print(fit_nodes(grid, "died", "binomial", n_sites=3))

Messages are the orders and replies of `fedgauss.inference.federated`, as text in a ConfigRecord. A node's state between
two messages lies in its Context and does not leave it, so that it does not matter which process answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedgauss._files import append_private
from fedgauss.inference.federated.conversation import LostSite
from fedgauss.inference.federated.coordinator import fit_sites
from fedgauss.inference.federated.lines import Message as Content
from fedgauss.inference.federated.lines import decoded, encoded, printable, write_down
from fedgauss.inference.federated.policy import Policy
from fedgauss.inference.federated.site import Site
from fedgauss.inference.fit_result import Fit

_RECORD = "fedgauss"
_LOOK = 0.5  # seconds between two looks at who is there


def site_app(
    frame_of: Callable[[Context], Any],
    policy: Policy | None = None,
    log_of: Callable[[Context], str | Path] | None = None,
    name_of: Callable[[Context], str] | None = None,
) -> ClientApp:
    """A ClientApp that answers for the rows of its node.

    Parameters
    ----------
    frame_of : callable
        frame_of(context) is the frame of a node.
    policy : Policy, optional
        The rules of the owner of the rows; careful ones by default.
    log_of : callable, optional
        log_of(context) is the file in which a node logs every order and its reply, before the reply leaves.
    name_of : callable, optional
        name_of(context) is what a node is called in messages and on the network; by default its number.

    Returns
    -------
    ClientApp
    """
    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        order, content = str(message.content[_RECORD]["order"]), decoded(str(message.content[_RECORD]["content"]))
        if order == "name":
            reply: Content = {"name": str(context.node_id) if name_of is None else name_of(context)}
        else:
            reply = _answered(frame_of(context), order, content, context, policy)
        text = encoded(reply)
        if log_of is not None:
            with append_private(log_of(context)) as log:
                write_down(log, order, reply, content)
        return Message(_record(reply=text), reply_to=message)

    return app


def _answered(frame: Any, order: str, content: Content, context: Context, policy: Policy | None) -> Content:
    """The reply of the site as it was after its last message."""
    kept = context.state.config_records.get(_RECORD)
    site = Site(frame, policy) if kept is None else Site.restored(frame, decoded(str(kept["state"])), policy)
    if order in ("keys", "describe") and not site.begun and not site.expects(order):  # who asked before has given up
        site = Site(frame, policy)
    reply = site.answer(order, content)
    context.state[_RECORD] = ConfigRecord({"state": encoded(site.state())})  # also after an error: rows are read once
    return reply


def fit_nodes(
    grid: Grid, target: str, family: str | None = None, *, n_sites: int, timeout: float = 600.0, **options: Any
) -> Fit:
    """`fit_sites` between the nodes of a grid.

    Parameters
    ----------
    grid : Grid
        Of the ServerApp.
    target, family
        As for `fit`; the family is found by name in each node's process.
    n_sites : int
        Wait until there are so many nodes.
    timeout : float
        Seconds to wait for nodes, and for the replies to an order.
    **options
        Those of `fit_sites`.

    Returns
    -------
    Fit
    """
    nodes = _nodes(grid, n_sites, timeout)
    told = _ask(grid, {f"node {node}": node for node in nodes}, timeout, "name", [{}] * len(nodes))
    named = sorted((printable(str((reply or {}).get("name"))), node) for reply, node in zip(told, nodes, strict=True))
    if len(dict(named)) < len(named):
        raise ValueError(f"sites must have different names; got {[name for name, _ in named]}.")

    def ask(order: str, contents: Sequence[Content | None]) -> list[Content | None]:
        return _ask(grid, dict(named), timeout, order, contents)

    return fit_sites(ask, list(dict(named)), target, family, **options)


def _nodes(grid: Grid, n_sites: int, timeout: float) -> list[int]:
    end = time.monotonic() + timeout
    while len(nodes := sorted(grid.get_node_ids())) < n_sites:
        if time.monotonic() > end:
            raise ValueError(f"{n_sites} sites must take part; {len(nodes)} joined within {timeout:g} s.")
        time.sleep(_LOOK)
    return nodes


def _ask(
    grid: Grid, nodes: Mapping[str, int], timeout: float, order: str, contents: Sequence[Content | None]
) -> list[Content | None]:
    """An order to every node that takes part, and their replies; None for one that does not."""
    asked = {name: content for name, content in zip(nodes, contents, strict=True) if content is not None}
    messages = [
        Message(_record(order=order, content=encoded(content)), nodes[name], MessageType.QUERY)
        for name, content in asked.items()
    ]
    replies = {reply.metadata.src_node_id: reply for reply in grid.send_and_receive(messages, timeout=timeout)}
    told: dict[str, Content] = {}
    for name in asked:
        node = nodes[name]
        if node not in replies:
            raise LostSite(name, f"node {node} did not answer the order {order!r} within {timeout:g} s.")
        if replies[node].has_error():
            reason = printable(str(replies[node].error.reason))
            raise LostSite(name, f"node {node} failed on the order {order!r}: {reason}")
        try:
            told[name] = decoded(str(replies[node].content[_RECORD]["reply"]))
        except (ValueError, KeyError) as error:
            raise ValueError(f"node {node} sent something other than a reply to {order!r}: {error}") from error
    return [told.get(name) for name in nodes]


def _record(**texts: str) -> RecordDict:
    return RecordDict({_RECORD: ConfigRecord(dict(texts))})
