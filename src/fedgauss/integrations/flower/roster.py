"""Who is who: a number for every client, under a name that outlives a restart of its node."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from flwr.app import Message
from flwr.serverapp import Grid

from fedgauss import _checks
from fedgauss.integrations.flower.records import PARTITION, Answer, plain, read

Identity = str | Callable[[Message], str | int]  # "node", "key" or "partition", or a function of a reply

_SHOWN = 16  # hex digits of a key's hash: 64 bits, which nobody meets by trying keys
_MOST = 10**9  # partitions
_QUOTES = "'\""  # about names that an application gave, which are no others by that


class Roster:
    """The number of each client: the partition that it said it has when first seen, else the first that is free.

    A number belongs to a name, and a name to one node at a time. It goes over to another node, as after a restart, once
    its own is no longer in the grid: else a node could speak in the name of a client that is merely absent.
    """

    def __init__(self, keyed: bool = False) -> None:
        self.names: dict[int, str] = {}  # by number
        self._numbers: dict[str, int] = {}  # the other way round
        self._held: dict[int, str] = {}  # names by node
        self._nodes: dict[str, int] = {}  # the other way round
        self._keys: dict[int, str] = {}  # of nodes, where the grid shows them
        self._here: set[int] | None = None  # nodes in the grid; None before anybody looked
        self._free = 0  # no number below is
        self._keyed = keyed

    def __contains__(self, node: int) -> bool:
        return node in self._held

    def __len__(self) -> int:
        return len(self.names)

    @property
    def nodes(self) -> dict[int, int]:
        """The node that has each number, of those seen since the roster was made or read."""
        return dict(sorted((self._numbers[name], node) for node, name in self._held.items()))

    def node(self, client: int) -> int | None:
        """The node that has a number, if any is known."""
        return self._nodes.get(self.names[client])

    def take_up(self, names: Mapping[int, str]) -> None:
        """Numbers that were given before a restart."""
        self.names.update(names)
        self._numbers.update({name: number for number, name in names.items()})

    def look(self, grid: Grid) -> None:
        """Find out which nodes there are, and by which keys the SuperLink knows them."""
        nodes = list(grid.get_nodes())
        self._here = {node.node_id for node in nodes}
        for node in nodes:
            if node.node_id not in self._keys and node.public_key:
                self._keys[node.node_id] = hashlib.sha256(node.public_key).hexdigest()[:_SHOWN]
        if self._keyed and (without := self._here - self._keys.keys()):
            raise ValueError(
                f"identity='key' needs nodes with keys; node {min(without)} has none. Start the SuperLink with "
                "--enable-supernode-auth, or use identity='partition'?"
            )
        for new in self._here - self._held.keys():  # known from before a restart
            name = self._name(new, None)
            if name in self._numbers and self._nodes.get(name) not in self._here:
                self.number(new)

    def number(self, node: int, said: str | int | None = None) -> int:
        """Of a node that says this of itself; a node that is known keeps its number whatever it says.

        Raises
        ------
        ValueError
            If a node that is there has that name.
        """
        if node not in self._held:
            name = self._name(node, said)
            held = self.names.get(said, name) if isinstance(said, int) else name  # by a node that said nothing, perhaps
            other = self._nodes.get(held)
            if held != name or (other is not None and (self._here is None or other in self._here)):
                raise ValueError(f"Two nodes say that they are {_client(said)}: {other} and {node}.")
            if other is not None:
                del self._held[other]
            if name not in self._numbers:
                number = said if isinstance(said, int) else self._next()
                self._numbers[name], self.names[number] = number, name
            self._held[node], self._nodes[name] = name, node
        return self._numbers[self._held[node]]

    def _next(self) -> int:
        """The first number that is free."""
        while self._free in self.names:
            self._free += 1
        return self._free

    def label(self, client: int) -> str:
        """A client in a sentence, with the name that the application gave it, and where it is."""
        name, node = self.names[client], self.node(client)
        given = [name] if name[0] in _QUOTES or node is None else []
        return f"client {client} ({', '.join([*given, *([] if node is None else [f'node {node}'])])})"

    def _name(self, node: int, said: str | int | None) -> str:
        if isinstance(said, int):
            return f"partition {said}"
        if said is not None:
            return f"{said!r}"
        return f"key {self._keys[node]}" if node in self._keys else f"node {node}"


def _client(said: str | int | None) -> str:
    return f"client {said}" if isinstance(said, int) else f"{said!r}"


def name_reader(identity: Identity) -> Callable[[Message, Answer], str | int | None]:
    """What a reply says of who sent it: its partition, a name by the user's function, or nothing that counts."""
    if callable(identity):
        named = identity

        def name(reply: Message, answer: Answer) -> str | int | None:
            try:
                given = named(reply)
            except Exception as error:  # of the user's function, on whatever a client sent
                node = reply.metadata.src_node_id
                raise ValueError(f"No name can be read from what node {node} sent ({type(error).__name__}).") from error
            return plain(f"{given}")

        return name
    return (lambda reply, answer: _partition(answer)) if identity == PARTITION else (lambda reply, answer: None)


def check_identity(identity: Identity) -> Identity:
    """One of those that there are."""
    return identity if callable(identity) else _checks.one_of("identity", identity, ["node", "key", PARTITION])


def _partition(answer: Answer) -> int | None:
    """What a client says; None where it says nothing that could be a partition."""
    try:
        value = float(read(answer, PARTITION, (1,))[0])
    except ValueError:
        return None
    return int(value) if 0.0 <= value < _MOST and value == int(value) else None
