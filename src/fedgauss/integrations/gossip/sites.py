"""A federated fit without a server: every peer asks itself, hears all replies, and comes to the same summary."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO, Any, Literal

import networkx as nx
import numpy as np

from fedgauss._types import FloatArray, IntArray
from fedgauss.federated.mailbox import federate
from fedgauss.federated.site import Site
from fedgauss.federated.wire import LONGEST, Message, decode, digest, encode, write_down
from fedgauss.inference.fit_result import Fit
from fedgauss.inference.model import Model
from fedgauss.inference.sgd import SGD
from fedgauss.integrations.gossip.peer import Exchange
from fedgauss.networks import Network

# A reply may be so many times as long as this peer's own to the same order, and so many bytes longer: sums are of one
# shape everywhere, numbers take 1 to 24 characters, and a peer may have met levels of a category that others have not.
_TIMES, _ROOM = 64, 2**20
_NONCE = 16  # bytes


def fit_peers(
    site: Site, rank: int, network: Network, exchange: Exchange, names: Sequence[str], model: Model,
    log: IO[str] | None = None, *, masked: bool = False, solver: Literal["scoring"] | SGD = "scoring", **options: Any,
) -> Fit:  # fmt: skip
    """`federate` between peers that talk to their neighbours only: every peer is a mailbox for itself.

    Replies go from neighbour to neighbour until everybody has them, so every peer sees what a coordinator would see:
    with masked=True totals, and no other peer's sums (of two peers, each knows the other's). They are signed: a peer
    that changes one on its way ends the run. All peers add up the same numbers, so that their fits are one to the bit,
    in as many exchanges a message as the network's diameter.

    Parameters
    ----------
    site : Site
        This peer's rows.
    rank : int
        Which peer this is.
    network : Network
    exchange : callable
        `TorchLinks(...).exchange`.
    names : sequence of str
        Names of all sites, peer by peer.
    model : Model
    log : file, optional
        Where every order and reply of this site is logged before the reply leaves.
    masked : bool
        Whether peers add masks that cancel in the total.
    solver : "scoring" or SGD
        In a pass of SGD peers average with their neighbours, whose network it has unless it is given another, or under
        masks with all. Without masks every peer sees the parameters of every other at each synchronisation, since all
        check the same signed messages, and can work rows out from them: that is for peers that would show each other
        their rows. The policy of each must have `passes`.
    **options
        Others of `federate`.

    Returns
    -------
    Fit
    """
    peers = _Peers(site, rank, network, exchange, names, log)
    if isinstance(solver, SGD) and solver.network is None and not masked:
        by_name = np.argsort(peers.names)  # the order of the plan
        solver = replace(solver, network=_reorder(network, by_name))
    return federate(
        model, peers, asker="peers", key=site.home.key, nonce=peers.agree(), masked=masked, solver=solver, **options
    )


def _reorder(network: Network, order: IntArray) -> Network:
    """The same links with clients in another order."""
    return replace(network, sparse=network.sparse[order][:, order])


class _Peers:
    """The way to all sites: to this peer's own directly, to the others from neighbour to neighbour."""

    def __init__(
        self, site: Site, rank: int, network: Network, exchange: Exchange, names: Sequence[str], log: IO[str] | None
    ) -> None:
        self._site, self._rank, self._network, self._exchange, self._log = site, rank, network, exchange, log
        self.names = list(names)

    def agree(self) -> str:
        """A number for this run that every peer had a part in."""
        return digest({"parts": send_to_all(secrets.token_hex(_NONCE), self._rank, self._network, self._exchange)})

    def ask(self, order: str, contents: Mapping[str, Message]) -> dict[str, Message]:
        """The replies of all sites to what each peer asks its own."""
        content = decode(encode(contents[self.names[self._rank]]))
        reply = self._site.answer(order, content)
        if self._log is not None:
            write_down(self._log, order, reply, content)
        texts = send_to_all(encode(reply), self._rank, self._network, self._exchange)
        return dict(zip(self.names, map(decode, texts), strict=True))


