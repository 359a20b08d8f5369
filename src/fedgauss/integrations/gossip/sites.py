"""A federated fit without a server: every peer asks itself, hears all replies, and comes to the same summary."""

import json
from collections.abc import Sequence
from typing import IO, Any

import networkx as nx
import numpy as np

from fedgauss._types import FloatArray
from fedgauss.inference.federated.coordinator import fit_sites
from fedgauss.inference.federated.lines import LONGEST, Message, decoded, encoded, write_down
from fedgauss.inference.federated.site import Site
from fedgauss.inference.fit_result import Fit
from fedgauss.integrations.gossip.peer import Exchange
from fedgauss.networks import Network

# A reply may be so many times as long as this peer's own to the same order, and so many bytes longer: sums are of one
# shape everywhere, numbers take 1 to 24 characters, and a peer may have met levels of a category that others have not.
_TIMES, _ROOM = 64, 2**20


def fit_peers(
    site: Site,
    rank: int,
    network: Network,
    exchange: Exchange,
    names: Sequence[str],
    target: str,
    log: IO[str] | None = None,
    **options: Any,
) -> Fit:
    """`fit_sites` between peers that talk to their neighbours only.

    Replies go from neighbour to neighbour until everybody has them, so every peer sees what a coordinator would see:
    with masked=True totals, and no other peer's sums (of two peers, each knows the other's).
    A peer can forge its own replies, and change one that has no other route: nothing is signed. All peers add up the
    same numbers in the same order, so that their fits are one to the bit, in as many exchanges a round as the network's
    diameter: to average sums by gossip to 1e-14, accelerated, takes 60 on a ring of ten in place of 5.

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
    target : str
        As for `fit`.
    log : file, optional
        Where every order and reply of this site is logged before the reply leaves.
    **options
        Those of `fit_sites`.

    Returns
    -------
    Fit
    """

    def ask(order: str, contents: Sequence[Message | None]) -> list[Message]:
        reply = site.answer(order, decoded(encoded(contents[rank] or {})))
        if log is not None:
            write_down(log, order, reply, contents[rank])
        return [decoded(text) for text in told_to_all(encoded(reply), rank, network, exchange)]

    return fit_sites(ask, names, target, **options)


def told_to_all(text: str, rank: int, network: Network, exchange: Exchange) -> list[str]:
    """The texts of all peers, peer by peer: after as many exchanges as the network's diameter all have heard all."""
    size = network.n_clients
    graph = nx.from_scipy_sparse_array(network.sparse) if network.uniform == 0.0 else nx.complete_graph(size)
    graph.remove_edges_from(nx.selfloop_edges(graph))
    neighbours = sorted(graph[rank])
    texts = {rank: text}
    most = min(size * (_TIMES * len(json.dumps(text)) + _ROOM), LONGEST)
    for _ in range(nx.diameter(graph)):
        passed_on = json.dumps({str(peer): said for peer, said in texts.items()}).encode()
        for j, told in _heard(passed_on, neighbours, exchange, most).items():
            _refuse_nonsense(j, told, size)
            for peer, said in told.items():
                if texts.setdefault(int(peer), said) != said:
                    raise ValueError(
                        f"every peer must pass on replies as they are; that of peer {peer} came in two versions, one "
                        f"of them by peer {j}. Start again without whoever changed it."
                    )
    missing = [peer for peer in range(size) if peer not in texts]
    if missing:
        raise ValueError(f"every peer must pass on all replies that it has heard; those of {missing} did not arrive.")
    return [texts[peer] for peer in range(size)]


def _heard(message: bytes, neighbours: Sequence[int], exchange: Exchange, most: int) -> dict[int, Any]:
    """What each neighbour knows, in at most so many bytes.

    An exchange is of arrays of one length: first they tell how long theirs will be. A number carries eight bytes.
    """
    lengths = exchange({j: np.array([float(len(message))]) for j in neighbours})
    _refuse_losses(neighbours, lengths)
    for j, length in lengths.items():
        if not 0 < length[0] <= most or length[0] % 1:  # NaN is not above anything
            raise ValueError(
                f"a message between peers must have 1 to {most:,} bytes here; peer {j} says {length[0]:g}."
            )
    replies = exchange({j: _as_numbers(message, max(len(message), int(lengths[j][0]))) for j in neighbours})
    _refuse_losses(neighbours, replies)
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


def _refuse_losses(neighbours: Sequence[int], heard: Any) -> None:
    lost = [j for j in neighbours if j not in heard]
    if lost:
        raise ValueError(f"a fit needs every site to the end; peer {lost[0]} is lost. Start again without it.")
