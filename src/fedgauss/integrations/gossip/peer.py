"""One peer of a gossip network: its own steps, what it exchanges with its neighbours, and what it makes of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._random import Noise, stage_key
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.engine.loop import Start, resolve_start
from fedgauss.integrations.gossip.local_steps import PeerColumn, own_surrogate
from fedgauss.integrations.gossip.messages import (
    Message,
    Settings,
    fault,
    introduction,
    neighbourhood_linearization,
    summary,
    summary_in,
    unpacked,
)
from fedgauss.integrations.gossip.neighbourhood import Neighbourhood
from fedgauss.integrations.gossip.shares import neighbours_of, shares
from fedgauss.networks import Network
from fedgauss.problems.base import Problem
from fedgauss.step_sizes import StepSizes, as_step_sizes

# Sends each neighbour its array and returns theirs, of the same length; a neighbour that is lost is missing. One that
# was heard before and is left out is told that this peer is lost to it.
Exchange = Callable[[Mapping[int, FloatArray]], dict[int, FloatArray]]

_NO_MESSAGE = (
    "a message must be of finite numbers, as many as this peer sends, with a number of neighbours first; it is not."
)


@dataclass(frozen=True)
class PeerRound:
    """A round as a peer saw it.

    Attributes
    ----------
    step : int
        The last step of it.
    began, sent, theta : (d,) arrays
        Its parameter when the round began, before mixing, and after it.
    shares : dict
        c_kj of each neighbour that was heard; the rest of 1 is its column.
    lost : tuple of int
        Neighbours that fell silent in this round, or sent what no honest peer sends; in the first round also those that
        did so before it.
    verdict : Verdict
        Of its monitor.
    """

    step: int
    began: FloatArray
    sent: FloatArray
    theta: FloatArray
    shares: dict[int, float]
    lost: tuple[int, ...]
    verdict: Verdict


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
        Of the neighbourhood.
    alarm : Verdict or None
        The first alarm.
    """

    client: int
    theta: FloatArray
    chains: FloatArray
    neighbours: tuple[int, ...]
    lost: dict[int, int]
    members: tuple[int, ...]
    monitor: Monitor
    alarm: Verdict | None


def run_peer(
    client: int,
    problem: Problem,
    network: Network,
    steps: StepSizes | ArrayLike,
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
) -> PeerRun:
    """PeerColumn `client` of Theta_t = (Theta_{t-1} - eta_t G_t) C_t, with C made by exchanges with neighbours.

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
        zero, with Z^k drawn from this peer's own covariance, which the chains show to nobody.
    alpha : float
        Of this peer's monitor, over n_steps.
    on_round : callable, optional
        Called with a `PeerRound` after every round.

    Returns
    -------
    PeerRun
    """
    neighbours = neighbours_of(client, network)
    tau, n_steps = _checks.whole("sync_every", sync_every), _checks.step_number("n_steps", n_steps)
    if n_steps % tau:
        raise ValueError(
            f"n_steps must be a multiple of sync_every = {tau}; got {n_steps}. Use {n_steps // tau * tau}?"
        )
    eta = np.asarray(as_step_sizes(steps).eta(n_steps), dtype=np.float64)
    if eta.ndim != 1:
        raise ValueError("steps must be the same for all peers, or none could watch another; got one for each.")
    theta_0 = _starts(problem, start, seed)
    column = PeerColumn(problem, client, eta, seed, theta_0[client][:, None])
    n_chains = _checks.whole("chains", chains, at_least=0)
    chain = PeerColumn(own_surrogate(lin, client), client, eta, seed, np.zeros((problem.dim, n_chains)))

    settings = Settings(problem.n_clients, problem.dim, n_chains, n_steps, tau)
    first = introduction(settings, summary(lin, client))
    came = exchange(dict.fromkeys(neighbours, first))
    faults = {j: fault(theirs, first, settings, eta) for j, theirs in came.items()}
    _warn_of(faults)
    summaries = {j: summary_in(theirs) for j, theirs in {client: first, **came}.items() if not faults.get(j)}
    members = tuple(sorted(summaries))
    around = Neighbourhood(
        members,
        neighbourhood_linearization([summaries[member] for member in members], lin),
        eta * problem.n_clients * np.mean([summaries[member][0] for member in members]),
        tau,
        alpha,
        theta_0[list(members)],
    )
    silent = tuple(neighbour for neighbour in neighbours if neighbour not in members)
    neighbours = tuple(member for member in members if member != client)
    lost = dict.fromkeys(silent, 0)
    alarm: Verdict | None = None
    for step in range(tau, n_steps + 1, tau):
        began = column.theta[:, 0]
        column.advance(step)
        chain.advance(step)
        mine = Message(max(len(neighbours), 1), column.theta[:, 0], began, chain.theta)
        heard = exchange(dict.fromkeys(neighbours, mine.packed()))
        told = {j: unpacked(values, problem.dim, n_chains, problem.n_clients) for j, values in heard.items()}
        faults = {j: _NO_MESSAGE if m is None else around.fault(m) for j, m in told.items()}
        _warn_of(faults)
        said = {j: m for j, m in told.items() if m is not None and not faults[j]}
        taken = shares(mine.degree, {j: m.degree for j, m in said.items()})
        column.mix(taken, {j: m.sent[:, None] for j, m in said.items()})
        chain.mix(taken, {j: m.chains for j, m in said.items()})

        present = {client: mine, **said}
        began_at, sent_by = {j: m.began for j, m in present.items()}, {j: m.sent for j, m in present.items()}
        verdict = around.update(began_at, sent_by, step)
        alarm = verdict if alarm is None and verdict.alarm else alarm
        missed = tuple(neighbour for neighbour in neighbours if neighbour not in said)
        neighbours = tuple(neighbour for neighbour in neighbours if neighbour in said)
        lost |= dict.fromkeys(missed, step)
        if on_round is not None:
            on_round(PeerRound(step, began, mine.sent, column.theta[:, 0], taken, silent + missed, verdict))
        silent = ()
    return PeerRun(client, column.theta[:, 0], chain.theta.T, neighbours, lost, members, around.monitor, alarm)


def _warn_of(faults: Mapping[int, str]) -> None:
    for neighbour, words in faults.items():
        if words:
            warnings.warn(f"Peer {neighbour} is let go: {words}", _checks.FedgaussWarning, stacklevel=3)


def _starts(problem: Problem, start: Start, seed: int) -> FloatArray:
    """Theta_0 as `simulate` has it, (K, d). Where it is drawn every peer can draw that of its neighbours."""
    noise = Noise(stage_key(seed, "start"), jnp.uint32(0), problem.n_clients, 1)
    return np.asarray(resolve_start(start, problem, 1).theta(noise, problem.dim), dtype=np.float64)[:, :, 0].T
