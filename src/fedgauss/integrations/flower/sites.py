"""A federated fit through Flower: each node has a table of its own, and the server prints the summary of all of them.

    app = site_app(lambda context: read_table(context.node_config["data"]))         # the ClientApp of every node

    @server.main()                                                                  # the ServerApp
    def main(grid, context):
        print(fit_nodes(grid, Model("died ~ age", family="binomial"), n_sites=3, masked=True))

Messages are the orders and replies of `fedgauss.federated.site`, as text in a ConfigRecord. A node's state between two
messages lies in its Context and does not leave it, so that it does not matter which process answers.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedgauss._files import append_private
from fedgauss.federated.mailbox import LostSite, federate
from fedgauss.federated.policy import Policy
from fedgauss.federated.site import Site
from fedgauss.federated.wire import Message as Content
from fedgauss.federated.wire import decode, encode, printable, write_down
from fedgauss.inference.fit_result import Fit
from fedgauss.inference.model import Model

_RECORD = "fedgauss"
_LOOK = 0.5  # seconds between two looks at who is there


def site_app(
    frame_of: Callable[[Context], Any],
    policy: Policy | None = None,
    log_of: Callable[[Context], str | Path] | None = None,
    name_of: Callable[[Context], str] | None = None,
    home_of: Callable[[Context], str | Path] | None = None,
) -> ClientApp:
    """A ClientApp that answers for the rows of its node.

    Parameters
    ----------
    frame_of : callable
        frame_of(context) is the frame of a node. What it raises is printed at the node, and never sent.
    policy : Policy, optional
        The rules of the owner of the rows; careful ones by default.
    log_of : callable, optional
        log_of(context) is the file in which a node logs every order and its reply, before the reply leaves.
    name_of : callable, optional
        name_of(context) is what a node is called in messages and on the network; by default its number.
    home_of : callable, optional
        home_of(context) is the file of the node's table, beside which its key and its ledger lie; by default they lie
        in the user's state folder under the name of the node.

    Returns
    -------
    ClientApp
    """
    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        order, content = str(message.content[_RECORD]["order"]), decode(str(message.content[_RECORD]["content"]))
        try:
            name = str(context.node_id) if name_of is None else name_of(context)
            if order == "name":
                reply: Content = {"name": name}
            else:
                reply = _reply(
                    frame_of(context), name if home_of is None else home_of(context), order, content, context, policy
                )
            if log_of is not None:
                with append_private(log_of(context)) as log:
                    write_down(log, order, reply, content)
        except Exception:  # its words may quote a row
            print(traceback.format_exc(), file=sys.stderr)
            reply = {"error": f"the order {order[:60]!r} failed at this node. Its own log says why."}
        return Message(_record(reply=encode(reply)), reply_to=message)

    return app


def _reply(
    frame: Any, home: str | Path, order: str, content: Content, context: Context, policy: Policy | None
) -> Content:
    """The reply of the site as it was after its last message."""
    kept = context.state.config_records.get(_RECORD)
    site = Site(frame, home, policy)
    try:
        if kept is not None and order != "join":  # a new run takes the place of one that was given up
            site.restore(decode(str(kept["state"])))
        reply = site.answer(order, content)
        context.state[_RECORD] = ConfigRecord({"state": encode(site.state())})
    finally:
        site.put_away()
    return reply


def fit_nodes(grid: Grid, model: Model, *, n_sites: int, timeout: float = 600.0, **options: Any) -> Fit:
    """`federate` between the nodes of a grid.

    Parameters
    ----------
    grid : Grid
        Of the ServerApp.
    model : Model
        The regression; the family is found by name in each node's process.
    n_sites : int
        Wait until there are so many nodes.
    timeout : float
        Seconds to wait for nodes, and for the replies to an order.
    **options
        Those of `federate`.

    Returns
    -------
    Fit
    """
    return federate(model, _Nodes(grid, n_sites, timeout), **options)


class _Nodes:
    """The nodes of a grid by the names that they give themselves."""

    def __init__(self, grid: Grid, n_sites: int, timeout: float) -> None:
        self._grid, self._timeout = grid, timeout
        numbers = {f"node {node}": node for node in _joined(grid, n_sites, timeout)}
        self._numbers = numbers
        replies = self.ask("name", {name: {} for name in numbers})
        for name, reply in replies.items():
            if "error" in reply:
                raise LostSite(name, f"{name}: {printable(str(reply['error']))}")
        named = {printable(str(reply.get("name"))): numbers[name] for name, reply in replies.items()}
        if len(named) < len(numbers):
            shown = sorted(printable(str(reply.get("name"))) for reply in replies.values())
            raise ValueError(f"sites must have different names; got {shown}.")
        self._numbers = named

    @property
    def names(self) -> list[str]:
        """Of all nodes."""
        return sorted(self._numbers)

    def ask(self, order: str, contents: Mapping[str, Content]) -> dict[str, Content]:
        """An order to every node, and their replies."""
        messages = [
            Message(_record(order=order, content=encode(content)), self._numbers[name], MessageType.QUERY)
            for name, content in contents.items()
        ]
        replies = {
            reply.metadata.src_node_id: reply for reply in self._grid.send_and_receive(messages, timeout=self._timeout)
        }
        return {name: self._content(name, order, replies.get(self._numbers[name])) for name in contents}

    def _content(self, name: str, order: str, reply: Message | None) -> Content:
        node = self._numbers[name]
        if reply is None:
            raise LostSite(name, f"node {node} did not answer the order {order!r} within {self._timeout:g} s.")
        if reply.has_error():
            reason = printable(str(reply.error.reason))
            raise LostSite(name, f"node {node} failed on the order {order!r}: {reason}")
        try:
            return decode(str(reply.content[_RECORD]["reply"]))
        except (ValueError, KeyError) as error:
            raise ValueError(f"node {node} sent something other than a reply to {order!r}: {error}") from error


def _joined(grid: Grid, n_sites: int, timeout: float) -> list[int]:
    end = time.monotonic() + timeout
    while len(nodes := sorted(grid.get_node_ids())) < n_sites:
        if time.monotonic() > end:
            raise ValueError(f"{n_sites} sites must take part; {len(nodes)} joined within {timeout:g} s.")
        time.sleep(_LOOK)
    return nodes


def _record(**texts: str) -> RecordDict:
    return RecordDict({_RECORD: ConfigRecord(dict(texts))})
