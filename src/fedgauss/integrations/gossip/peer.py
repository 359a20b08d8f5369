"""One peer of a gossip network: its own steps, what it exchanges with its neighbours, and what it makes of it."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._random import Key, Noise, stage_key
from fedgauss._types import FloatArray, JaxArray
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.engine.loop import Start, resolve_start
from fedgauss.integrations.gossip import messages
from fedgauss.integrations.gossip.neighbourhood import Neighbourhood
from fedgauss.networks import Network
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
    lost = dict.fromkeys(silent, 0)
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
        if on_round is not None:
            on_round(PeerRound(step, began, mine.sent, column.theta[:, 0], taken, silent + missed, verdict))
        silent = ()
    return PeerRun(client, column.theta[:, 0], chain.theta.T, neighbours, lost, members, around.monitor, alarm)


def _warn_of(faults: Mapping[int, str]) -> None:
    for neighbour, words in faults.items():
        if words:
            warnings.warn(f"Peer {neighbour} is let go: {words}", _checks.FedgaussWarning, stacklevel=3)


class PeerColumn:
    """One client's column of Theta, (d, R): it makes steps by itself, and is mixed with those of others.

    Its random numbers are those that `simulate` gives this client.
    """

    def __init__(self, problem: Problem, client: int, eta: FloatArray, seed: int, theta: FloatArray) -> None:
        self.theta, self._problem, self._client = theta, problem, np.int32(client)
        self._eta, self._key, self._step = np.asarray(eta, np.float32), stage_key(seed, "data"), 0
        self.advance(0)  # compiles, so that nobody waits for it later

    def advance(self, step: int) -> None:
        """Make the steps up to this one."""
        if self.theta.size:
            start = np.asarray(self.theta, np.float32)  # the engine's precision
            bounds = np.int32(self._step), np.int32(step)
            moved = _local_steps(self._problem, self._key, self._client, start, self._eta, *bounds)
            self.theta = np.asarray(moved, dtype=float)
        self._step = step

    def mix(self, shares: Mapping[int, float], others: Mapping[int, FloatArray]) -> None:
        """theta_k <- (1 - sum_j c_kj) theta_k + sum_j c_kj theta_j."""
        self.theta = self.theta + sum(shares[j] * (theirs - self.theta) for j, theirs in others.items())


@jax.jit
def _local_steps(
    problem: Problem, key: Key, client: JaxArray, theta: JaxArray, eta: JaxArray, done: JaxArray, until: JaxArray
) -> JaxArray:
    """theta_t = theta_{t-1} - eta_t K w_k grad f_k(theta_{t-1}, xi_t) for t = done + 1, ..., until; theta is (d, R).

    Draws are a function of (seed, step, client, replicate). They are made for all clients, and this one's column is
    taken: a little work for nothing, and any problem will do.
    """
    dim, replicates = theta.shape
    noise = Noise(key, jnp.uint32(0), problem.n_clients, replicates)

    def step(t: JaxArray, theta: JaxArray) -> JaxArray:
        data = problem.sample(noise.at_step(t), t)
        everywhere = jnp.broadcast_to(theta[:, None], (dim, problem.n_clients, replicates))
        scale = eta[t - 1] * problem.n_clients * jnp.asarray(problem.weights)
        return theta - scale[client] * problem.gradient(everywhere, data)[:, client]

    return lax.fori_loop(done + 1, until + 1, step, theta)


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
