"""A man in the middle: an honest network, one edge of which carries forged messages."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.networks.network import Network
from fedgauss.networks.random_network import need_unchanging


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TamperedNetwork(Network):
    """An honest network with a man in the middle on one edge: see `man_in_the_middle`.

    C is that of the honest network, and so is everything computed from it. Only a run is affected by the forger.
    """

    honest: Network
    source: int
    target: int
    start: int
    factor: float
    shift: FloatArray  # () or (d,)

    def __post_init__(self) -> None:
        """C has been checked with the honest network."""

    @property
    def weight(self) -> float:
        """C_{source, target}: the weight of the message in the target's average."""
        return _weight(self.honest, self.source, self.target)

    def repeated(self, times: int) -> Network:
        """Not for forged messages, which pass an edge at one of the rounds of mixing: repeat the honest network first.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError(
            f"a network must be repeated before its messages are forged; got repeated({times}) of a tampered one. "
            f"Use man_in_the_middle(network.repeated({times}), ...)?"
        )

    def __str__(self) -> str:
        return f"{self.honest}; messages from {self.source} to {self.target} are forged from step {self.start} on"


def man_in_the_middle(
    network: Network, source: int, target: int, start: int, factor: float = 1.0, shift: float | ArrayLike = 0.0
) -> TamperedNetwork:
    """Forge the messages on one edge: `target` receives factor * theta_source + shift instead of theta_source.

        theta_target <- sum_k C_{k, target} theta_k + C_{source, target} ((factor - 1) theta_source + shift)

    Clients and their data stay honest, so theory and monitors are those of `network`. To forge several edges, apply
    this again to the result.

    Parameters
    ----------
    network : Network
        The honest network.
    source, target : int
        Two clients that average with each other. Messages in the other direction, and the source's own iterate, stay
        honest.
    start : int
        The first step at whose synchronisation messages are forged.
    factor : float
        Multiplies what the source sent.
    shift : float or array of shape (d,)
        Added to it: one number for all coordinates, or one for each.

    Returns
    -------
    TamperedNetwork
    """
    if not isinstance(network, Network):
        raise ValueError(
            f"network must be made by fedgauss.networks; got {type(network).__name__}. Use networks.from_matrix(...)?"
        )
    need_unchanging("man_in_the_middle", network)
    source, target = _edge(network, source, target)
    start = _checks.step_number("start", start)
    factor, shift = _checks.real("factor", factor), _checks.real_array("shift", shift)
    if shift.ndim > 1:
        raise ValueError(f"shift must be a number or a vector with one entry per parameter; got shape {shift.shape}.")
    return TamperedNetwork(
        network.name,
        network.sparse,
        network.uniform,
        honest=network,
        source=source,
        target=target,
        start=start,
        factor=factor,
        shift=shift,
    )


def _edge(network: Network, source: Any, target: Any) -> tuple[int, int]:
    """Two clients that average with each other and whose messages are not forged yet."""
    last = network.n_clients - 1
    fix = f"Clients are numbered 0 to {last}."
    source, target = (
        _checks.whole(name, k, at_least=0, at_most=last, fix=fix)
        for name, k in (("source", source), ("target", target))
    )
    if source == target:
        raise ValueError(
            f"source and target must differ, since client {source} sends itself no message; got {source} twice. "
            "For a malicious client, use an attack of fedgauss.problems?"
        )
    if _weight(network, source, target) == 0.0:
        near = np.setdiff1d(network.sparse[[source], :].tocoo().coords[1], [source])
        listed = ", ".join(str(k) for k in near[:10]) + (", ..." if len(near) > 10 else "")
        raise ValueError(
            f"source and target must average with each other; clients {source} and {target} do not. "
            f"Client {source} averages with {listed}."
        )
    inner = network
    while isinstance(inner, TamperedNetwork):
        if (inner.source, inner.target) == (source, target):
            raise ValueError(
                f"an edge can have only one man in the middle; messages from {source} to {target} are already forged "
                f"from step {inner.start} on. Apply man_in_the_middle to the network without that."
            )
        inner = inner.honest
    return source, target


def _weight(network: Network, source: int, target: int) -> float:
    return float(network.sparse[source, target]) + network.uniform / network.n_clients
