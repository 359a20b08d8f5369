"""One peer of a gossip network: its own steps, what it exchanges with its neighbours, and what it makes of it."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._random import Noise, stage_key
from fedgauss._types import FloatArray
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.engine.loop import Start, resolve_start
from fedgauss.integrations.gossip import messages
from fedgauss.integrations.gossip.column import PeerColumn
from fedgauss.integrations.gossip.healing import Healing
from fedgauss.integrations.gossip.neighbourhood import Neighbourhood
from fedgauss.networks import Network
from fedgauss.networks.random_network import need_unchanging
from fedgauss.problems.base import Problem
from fedgauss.problems.combine import GaussianSurrogate, gaussian_surrogate
from fedgauss.step_sizes import Steps, as_step_sizes

# Sends each neighbour its array and returns theirs, of the same length; a neighbour that is lost is missing. One that
# was heard before and is left out is told that this peer is lost to it.
Exchange = Callable[[Mapping[int, FloatArray]], dict[int, FloatArray]]

_NO_MESSAGE = "a message must have as many finite numbers as this peer's, a number of neighbours first; it has not."


@dataclass(frozen=True)
class PeerRound:
    """A round as a peer saw it.

    Attributes
    ----------
    step : int
        The last step of it.
    began, sent, theta : (d,) arrays
        Its parameter when the round began, before mixing, and after it; after a round in which neighbours were left
        out, the one that it went back to.
    shares : dict
        c_kj of each neighbour that it mixed with; the rest of 1 is its column.
    lost : tuple of int
        Neighbours that fell silent in this round, or sent what no honest peer sends; in the first round also those that
        did so before it.
    verdict : Verdict
        Of its monitor.
    excluded : tuple of int
        Neighbours that were left out after this round, since it named them.
    """

    step: int
    began: FloatArray
    sent: FloatArray
    theta: FloatArray
    shares: dict[int, float]
    lost: tuple[int, ...]
    verdict: Verdict
    excluded: tuple[int, ...]


@dataclass(frozen=True)
class PeerRun:
    """Where a peer ended.

    Attributes
    ----------
    client : int
        Its number.
    theta : (d,) array
        Its parameter.
    chains : (R, d) array
        Its column of the Client-GA chains: draws of where theta - theta* may be.
    neighbours : tuple of int
        Those that were left at the end.
    lost : dict
        The step at which others were lost, by neighbour; 0 for those that were never in the neighbourhood.
    members : tuple of int
        The neighbourhood at the start, in the order of the monitor's clients.
    monitor : Monitor
        Of the neighbourhood; it began anew whenever neighbours were left out.
    alarm : Verdict or None
        The first alarm.
    excluded : dict
        The step after which a neighbour was left out, since this peer named it.
    """

    client: int
    theta: FloatArray
    chains: FloatArray
    neighbours: tuple[int, ...]
    lost: dict[int, int]
    members: tuple[int, ...]
    monitor: Monitor
    alarm: Verdict | None
    excluded: dict[int, int]


def run_peer(
    client: int,
    problem: Problem,
    network: Network,
    steps: Steps,
    n_steps: int,
    exchange: Exchange,
    lin: Linearization,
    *,
    sync_every: int = 20,
    seed: int = 0,
    start: Start = "zeros",
    chains: int = 0,
    alpha: float = 0.05,
    on_round: Callable[[PeerRound], None] | None = None,
    on_alarm: Literal["go on", "exclude"] = "go on",
    at_most: int | None = None,
) -> PeerRun:
    """Column `client` of Theta_t = (Theta_{t-1} - eta_t G_t) C_t, with C made by exchanges with neighbours.

    All peers are started with the same arguments but `client` and `exchange`, and then make the iterates of `simulate`
    with this seed. Of `lin` a peer uses its own row, which it tells its neighbours at the start; the point at which
    rows were taken, `lin.optimum`; and for chains the Hessian A that all agree on.

    Parameters
    ----------
    client : int
        The number of this peer.
    problem, network, steps, start, seed
        As in `simulate`. The network must have Metropolis weights; when neighbours are lost, Metropolis weights on
        what is left are used.
    n_steps : int
        A multiple of sync_every.
    exchange : callable
        `TorchLinks(...).exchange`.
    lin : Linearization
        Of all clients, as far as this peer knows them.
    chains : int
        How many Client-GA chains peers carry along: Theta_t = ((I - eta_t A) Theta_{t-1} + eta_t K w_k Z^k) C_t from
        zero, with Z^k drawn from this peer's own covariance. Neighbours see the chains before mixing.
    alpha : float
        Of this peer's monitor, over n_steps.
    on_round : callable, optional
        Called with a `PeerRound` after every round.
    on_alarm : {"go on", "exclude"}
        "go on" tells of it, and changes nothing. "exclude" asks the monitor who it was 100 steps after an alarm, and if
        it names nobody again after 200, 400 and so on; goes on without the neighbours that are named, from this peer's
        parameter and chains before the onset; and watches those who are left with a fresh alpha. Peers may differ in
        it.
    at_most : int, optional
        With "exclude", how many neighbours may be left out in all; by default fewer than half of the neighbourhood,
        this peer included. A warning tells of names that would be more, of whom none is left out, and of a peer that
        names itself.

    Returns
    -------
    PeerRun

    Notes
    -----
    Who is left out is told that this peer is lost to it, so it does not wait, and goes on with whom it has left. Its
    share goes to this peer itself in the round of its exclusion; from the next on weights are Metropolis weights on the
    graph without the edge.

    Going back is this peer's alone. Nobody else is asked to: a neighbour that has not noticed, or notices later, sends
    what the attack made of its parameter, and honest steps have to work that off. Steps are counted on, with eta_t as
    it is by then. After an alarm the share of names that are wrong is meant to be a tenth at most: see
    `Monitor.suspects`, whose rate is divided among the times that it is asked.

    With "exclude" a peer keeps its parameter and chains of every round since it began to watch.
    """
    if on_alarm not in ("go on", "exclude"):
        raise ValueError(f"on_alarm must be 'go on' or 'exclude'; got {on_alarm!r}.")
    if at_most is not None and on_alarm != "exclude":
        raise ValueError("at_most must be left out unless on_alarm is 'exclude': nobody is left out otherwise.")
    neighbours = neighbours_of(client, network)
    tau, n_steps = _checks.whole("sync_every", sync_every), _checks.step_number("n_steps", n_steps)
    if n_steps % tau:
        raise ValueError(
            f"n_steps must be a multiple of sync_every = {tau}; got {n_steps}. Use {n_steps // tau * tau}?"
        )
    eta = np.asarray(as_step_sizes(steps).eta(n_steps), dtype=float)
    if eta.ndim != 1:
        raise ValueError("steps must be the same for all peers, or none could watch another; got one for each.")
    # Theta_0 as `simulate` has it, (K, d). Where it is drawn every peer can draw that of its neighbours.
    noise = Noise(stage_key(seed, "start"), jnp.uint32(0), problem.n_clients, 1)
    theta_0 = np.asarray(resolve_start(start, problem, 1).theta(noise, problem.dim), dtype=float)[:, :, 0].T
    column = PeerColumn(problem, client, eta, seed, theta_0[client][:, None])
    n_chains = _checks.whole("chains", chains, at_least=0)
    chain = PeerColumn(own_surrogate(lin, client), client, eta, seed, np.zeros((problem.dim, n_chains)))

    settings = messages.Settings(problem.n_clients, problem.dim, n_chains, n_steps, tau)
    first = messages.introduction(settings, messages.summary(lin, client))
    came = exchange(dict.fromkeys(neighbours, first))
    faults = {j: messages.fault(theirs, first, settings, eta) for j, theirs in came.items()}
    _warn_of(faults)
    summaries = {j: messages.summary_in(theirs) for j, theirs in {client: first, **came}.items() if not faults.get(j)}
    members = tuple(sorted(summaries))
    around = Neighbourhood(
        members,
        messages.neighbourhood_linearization([summaries[member] for member in members], lin),
        eta * problem.n_clients * np.mean([summaries[member][0] for member in members]),
        tau,
        alpha,
        theta_0[list(members)],
    )
    silent = tuple(neighbour for neighbour in neighbours if neighbour not in members)
    neighbours = tuple(member for member in members if member != client)
    lost, excluded = dict.fromkeys(silent, 0), dict[int, int]()
    healing = Healing(client, around, (column, chain), at_most) if on_alarm == "exclude" else None
    alarm: Verdict | None = None
    for step in range(tau, n_steps + 1, tau):
        began = column.theta[:, 0]
        column.advance(step)
        chain.advance(step)
        mine = messages.Message(max(len(neighbours), 1), column.theta[:, 0], began, chain.theta)
        heard = exchange(dict.fromkeys(neighbours, mine.packed()))
        told = {j: messages.unpacked(values, problem.dim, n_chains, problem.n_clients) for j, values in heard.items()}
        faults = {j: _NO_MESSAGE if m is None else around.fault(m) for j, m in told.items()}
        _warn_of(faults)
        said = {j: m for j, m in told.items() if m is not None and not faults[j]}
        taken = shares(mine.degree, {j: m.degree for j, m in said.items()})
        column.mix(taken, {j: m.sent[:, None] for j, m in said.items()})
        chain.mix(taken, {j: m.chains for j, m in said.items()})

        verdict = around.update({client: mine, **said}, step)
        alarm = verdict if alarm is None and verdict.alarm else alarm
        missed = tuple(neighbour for neighbour in neighbours if neighbour not in said)
        neighbours = tuple(neighbour for neighbour in neighbours if neighbour in said)
        lost |= dict.fromkeys(missed, step)
        named = () if healing is None else healing.after(verdict)
        if named:
            taken = {}  # what mixing made is gone
            neighbours = tuple(neighbour for neighbour in neighbours if neighbour not in named)
            excluded |= dict.fromkeys(named, step)
        if on_round is not None:
            on_round(PeerRound(step, began, mine.sent, column.theta[:, 0], taken, silent + missed, verdict, named))
        silent = ()
    return PeerRun(
        client, column.theta[:, 0], chain.theta.T, neighbours, lost, members, around.monitor, alarm, excluded
    )


def _warn_of(faults: Mapping[int, str]) -> None:
    for neighbour, words in faults.items():
        if words:
            warnings.warn(f"Peer {neighbour} is let go: {words}", _checks.FedgaussWarning, stacklevel=3)


def own_surrogate(lin: Linearization, client: int) -> GaussianSurrogate:
    """The surrogate problem of Client-GA as far as this peer knows it: without the covariances of others."""
    covariances = np.zeros_like(lin.client_noise_cov)
    covariances[client] = lin.client_noise_cov[client]
    return gaussian_surrogate(replace(lin, client_noise_cov=covariances), stream="client")


def shares(degree: int, degrees: Mapping[int, int]) -> dict[int, float]:
    """c_ij = 1 / (1 + max(deg_i, deg_j)) for each neighbour j that was heard; peer i keeps 1 - sum_j c_ij of its own.

    The degrees are those that both ends of an edge have just sent each other, so both come to the same c_ij: C is
    symmetric in every round where two peers hear each other or neither does, and its rows sum to 1 in any. A neighbour
    that fell silent leaves its share with peer i for this round, since deg_i still counts it; from the next on deg_i
    does not, and weights are Metropolis weights on the graph of survivors.
    """
    return {neighbour: 1.0 / (1.0 + max(degree, theirs)) for neighbour, theirs in degrees.items()}


def neighbours_of(client: int, network: Network) -> tuple[int, ...]:
    """Whom a peer talks to, after a check that C has Metropolis weights: others could not be agreed on by two peers."""
    k = _checks.whole("client", client, at_least=0, at_most=network.n_clients - 1)
    need_unchanging("gossip between processes", network)
    linked = (network.matrix > 0.0) & ~np.eye(network.n_clients, dtype=np.bool_)
    degree = linked.sum(axis=1)
    wanted = linked / (1.0 + np.maximum(degree, degree[:, None]))
    i, j = np.unravel_index(np.argmax(np.abs(np.where(linked, network.matrix, 0.0) - wanted)), wanted.shape)
    if not np.isclose(network.matrix[i, j], wanted[i, j], rtol=1e-6) and i != j:
        raise ValueError(
            "gossip needs Metropolis weights, c_ij = 1 / (1 + max(deg_i, deg_j)), so that survivors can share out the "
            f"weight of a lost peer; {network.name} has c_{i}{j} = {network.matrix[i, j]:.3g} and not "
            f"{wanted[i, j]:.3g}. Use networks.ring, path, star, torus, complete or from_graph?"
        )
    return tuple(int(neighbour) for neighbour in np.flatnonzero(linked[k]))