def send_to_all(text: str, rank: int, network: Network, exchange: Exchange) -> list[str]:
    """The texts of all peers, peer by peer: after as many exchanges as the network's diameter all have heard all."""
    size = network.n_clients
    graph = nx.from_scipy_sparse_array(network.sparse) if network.uniform == 0.0 else nx.complete_graph(size)
    graph.remove_edges_from(nx.selfloop_edges(graph))
    neighbours = sorted(graph[rank])
    texts = {rank: text}
    most = min(size * (_TIMES * len(json.dumps(text)) + _ROOM), LONGEST)
    for _ in range(nx.diameter(graph)):
        received = _receive({str(peer): said for peer, said in texts.items()}, neighbours, exchange, most)
        _end_where_one_is_lost(neighbours, received, size, exchange, most)
        for j, heard in received.items():
            _refuse_nonsense(j, heard, size)
            for peer, said in heard.items():
                if texts.setdefault(int(peer), said) != said:
                    raise ValueError(
                        f"every peer must pass on replies as they are; that of peer {peer} came in two versions, one "
                        f"of them by peer {j}. Start again without whoever changed it."
                    )
    missing = [peer for peer in range(size) if peer not in texts]
    if missing:
        raise ValueError(f"every peer must pass on all replies that it has heard; those of {missing} did not arrive.")
    return [texts[peer] for peer in range(size)]


def _receive(said: dict[str, str] | int, neighbours: Sequence[int], exchange: Exchange, most: int) -> dict[int, Any]:
    """What each neighbour knows, in at most so many bytes: replies, or the number of a peer that is lost.

    An exchange is of arrays of one length: first they tell how long theirs will be. A number carries eight bytes.
    """
    message = json.dumps(said).encode()
    lengths = exchange({j: np.array([float(len(message))]) for j in neighbours})
    for j, length in lengths.items():
        if not 0 < length[0] <= most or length[0] % 1:  # NaN is not above anything
            raise ValueError(
                f"a message between peers must have 1 to {most:,} bytes here; peer {j} says {length[0]:g}."
            )
    if isinstance(said, dict) and (lost := [j for j in neighbours if j not in lengths]):
        message = str(lost[0]).encode().ljust(len(message))
    replies = exchange({j: _as_numbers(message, max(len(message), int(length[0]))) for j, length in lengths.items()})
    received: dict[int, Any] = {}
    for j, reply in replies.items():
        try:
            received[j] = json.loads(reply.tobytes()[: int(lengths[j][0])])
        except (ValueError, RecursionError) as error:
            raise ValueError(f"peer {j} must send replies as JSON; it sent something else.") from error
    return received


def _as_numbers(message: bytes, length: int) -> FloatArray:
    return np.frombuffer(message.ljust(-(-length // 8) * 8, b"\0"), dtype=np.float64)


def _refuse_nonsense(j: int, told: Any, size: int) -> None:
    peers = {str(peer) for peer in range(size)}
    if not isinstance(told, dict) or not told.keys() <= peers or not all(isinstance(v, str) for v in told.values()):
        raise ValueError(f"peer {j} must send the replies of peers 0 to {size - 1}, as text; it sent something else.")
    if str(j) not in told:
        raise ValueError(f"peer {j} must send its own reply; it sent those of {sorted(told)}.")


def _end_where_one_is_lost(
    neighbours: Sequence[int], received: Mapping[int, Any], size: int, exchange: Exchange, most: int
) -> None:
    """Tell whom this peer still hears who is lost, before it leaves as well: they would take it for the lost one."""
    told = {said: f", as peer {j} says" for j, said in received.items() if type(said) is int and 0 <= said < size}
    lost_ones = dict.fromkeys((j for j in neighbours if j not in received), "") or told
    if not lost_ones:
        return
    lost, who = next(iter(lost_ones.items()))
    left = list(received)
    for _ in range(2):  # when the second is over, all have read the first
        left = list(_receive(lost, left, exchange, most))
    raise ValueError(f"a fit needs every site to the end; peer {lost} is lost{who}. Start again without it.")
